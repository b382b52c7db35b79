//! What is made of a physical device: queue family, memory types, features and limits. Pure.

use crate::extensions;
use crate::features::Features;
use crate::info::DeviceKind;
use ash::vk;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use vkactor_actors::port::PageKind;
use vkactor_actors::properties::MatrixShape;

/// Allocations that are left to the driver and to what is not a page.
const ALLOCATIONS_KEPT: u32 = 16;

/// A physical device as it describes itself.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) name: String,
    pub(crate) kind: DeviceKind,
    pub(crate) driver: String,
    pub(crate) driver_id: vk::DriverId,
    pub(crate) uuid: [u8; 16],
    /// Major and minor version of Vulkan.
    pub(crate) api: (u32, u32),
    pub(crate) extensions: BTreeSet<CString>,
    pub(crate) families: Vec<Family>,
    pub(crate) types: Vec<MemoryType>,
    pub(crate) heaps: Vec<Heap>,
    pub(crate) features: Features,
    pub(crate) limits: Limits,
    pub(crate) cache: CacheKey,
    /// Shapes of the matrix units, for whole subgroups.
    pub(crate) matrix: Vec<MatrixShape>,
}

/// A queue family.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Family {
    pub(crate) flags: vk::QueueFlags,
    pub(crate) count: u32,
    pub(crate) timestamp_bits: u32,
}

/// A memory type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryType {
    pub(crate) flags: vk::MemoryPropertyFlags,
    pub(crate) heap: u32,
}

/// A memory heap. `budget` is what this process may use now, where the driver tells.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heap {
    pub(crate) bytes: u64,
    pub(crate) budget: Option<u64>,
}

/// Limits, in bytes where the name says nothing else.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) push: u32,
    pub(crate) storage_alignment: u64,
    pub(crate) atom: u64,
    pub(crate) allocation_count: u32,
    pub(crate) allocation: u64,
    pub(crate) buffer: u64,
    pub(crate) binding: u64,
    pub(crate) binding_count: u32,
    /// Bindings that fit where descriptors are pushed.
    pub(crate) pushed_count: u32,
    pub(crate) shared: u32,
    pub(crate) groups: [u32; 3],
    pub(crate) units: u32,
    pub(crate) dim: [u32; 3],
    /// Usual, smallest and largest size of a subgroup.
    pub(crate) subgroup: [u32; 3],
    /// Whether compute shaders have the subgroup operations that kernels may use.
    pub(crate) subgroups: bool,
    /// Where imported host memory must start; zero where none can be imported.
    pub(crate) import_alignment: u64,
    /// Nanoseconds of a tick of the clock.
    pub(crate) tick_ns: f32,
}

/// What a stored pipeline cache must agree with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheKey {
    pub(crate) vendor: u32,
    pub(crate) device: u32,
    pub(crate) driver: u32,
    pub(crate) uuid: [u8; 16],
}

/// What the user wants of a device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wishes {
    pub(crate) bounds_check: bool,
    pub(crate) push_descriptors: bool,
    pub(crate) host_import: bool,
}

/// How a device is opened and used.
#[derive(Debug, Clone)]
pub(crate) struct DevicePlan {
    pub(crate) family: u32,
    pub(crate) timestamp_bits: u32,
    pub(crate) memory: MemoryPlan,
    pub(crate) extensions: Vec<&'static CStr>,
    pub(crate) features: Features,
    pub(crate) limits: Limits,
    pub(crate) spirv: (u8, u8),
    pub(crate) driver_id: vk::DriverId,
    pub(crate) bounds_check: bool,
    pub(crate) api: (u32, u32),
    /// Where host memory that is imported must start, and what its size is a multiple of; `None` imports none.
    pub(crate) import_alignment: Option<u64>,
}

/// Memory types of each kind of page, best first, and what they hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemoryPlan {
    device: Vec<u32>,
    upload: Vec<u32>,
    readback: Vec<u32>,
    /// The heap of each type.
    heaps: Vec<u32>,
    /// Whether host and device see each other's writes to memory of each type as they are.
    coherent: Vec<bool>,
    /// Bytes of the heap of device pages that may be used.
    pub(crate) total: u64,
    /// The largest page.
    pub(crate) page_max: u64,
    /// Pages that may live at once.
    pub(crate) page_count_max: u32,
}

