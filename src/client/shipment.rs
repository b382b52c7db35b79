//! Bytes on their way from one device to another: read in chunks, each written while the next is read.

use crate::client::Client;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use vkactor_actors::bytes::Bytes;
use vkactor_actors::error::ServerError;
use vkactor_actors::message::{Body, BufferRange, Incoming};
use vkactor_actors::tensor::{Piece, Rows};

/// A chunk that was asked for.
type Chunk = Pin<Box<dyn Future<Output = Result<Bytes, ServerError>> + Send>>;

/// Chunks of one range, in order. Each is a read that has its place on its device already; whoever drops them gives
/// the bytes up.
pub(crate) struct Shipment(VecDeque<Chunk>);

impl Client {
    /// Sends the reads of a part of a buffer, each as a submission of its own, so that a chunk is on its way as soon
    /// as it is read.
    pub(super) fn ship(&self, range: BufferRange, rows: Rows) -> Shipment {
        let cuts = cuts(rows);
        let alone = cuts.len() == 1;
        let chunks = cuts.into_iter().map(|cut| {
            let part = BufferRange { offset: range.offset + cut.from, size: cut.rows.extent(), ..range };
            let chunk: Chunk = Box::pin(self.request_one(Ok((part, cut.rows))));
            if !alone {
                drop(self.ask(|reply| Body::Flush { reply }));
            }
            chunk
        });
        Shipment(chunks.collect())
    }

    /// Writes the dense bytes of `rows`, as another device ships them, to the start of `to`. The range waits for
    /// them, and nothing else does. A chunk that fails spoils all behind it as well.
    ///
    /// `coming` gives the shipment of the same rows.
    pub(super) fn land<F>(&self, to: BufferRange, rows: Rows, coming: F)
    where
        F: Future<Output = Result<Shipment, ServerError>> + Send + 'static,
    {
        let behind = Arc::new(Mutex::new(VecDeque::new()));
        let mut coming = Some((coming, behind.clone()));
        for cut in cuts(rows) {
            let from: Chunk = match coming.take() {
                Some((coming, behind)) => Box::pin(first(coming, behind)),
                None => Box::pin(next(behind.clone())),
            };
            let to = BufferRange { offset: to.offset + cut.to, size: to.size - cut.to, ..to };
            self.send(Body::Receive { to, rows: None, from: Incoming::Future(from), budget: 0 });
        }
    }
}

/// The first chunk; the others wait for their turn in `behind`.
async fn first(
    coming: impl Future<Output = Result<Shipment, ServerError>>,
    behind: Arc<Mutex<VecDeque<Chunk>>>,
) -> Result<Bytes, ServerError> {
    let Shipment(mut chunks) = coming.await?;
    let Some(first) = chunks.pop_front() else { return Ok(Bytes::default()) };
    let bytes = first.await?;
    *behind.lock().unwrap_or_else(PoisonError::into_inner) = chunks;
    Ok(bytes)
}

/// The next chunk. The engine carries out receives of one buffer one after the other, so those before have come. After
/// a failure there is none: it has spoiled this chunk's place already.
async fn next(behind: Arc<Mutex<VecDeque<Chunk>>>) -> Result<Bytes, ServerError> {
    let chunk = behind.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let Some(chunk) = chunk else { return Ok(Bytes::default()) };
    let bytes = chunk.await;
    if bytes.is_err() {
        behind.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
    bytes
}

/// Chunks of about equal size. Rows that are no larger than a chunk stay whole.
fn cuts(rows: Rows) -> Vec<Piece> {
    let chunk = rows.dense_bytes().div_ceil(CHUNKS_MAX).next_multiple_of(CHUNK_BYTES);
    rows.pieces(chunk).collect()
}

/// Small enough that both buses are busy for most of a transfer, large enough that what a chunk costs beside its bytes
/// (a submission and two wake-ups, some 50 µs on an H200's host) does not tell.
const CHUNK_BYTES: u64 = 4 << 20;
/// Chunks of one transfer: the messages and reservations that wait stay few, however large it is.
const CHUNKS_MAX: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that cuts take, as places in the source, in the order of the dense bytes.
    fn places(cuts: &[Piece]) -> Vec<u64> {
        let mut places = Vec::new();
        for cut in cuts {
            assert_eq!(cut.to, places.len() as u64);
            for row in 0..cut.rows.count {
                places.extend((0..cut.rows.bytes).map(|byte| cut.from + row * cut.rows.pitch + byte));
            }
        }
        places
    }

    #[test]
    fn cuts_take_every_byte_once_and_in_order() {
        let mib = 1u64 << 20;
        for (rows, count) in [
            (Rows::contiguous(1), 1),
            (Rows::contiguous(4 * mib), 1),
            (Rows::contiguous(4 * mib + 1), 2),
            (Rows { count: 3, bytes: mib, pitch: mib }, 1),
            (Rows { count: 9, bytes: mib, pitch: mib + 16 }, 3),
            (Rows { count: 2, bytes: 5 * mib, pitch: 6 * mib }, 2),
            (Rows { count: 5, bytes: 3, pitch: 16 }, 1),
        ] {
            let found = cuts(rows);
            assert_eq!(found.len(), count, "{rows:?}");
            let expected: Vec<u64> =
                (0..rows.count).flat_map(|row| (0..rows.bytes).map(move |byte| row * rows.pitch + byte)).collect();
            assert!(places(&found) == expected, "{rows:?}");
        }
        assert!(cuts(Rows::contiguous(0)).is_empty());
    }

    #[test]
    fn a_transfer_of_any_size_has_few_chunks() {
        for bytes in [256 << 20, (256 << 20) + 1, 10 << 30, 1 << 40] {
            let found = cuts(Rows::contiguous(bytes));
            assert!(found.len() as u64 <= CHUNKS_MAX, "{bytes}: {}", found.len());
            assert_eq!(found.iter().map(|cut| cut.rows.bytes).sum::<u64>(), bytes);
        }
    }
}
