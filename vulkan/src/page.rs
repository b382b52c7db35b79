//! A page: one buffer with device memory of its own, mapped where the host may see it.

use crate::device::DeviceShared;
use crate::host_memory::{HANDLE, HostMemory, Import, importable};
use ash::vk;
use gpu_allocator::vulkan::{Allocation, AllocationCreateDesc, AllocationScheme};
use gpu_allocator::{AllocationError, MemoryLocation};
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vkactor_actors::bytes::Pinned;
use vkactor_actors::engine::command::{PageId, Span};
use vkactor_actors::id::ActorId;
use vkactor_actors::mailbox::Mailbox;
use vkactor_actors::port::{DeviceError, Loan, PageKind};
use vkactor_actors::region::{Region, RegionOwner, RegionSpan};

/// Memory and the buffer over it. Complete, or never made.
pub(crate) struct PageMemory {
    buffer: vk::Buffer,
    bytes: u64,
    /// Where shaders find it, if they can use addresses.
    address: Option<u64>,
    mapped: Option<Mapping>,
    coherent: bool,
    /// Taken out by `drop` alone.
    backing: Backing,
    /// The hold of a region that is this page's own: others that took it in let it go when it is dropped.
    owner: Option<RegionOwner>,
    shared: Arc<DeviceShared>,
}

/// What a page lies in.
enum Backing {
    /// Memory of the driver.
    Driver(Allocation),
    /// Memory of the host.
    Host(Import),
    /// Nothing yet.
    None,
}

/// Where the host sees the first byte.
#[derive(Clone, Copy)]
struct Mapping(NonNull<u8>);

