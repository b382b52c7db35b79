//! Bytes between host and device.

use crate::bytes::Bytes;
use crate::engine::Engine;
use crate::engine::command::{Action, Command, Outbox, RowCopy, Span};
use crate::engine::fill::INLINE_BYTES_MAX;
use crate::engine::graph::refused;
use crate::engine::hazard::Access;
use crate::engine::hold::Reason;
use crate::engine::memory::Shortage;
use crate::engine::observe::Work;
use crate::engine::timeline::Waiter;
use crate::error::{IoError, ServerError};
use crate::id::StreamId;
use crate::message::{Body, BufferRange, Envelope, Incoming, LeaseId};
use crate::port::{Fill, PageKind};
use crate::reply::Reply;
use crate::tensor::Rows;

/// Bytes that go to the device.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) to: BufferRange,
    pub(super) rows: Rows,
    pub(super) bytes: Bytes,
    pub(super) budget: usize,
    pub(super) placed: bool,
}

/// Bytes that will come.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) to: BufferRange,
    pub(super) rows: Option<Rows>,
    pub(super) budget: usize,
}

impl Upload {
    /// The message for an upload that must wait though its place has come.
    pub(super) fn again(self, lease: Option<LeaseId>, stream: StreamId) -> Envelope {
        let Self { to, rows, bytes, budget, .. } = self;
        Envelope { lease, stream, body: Body::Write { to, rows, bytes, budget, placed: true } }
    }
}

/// Who asks for bytes.
type ReadReply = Reply<Result<Vec<Bytes>, ServerError>>;

impl Engine {
    /// Copies host bytes into a buffer.
    pub(super) fn write(
        &mut self,
        lease: Option<LeaseId>,
        stream: StreamId,
        upload: Upload,
        waited: bool,
        out: &mut Outbox,
    ) {
        if (!upload.placed && self.refuse_in_window(stream, &upload.to)) || !self.takes_bytes(stream, &upload) {
            return finish_upload(upload.budget, out);
        }
        let Some(target) = self.buffers.span(&upload.to) else { return finish_upload(upload.budget, out) };
        let len = upload.bytes.len() as u64;
        let pinned = upload.bytes.pinned().and_then(|p| p.place(self.options.actor));
        if pinned.is_none() && upload.bytes.len() > INLINE_BYTES_MAX {
            return self.fill(lease, stream, upload, waited, out);
        }
        let from = match pinned {
            Some(span) => span,
            None => match self.memory.reserve_host(PageKind::Upload, len) {
                Ok(span) => span,
                Err(shortage) => {
                    return self.short(upload.again(lease, stream), shortage, waited, out);
                }
            },
        };
        let rows = upload.rows;
        let copy = RowCopy {
            from: Span { size: len, ..from },
            from_pitch: rows.bytes,
            to: Span { size: rows.extent(), ..target },
            to_pitch: rows.pitch,
            count: rows.count,
            bytes: rows.bytes,
        };
        tracing::trace!(
            stream = stream.0,
            buffer = upload.to.buffer.0,
            bytes = len,
            pinned = pinned.is_some(),
            "upload"
        );
        let work = |_: &Self| Work::Upload { bytes: len };
        self.emit(stream, &[Access::write(copy.to)], out, work, |commands| commands.list.push(Command::Copy(copy)));
        self.tally.bytes_uploaded += len;
        let open = &mut self.timeline.open;
        if pinned.is_some() {
            open.kept.push(upload.bytes);
        } else {
            open.staged.push(from);
            out.actions.push(Action::Stage { to: copy.from, bytes: upload.bytes });
        }
        if upload.budget > 0 {
            open.uploads.push(upload.budget);
        }
        self.buffers.heal(&BufferRange { size: rows.extent(), ..upload.to });
    }

    /// Whether there is anything to copy, and anywhere to copy it.
    fn takes_bytes(&mut self, stream: StreamId, upload: &Upload) -> bool {
        assert_eq!(upload.bytes.len() as u64, upload.rows.dense_bytes(), "an upload has the bytes of its rows");
        !upload.bytes.is_empty()
            && self.lost.is_none()
            && !self.memory.is_dry(stream)
            && upload.rows.extent() <= upload.to.size
    }

    /// A recording carries no host bytes: dooms the window, and spoils what was not written.
    pub(super) fn refuse_in_window(&mut self, stream: StreamId, to: &BufferRange) -> bool {
        let Some(state) = self.streams.get_mut(&stream) else { return false };
        if state.capture.window().is_none() {
            return false;
        }
        let error = refused("write: a recording carries no host bytes; write before it is replayed");
        state.capture.poison(|| error.clone());
        self.buffers.fail(to, error);
        true
    }

    /// A call went wrong before it was sent.
    pub(super) fn spoil(&mut self, stream: StreamId, range: &BufferRange, error: ServerError) {
        if let Some(state) = self.streams.get_mut(&stream) {
            state.capture.poison(|| error.clone());
        }
        self.buffers.fail(range, error);
    }

    /// Bytes are to be written that are not here yet: their buffer waits for them.
    pub(super) fn receive(
        &mut self,
        lease: Option<LeaseId>,
        stream: StreamId,
        expected: Expected,
        from: Incoming,
        out: &mut Outbox,
    ) {
        if self.refuse_in_window(stream, &expected.to) {
            return finish_upload(expected.budget, out);
        }
        let token = self.expect(lease, stream, expected);
        out.actions.push(Action::Fetch { token, from });
    }

