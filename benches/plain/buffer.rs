//! Buffers, each with memory of its own.

use std::ptr::NonNull;
use std::rc::Rc;

use ash::vk;

use super::Device;
use crate::common::Result;

/// Where a buffer lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Memory of the device.
    Device,
    /// Pinned host memory that the device copies from.
    Upload,
    /// Pinned host memory that the device copies to, cached for the host.
    Readback,
}

/// A range of a buffer that its [`Gpu`](super::Gpu) keeps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Region {
    pub(crate) raw: vk::Buffer,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Where the host sees it.
    pub(super) host: Option<NonNull<u8>>,
}

impl Region {
    /// `bytes` of it from `start` on. The host sees it only where it starts with the buffer.
    ///
    /// # Panics
    /// It has less.
    pub(crate) fn slice(self, start: u64, bytes: u64) -> Self {
        assert!(start + bytes <= self.bytes, "{bytes} bytes from {start} of a buffer of {}", self.bytes);
        let host = self.host.filter(|_| start == 0);
        Self { offset: self.offset + start, bytes, host, ..self }
    }
}

/// A buffer and its memory.
pub(crate) struct RawBuffer {
    raw: vk::Buffer,
    memory: vk::DeviceMemory,
    bytes: u64,
    host: Option<NonNull<u8>>,
    device: Rc<Device>,
}

impl RawBuffer {
    /// Takes a buffer from the driver, with memory that is mapped where the host sees it.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn new(device: &Rc<Device>, bytes: u64, place: Place) -> Result<Self> {
        let usage = vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST
            | vk::BufferUsageFlags::STORAGE_BUFFER;
        let create = vk::BufferCreateInfo::default().size(bytes).usage(usage);
        // From here on the value owns what was made, and frees it on every way out; destroying null is allowed.
        let mut buffer = Self {
            // SAFETY: sharing is exclusive, so `create` names no families; the size is more than none.
            raw: unsafe { device.raw.create_buffer(&create, None)? },
            memory: vk::DeviceMemory::null(),
            bytes,
            host: None,
            device: Rc::clone(device),
        };
        // SAFETY: the buffer was made above.
        let needs = unsafe { device.raw.get_buffer_memory_requirements(buffer.raw) };
        let kind = memory_type(&device.memory, needs.memory_type_bits, place).ok_or("no memory of that kind")?;
        let allocate = vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(kind);
        // SAFETY: the type is one of the device's.
        buffer.memory = unsafe { device.raw.allocate_memory(&allocate, None)? };
        // SAFETY: buffer and memory are new, and of a size and type that fit.
        unsafe { device.raw.bind_buffer_memory(buffer.raw, buffer.memory, 0)? };
        if place != Place::Device {
            // SAFETY: the memory is visible to the host and not mapped yet.
            let host = unsafe { device.raw.map_memory(buffer.memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty())? };
            buffer.host = NonNull::new(host.cast());
        }
        Ok(buffer)
    }

    /// All of it.
    pub(super) fn region(&self) -> Region {
        Region { raw: self.raw, offset: 0, bytes: self.bytes, host: self.host }
    }
}

impl Drop for RawBuffer {
    fn drop(&mut self) {
        // SAFETY: either no command ever named the buffer, or its `Gpu` goes and has waited for all of them (V3).
        unsafe {
            self.device.raw.destroy_buffer(self.raw, None);
            self.device.raw.free_memory(self.memory, None);
        }
    }
}

/// The memory type that has what `place` needs and the least beside.
fn memory_type(memory: &vk::PhysicalDeviceMemoryProperties, allowed: u32, place: Place) -> Option<u32> {
    let coherent = vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
    let needed = match place {
        Place::Device => vk::MemoryPropertyFlags::DEVICE_LOCAL,
        Place::Upload => coherent,
        Place::Readback => coherent | vk::MemoryPropertyFlags::HOST_CACHED,
    };
    let flags = |index: u32| memory.memory_types[index as usize].property_flags;
    (0..memory.memory_type_count)
        .filter(|&index| allowed & (1 << index) != 0 && flags(index).contains(needed))
        .min_by_key(|&index| (flags(index) & !needed).as_raw().count_ones())
}
