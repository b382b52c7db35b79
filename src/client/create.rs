//! Reserving memory, and putting bytes into it.

use crate::client::Client;
use std::future::Future;
use std::sync::Arc;
use vkactor_actors::bytes::{Bytes, Delivery};
use vkactor_actors::error::{IoError, ServerError};
use vkactor_actors::handle::{Allocation, Handle};
use vkactor_actors::id::Holder;
use vkactor_actors::message::{Body, BufferRange, Incoming};
use vkactor_actors::reply::{Reply, reply};
use vkactor_actors::tensor::{MemoryLayout, MemoryLayoutDescriptor, Piece, Rows, Shape};

impl Client {
    /// A buffer of a copy of `slice`, which the caller's thread makes: straight into pinned memory where it is large,
    /// while the device takes the part before. [`Client::create`] leaves the copying to others.
    ///
    /// # Ordering
    /// As [`Client::create`]; `slice` may change as soon as the call returns.
    ///
    /// # Errors
    /// As [`Client::create`].
    pub fn create_from_slice(&self, slice: &[u8]) -> Handle {
        let size = slice.len() as u64;
        let (allocation, range) = self.reserve(size, None);
        self.upload_slice(range, Rows::contiguous(size), slice);
        Handle::of(allocation, size)
    }

    /// A buffer of these bytes. Pinned bytes of this device (see [`Client::staging`]) are copied by the device alone.
    /// Bytes of a file are read, and bytes that are still on a device are fetched, while the caller goes on.
    ///
    /// # Ordering
    /// Returns at once. Work sent later on this stream finds the bytes. Lazy bytes of a device are those that it
    /// holds at this call. A sender of more bytes than fit on their way to the device is held back.
    ///
    /// # Errors
    /// The buffer carries what goes wrong: [`IoError::BufferTooBig`], [`IoError::OutOfMemory`], [`IoError::File`], or
    /// the failure of lazy bytes.
    pub fn create(&self, data: Bytes) -> Handle {
        let size = data.len() as u64;
        let (allocation, range) = self.reserve(size, None);
        self.upload(range, Rows::contiguous(size), data);
        Handle::of(allocation, size)
    }

    /// As [`Client::create`], but waits for memory where the device is full now, and for a place where many bytes
    /// are on their way.
    ///
    /// # Ordering
    /// The reservation takes its place in the stream when this is called; the bytes follow when it is made. Those that
    /// wait are served in the order in which they were called, whatever their size. Lazy bytes of a device are those
    /// that it holds at this call.
    ///
    /// # Errors
    /// [`IoError::OutOfMemory`] where all who hold memory of the device wait for more, so that nobody would give any
    /// back: of those that wait, the one that was called last fails. Who calls from a task of tokio is that task,
    /// others are their thread. So run what waits for memory in a task of its own, and not two such futures in one.
    ///
    /// [`IoError::BufferTooBig`] where waiting would be of no use, [`IoError::PoolFull`] where the layout has a cap that
    /// is reached, a lost device, or [`ServerError::Closed`]. What goes wrong with the bytes is carried by the buffer.
    ///
    /// # Cancellation
    /// Dropping the future gives the memory back.
    pub fn create_async(&self, data: Bytes) -> impl Future<Output = Result<Handle, ServerError>> + Send + use<> {
        let size = data.len() as u64;
        let reserved = self.empty_async_of(size);
        let (client, delivery) = (self.clone(), data.deliver());
        async move {
            let (handle, range) = reserved.await?;
            match delivery {
                Delivery::Here(bytes) => {
                    let budget = client.mailbox().admit_upload_async(bytes.len()).await;
                    client.put(range, Rows::contiguous(size), bytes, budget);
                }
                Delivery::Later(from) => {
                    let budget = match &from {
                        Incoming::Blocking(_) => client.mailbox().admit_upload_async(size as usize).await,
                        Incoming::Future(_) => 0,
                    };
                    client.send(Body::Receive { to: range, rows: Some(Rows::contiguous(size)), from, budget });
                }
            }
            Ok(handle)
        }
    }

