//! Host memory of our own that devices import: the one that made it, and others that copy from it.

use crate::device::DeviceShared;
use ash::vk;
use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use vkactor_actors::port::{DeviceError, PageKind};
use vkactor_actors::region::Region;

/// How all imported memory is known to Vulkan.
pub(crate) const HANDLE: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT;

/// Memory of the host, aligned for import, with whatever it holds: like memory of the driver it is shown only where a
/// device or the host has written it. It is freed when the last device has let it go.
#[derive(Debug)]
pub(crate) struct HostMemory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns plain bytes, and hands out nothing but their address; who reads and writes behind it when is V4.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// At least `bytes` bytes, or nothing where the host has no memory.
    fn new(bytes: u64, alignment: u64) -> Option<Self> {
        let bytes = usize::try_from(bytes.checked_next_multiple_of(alignment)?).ok()?;
        let layout = Layout::from_size_align(bytes, usize::try_from(alignment).ok()?).ok()?;
        if layout.size() == 0 {
            return None;
        }
        // SAFETY: the layout has a size. Zeroing would touch every page once before the device pins it.
        let start = NonNull::new(unsafe { alloc(layout) })?;
        Some(Self { start, layout })
    }

    /// The first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How many bytes there are: whole units of the alignment.
    pub(crate) fn bytes(&self) -> u64 {
        self.layout.size() as u64
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout, and freed here only. Every import holds the region that owns
        // `self` (V1), so no device has it any more.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Host memory for a page of this kind that other devices shall reach; `None` where the driver's own is to be taken.
/// This is the one place that decides it.
pub(crate) fn importable(shared: &DeviceShared, bytes: u64, kind: PageKind) -> Option<HostMemory> {
    match kind {
        PageKind::Device => None,
        PageKind::Readback | PageKind::Upload => HostMemory::new(bytes, shared.plan.import_alignment?),
    }
}

/// Device memory over host memory. Complete, or never made.
#[derive(Debug)]
pub(crate) struct Import {
    raw: vk::DeviceMemory,
    shared: Arc<DeviceShared>,
    /// It owns the host memory, which must outlive its import; dropped last.
    _region: Arc<Region>,
}

impl Import {
    /// Imports a region for `buffer`, which was made for [`HANDLE`].
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] where the device does not take it, for whatever reason; [`DeviceError::Lost`].
    pub(crate) fn new(
        shared: &Arc<DeviceShared>,
        region: &Arc<Region>,
        buffer: vk::Buffer,
        kind: PageKind,
    ) -> Result<Self, DeviceError> {
        let (Some(api), Some(alignment)) = (&shared.import, shared.plan.import_alignment) else {
            return Err(DeviceError::OutOfMemory);
        };
        let Some(memory) = region.memory::<HostMemory>() else { return Err(DeviceError::OutOfMemory) };
        let start = memory.start.as_ptr();
        // Another device may have made it, by its own alignment.
        let fits = (start.addr() as u64).is_multiple_of(alignment) && memory.bytes().is_multiple_of(alignment);
        if !fits {
            return Err(DeviceError::OutOfMemory);
        }
        let mut host = vk::MemoryHostPointerPropertiesEXT::default();
        let call = api.fp().get_memory_host_pointer_properties_ext;
        // SAFETY: V5, V6. The pointer is to memory of the host, aligned as the device wants it.
        let result = unsafe { call(api.device(), HANDLE, start.cast(), &mut host) };
        result.result().map_err(|e| refused(shared, e))?;
        // SAFETY: V1.
        let requirements = unsafe { shared.raw().get_buffer_memory_requirements(buffer) };
        let bits = host.memory_type_bits & requirements.memory_type_bits;
        let plan = &shared.plan.memory;
        // The host sees it at its own address, where nothing is flushed: the device has to keep in step.
        let mut types = plan.types(kind).iter().copied().filter(|&t| bits & 1 << t != 0 && plan.is_coherent(t));
        let Some(index) = types.next().filter(|_| requirements.size <= memory.bytes()) else {
            return Err(DeviceError::OutOfMemory);
        };
        if shared.room(plan.heap(index)).is_some_and(|room| room < memory.bytes()) {
            return Err(DeviceError::OutOfMemory);
        }
        let mut pointer = vk::ImportMemoryHostPointerInfoEXT::default().handle_type(HANDLE).host_pointer(start.cast());
        let mut flags = vk::MemoryAllocateFlagsInfo::default();
        let mut allocate = vk::MemoryAllocateInfo::default()
            .allocation_size(memory.bytes())
            .memory_type_index(index)
            .push_next(&mut pointer);
        if shared.plan.features.addresses {
            flags.flags = vk::MemoryAllocateFlags::DEVICE_ADDRESS;
            allocate = allocate.push_next(&mut flags);
        }
        // SAFETY: V1, V5, V6. The pointer and the size are aligned as the device wants them, the type is one that it
        // gave for this pointer, and `region` keeps the memory.
        let raw = unsafe { shared.raw().allocate_memory(&allocate, None) }.map_err(|e| refused(shared, e))?;
        Ok(Self { raw, shared: shared.clone(), _region: region.clone() })
    }

    pub(crate) fn raw(&self) -> vk::DeviceMemory {
        self.raw
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        // SAFETY: V1. V3: the page that owns it is freed when no pending submission names it, and its buffer is gone.
        unsafe { self.shared.raw().free_memory(self.raw, None) };
    }
}

/// Memory that a device does not import is copied by the host instead: no error but a loss is worth telling.
fn refused(shared: &DeviceShared, result: vk::Result) -> DeviceError {
    match shared.fail(result, "importing host memory") {
        lost @ DeviceError::Lost(_) if result == vk::Result::ERROR_DEVICE_LOST => lost,
        _ => DeviceError::OutOfMemory,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_of_whole_units() {
        for (bytes, alignment) in [(1, 4096), (4096, 4096), (5000, 4096), (100, 65536)] {
            let memory = HostMemory::new(bytes, alignment).expect("the host has a page");
            assert_eq!(memory.start().as_ptr().addr() as u64 % alignment, 0);
            assert_eq!((memory.bytes() % alignment, memory.bytes() / alignment), (0, bytes.div_ceil(alignment)));
        }
        assert!(HostMemory::new(u64::MAX, 4096).is_none());
        assert!(HostMemory::new(0, 4096).is_none());
    }
}
