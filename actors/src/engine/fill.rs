//! Large uploads from ordinary memory: copied to pinned memory beside the actor, piece by piece, several at once,
//! while the device takes the pieces before.
//!
//! One thread copies 9 GB/s on an H200's host, eight copy 33, and the device takes 50 (see `docs/MEASUREMENTS.md`).

use crate::engine::Engine;
use crate::engine::command::{Action, Outbox};
use crate::engine::hold::Reason;
use crate::engine::memory::Shortage;
use crate::engine::transfer::{Expected, Upload};
use crate::id::StreamId;
use crate::message::{BufferRange, LeaseId};
use crate::port::PageKind;
use crate::tensor::Piece;

/// Copies that go on at once.
const FILLS_MAX: usize = 8;
/// Bytes that the actor copies itself: 28 µs on an H200's host, about what it takes to hand them to another thread and
/// hear of it. Tests take this path with buffers of a few words.
pub(super) const INLINE_BYTES_MAX: usize = if cfg!(test) { 48 } else { 256 << 10 };
/// The smallest piece and the largest: small enough that the device begins early, large enough that the way to
/// another thread and a submission (11.5 µs) cost little beside.
const PIECE_BYTES: (u64, u64) = if cfg!(test) { (16, 64) } else { (512 << 10, 8 << 20) };

impl Engine {
    /// Sends as much of an upload on its way as may be copied at once. The rest waits its turn.
    pub(super) fn fill(
        &mut self,
        lease: Option<LeaseId>,
        stream: StreamId,
        upload: Upload,
        mut waited: bool,
        out: &mut Outbox,
    ) {
        let Upload { to, rows, bytes, budget, .. } = upload;
        let bytes = bytes.into_bytes();
        let piece_bytes = (bytes.len() as u64 / FILLS_MAX as u64).clamp(PIECE_BYTES.0, PIECE_BYTES.1);
        for Piece { from, to: start, rows, left } in rows.pieces(piece_bytes) {
            let to = BufferRange { offset: to.offset + from, size: to.size - from, ..to };
            let again = || {
                let bytes = bytes.slice(start as usize..).into();
                Upload { to, rows: left, bytes, budget, placed: true }.again(lease, stream)
            };
            if self.fills.len() >= FILLS_MAX {
                return self.hold(again(), Reason::Fills(FILLS_MAX));
            }
            let place = match self.memory.reserve_host(PageKind::Upload, rows.dense_bytes()) {
                Ok(place) => place,
                Err(Shortage::Failed(_)) if !self.fills.is_empty() => {
                    return self.hold(again(), Reason::Fills(self.fills.len()));
                }
                Err(shortage) => return self.short(again(), shortage, waited, out),
            };
            waited = false;
            let budget = if rows == left { budget } else { 0 };
            let range = BufferRange { size: rows.extent(), ..to };
            let token = self.expect(lease, stream, Expected { to: range, rows: Some(rows), budget });
            self.fills.insert(token);
            let bytes = bytes.slice(start as usize..(start + rows.dense_bytes()) as usize);
            out.actions.push(Action::Fill { token, to: place, bytes: bytes.into() });
        }
    }
}
