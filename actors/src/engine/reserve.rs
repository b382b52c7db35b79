//! Reservations and releases, and what happens when memory runs out.

use crate::engine::command::{Action, Command, Outbox, Span};
use crate::engine::hazard::Access;
use crate::engine::hold::Reason;
use crate::engine::memory::{Shortage, Slice};
use crate::engine::observe::Work;
use crate::engine::{Capture, Engine, Parked};
use crate::error::{IoError, ServerError};
use crate::id::{BufferId, StreamId};
use crate::message::{Body, BufferRange, Envelope, LeaseId};
use crate::reply::Reply;

/// Who waits for the end of a reservation.
type Wait = Option<Reply<Result<(), ServerError>>>;

impl Engine {
    /// Reserves memory under a client's name.
    #[expect(clippy::too_many_arguments, reason = "the fields of one message, and where it comes from")]
    pub(super) fn reserve(
        &mut self,
        lease: Option<LeaseId>,
        stream: StreamId,
        buffer: BufferId,
        size: u64,
        wait: Wait,
        waited: bool,
        out: &mut Outbox,
    ) {
        if waited && self.buffers.get(buffer).is_none() {
            // The handle was dropped while the reservation waited for memory.
            return;
        }
        if let Err(error) = self.alive() {
            return self.deny(stream, buffer, size, wait, error);
        }
        if wait.is_some() && !self.hungry.is_empty() && !self.feeding {
            // First come, first served: a small one does not overtake a large one.
            self.buffers.place(buffer, None, size, stream);
            let body = Body::Reserve { buffer, size, wait };
            self.hungry.push_back(Envelope { lease, stream, body });
            return self.break_circle();
        }
        let dry = self.memory.is_dry(stream);
        let shared = if size == 0 { None } else { self.shared_in_window(stream, buffer, size) };
        let reserved = match (size, shared) {
            (0, _) => Ok(None),
            (_, Some(slice)) => Ok(Some(slice)),
            (_, None) => self.memory.reserve(stream, size).map(Some),
        };
        match reserved {
            Ok(slice) => {
                self.buffers.place(buffer, slice, size, stream);
                if shared.is_some() {
                    self.keep_with_window(stream, buffer);
                }
                if dry && slice.is_some() {
                    self.buffers.unback(buffer);
                } else if let Some(slice) = slice
                    && self.options.zero_memory
                {
                    self.zero(stream, slice, out);
                }
                if let Some(reply) = wait {
                    reply.send(Ok(()));
                }
            }
            Err(shortage) => {
                self.buffers.place(buffer, None, size, stream);
                let body = Body::Reserve { buffer, size, wait };
                self.short(Envelope { lease, stream, body }, shortage, waited, out);
            }
        }
    }

    /// A reservation fails: its buffer carries the failure for as long as it lives.
    fn deny(&mut self, stream: StreamId, buffer: BufferId, size: u64, wait: Wait, error: ServerError) {
        self.buffers.place(buffer, None, size, stream);
        self.buffers.fail(&BufferRange { buffer, offset: 0, size }, error.clone());
        if let Some(reply) = wait {
            reply.send(Err(error));
        }
    }

    /// Memory that a window's graph has already and nothing in the window uses any more.
    fn shared_in_window(&mut self, stream: StreamId, buffer: BufferId, size: u64) -> Option<Slice> {
        let window = self.streams.get_mut(&stream)?.capture.window()?;
        window.reserved.push(buffer);
        window.share(size)
    }

    /// The tape names the buffer's memory under an earlier name: the graph keeps it, launched on or not.
    fn keep_with_window(&mut self, stream: StreamId, id: BufferId) {
        let Some(window) = self.streams.get_mut(&stream).and_then(|state| state.capture.window()) else { return };
        if window.touch(id)
            && let Some(buffer) = self.buffers.get_mut(id)
        {
            buffer.owners += 1;
        }
    }

    fn zero(&mut self, stream: StreamId, slice: Slice, out: &mut Outbox) {
        let span = Span { size: slice.padded.next_multiple_of(4).min(slice.padded), ..slice.span };
        let work = |_: &Self| Work::Zero { bytes: span.size };
        self.emit(stream, &[Access::write(span)], out, work, |commands| commands.list.push(Command::Zero(span)));
    }

    /// The last handle of a reservation is gone.
    pub(super) fn release(&mut self, buffer: BufferId, out: &mut Outbox) {
        if self.give_to_window(buffer) {
            return;
        }
        self.disown(buffer);
        self.feed(out);
    }

