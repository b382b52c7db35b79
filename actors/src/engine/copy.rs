//! Bytes from one buffer of the device to another.

use crate::engine::Engine;
use crate::engine::command::{Command, Outbox, RowCopy, Span};
use crate::engine::fault::Found;
use crate::engine::hazard::Access;
use crate::engine::observe::Work;
use crate::id::StreamId;
use crate::message::BufferRange;
use crate::tensor::Rows;

impl Engine {
    /// Copies rows of `from` to the start of `to`, dense. The two are different buffers. What spoils `from` spoils `to`.
    pub(super) fn copy(
        &mut self,
        stream: StreamId,
        from: &BufferRange,
        rows: Rows,
        to: &BufferRange,
        out: &mut Outbox,
    ) {
        assert!(rows.extent() <= from.size && rows.dense_bytes() <= to.size, "{rows:?} of {from:?} to {to:?}");
        assert!(from.buffer != to.buffer, "{from:?} is copied within itself");
        // The new buffer may belong to a stream that is recording: there a copy is a write, and a read where it is from.
        let target = self.buffers.get(to.buffer).map_or(stream, |buffer| buffer.stream);
        if self.refuse_in_window(target, to) || self.memory.is_dry(stream) {
            return;
        }
        if let Err(error) = self.allow(stream, "a copy") {
            return self.buffers.fail(to, error);
        }
        let mut found = Found::default();
        self.buffers.find(from, &mut found);
        if !found.is_empty() {
            return found.claims().iter().for_each(|claim| self.buffers.claim(to, claim.clone()));
        }
        let (Some(source), Some(place)) = (self.buffers.span(from), self.buffers.span(to)) else { return };
        if rows.dense_bytes() == 0 {
            return;
        }
        let copy = RowCopy {
            from: Span { size: rows.extent(), ..source },
            from_pitch: rows.pitch,
            to: Span { size: rows.dense_bytes(), ..place },
            to_pitch: rows.bytes,
            count: rows.count,
            bytes: rows.bytes,
        };
        let accesses = [Access::read(copy.from), Access::write(copy.to)];
        let work = |_: &Self| Work::Copy { bytes: rows.dense_bytes() };
        self.emit(stream, &accesses, out, work, |commands| commands.list.push(Command::Copy(copy)));
        self.buffers.heal(&BufferRange { size: rows.dense_bytes(), ..*to });
    }
}