    /// A buffer of `size` bytes, with whatever lay there before.
    ///
    /// # Ordering
    /// Returns at once. The memory may be that of a buffer which was dropped before: later work waits for earlier
    /// work on it.
    ///
    /// # Errors
    /// The buffer carries [`IoError::BufferTooBig`], [`IoError::OutOfMemory`] or [`IoError::PoolFull`].
    pub fn empty(&self, size: usize) -> Handle {
        let size = size as u64;
        Handle::of(self.reserve(size, None).0, size)
    }

    /// As [`Client::empty`], but waits for memory where the device is full now.
    ///
    /// # Ordering
    /// As [`Client::create_async`].
    ///
    /// # Errors
    /// As [`Client::create_async`].
    ///
    /// # Cancellation
    /// Dropping the future gives the memory back.
    pub fn empty_async(&self, size: usize) -> impl Future<Output = Result<Handle, ServerError>> + Send + use<> {
        let reserved = self.empty_async_of(size as u64);
        async move { reserved.await.map(|(handle, _)| handle) }
    }

    /// Puts bytes at the start of a buffer, in place. Fewer bytes than the handle names leave the rest as it is.
    ///
    /// # Ordering
    /// Returns at once. Work sent before sees the old bytes, work sent later the new ones. A sender of more bytes
    /// than fit on their way to the device is held back.
    ///
    /// # Errors
    /// More bytes than the handle names spoil what it names and reach nothing else. A handle of another device is
    /// left as it is, and so is one whose offsets cross: there is nothing that could carry the failure. Inside a
    /// capture window the write is refused, and [`Client::stop_capture`] tells it.
    pub fn write(&self, handle: &Handle, data: Bytes) {
        let range = match self.range_of(handle) {
            Ok(range) => range,
            Err(error) => return tracing::warn!(%error, "a write was refused"),
        };
        let size = data.len() as u64;
        let to = if size <= range.size { BufferRange { size, ..range } } else { range };
        self.upload(to, Rows::contiguous(to.size), data);
    }

    /// A tensor of a copy of `slice`: see [`Client::create_tensor`].
    ///
    /// # Ordering
    /// As [`Client::create_from_slice`].
    pub fn create_tensor_from_slice(&self, slice: &[u8], shape: Shape, elem_size: usize) -> MemoryLayout {
        let (rows, strides) = MemoryLayoutDescriptor::optimized(shape, elem_size).layout();
        let size = padded_bytes(&rows);
        let (allocation, range) = self.reserve(size, None);
        self.upload_slice(range, rows, slice);
        MemoryLayout { memory: Handle::of(allocation, size), strides }
    }

    /// A tensor of these bytes, which are dense and row-major. The runtime chooses the strides: rows may be padded so
    /// that each starts on a whole load. Elements are of `elem_size` bytes.
    ///
    /// # Ordering
    /// As [`Client::create`].
    ///
    /// # Errors
    /// The buffer carries what goes wrong, as with [`Client::create`]; also where there are not as many bytes as the
    /// shape has.
    pub fn create_tensor(&self, bytes: Bytes, shape: Shape, elem_size: usize) -> MemoryLayout {
        let (rows, strides) = MemoryLayoutDescriptor::optimized(shape, elem_size).layout();
        let size = padded_bytes(&rows);
        let (allocation, range) = self.reserve(size, None);
        self.upload(range, rows, bytes);
        MemoryLayout { memory: Handle::of(allocation, size), strides }
    }

    /// Tensors of copies of the slices: see [`Client::create_tensors`].
    ///
    /// # Ordering
    /// As [`Client::create_from_slice`].
    pub fn create_tensors_from_slices(&self, descriptors: Vec<(MemoryLayoutDescriptor, &[u8])>) -> Vec<MemoryLayout> {
        self.create_all(descriptors, |range, rows, slice| self.upload_slice(range, rows, slice))
    }

    /// Tensors in one reservation, each starting where a binding may start. The memory goes back when the last
    /// handle of the last tensor is dropped.
    ///
    /// # Ordering
    /// As [`Client::create`].
    ///
    /// # Errors
    /// Each tensor carries what goes wrong with its own bytes, and leaves the others good; all carry it where the
    /// reservation fails.
    pub fn create_tensors(&self, descriptors: Vec<(MemoryLayoutDescriptor, Bytes)>) -> Vec<MemoryLayout> {
        self.create_all(descriptors, |range, rows, bytes| self.upload(range, rows, bytes))
    }