    /// Inside a window, memory that was reserved in it is the graph's, and the next reservation may share it.
    fn give_to_window(&mut self, id: BufferId) -> bool {
        let Some(buffer) = self.buffers.get(id) else { return false };
        let Some(slice) = buffer.slice else { return false };
        let Some(state) = self.streams.get_mut(&buffer.stream) else { return false };
        let Capture::Recording(window) = &mut state.capture else { return false };
        let Some(at) = window.reserved.iter().position(|reserved| *reserved == id) else { return false };
        window.reserved.swap_remove(at);
        window.owned.push(slice);
        window.buffers.retain(|touched| *touched != id);
        self.buffers.remove(id);
        true
    }

    /// One owner less; the last gives the memory back. Later work on the queue may use it at once.
    pub(super) fn disown(&mut self, id: BufferId) {
        let Some(buffer) = self.buffers.get_mut(id) else { return };
        buffer.owners -= 1;
        if buffer.owners == 0
            && let Some(slice) = self.buffers.remove(id).and_then(|b| b.slice)
        {
            self.memory.release(slice.id);
        }
    }

    /// A message needs memory that is not there.
    pub(super) fn short(&mut self, envelope: Envelope, shortage: Shortage, waited: bool, out: &mut Outbox) {
        match shortage {
            Shortage::Page { page, bytes, kind } => {
                out.actions.push(Action::AllocatePage { page, bytes, kind });
                self.awaiting_page = true;
                self.parked.push_front(Parked::Again(envelope, waited));
            }
            Shortage::Failed(error @ (IoError::OutOfMemory { .. } | IoError::PoolFull { .. })) if !waited => {
                // Memory that is free, or will be when what is in flight is done, must not be the reason to fail.
                self.sweep(true, out);
                self.submit(out);
                if self.timeline.is_idle() {
                    tracing::debug!(%error, "out of memory: trying once more");
                    self.perform(envelope, true, out);
                } else {
                    self.hold(envelope, Reason::Memory(self.timeline.submitted()));
                }
            }
            Shortage::Failed(error) => self.starve(envelope, error, out),
        }
    }

    /// A message fails for want of memory, or waits for others to give some back.
    fn starve(&mut self, envelope: Envelope, error: IoError, out: &mut Outbox) {
        let Envelope { lease, stream, body } = envelope;
        let budget = self.options.memory_budget;
        match body {
            Body::Reserve { buffer, size, wait: Some(reply) }
                if matches!(error, IoError::OutOfMemory { .. }) && size <= budget && self.buffers.len() > 0 =>
            {
                let body = Body::Reserve { buffer, size, wait: Some(reply) };
                let envelope = Envelope { lease, stream, body };
                if self.feeding {
                    self.hungry.push_front(envelope);
                } else {
                    self.hungry.push_back(envelope);
                    self.break_circle();
                }
            }
            Body::Reserve { buffer, size, wait } => {
                self.deny(stream, buffer, size, wait, error.into());
            }
            Body::Write { to, budget, .. } => {
                self.buffers.fail(&to, error.into());
                if budget > 0 {
                    out.actions.push(Action::FinishUpload(budget));
                }
            }
            Body::Read { reply, .. } => reply.send(Err(error.into())),
            Body::Lend { reply, .. } => reply.send(Err(error.into())),
            other => unreachable!("{other:?} reserves no memory"),
        }
    }

    /// Where every stream that has memory waits for more, nobody will give any back: the youngest fails.
    fn break_circle(&mut self) {
        let waits = |stream: StreamId| self.hungry.iter().any(|envelope| envelope.stream == stream);
        if !self.buffers.owners_of_memory().all(waits) {
            return;
        }
        if let Some(Envelope { stream, body: Body::Reserve { buffer, size, wait }, .. }) = self.hungry.pop_back() {
            let in_use = self.memory.usage().bytes_in_use;
            let error = IoError::OutOfMemory { requested: size, in_use, budget: self.options.memory_budget };
            self.deny(stream, buffer, size, wait, error.into());
        }
    }

    /// Memory was given back: reservations that wait for some try again, in their order, up to the first that fails.
    pub(super) fn feed(&mut self, out: &mut Outbox) {
        self.feeding = true;
        while let Some(envelope) = self.hungry.pop_front() {
            let waiting = self.hungry.len();
            self.perform(envelope, true, out);
            if self.hungry.len() > waiting || self.awaiting_page {
                break;
            }
        }
        self.feeding = false;
    }

    /// Gives back empty pages: behind the submissions that may name them, at once where there are none. `all` does
    /// not ask whether their period is over.
    pub(super) fn sweep(&mut self, all: bool, out: &mut Outbox) {
        let mut freed = std::mem::take(&mut self.freed);
        self.memory.sweep(all, &mut freed);
        match self.timeline.last() {
            Some(submission) => submission.pages.append(&mut freed),
            None => {
                for page in freed.drain(..) {
                    self.memory.page_freed(page);
                    out.actions.push(Action::FreePage(page));
                }
            }
        }
        self.freed = freed;
    }
}
