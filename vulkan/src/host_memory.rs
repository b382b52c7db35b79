//! Host memory that devices import: our own, which one device makes and others copy from, and that of a user's bytes.

use crate::device::DeviceShared;
use ash::vk;
use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use vkactor_actors::bytes::{AllocationProperty, Bytes, Pinned};
use vkactor_actors::engine::command::Span;
use vkactor_actors::id::ActorId;
use vkactor_actors::port::{DeviceError, PageKind};
use vkactor_actors::region::{Region, RegionOwner, RegionSpan};

/// How all imported memory is known to Vulkan.
pub(crate) const HANDLE: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT;

/// Memory of the host, aligned for import, with whatever it holds: like memory of the driver it is shown only where a
/// device or the host has written it. It is freed when the last device has let it go.
#[derive(Debug)]
pub(crate) struct HostMemory {
    start: NonNull<u8>,
    bytes: u64,
    keep: Keep,
}

/// What keeps the memory there.
#[derive(Debug)]
enum Keep {
    /// It is our own, of this layout.
    Own(Layout),
    /// It is that of these bytes, and of whatever else lies on their first and last page.
    Lent { _bytes: Bytes },
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
        Some(Self { start, bytes: layout.size() as u64, keep: Keep::Own(layout) })
    }

    /// The whole pages that `bytes` lie on, and where they start there. Devices must not write to it.
    fn under(bytes: &Bytes) -> Option<(Self, u64)> {
        let first = NonNull::from(bytes.first()?).cast::<u8>();
        let offset = first.as_ptr().addr() % PAGE_BYTES;
        let size = offset.checked_add(bytes.len())?.checked_next_multiple_of(PAGE_BYTES)?;
        // The page that a byte lies on starts in front of it.
        let start = NonNull::new(first.as_ptr().wrapping_sub(offset))?;
        let keep = Keep::Lent { _bytes: bytes.clone() };
        Some((Self { start, bytes: size as u64, keep }, offset as u64))
    }

    /// The first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How many bytes there are: whole units of the alignment.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // Every import holds the region that owns `self` (V1), so no device has it any more.
        if let Keep::Own(layout) = self.keep {
            // SAFETY: allocated by `new` with this layout, and freed here only.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
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

/// Bytes that lie in ordinary memory, as devices may import them from where they are; `None` for no bytes, and for
/// bytes that are not at hand.
pub fn lend(bytes: &Bytes) -> Option<Bytes> {
    if bytes.property() != AllocationProperty::Native {
        return None;
    }
    let (memory, offset) = HostMemory::under(bytes)?;
    Some(Bytes::from_pinned(Arc::new(Lent { bytes: bytes.clone(), owner: RegionOwner::new(memory), offset })))
}

/// A user's bytes, as a region that any device may take in.
struct Lent {
    bytes: Bytes,
    owner: RegionOwner,
    offset: u64,
}

impl Pinned for Lent {
    fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    fn place(&self, _: ActorId) -> Option<Span> {
        None
    }

    fn region(&self) -> Option<RegionSpan> {
        Some(RegionSpan { region: self.owner.region().clone(), offset: self.offset })
    }
}

/// What memory of others is cut to. Devices that want coarser units copy from where the host has put it.
const PAGE_BYTES: usize = 4096;

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
    fn lent_bytes_lie_on_whole_pages_where_they_were() {
        for len in [1, 4096, 100_000, 1 << 20] {
            let bytes = Bytes::from(vec![7; len]);
            let (memory, offset) = HostMemory::under(&bytes).expect("there are bytes");
            assert_eq!(memory.start().as_ptr().addr() + offset as usize, bytes.as_ptr().addr());
            assert!(memory.start().as_ptr().addr() % 4096 == 0 && memory.bytes() % 4096 == 0);
            assert!(memory.bytes() >= offset + len as u64 && memory.bytes() < offset + len as u64 + 4096);
        }
        assert!(lend(&Bytes::default()).is_none());
    }

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