    /// A tensor with whatever lay there before: see [`Client::create_tensor`] for its layout.
    ///
    /// # Ordering
    /// As [`Client::empty`].
    ///
    /// # Errors
    /// As [`Client::empty`].
    pub fn empty_tensor(&self, shape: Shape, elem_size: usize) -> MemoryLayout {
        let (rows, strides) = MemoryLayoutDescriptor::optimized(shape, elem_size).layout();
        let size = padded_bytes(&rows);
        MemoryLayout { memory: Handle::of(self.reserve(size, None).0, size), strides }
    }

    /// Tensors in one reservation, with whatever lay there before: see [`Client::create_tensors`].
    ///
    /// # Ordering
    /// As [`Client::empty`].
    ///
    /// # Errors
    /// All carry it where the reservation fails.
    pub fn empty_tensors(&self, descriptors: Vec<MemoryLayoutDescriptor>) -> Vec<MemoryLayout> {
        self.reserve_all(descriptors).into_iter().map(|member| member.layout).collect()
    }

    /// Asks for `size` bytes under a new name.
    pub(super) fn reserve(&self, size: u64, wait: Option<Reply<Result<(), ServerError>>>) -> (Allocation, BufferRange) {
        let allocation = Allocation::new(self.mailbox().clone(), self.stream_id());
        let buffer = allocation.id();
        self.send(Body::Reserve { buffer, size, holder: Holder::current(), wait });
        (allocation, BufferRange { buffer, offset: 0, size })
    }

    fn empty_async_of(
        &self,
        size: u64,
    ) -> impl Future<Output = Result<(Handle, BufferRange), ServerError>> + Send + use<> {
        let (reply, answer) = reply();
        let (allocation, range) = self.reserve(size, Some(reply));
        let handle = Handle::of(allocation, size);
        async move {
            answer.wait().await??;
            Ok((handle, range))
        }
    }

    fn create_all<B>(
        &self,
        descriptors: Vec<(MemoryLayoutDescriptor, B)>,
        mut upload: impl FnMut(BufferRange, Rows, B),
    ) -> Vec<MemoryLayout> {
        let (descriptors, bytes): (Vec<_>, Vec<_>) = descriptors.into_iter().unzip();
        let members = self.reserve_all(descriptors).into_iter().zip(bytes);
        let filled = members.map(|(member, bytes)| {
            upload(member.range, member.rows, bytes);
            member.layout
        });
        filled.collect()
    }

    fn reserve_all(&self, descriptors: Vec<MemoryLayoutDescriptor>) -> Vec<Member> {
        if descriptors.is_empty() {
            return Vec::new();
        }
        let layouts: Vec<_> = descriptors.iter().map(MemoryLayoutDescriptor::layout).collect();
        let sizes: Vec<u64> = layouts.iter().map(|(rows, _)| padded_bytes(rows)).collect();
        let (total, offsets) = line_up(&sizes, self.properties().memory.alignment);
        let (allocation, whole) = self.reserve(total, None);
        let allocation = Arc::new(allocation);
        let places = offsets.into_iter().zip(sizes);
        layouts
            .into_iter()
            .zip(places)
            .map(|((rows, strides), (offset, size))| Member {
                layout: MemoryLayout { memory: Handle::part(&allocation, offset, size), strides },
                range: BufferRange { buffer: whole.buffer, offset, size },
                rows,
            })
            .collect()
    }

    /// As [`Client::upload`], for bytes that are the caller's.
    fn upload_slice(&self, to: BufferRange, rows: Rows, slice: &[u8]) {
        if slice.len() <= SLICE_BYTES_MAX {
            return self.upload(to, rows, Bytes::from(slice.to_vec()));
        }
        if !self.has_bytes_of(to, &rows, slice.len()) {
            return;
        }
        let piece_bytes = (slice.len() as u64 / 4).min(PIECE_BYTES_MAX);
        for Piece { from, to: start, rows, .. } in rows.pieces(piece_bytes) {
            let to = BufferRange { offset: to.offset + from, size: to.size - from, ..to };
            let bytes = &slice[start as usize..][..rows.dense_bytes() as usize];
            let filled = match self.borrow_pinned(vec![bytes.len() as u64]) {
                Ok(lent) => lent.into_iter().map(|fill| fill.write(bytes)),
                Err(error) => return self.spoil(to, error),
            };
            let budget = self.mailbox().admit_upload(bytes.len());
            filled.for_each(|bytes| self.put(BufferRange { size: rows.extent(), ..to }, rows, bytes, budget));
        }
    }

