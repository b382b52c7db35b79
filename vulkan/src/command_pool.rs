//! Command buffers: taken for a submission, used again once it is done.

use crate::device::DeviceShared;
use crate::retire::RetireList;
use ash::vk;
use std::sync::Arc;
use vkactor_actors::port::DeviceError;

/// A pool of primary command buffers. Vulkan wants it used by one thread at a time: all of it is `&mut` (V2).
#[derive(Debug)]
pub(crate) struct CommandPool {
    raw: vk::CommandPool,
    free: Vec<vk::CommandBuffer>,
    pending: RetireList<vk::CommandBuffer>,
    shared: Arc<DeviceShared>,
}

impl CommandPool {
    /// A pool whose buffers are short-lived, or are kept for graphs.
    pub(crate) fn new(shared: Arc<DeviceShared>, short_lived: bool) -> Result<Self, DeviceError> {
        let mut flags = vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER;
        if short_lived {
            flags |= vk::CommandPoolCreateFlags::TRANSIENT;
        }
        let create = vk::CommandPoolCreateInfo::default().queue_family_index(shared.plan.family).flags(flags);
        // SAFETY: V1, V5.
        let raw = unsafe { shared.raw().create_command_pool(&create, None) };
        let raw = raw.map_err(|e| shared.fail(e, "making a command pool"))?;
        Ok(Self { raw, free: Vec::new(), pending: RetireList::new(), shared })
    }

    /// A buffer that records, and may run once. `reached` tells how far the timeline is, where that matters.
    pub(crate) fn begin(
        &mut self,
        reached: impl FnOnce() -> Result<u64, DeviceError>,
    ) -> Result<vk::CommandBuffer, DeviceError> {
        if self.free.is_empty() {
            let reached = reached()?;
            while let Some(buffer) = self.pending.take(reached) {
                self.free.push(buffer);
            }
        }
        let buffer = match self.free.pop() {
            Some(buffer) => buffer,
            None => self.allocate()?,
        };
        self.start(buffer, vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT)
    }

    /// A buffer that records, and may run any number of times at once. It is the caller's to free.
    pub(crate) fn begin_kept(&mut self) -> Result<vk::CommandBuffer, DeviceError> {
        let buffer = self.allocate()?;
        self.start(buffer, vk::CommandBufferUsageFlags::SIMULTANEOUS_USE)
    }

    /// Ends a recording.
    pub(crate) fn end(&mut self, buffer: vk::CommandBuffer) -> Result<(), DeviceError> {
        // SAFETY: V2: `&mut self`; the buffer records, as only `begin` gives them out.
        unsafe { self.shared.raw().end_command_buffer(buffer) }.map_err(|e| self.shared.fail(e, "ending a recording"))
    }

    /// The buffer runs until the timeline reaches `value`.
    pub(crate) fn retire(&mut self, buffer: vk::CommandBuffer, value: u64) {
        self.pending.retire(value, buffer);
    }

    /// Gives back a buffer that no pending submission names.
    pub(crate) fn free(&mut self, buffer: vk::CommandBuffer) {
        // SAFETY: V2: `&mut self`. V3: the caller's duty.
        unsafe { self.shared.raw().free_command_buffers(self.raw, &[buffer]) };
    }

    fn allocate(&mut self) -> Result<vk::CommandBuffer, DeviceError> {
        let allocate = vk::CommandBufferAllocateInfo::default()
            .command_pool(self.raw)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: V1, V2, V5.
        let buffers = unsafe { self.shared.raw().allocate_command_buffers(&allocate) };
        let buffers = buffers.map_err(|e| self.shared.fail(e, "making a command buffer"))?;
        Ok(buffers[0])
    }

    fn start(
        &mut self,
        buffer: vk::CommandBuffer,
        usage: vk::CommandBufferUsageFlags,
    ) -> Result<vk::CommandBuffer, DeviceError> {
        let begin = vk::CommandBufferBeginInfo::default().flags(usage);
        // SAFETY: V2, V5. V3: the buffer is new or its submission is done; beginning resets it, as the pool allows.
        let result = unsafe { self.shared.raw().begin_command_buffer(buffer, &begin) };
        match result {
            Ok(()) => Ok(buffer),
            Err(error) => {
                self.free(buffer);
                Err(self.shared.fail(error, "beginning a recording"))
            }
        }
    }
}

impl Drop for CommandPool {
    fn drop(&mut self) {
        // SAFETY: V1, V2. V3: the device waits for its queue before it lets go of its pools.
        unsafe { self.shared.raw().destroy_command_pool(self.raw, None) };
    }
}
