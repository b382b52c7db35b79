//! Who has the device to himself, and what waits meanwhile.

use crate::engine::Engine;
use crate::engine::command::Outbox;
use crate::message::{Body, Envelope, LeaseId};
use crate::reply::Reply;
use std::collections::VecDeque;

/// The hold of a device: free, being cleared for a holder, or held.
#[derive(Debug, Default)]
enum State {
    #[default]
    Free,
    /// Work that was sent before comes to its end first.
    Clearing(LeaseId, Reply<()>),
    Held(LeaseId),
}

/// The hold, and the messages of others in their order: the next asker among them.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    state: State,
    waiting: VecDeque<Envelope>,
}

impl Lease {
    /// Lets a message through, or keeps it until the device is free.
    pub(crate) fn admit(&mut self, envelope: Envelope) -> Option<Envelope> {
        let through = match self.state {
            State::Free => self.waiting.is_empty(),
            State::Clearing(..) => false,
            State::Held(holder) => {
                envelope.lease == Some(holder) || matches!(envelope.body, Body::LeaseEnd { lease } if lease == holder)
            }
        };
        if through {
            return Some(envelope);
        }
        self.waiting.push_back(envelope);
        None
    }

    /// Somebody asks and is let through: work that was sent before comes to its end, then `grant` answers.
    pub(crate) fn ask(&mut self, lease: LeaseId, reply: Reply<()>) {
        assert!(matches!(self.state, State::Free), "asked while {:?}", self.state);
        self.state = State::Clearing(lease, reply);
    }

    /// Whether somebody waits for the device to become idle.
    pub(crate) fn is_clearing(&self) -> bool {
        matches!(self.state, State::Clearing(..))
    }

    /// The device is idle: whoever waits for that holds it now, or if he is gone it is free.
    pub(crate) fn grant(&mut self) {
        match std::mem::take(&mut self.state) {
            State::Clearing(_, reply) if reply.is_abandoned() => {}
            State::Clearing(lease, reply) => {
                self.state = State::Held(lease);
                reply.send(());
            }
            other => self.state = other,
        }
    }

    /// The device is given back.
    pub(crate) fn end(&mut self, lease: LeaseId) {
        if matches!(self.state, State::Held(holder) if holder == lease) {
            self.state = State::Free;
        }
    }

    /// The next message that waited, while the device is free.
    pub(crate) fn next(&mut self) -> Option<Envelope> {
        if matches!(self.state, State::Free) { self.waiting.pop_front() } else { None }
    }

    /// Whether nobody holds the device and nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, State::Free) && self.waiting.is_empty()
    }
}

impl Engine {
    /// Lets the next holder in once everything sent before is done.
    pub(super) fn clear_for_lease(&mut self, out: &mut Outbox) {
        if self.lease.is_clearing() {
            self.submit(out);
            if self.held.is_empty() && self.timeline.is_idle() {
                self.lease.grant();
                self.let_in(out);
            }
        }
    }

    /// The holder gives the device back.
    pub(super) fn end_lease(&mut self, lease: LeaseId, out: &mut Outbox) {
        self.lease.end(lease);
        self.let_in(out);
    }

    /// Carries out what waited for the device, up to the next holder.
    pub(super) fn let_in(&mut self, out: &mut Outbox) {
        // An asker among them must be heard before the next is let in.
        while !self.awaiting_page
            && let Some(envelope) = self.lease.next()
        {
            self.client(envelope, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::StreamId;
    use crate::reply::reply;

    fn message(lease: Option<u64>, body: Body) -> Envelope {
        Envelope { lease: lease.map(LeaseId), stream: StreamId::DEFAULT, body }
    }

    fn other(n: u64) -> Envelope {
        message(None, Body::Release { buffer: crate::id::BufferId(n) })
    }

    #[test]
    fn others_wait_in_their_order_while_one_holds() {
        let mut lease = Lease::default();
        let (send, answer) = reply();
        assert!(lease.admit(other(1)).is_some());
        lease.ask(LeaseId(7), send);
        assert!(lease.admit(message(Some(7), Body::Stop)).is_none(), "not before it is granted");
        assert!(lease.next().is_none(), "nothing is let out");
        lease.grant();
        assert!(crate::wait::block_on(answer.wait()).is_ok());
        assert!(lease.admit(message(Some(7), Body::Stop)).is_some());
        assert!(lease.admit(message(Some(8), Body::Stop)).is_none());
        assert!(lease.admit(other(2)).is_none());
        lease.end(LeaseId(8));
        assert!(lease.next().is_none(), "only the holder gives it back");
        lease.end(LeaseId(7));
        assert!(matches!(lease.next().map(|e| e.lease), Some(Some(LeaseId(7)))));
        assert!(lease.admit(other(3)).is_none(), "behind those that waited");
        assert!(lease.next().is_some() && lease.next().is_some() && lease.next().is_some());
        assert!(lease.is_idle());
    }

    #[test]
    fn a_holder_that_is_gone_frees_the_device() {
        let mut lease = Lease::default();
        let (send, answer) = reply();
        lease.ask(LeaseId(1), send);
        drop(answer);
        lease.grant();
        assert!(lease.is_idle());
    }
}
