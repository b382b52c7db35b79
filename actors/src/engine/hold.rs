//! Messages that cannot be carried out yet, and what they hold up.
//!
//! A launch waits for its kernel, a write for its bytes, a reservation for memory in flight. What names the same
//! buffers waits behind them, and what comes later on the stream of a held launch too; everything else goes on.

use crate::engine::command::{Outbox, PipelineId, TimelineValue};
use crate::engine::{Engine, Parked};
use crate::id::{BufferId, StreamId};
use crate::message::{Body, BufferRange, Count, Envelope, GraphCall};

/// What a message waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Bytes from outside. It holds up its buffer and not its stream.
    Arrival(u64),
    /// Other held messages.
    Behind,
    /// Copies beside the actor, until fewer than this many are going on. What waits is the rest of the upload that
    /// they belong to, so they do not hold it up.
    Fills(usize),
    /// A kernel.
    Kernel(PipelineId),
    /// Memory that the device still uses, until the timeline is there. It holds up its buffer and, but for a launch,
    /// not its stream.
    Memory(TimelineValue),
}

impl Reason {
    /// Whether what comes later on the stream waits too.
    fn holds_stream(self) -> bool {
        match self {
            Self::Behind | Self::Kernel(_) => true,
            Self::Arrival(_) | Self::Fills(_) | Self::Memory(_) => false,
        }
    }
}

/// A held message.
#[derive(Debug)]
pub(crate) struct Held {
    /// The message.
    pub(crate) envelope: Envelope,
    /// Why.
    pub(crate) reason: Reason,
}

impl Held {
    /// Whether what comes later on the stream waits too.
    pub(crate) fn holds_stream(&self) -> bool {
        // What gives something back, and what waits for bytes to come, concern the buffers that they name alone.
        let apart = matches!(
            self.envelope.body,
            Body::Receive { .. } | Body::Release { .. } | Body::Graph(GraphCall::Drop { .. })
        );
        // A launch has its place in the window that is open on its stream, whatever it waits for.
        let is_launch = matches!(self.envelope.body, Body::Launch(_));
        (is_launch || self.reason.holds_stream()) && !apart
    }
}

impl Engine {
    fn is_blocked(&self, envelope: &Envelope) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let body = &envelope.body;
        waits_for_all(body)
            || (keeps_stream_order(body) && self.streams.get(&Self::place(envelope)).is_some_and(|s| s.holds > 0))
            || names(body, |id| self.buffers.get(id).is_some_and(|b| b.holds > 0))
            || (matches!(body, Body::Profile(_)) && self.is_held_up(Self::place(envelope)))
    }

    /// Whether anything of the stream is held. A window begins and ends behind what was sent before it, bytes on
    /// their way included.
    fn is_held_up(&self, stream: StreamId) -> bool {
        self.held.iter().any(|held| Self::place(&held.envelope) == stream)
    }

    pub(super) fn hold(&mut self, envelope: Envelope, reason: Reason) {
        if let Body::Reserve { buffer, size, holder, .. } = envelope.body {
            // What names it later must find that it is held up.
            self.buffers.place(buffer, None, size, envelope.stream, holder);
        }
        let held = Held { envelope, reason };
        self.mark(&held, true);
        self.held.push(held);
    }

    fn mark(&mut self, held: &Held, on: bool) {
        let step = |count: &mut u32| *count = if on { *count + 1 } else { *count - 1 };
        if held.holds_stream() {
            step(&mut self.stream(Self::place(&held.envelope)).holds);
        }
        let Self { buffers, graphs, .. } = self;
        let mut mark = |id| {
            if let Some(buffer) = buffers.get_mut(id) {
                step(&mut buffer.holds);
            }
            false
        };
        names(&held.envelope.body, &mut mark);
        if let Body::Graph(GraphCall::Replay { graph, .. }) = &held.envelope.body
            && let Some(graph) = graphs.get(graph)
        {
            // Neither changes while it is held: what changes or drops a graph waits for all that is held.
            graph.buffers.iter().for_each(|id| {
                mark(*id);
            });
        }
    }

    /// Something that messages wait for has come: carries out those that can go, in their order.
    pub(super) fn resume(&mut self, out: &mut Outbox) {
        if self.held.is_empty() {
            return;
        }
        let held = std::mem::take(&mut self.held);
        for one in &held {
            self.mark(one, false);
        }
        for one in held {
            self.reconsider(one, out);
        }
        self.clear_for_lease(out);
    }

    /// Carries a message out if what it waits for is there, and holds it up otherwise.
    pub(super) fn reconsider(&mut self, one: Held, out: &mut Outbox) {
        if self.awaiting_page {
            self.parked.push_back(Parked::Behind(one));
            return;
        }
        let waits = match one.reason {
            Reason::Arrival(token) => self.arrivals.get(&token).is_some_and(Option::is_none),
            Reason::Behind => false,
            Reason::Fills(below) => self.fills.len() >= below,
            Reason::Kernel(pipeline) => self.kernels.is_compiling(pipeline),
            Reason::Memory(value) => self.timeline.reached() < value && self.lost.is_none(),
        };
        let is_rest = matches!(one.reason, Reason::Fills(_));
        if waits || (!is_rest && self.is_blocked(&one.envelope)) {
            self.hold(one.envelope, one.reason);
            return;
        }
        match one.reason {
            Reason::Arrival(token) => self.arrived(token, one.envelope, out),
            reason => self.perform(one.envelope, matches!(reason, Reason::Memory(_)), out),
        }
    }
}