// SAFETY: an address of memory that stays mapped; who reads and writes behind it when is V4.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl PageMemory {
    /// Takes memory for `bytes`: host memory that other devices can reach where the page is to have it and the device
    /// imports it, or else from the driver's best heap that has any.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], also where the device allows no further allocation.
    pub(crate) fn new(shared: &Arc<DeviceShared>, bytes: u64, kind: PageKind) -> Result<Self, DeviceError> {
        if let Some(memory) = importable(shared, bytes, kind) {
            let start = memory.start();
            let owner = RegionOwner::new(memory);
            match Self::over(shared, bytes, owner.region(), kind) {
                Ok(mut page) => {
                    (page.mapped, page.owner) = (Some(Mapping(start)), Some(owner));
                    return Ok(page);
                }
                Err(DeviceError::OutOfMemory) => {}
                Err(lost @ DeviceError::Lost(_)) => return Err(lost),
            }
        }
        let mut page = Self::blank(shared, bytes)?;
        page.buffer = buffer(shared, bytes, false)?;
        let allocation = allocate(shared, page.buffer, kind)?;
        let (offset, properties) = (allocation.offset(), allocation.memory_properties());
        let mapped = allocation.mapped_ptr().map(|at| Mapping(at.cast()));
        // SAFETY: the memory is not freed while `page` lives.
        let memory = unsafe { allocation.memory() };
        page.backing = Backing::Driver(allocation);
        page.bind(memory, offset)?;
        if kind != PageKind::Device {
            assert!(mapped.is_some(), "a host page lies in memory that the host cannot see");
            page.mapped = mapped;
        }
        page.coherent = properties.contains(vk::MemoryPropertyFlags::HOST_COHERENT);
        Ok(page)
    }

    /// A page over memory that another device made, to copy from.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] where this device cannot reach it.
    pub(crate) fn adopted(shared: &Arc<DeviceShared>, region: &Arc<Region>) -> Result<Self, DeviceError> {
        shared.alive()?;
        let memory = region.memory::<HostMemory>().ok_or(DeviceError::OutOfMemory)?;
        Self::over(shared, memory.bytes(), region, PageKind::Upload)
    }

    fn over(shared: &Arc<DeviceShared>, bytes: u64, region: &Arc<Region>, kind: PageKind) -> Result<Self, DeviceError> {
        let mut page = Self::blank(shared, bytes)?;
        page.buffer = buffer(shared, bytes, true)?;
        let import = Import::new(shared, region, page.buffer, kind)?;
        let memory = import.raw();
        page.backing = Backing::Host(import);
        page.bind(memory, 0)?;
        Ok(page)
    }

    /// A page without buffer and memory. From here on `drop` puts the count of allocations right, whatever fails.
    fn blank(shared: &Arc<DeviceShared>, bytes: u64) -> Result<Self, DeviceError> {
        assert!(bytes > 0, "a page of no bytes");
        let live = shared.allocations.fetch_add(1, Ordering::Relaxed);
        let page = Self {
            buffer: vk::Buffer::null(),
            bytes,
            address: None,
            mapped: None,
            coherent: true,
            backing: Backing::None,
            owner: None,
            shared: shared.clone(),
        };
        if live >= shared.plan.memory.page_count_max || bytes > shared.plan.memory.page_max {
            return Err(DeviceError::OutOfMemory);
        }
        Ok(page)
    }

    /// Binds the page's own memory, which its backing keeps.
    fn bind(&mut self, memory: vk::DeviceMemory, offset: u64) -> Result<(), DeviceError> {
        let shared = &self.shared;
        // SAFETY: V1. The memory was made for this buffer, and neither is bound to anything else.
        let bound = unsafe { shared.raw().bind_buffer_memory(self.buffer, memory, offset) };
        bound.map_err(|e| shared.fail(e, "binding memory"))?;
        if shared.plan.features.addresses {
            let of = vk::BufferDeviceAddressInfo::default().buffer(self.buffer);
            // SAFETY: V5, V6: the feature is on, and the buffer was made with the usage for it.
            self.address = Some(unsafe { shared.raw().get_buffer_device_address(&of) });
        }
        Ok(())
    }

    pub(crate) fn buffer(&self) -> vk::Buffer {
        self.buffer
    }

    /// Copies host bytes in.
    fn write(&self, offset: u64, bytes: &[u8]) {
        self.check(offset, bytes.len() as u64);
        let Some(Mapping(start)) = self.mapped else { unreachable!("the host writes to a device page") };
        // SAFETY: V8: `check`. V4: the engine writes only where nothing pending reads and nobody is shown bytes, so
        // the two ranges are apart as well.
        unsafe {
            let to = start.as_ptr().add(offset as usize);
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        self.keep_in_step(offset, bytes.len() as u64, true);
    }

    /// The bytes as the host sees them.
    fn slice(&self, offset: u64, len: u64) -> &[u8] {
        self.check(offset, len);
        let Some(Mapping(start)) = self.mapped else { unreachable!("the host looks into a device page") };
        // SAFETY: V8: `check`. V4: the engine shows the range when it has been written, and leaves it alone while it is
        // shown. It stays mapped as long as `self`.
        unsafe { std::slice::from_raw_parts(start.as_ptr().add(offset as usize), len as usize) }
    }

    fn check(&self, offset: u64, len: u64) {
        let end = offset.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.bytes), "{len} bytes at {offset} of a page of {}", self.bytes);
    }

    /// Makes what one side wrote seen by the other, where the memory does not do so by itself: `flush` for writes of
    /// the host, otherwise for those of the device.
    fn keep_in_step(&self, offset: u64, len: u64, flush: bool) {
        let Backing::Driver(allocation) = &self.backing else { return };
        if self.coherent || len == 0 {
            return;
        }
        let (start, size) = atom_range(offset, len, self.shared.plan.limits.atom, allocation.size());
        // SAFETY: the memory is not freed while `self` lives.
        let memory = unsafe { allocation.memory() };
        let range = [vk::MappedMemoryRange::default().memory(memory).offset(start).size(size)];
        // SAFETY: V5; the memory is mapped from its start, and `atom_range` keeps to its end.
        let result = unsafe {
            match flush {
                true => self.shared.raw().flush_mapped_memory_ranges(&range),
                false => self.shared.raw().invalidate_mapped_memory_ranges(&range),
            }
        };
        if let Err(error) = result {
            // The bytes are not to be trusted any more, and nothing that reads them could tell.
            self.shared.lose(error, "keeping host memory in step");
        }
    }
}

