//! Bytes on their way: pinned for a device, and from one device to another.

use crate::client::Client;
use vkactor_actors::bytes::{AllocationProperty, Bytes, Delivery};
use vkactor_actors::error::ServerError;
use vkactor_actors::handle::Handle;
use vkactor_actors::message::{Body, BufferRange};
use vkactor_actors::port::Fill;
use vkactor_actors::properties::ElemType;
use vkactor_actors::tensor::{CopyDescriptor, Rows};

impl Client {
    /// Makes bytes lie in host memory that this device reads by itself, so that [`Client::create`] and
    /// [`Client::write`] of them copy nothing on the host. Bytes of files and lazy bytes are fetched first; with
    /// `file_only` those of files alone are taken. Pinned bytes and empty ones stay as they are, and so do bytes that
    /// cannot be had: whoever looks at those is told.
    ///
    /// # Ordering
    /// Blocks until it is done. It does not wait for work on the device. Large bytes are pinned where they lie, where
    /// the device can ([`Features::host_import`](crate::Features)); the others are copied by the caller's thread.
    pub fn staging<'a, I>(&self, bytes: I, file_only: bool)
    where
        I: Iterator<Item = &'a mut Bytes>,
    {
        let (mut batch, mut batch_bytes) = (Vec::new(), 0);
        for slot in bytes {
            let wanted = match slot.property() {
                AllocationProperty::Pinned => false,
                AllocationProperty::File => true,
                AllocationProperty::Native | AllocationProperty::Lazy => !file_only,
            };
            if !wanted || slot.is_empty() {
                continue;
            }
            match at_hand(slot) {
                // What was read from a device lies in pinned memory already.
                Ok(fetched) if fetched.property() == AllocationProperty::Pinned => *slot = fetched,
                Ok(fetched) => {
                    batch_bytes += fetched.len();
                    batch.push((slot, fetched));
                }
                Err(error) => tracing::warn!(%error, "bytes were not staged"),
            }
            if batch_bytes >= LENT_BYTES {
                self.pin(std::mem::take(&mut batch));
                batch_bytes = 0;
            }
        }
        self.pin(batch);
    }

    /// Replaces bytes by their pinned copies.
    fn pin(&self, batch: Vec<(&mut Bytes, Bytes)>) {
        if batch.is_empty() {
            return;
        }
        let batch = self.pin_in_place(batch);
        if batch.is_empty() {
            return;
        }
        match self.borrow_pinned(batch.iter().map(|(_, bytes)| bytes.len() as u64).collect()) {
            Ok(places) => batch.into_iter().zip(places).for_each(|((slot, bytes), fill)| *slot = fill.write(&bytes)),
            Err(error) => tracing::warn!(%error, "bytes were not staged"),
        }
    }

    /// Pins large bytes where they lie, where the device can. What is left has to be copied.
    fn pin_in_place<'a>(&self, batch: Vec<(&'a mut Bytes, Bytes)>) -> Vec<(&'a mut Bytes, Bytes)> {
        if !self.features().host_import {
            return batch;
        }
        let lend = |bytes: &Bytes| if bytes.len() < IMPORT_BYTES_MIN { None } else { vkactor_vulkan::lend(bytes) };
        let (mut left, mut slots, mut lent) = (Vec::new(), Vec::new(), Vec::new());
        for (slot, bytes) in batch {
            match lend(&bytes) {
                Some(one) => {
                    slots.push((slot, bytes));
                    lent.push(one);
                }
                None => left.push((slot, bytes)),
            }
        }
        if lent.is_empty() {
            return left;
        }
        let taken = self.ask_and_wait(|reply| Body::TakeIn { bytes: lent, reply });
        let taken = taken.unwrap_or_else(|_: ServerError| vec![None; slots.len()]);
        for ((slot, bytes), pinned) in slots.into_iter().zip(taken) {
            match pinned {
                Some(pinned) => *slot = pinned,
                None => left.push((slot, bytes)),
            }
        }
        left
    }

    /// Pinned memory of these sizes, none of them zero, for the caller to fill.
    pub(super) fn borrow_pinned(&self, sizes: Vec<u64>) -> Result<Vec<Fill>, ServerError> {
        self.ask_and_wait(|reply| Body::Lend { sizes, reply })
    }

    /// A buffer on the device and stream of `dst_server` with the bytes that `src` has here. Within one device they are
    /// copied there. Between devices of one runtime that has a transport (see [`Client::has_device_transport`]) both
    /// devices copy by themselves, through host memory that both reach; otherwise the host copies in between. Large
    /// transfers go in chunks, so that both buses are busy.
    ///
    /// # Ordering
    /// Returns at once. The bytes are those of work sent before on this stream; work sent later on the stream of
    /// `dst_server` finds them. `src` stays as it is, and may be written or dropped. Host memory of the size of the
    /// transfer is taken until it is through.
    ///
    /// # Errors
    /// The new buffer carries what goes wrong: a handle of another device, the failure that `src` carries, a read
    /// that is refused, or memory that `dst_server` lacks.
    pub fn to_client(&mut self, src: Handle, dst_server: &Self, _dtype: ElemType) -> Handle {
        let part = self.range_of(&src).map(|range| (range, Rows::contiguous(range.size)));
        self.send_over(part, src.size_in_used(), dst_server)
    }

    /// As [`Client::to_client`], for a tensor: the new buffer is dense.
    ///
    /// # Ordering
    /// As [`Client::to_client`].
    ///
    /// # Errors
    /// As [`Client::to_client`], and [`IoError::UnsupportedStrides`](crate::IoError::UnsupportedStrides).
    pub fn to_client_tensor(&mut self, src_descriptor: CopyDescriptor, dst_server: &Self, _dtype: ElemType) -> Handle {
        let size = src_descriptor.shape.dense_bytes(src_descriptor.elem_size);
        self.send_over(self.tensor_part_of(&src_descriptor), size, dst_server)
    }

    /// Bytes move as they are, whatever their type.
    fn send_over(&self, part: Result<(BufferRange, Rows), ServerError>, size: u64, dst_server: &Self) -> Handle {
        let (allocation, to) = dst_server.reserve(size, None);
        match part {
            Err(error) => dst_server.spoil(to, error),
            Ok(_) if size == 0 => {}
            // A device that tells failures late has to be asked for each read.
            Ok((from, rows))
                if self.has_device_transport() && self.mailbox().actor() == dst_server.mailbox().actor() =>
            {
                self.send(Body::Copy { from, rows, to });
            }
            Ok((from, rows)) => {
                let shipment = self.ship(from, rows);
                dst_server.land(to, rows, std::future::ready(Ok(shipment)));
            }
        }
        Handle::of(allocation, size)
    }
}

/// The bytes of a slot, fetched if need be.
fn at_hand(slot: &Bytes) -> Result<Bytes, ServerError> {
    slot.try_materialize()?;
    match slot.clone().deliver() {
        Delivery::Here(bytes) => Ok(bytes),
        Delivery::Later(_) => unreachable!("bytes that were just fetched are at hand"),
    }
}

/// Bytes that are worth pinning where they lie: on an H200's host 1 MiB takes 0.08 ms to pin and 0.2 ms to let go, and
/// 0.1 ms to copy to memory that is pinned already; 16 MiB 0.7, 0.5 and 1.7 ms, and much more to memory that is not.
const IMPORT_BYTES_MIN: usize = 4 << 20;
/// Bytes of pinned memory that are asked for at once: more would lie idle for longer than it takes to fill them, and
/// fewer would make the way to the actor tell (64 MiB are copied in 7 ms).
const LENT_BYTES: usize = 64 << 20;
