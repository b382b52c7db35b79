//! Reservations and releases, and what happens when memory runs out.

use crate::engine::command::{Action, Command, Outbox, PageId, Span};
use crate::engine::hazard::Access;
use crate::engine::hold::Reason;
use crate::engine::memory::{Shortage, Slice};
use crate::engine::observe::Work;
use crate::engine::{Capture, Engine, Parked};
use crate::error::{IoError, ServerError};
use crate::id::{BufferId, Holder, StreamId};
use crate::message::{Body, BufferRange, Envelope, LeaseId};
use crate::reply::Reply;
use std::collections::HashSet;

/// A reservation that is asked for.
pub(super) struct Wish {
    pub(super) buffer: BufferId,
    pub(super) size: u64,
    pub(super) holder: Holder,
    /// Who waits for its end.
    pub(super) wait: Option<Reply<Result<(), ServerError>>>,
}

impl Wish {
    fn body(self) -> Body {
        let Self { buffer, size, holder, wait } = self;
        Body::Reserve { buffer, size, holder, wait }
    }
}

impl Engine {
    /// Reserves memory under a client's name.
    pub(super) fn reserve(
        &mut self,
        lease: Option<LeaseId>,
        stream: StreamId,
        wish: Wish,
        waited: bool,
        out: &mut Outbox,
    ) {
        let Wish { buffer, size, .. } = wish;
        if waited && self.buffers.get(buffer).is_none() {
            // The handle was dropped while the reservation waited for memory.
            return;
        }
        if let Err(error) = self.alive() {
            return self.deny(stream, wish, error);
        }
        if wish.wait.is_some() && !self.hungry.is_empty() && !self.feeding {
            // First come, first served: a small one does not overtake a large one.
            self.put(stream, &wish, None);
            self.hungry.push_back(Envelope { lease, stream, body: wish.body() });
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
                self.put(stream, &wish, slice);
                if shared.is_some() {
                    self.keep_with_window(stream, buffer);
                }
                // What a window shares may come from a dry run inside of it.
                if dry || shared.is_some() {
                    self.buffers.unback(buffer);
                } else if let Some(slice) = slice
                    && self.options.zero_memory
                {
                    self.zero(stream, slice, out);
                }
                if let Some(reply) = wish.wait {
                    reply.send(Ok(()));
                }
            }
            Err(shortage) => {
                self.put(stream, &wish, None);
                self.short(Envelope { lease, stream, body: wish.body() }, shortage, waited, out);
            }
        }
    }

    fn put(&mut self, stream: StreamId, wish: &Wish, slice: Option<Slice>) {
        self.buffers.place(wish.buffer, slice, wish.size, stream, wish.holder);
    }

    /// A reservation fails: its buffer carries the failure for as long as it lives.
    fn deny(&mut self, stream: StreamId, wish: Wish, error: ServerError) {
        self.put(stream, &wish, None);
        let range = BufferRange { buffer: wish.buffer, offset: 0, size: wish.size };
        self.buffers.fail(&range, error.clone());
        if let Some(reply) = wish.wait {
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

    pub(super) fn zero(&mut self, stream: StreamId, slice: Slice, out: &mut Outbox) {
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

    /// The shell has asked the device for the page of [`Action::AllocatePage`].
    pub fn page_answered(&mut self, page: PageId, granted: bool, out: &mut Outbox) {
        if granted {
            self.memory.page_granted(page);
        } else {
            self.memory.page_refused(page);
        }
        self.awaiting_page = false;
        while !self.awaiting_page
            && let Some(next) = self.parked.pop_front()
        {
            match next {
                Parked::Again(envelope, waited) => self.perform_again(envelope, waited, out),
                Parked::Behind(held) => self.reconsider(held, out),
            }
        }
        if granted {
            self.feed(out);
        } else {
            self.break_circle();
        }
        self.let_in(out);
    }

    /// A message needs memory that is not there.
    pub(super) fn short(&mut self, envelope: Envelope, shortage: Shortage, waited: bool, out: &mut Outbox) {
        match shortage {
            Shortage::Page { page, bytes, kind } => {
                // Pages that make way for it go first.
                self.sweep(false, out);
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
            Shortage::Failed(_) if self.feeding && self.give_back_empty(out) => self.perform(envelope, true, out),
            Shortage::Failed(error) => self.starve(envelope, error, out),
        }
    }

    /// Gives all empty pages back. Whether any is free now; those behind work in flight are later.
    fn give_back_empty(&mut self, out: &mut Outbox) -> bool {
        let before = self.memory.usage().bytes_reserved;
        self.sweep(true, out);
        self.submit(out);
        self.memory.usage().bytes_reserved < before
    }

    /// A message fails for want of memory, or waits for others to give some back.
    fn starve(&mut self, envelope: Envelope, error: IoError, out: &mut Outbox) {
        let Envelope { lease, stream, body } = envelope;
        match body {
            Body::Reserve { buffer, size, holder, wait } => {
                let wish = Wish { buffer, size, holder, wait };
                if wish.wait.is_none() || !matches!(error, IoError::OutOfMemory { .. }) {
                    return self.deny(stream, wish, error.into());
                }
                let envelope = Envelope { lease, stream, body: wish.body() };
                if self.feeding {
                    self.hungry.push_front(envelope);
                } else {
                    self.hungry.push_back(envelope);
                    self.break_circle();
                }
            }
            body => self.fail_use(Envelope { lease, stream, body }, error.into(), out),
        }
    }

    /// Where all who have memory wait for more, and none is on its way back, nobody will give any: the one that asked
    /// last fails.
    pub(super) fn break_circle(&mut self) {
        if self.hungry.is_empty() || self.awaiting_page || self.memory.is_leaving() {
            return;
        }
        let mut waiting = HashSet::new();
        self.hungry.retain(|envelope| {
            let Body::Reserve { buffer, holder, .. } = &envelope.body else { unreachable!("it reserves no memory") };
            // Who dropped the handle does not wait any more.
            let waits = self.buffers.get(*buffer).is_some();
            if waits {
                waiting.insert(*holder);
            }
            waits
        });
        if !self.buffers.holders_of_memory().all(|holder| waiting.contains(&holder)) {
            return;
        }
        if let Some(Envelope { stream, body: Body::Reserve { buffer, size, holder, wait }, .. }) =
            self.hungry.pop_back()
        {
            let in_use = self.memory.usage().bytes_in_use;
            let error = IoError::OutOfMemory { requested: size, in_use, budget: self.options.memory_budget };
            self.deny(stream, Wish { buffer, size, holder, wait }, error.into());
        }
    }

    /// Memory was given back: reservations that wait for some try again, in their order, up to the first that fails.
    pub(super) fn feed(&mut self, out: &mut Outbox) {
        while !self.awaiting_page
            && let Some(envelope) = self.hungry.pop_front()
        {
            let waiting = self.hungry.len();
            self.perform_again(envelope, true, out);
            if self.hungry.len() > waiting {
                break;
            }
        }
        self.break_circle();
    }

    /// Carries out what has waited for memory. A reservation keeps its place before those that wait behind it.
    pub(super) fn perform_again(&mut self, envelope: Envelope, waited: bool, out: &mut Outbox) {
        self.feeding = matches!(envelope.body, Body::Reserve { .. });
        self.perform(envelope, waited, out);
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