/// Whether a message keeps its place behind everything held, whatever that names: a graph names many buffers, and
/// a replay of it may be held; a trace has all that was sent before its end.
pub(crate) fn waits_for_all(body: &Body) -> bool {
    let of_graph =
        |call: &GraphCall| matches!(call, GraphCall::Drop { .. } | GraphCall::Rebind { .. } | GraphCall::Replay { .. });
    matches!(body, Body::Sync { .. } | Body::Trace(_)) || matches!(body, Body::Graph(call) if of_graph(call))
}

/// Whether a message has a place in its stream, so that a held launch on it comes first. Questions about memory and
/// releases have none.
pub(crate) fn keeps_stream_order(body: &Body) -> bool {
    !matches!(
        body,
        Body::Cleanup { .. }
            | Body::LeaseAsk { .. }
            | Body::LeaseEnd { .. }
            | Body::Lend { .. }
            | Body::Record { .. }
            | Body::Release { .. }
            | Body::Report { .. }
            | Body::Stop
            | Body::TakeIn { .. }
            | Body::Usage { .. }
            | Body::Graph(GraphCall::Drop { .. })
    )
}

/// Calls `see` with each buffer that a message names, until it says true.
pub(crate) fn names(body: &Body, mut see: impl FnMut(BufferId) -> bool) -> bool {
    let mut range = |r: &BufferRange| see(r.buffer);
    match body {
        Body::Check { ranges, .. } | Body::Sync { ranges, .. } => ranges.iter().any(range),
        Body::Launch(launch) => {
            launch.buffers.iter().any(&mut range) || matches!(&launch.count, Count::Dynamic(counts) if range(counts))
        }
        Body::Copy { from, to, .. } => range(from) || range(to),
        Body::Read { parts, .. } => parts.iter().any(|(r, _)| range(r)),
        Body::Receive { to, .. } | Body::Write { to, .. } => range(to),
        Body::Release { buffer } | Body::Reserve { buffer, .. } => see(*buffer),
        Body::Resource { range: r, .. } | Body::Spoil { range: r, .. } => range(r),
        Body::Cleanup { .. }
        | Body::DryRun { .. }
        | Body::Flush { .. }
        | Body::Graph(_)
        | Body::Install { .. }
        | Body::LeaseAsk { .. }
        | Body::LeaseEnd { .. }
        | Body::Left
        | Body::Lend { .. }
        | Body::Mode(_)
        | Body::Profile(_)
        | Body::Record { .. }
        | Body::Report { .. }
        | Body::Stop
        | Body::TakeIn { .. }
        | Body::Trace(_)
        | Body::Usage { .. } => false,
    }
}