impl MemoryPlan {
    /// The types to try for a page, best first.
    pub(crate) fn types(&self, kind: PageKind) -> &[u32] {
        match kind {
            PageKind::Device => &self.device,
            PageKind::Readback => &self.readback,
            PageKind::Upload => &self.upload,
        }
    }
}

impl MemoryPlan {
    /// The heap of a type.
    pub(crate) fn heap(&self, index: u32) -> usize {
        self.heaps[index as usize] as usize
    }

    /// Whether memory of a type needs no flushes.
    pub(crate) fn is_coherent(&self, index: u32) -> bool {
        self.coherent[index as usize]
    }
}

impl Snapshot {
    pub(crate) fn has(&self, extension: &CStr) -> bool {
        self.extensions.contains(extension)
    }

    /// Why this device cannot be used at all, if so.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        if self.api < (1, 2) {
            Some("its Vulkan is older than 1.2")
        } else if !self.features.timeline {
            Some("it has no timeline semaphores")
        } else if choose_family(&self.families).is_none() {
            Some("no queue of it computes")
        } else if rank(&self.types, PageKind::Device, &self.heaps).is_empty()
            || rank(&self.types, PageKind::Upload, &self.heaps).is_empty()
        {
            Some("it has no memory that the host can write")
        } else {
            None
        }
    }

    /// Bytes of the heap that buffers of the device lie in.
    pub(crate) fn device_bytes(&self) -> u64 {
        let best = rank(&self.types, PageKind::Device, &self.heaps).first().copied();
        best.map_or(0, |t| self.heaps[self.types[t as usize].heap as usize].bytes)
    }
}

impl DevicePlan {
    /// The plan for a device, or why it cannot be used.
    pub(crate) fn new(snapshot: &Snapshot, wishes: Wishes) -> Result<Self, &'static str> {
        if let Some(reason) = snapshot.refusal() {
            return Err(reason);
        }
        let Some(family) = choose_family(&snapshot.families) else { return Err("no queue of it computes") };
        let mut extensions: Vec<&'static CStr> =
            extensions::ALL.into_iter().filter(|name| snapshot.has(name)).collect();
        if !wishes.push_descriptors {
            extensions.retain(|name| *name != extensions::PUSH_DESCRIPTOR);
        }
        let import_alignment = Some(snapshot.limits.import_alignment)
            .filter(|alignment| wishes.host_import && *alignment > 0 && snapshot.has(extensions::HOST_IMPORT));
        if import_alignment.is_none() {
            extensions.retain(|name| *name != extensions::HOST_IMPORT);
        }
        let mut features = snapshot.features;
        features.robust_access &= wishes.bounds_check;
        features.robust_access2 &= features.robust_access;
        let mut limits = snapshot.limits;
        if extensions.contains(&extensions::PUSH_DESCRIPTOR) {
            limits.binding_count = limits.binding_count.min(limits.pushed_count);
        }
        Ok(Self {
            family: family as u32,
            timestamp_bits: snapshot.families[family].timestamp_bits,
            memory: MemoryPlan::new(snapshot),
            extensions,
            features,
            limits,
            spirv: if snapshot.api >= (1, 3) { (1, 6) } else { (1, 5) },
            driver_id: snapshot.driver_id,
            bounds_check: wishes.bounds_check,
            api: snapshot.api,
            import_alignment,
        })
    }

    pub(crate) fn has(&self, extension: &CStr) -> bool {
        self.extensions.contains(&extension)
    }

    /// Whether kernels may load, store and add to f32 in buffers atomically.
    pub(crate) fn has_atomic_float(&self) -> bool {
        self.features.atomic_float && self.features.atomic_float_add
    }

    /// Whether kernels may use the matrix units: their code needs the memory model of Vulkan.
    pub(crate) fn has_matrix(&self) -> bool {
        self.features.matrix && self.features.memory_model
    }

    /// Whether kernels must check their accesses themselves: plain robust access keeps them inside the page only,
    /// where the neighbour's slice lies as well.
    pub(crate) fn checks_in_kernels(&self) -> bool {
        self.bounds_check && !self.features.robust_access2
    }

    /// The most bytes of a buffer whose length kernels are told right. NVIDIA's driver says zero from 2 GiB on: seen
    /// with 580.159.04 on 2026-12-02, on an H200. It can go when `a_kernel_is_told_the_length_of_the_largest_binding`
    /// passes there without it.
    pub(crate) fn length_bytes_max(&self) -> u64 {
        if self.driver_id == vk::DriverId::NVIDIA_PROPRIETARY { i32::MAX as u64 } else { u64::MAX }
    }

    /// Whether the driver ends loops after 65,535 iterations, as if they were done. Mesa's llvmpipe does: seen with
    /// 22.3.6 on 2026-12-01, and no later version is known that does not. It can go when the smoke test
    /// `the_driver_cuts_long_loops_short` fails there.
    pub(crate) fn ends_long_loops(&self) -> bool {
        self.driver_id == vk::DriverId::MESA_LLVMPIPE
    }
}

