//! Counted references to device memory, minted by the client.

use crate::error::{IoError, ServerError};
use crate::id::{ActorId, BufferId, ServiceId, StreamId};
use crate::mailbox::Mailbox;
use crate::message::{Body, BufferRange};
use crate::tensor::{CopyDescriptor, Shape, Strides};
use std::sync::Arc;

/// A counted reference to a slice of device memory.
///
/// Cloning is one atomic increment. When the last clone drops, the slice goes back to its pool, in order with the
/// work that was sent before.
#[derive(Debug, Clone)]
pub struct Handle {
    buffer: Arc<Buffer>,
    start: u64,
    end: u64,
}

/// What the clones of a handle share.
#[derive(Debug)]
struct Buffer {
    root: Root,
    offset: u64,
    size: u64,
}

#[derive(Debug)]
enum Root {
    Own(Allocation),
    Shared(Arc<Allocation>),
}

/// One reservation; dropping it sends the release.
#[derive(Debug)]
pub struct Allocation {
    id: BufferId,
    stream: StreamId,
    mailbox: Mailbox,
}

impl Allocation {
    /// A reservation that the caller asks the actor of `mailbox` for.
    pub fn new(mailbox: Mailbox, stream: StreamId) -> Self {
        Self { id: BufferId::fresh(), stream, mailbox }
    }

    /// The id under which the engine knows it.
    pub fn id(&self) -> BufferId {
        self.id
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.mailbox.send(self.stream, Body::Release { buffer: self.id });
    }
}

impl Handle {
    /// The only handle of `allocation`, over `size` bytes.
    pub fn of(allocation: Allocation, size: u64) -> Self {
        Self { buffer: Arc::new(Buffer { root: Root::Own(allocation), offset: 0, size }), start: 0, end: 0 }
    }

    /// One of several handles that share `allocation`.
    pub fn part(allocation: &Arc<Allocation>, offset: u64, size: u64) -> Self {
        let root = Root::Shared(allocation.clone());
        Self { buffer: Arc::new(Buffer { root, offset, size }), start: 0, end: 0 }
    }

    /// Bytes asked for when the memory was reserved; offsets do not change it.
    pub fn size(&self) -> u64 {
        self.buffer.size
    }

    /// Bytes between the two offsets; none where they cross.
    pub fn size_in_used(&self) -> u64 {
        self.buffer.size.saturating_sub(self.start).saturating_sub(self.end)
    }

    /// The handle without its first `bytes`.
    #[must_use]
    pub fn offset_start(mut self, bytes: u64) -> Self {
        self.start = self.start.saturating_add(bytes);
        self
    }

    /// The handle without its last `bytes`.
    #[must_use]
    pub fn offset_end(mut self, bytes: u64) -> Self {
        self.end = self.end.saturating_add(bytes);
        self
    }

    /// Whether no other handle shares the memory, so that it may be written over in place.
    pub fn can_mut(&self) -> bool {
        Arc::strong_count(&self.buffer) == 1
    }

    /// The service that the memory belongs to.
    pub fn service_id(&self) -> ServiceId {
        self.allocation().mailbox.service()
    }

    /// The stream on which the memory was reserved.
    pub fn stream_id(&self) -> StreamId {
        self.allocation().stream
    }

    /// The run of the actor that the memory belongs to.
    pub fn actor(&self) -> ActorId {
        self.allocation().mailbox.actor()
    }

    /// The handle as an argument of a launch.
    pub fn binding(self) -> BufferBinding {
        BufferBinding { handle: self }
    }

    /// The tensor of this shape and these strides at the start of the handle.
    pub fn copy_descriptor(
        self,
        shape: impl Into<Shape>,
        strides: impl Into<Strides>,
        elem_size: usize,
    ) -> CopyDescriptor {
        CopyDescriptor::new(self, shape, strides, elem_size)
    }

    /// The bytes that the handle names, as the engine knows them.
    ///
    /// # Errors
    /// [`IoError::Unsupported`] where the offsets lie past the end.
    pub fn range(&self) -> Result<BufferRange, ServerError> {
        let cut = self.start.saturating_add(self.end);
        if cut > self.buffer.size {
            let size = self.buffer.size;
            let (start, end) = (self.start, self.end);
            let reason = format!("offsets {start} and {end} of a buffer of {size} bytes");
            return Err(IoError::Unsupported(reason).into());
        }
        Ok(BufferRange {
            buffer: self.allocation().id,
            offset: self.buffer.offset + self.start,
            size: self.buffer.size - cut,
        })
    }

    fn allocation(&self) -> &Allocation {
        match &self.buffer.root {
            Root::Own(allocation) => allocation,
            Root::Shared(allocation) => allocation,
        }
    }
}

/// A buffer as a launch takes it. It keeps the memory alive.
#[derive(Debug, Clone)]
pub struct BufferBinding {
    pub(crate) handle: Handle,
}

impl BufferBinding {
    /// The handle behind the binding.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl From<&Handle> for BufferBinding {
    fn from(handle: &Handle) -> Self {
        handle.clone().binding()
    }
}

impl From<Handle> for BufferBinding {
    fn from(handle: Handle) -> Self {
        handle.binding()
    }
}