    /// Holds a buffer up until the bytes of an arrival are there, and names the arrival.
    pub(super) fn expect(
        &mut self,
        lease: Option<LeaseId>,
        stream: StreamId,
        Expected { to, rows, budget }: Expected,
    ) -> u64 {
        self.next_token += 1;
        let token = self.next_token;
        self.arrivals.insert(token, None);
        let from = Incoming::Future(Box::pin(std::future::ready(Ok(Bytes::default()))));
        self.hold(Envelope { lease, stream, body: Body::Receive { to, rows, from, budget } }, Reason::Arrival(token));
        token
    }

    /// They are here, or will never be.
    pub(super) fn arrived(&mut self, token: u64, envelope: Envelope, out: &mut Outbox) {
        let Envelope { lease, stream, body: Body::Receive { to, rows, budget, .. } } = envelope else {
            unreachable!("only what receives waits for an arrival");
        };
        let bytes = self.arrivals.remove(&token).flatten();
        let bytes = match bytes.unwrap_or(Err(ServerError::Closed)) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.buffers.fail(&to, error);
                return finish_upload(budget, out);
            }
        };
        let rows = rows.unwrap_or_else(|| Rows::contiguous(bytes.len() as u64));
        if bytes.len() as u64 != rows.dense_bytes() || rows.extent() > to.size {
            let reason = format!("{} bytes came for {} of a range of {}", bytes.len(), rows.dense_bytes(), to.size);
            self.buffers.fail(&to, IoError::Unsupported(reason).into());
            return finish_upload(budget, out);
        }
        let body = Body::Write { to, rows, bytes, budget, placed: true };
        self.perform(Envelope { lease, stream, body }, false, out);
    }

    /// Copies buffers to the host.
    pub(super) fn read(
        &mut self,
        lease: Option<LeaseId>,
        stream: StreamId,
        parts: Vec<(BufferRange, Rows)>,
        reply: ReadReply,
        waited: bool,
        out: &mut Outbox,
    ) {
        if reply.is_abandoned() {
            return;
        }
        let allowed = self.allow(stream, "read").and_then(|()| self.buffers.check(parts.iter().map(|(r, _)| r)));
        if let Err(error) = allowed {
            return reply.send(Err(error));
        }
        let places = match self.reserve_readback(&parts) {
            Ok(places) => places,
            Err(shortage) => {
                let body = Body::Read { parts, reply };
                return self.short(Envelope { lease, stream, body }, shortage, waited, out);
            }
        };
        for ((range, rows), place) in parts.iter().zip(&places) {
            let (Some(to), Some(from)) = (*place, self.buffers.span(range)) else { continue };
            let copy = RowCopy {
                from: Span { size: rows.extent(), ..from },
                from_pitch: rows.pitch,
                to,
                to_pitch: rows.bytes,
                count: rows.count,
                bytes: rows.bytes,
            };
            tracing::trace!(stream = stream.0, buffer = range.buffer.0, bytes = rows.dense_bytes(), "read");
            let work = |_: &Self| Work::Read { bytes: rows.dense_bytes() };
            self.emit(stream, &[Access::read(copy.from)], out, work, |commands| {
                commands.list.push(Command::Copy(copy))
            });
            self.tally.bytes_read += rows.dense_bytes();
        }
        let late = self.options.limits.late_failures;
        let sources = if late { parts.iter().map(|(range, _)| *range).collect() } else { Vec::new() };
        self.when_done(Waiter::Read { parts: places, sources, reply }, out);
    }

    /// Host ranges for the parts of a read: all of them or none.
    fn reserve_readback(&mut self, parts: &[(BufferRange, Rows)]) -> Result<Vec<Option<Span>>, Shortage> {
        let mut places = Vec::with_capacity(parts.len());
        for (_, rows) in parts {
            if rows.dense_bytes() == 0 {
                places.push(None);
                continue;
            }
            match self.memory.reserve_host(PageKind::Readback, rows.dense_bytes()) {
                Ok(span) => places.push(Some(span)),
                Err(shortage) => {
                    places.into_iter().flatten().for_each(|span| self.memory.release_host(span));
                    return Err(shortage);
                }
            }
        }
        Ok(places)
    }

    /// Lends pinned memory to a caller.
    pub(super) fn lend(
        &mut self,
        lease: Option<LeaseId>,
        stream: StreamId,
        sizes: Vec<u64>,
        reply: Reply<Result<Vec<Fill>, ServerError>>,
        waited: bool,
        out: &mut Outbox,
    ) {
        if let Err(error) = self.alive() {
            return reply.send(Err(error));
        }
        let mut places = Vec::with_capacity(sizes.len());
        for size in &sizes {
            match self.memory.reserve_host(PageKind::Upload, *size) {
                Ok(span) => places.push(span),
                Err(shortage) => {
                    places.into_iter().for_each(|span| self.memory.release_host(span));
                    let body = Body::Lend { sizes, reply };
                    return self.short(Envelope { lease, stream, body }, shortage, waited, out);
                }
            }
        }
        out.actions.push(Action::Lend { places, reply });
    }

    /// Whether the stream takes a call that waits for the device.
    pub(super) fn allow(&self, stream: StreamId, what: &str) -> Result<(), ServerError> {
        self.alive()?;
        self.streams.get(&stream).map_or(Ok(()), |s| s.capture.forbid(what))
    }
}

/// Gives back the places of an upload that is done with, if it took any.
pub(super) fn finish_upload(budget: usize, out: &mut Outbox) {
    if budget > 0 {
        out.actions.push(Action::FinishUpload(budget));
    }
}