impl MemoryPlan {
    fn new(snapshot: &Snapshot) -> Self {
        let of = |kind| rank(&snapshot.types, kind, &snapshot.heaps);
        let device = of(PageKind::Device);
        let heap = snapshot.heaps[snapshot.types[device[0] as usize].heap as usize];
        let limits = &snapshot.limits;
        Self {
            device,
            upload: of(PageKind::Upload),
            readback: of(PageKind::Readback),
            heaps: snapshot.types.iter().map(|t| t.heap).collect(),
            coherent: snapshot.types.iter().map(|t| t.flags.contains(vk::MemoryPropertyFlags::HOST_COHERENT)).collect(),
            total: heap.budget.map_or(heap.bytes, |budget| budget.min(heap.bytes)),
            page_max: limits.allocation.min(limits.buffer).min(heap.bytes),
            page_count_max: limits.allocation_count.saturating_sub(ALLOCATIONS_KEPT).max(1),
        }
    }
}

/// The family for all work. One without graphics goes first: on an H200 it answers in half the time of the family
/// that does everything (20 against 45 µs for a launch and a read, driver 580).
fn choose_family(families: &[Family]) -> Option<usize> {
    let computes = |f: &Family| f.count > 0 && f.flags.contains(vk::QueueFlags::COMPUTE);
    let alone = |f: &Family| computes(f) && !f.flags.contains(vk::QueueFlags::GRAPHICS);
    families.iter().position(alone).or_else(|| families.iter().position(computes))
}

/// Memory types for a kind of page, best first. Types of equal worth keep the driver's order, which is by speed.
fn rank(types: &[MemoryType], kind: PageKind, heaps: &[Heap]) -> Vec<u32> {
    use vk::MemoryPropertyFlags as F;
    // Memory that only some uses may have, or that needs a feature of its own.
    let special =
        F::PROTECTED | F::LAZILY_ALLOCATED | F::DEVICE_COHERENT_AMD | F::DEVICE_UNCACHED_AMD | F::RDMA_CAPABLE_NV;
    let usable = |t: &MemoryType| !t.flags.intersects(special) && heaps[t.heap as usize].bytes > 0;
    let mut ranked: Vec<(u64, u32)> = Vec::new();
    for (index, t) in types.iter().enumerate().filter(|(_, t)| usable(t)) {
        let has = |flag| t.flags.contains(flag);
        let worth = match kind {
            // The largest local heap; among its types, one that takes no room from host-visible device memory.
            PageKind::Device if has(F::DEVICE_LOCAL) => {
                heaps[t.heap as usize].bytes << 1 | u64::from(!has(F::HOST_VISIBLE))
            }
            PageKind::Device => 0,
            _ if !has(F::HOST_VISIBLE) => continue,
            // Cached, as its bytes are shown to the host as well; never the small window into device memory first.
            PageKind::Upload => order([!has(F::DEVICE_LOCAL), has(F::HOST_COHERENT), has(F::HOST_CACHED)]),
            PageKind::Readback => order([has(F::HOST_CACHED), !has(F::DEVICE_LOCAL), has(F::HOST_COHERENT)]),
        };
        ranked.push((worth, index as u32));
    }
    if kind == PageKind::Device && ranked.iter().any(|(worth, _)| *worth > 0) {
        // Slow host memory in place of device memory would be a surprise; out of memory is an answer.
        ranked.retain(|(worth, _)| *worth > 0);
    }
    ranked.sort_by_key(|(worth, _)| std::cmp::Reverse(*worth));
    ranked.into_iter().map(|(_, index)| index).collect()
}

/// Flags as a number, the first weighing most.
fn order(flags: [bool; 3]) -> u64 {
    flags.into_iter().fold(0, |number, flag| number << 1 | u64::from(flag))
}

#[cfg(test)]
mod tests;