    /// Whether there are the bytes of the rows, and any. Others spoil the range.
    fn has_bytes_of(&self, to: BufferRange, rows: &Rows, have: usize) -> bool {
        let (have, need) = (have as u64, rows.dense_bytes());
        if have != need {
            self.spoil(to, IoError::Unsupported(format!("{have} bytes for a place of {need}")));
        }
        have == need && have > 0
    }

    /// Sends bytes on their way to `to`, which holds the rows. Bytes that do not fill the rows exactly spoil it.
    fn upload(&self, to: BufferRange, rows: Rows, data: Bytes) {
        let have = data.len();
        if !self.has_bytes_of(to, &rows, have) {
            return;
        }
        match data.deliver() {
            Delivery::Here(bytes) => {
                let budget = self.mailbox().admit_upload(bytes.len());
                self.put(to, rows, bytes, budget);
            }
            Delivery::Later(from) => {
                // What a file gives lies in the memory of the host; what a device gives is its own affair.
                let budget = match &from {
                    Incoming::Blocking(_) => self.mailbox().admit_upload(have),
                    Incoming::Future(_) => 0,
                };
                self.send(Body::Receive { to, rows: Some(rows), from, budget });
            }
        }
    }

    fn put(&self, to: BufferRange, rows: Rows, bytes: Bytes, budget: usize) {
        if !bytes.is_empty() {
            self.send(Body::Write { to, rows, bytes, budget, placed: false });
        }
    }

    /// Tells a failure that was found before anything was sent.
    pub(super) fn spoil(&self, range: BufferRange, error: impl Into<ServerError>) {
        self.send(Body::Spoil { range, error: Box::new(error.into()) });
    }
}

/// Bytes of a slice that are copied at once, into a message: asking for pinned memory takes longer (10 µs and more).
const SLICE_BYTES_MAX: usize = 128 << 10;
/// The largest piece of a slice: large enough that the way to the actor costs little beside the copy (0.9 ms).
const PIECE_BYTES_MAX: u64 = 8 << 20;

/// One tensor of a list.
struct Member {
    layout: MemoryLayout,
    range: BufferRange,
    rows: Rows,
}

/// Bytes of a tensor with the padding of every row, the last one's too: a kernel may load whole rows.
fn padded_bytes(rows: &Rows) -> u64 {
    rows.count.saturating_mul(rows.pitch)
}

/// Where members of these sizes start in one reservation, and its size. A list that no number can hold asks for the
/// largest one, with all members at its start, and is refused by the engine.
fn line_up(sizes: &[u64], alignment: u64) -> (u64, Vec<u64>) {
    let mut total = 0u64;
    let offsets: Option<Vec<u64>> = sizes
        .iter()
        .map(|size| {
            let offset = total.checked_next_multiple_of(alignment.max(1))?;
            total = offset.checked_add(*size)?;
            Some(offset)
        })
        .collect();
    offsets.map_or_else(|| (u64::MAX, vec![0; sizes.len()]), |offsets| (total, offsets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_start_on_the_alignment_and_do_not_overlap() {
        assert_eq!(line_up(&[1, 0, 64, 65, 3], 64), (259, vec![0, 64, 64, 128, 256]));
        assert_eq!(line_up(&[0, 0], 16), (0, vec![0, 0]));
    }

    #[test]
    fn a_list_that_no_number_holds_asks_for_the_largest() {
        assert_eq!(line_up(&[4, u64::MAX], 16), (u64::MAX, vec![0, 0]));
        assert_eq!(line_up(&[u64::MAX - 2, 1], 16), (u64::MAX, vec![0, 0]));
    }

    #[test]
    fn the_last_row_is_padded_like_the_others() {
        let rows = MemoryLayoutDescriptor::optimized([3, 5], 4).layout().0;
        assert_eq!(padded_bytes(&rows), 3 * 32);
        assert_eq!(padded_bytes(&MemoryLayoutDescriptor::contiguous([3, 5], 4).layout().0), 60);
    }
}