impl fmt::Debug for PageMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageMemory").field("buffer", &self.buffer).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Drop for PageMemory {
    fn drop(&mut self) {
        // SAFETY: V1. V3: the engine frees a page when no pending submission names it. Null is allowed.
        unsafe { self.shared.raw().destroy_buffer(self.buffer, None) };
        match std::mem::replace(&mut self.backing, Backing::None) {
            Backing::Driver(allocation) => {
                if let Err(error) = self.shared.allocator().free(allocation) {
                    tracing::warn!("memory of a page was not freed: {error}");
                }
            }
            Backing::Host(import) => drop(import),
            Backing::None => {}
        }
        self.shared.allocations.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Rounds a range out to whole atoms, and never past the end of the memory.
fn atom_range(offset: u64, len: u64, atom: u64, memory: u64) -> (u64, u64) {
    let start = offset / atom * atom;
    let end = (offset + len).next_multiple_of(atom).min(memory);
    (start, end - start)
}

/// What buffers of pages may be used for, beside addresses where there are any.
pub(crate) const USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::STORAGE_BUFFER.as_raw()
        | vk::BufferUsageFlags::TRANSFER_SRC.as_raw()
        | vk::BufferUsageFlags::TRANSFER_DST.as_raw()
        | vk::BufferUsageFlags::INDIRECT_BUFFER.as_raw(),
);

/// A buffer without memory: `imported` for that of the host, otherwise for that of the driver.
fn buffer(shared: &DeviceShared, bytes: u64, imported: bool) -> Result<vk::Buffer, DeviceError> {
    let mut usage = USAGE;
    if shared.plan.features.addresses {
        usage |= vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS;
    }
    let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(HANDLE);
    let mut create = vk::BufferCreateInfo::default().size(bytes).usage(usage).sharing_mode(vk::SharingMode::EXCLUSIVE);
    if imported {
        create = create.push_next(&mut external);
    }
    // SAFETY: V1, V5. V6: the usage for addresses goes with the feature.
    unsafe { shared.raw().create_buffer(&create, None) }.map_err(|e| shared.fail(e, "making a buffer"))
}

fn allocate(shared: &DeviceShared, buffer: vk::Buffer, kind: PageKind) -> Result<Allocation, DeviceError> {
    // SAFETY: V1.
    let requirements = unsafe { shared.raw().get_buffer_memory_requirements(buffer) };
    for &index in shared.plan.memory.types(kind) {
        if requirements.memory_type_bits & 1 << index == 0 {
            continue;
        }
        // Some drivers give out more host memory than they can pin, and lose the device when it is used
        // (ggml-org/llama.cpp#29213). Device memory they do refuse in time.
        let heap = shared.plan.memory.heap(index);
        if kind != PageKind::Device && shared.room(heap).is_some_and(|room| room < requirements.size) {
            continue;
        }
        // One type is left to choose from: the plan has chosen.
        let requirements = vk::MemoryRequirements { memory_type_bits: 1 << index, ..requirements };
        let allocation = shared.allocator().allocate(&AllocationCreateDesc {
            name: "page",
            requirements,
            location: MemoryLocation::Unknown,
            linear: true,
            allocation_scheme: AllocationScheme::DedicatedBuffer(buffer),
        });
        match allocation {
            Ok(allocation) => return Ok(allocation),
            Err(AllocationError::OutOfMemory) => {}
            // The allocator tells results that it does not know as text: out of host memory is one of them.
            Err(error) => tracing::warn!("{} bytes of memory type {index}: {error}", requirements.size),
        }
    }
    Err(DeviceError::OutOfMemory)
}

/// The pages of a device, by their ids.
#[derive(Debug, Default)]
pub(crate) struct PageTable {
    pages: HashMap<PageId, Page, BuildHasherDefault<IdHasher>>,
}

#[derive(Debug)]
struct Page {
    memory: Arc<PageMemory>,
    kind: PageKind,
}

/// A range of a page, found and checked (V7, V8).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) buffer: vk::Buffer,
    pub(crate) kind: PageKind,
    /// Address of the first byte.
    pub(crate) address: Option<u64>,
}

impl PageTable {
    pub(crate) fn insert(&mut self, id: PageId, memory: PageMemory, kind: PageKind) {
        let before = self.pages.insert(id, Page { memory: Arc::new(memory), kind });
        assert!(before.is_none(), "{id:?} exists");
    }

    /// Lets go of a page. Its memory stays while bytes of it are shown.
    pub(crate) fn remove(&mut self, id: PageId) {
        let page = self.pages.remove(&id);
        assert!(page.is_some(), "{id:?} is not there to be freed");
    }

    pub(crate) fn place(&self, at: Span) -> Place {
        let Page { memory, kind } = self.page(at);
        let address = memory.address.map(|start| start + at.offset);
        Place { buffer: memory.buffer, kind: *kind, address }
    }

    /// Writes to an upload page.
    pub(crate) fn write(&self, to: Span, bytes: &[u8]) {
        let page = self.page(to);
        assert_eq!(page.kind, PageKind::Upload, "the host writes to upload pages only");
        assert_eq!(to.size, bytes.len() as u64, "the range has the size of the bytes");
        page.memory.write(to.offset, bytes);
    }

    /// Shows a range of a host page.
    pub(crate) fn show(&self, at: Span, mailbox: Mailbox) -> Shown {
        let page = self.page(at);
        if page.kind == PageKind::Readback {
            page.memory.keep_in_step(at.offset, at.size, false);
        }
        Shown { memory: page.memory.clone(), loan: Loan::new(at, mailbox) }
    }

    fn page(&self, at: Span) -> &Page {
        let Some(page) = self.pages.get(&at.page) else { unreachable!("{:?} is unknown", at.page) };
        page.memory.check(at.offset, at.size);
        page
    }
}

/// Page ids are small numbers in a row: a multiplication spreads them.
#[derive(Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, id: u32) {
        // 2⁶⁴ over the golden ratio (Knuth, The Art of Computer Programming, 6.4).
        self.0 = (self.0 ^ u64::from(id)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// A range of a host page that someone looks at.
#[derive(Debug)]
pub(crate) struct Shown {
    memory: Arc<PageMemory>,
    loan: Loan,
}

impl Shown {
    /// Copies bytes in, from any thread.
    pub(crate) fn fill(&self, bytes: &[u8]) {
        let at = self.loan.span();
        assert_eq!(at.size, bytes.len() as u64, "the range has the size of the bytes");
        self.memory.write(at.offset, bytes);
    }
}

impl Pinned for Shown {
    fn as_slice(&self) -> &[u8] {
        let at = self.loan.span();
        self.memory.slice(at.offset, at.size)
    }

    fn place(&self, actor: ActorId) -> Option<Span> {
        self.loan.place(actor)
    }

    fn region(&self) -> Option<RegionSpan> {
        let owner = self.memory.owner.as_ref()?;
        Some(RegionSpan { region: owner.region().clone(), offset: self.loan.span().offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_grow_to_whole_atoms_and_not_past_the_memory() {
        for atom in [1u64, 64, 256] {
            for offset in 0..600u64 {
                for len in 1..600 {
                    for memory in [offset + len, (offset + len).next_multiple_of(atom), 4096] {
                        let (start, size) = atom_range(offset, len, atom, memory);
                        let end = start + size;
                        assert!(start <= offset && offset - start < atom && start % atom == 0);
                        assert!(end >= offset + len && end <= memory && end - (offset + len) < atom);
                        assert!(end % atom == 0 || end == memory);
                    }
                }
            }
        }
    }

    #[test]
    fn neighbouring_ids_spread_over_the_table() {
        let hash = |id: u32| {
            let mut hasher = IdHasher::default();
            hasher.write_u32(id);
            hasher.finish() >> 57
        };
        let distinct: std::collections::HashSet<u64> = (0..64).map(hash).collect();
        assert!(distinct.len() > 32, "{distinct:?}");
    }
}
