//! What a device is made of, as its driver lists it: for people who look, not for the runtime.

use crate::plan::Snapshot;
use ash::vk;

/// The parts of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInventory {
    /// The version of Vulkan that it speaks, major and minor.
    pub api: (u32, u32),
    /// Its memory, heap by heap.
    pub heaps: Vec<MemoryHeap>,
    /// Its queues, family by family.
    pub queue_families: Vec<QueueFamily>,
}

/// A heap of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryHeap {
    /// How large it is.
    pub bytes: u64,
    /// Bytes that this process may use now, where the driver tells.
    pub budget: Option<u64>,
    /// Whether it is the device's own memory.
    pub device_local: bool,
    /// Whether the host can map memory of it.
    pub host_visible: bool,
}

/// Queues of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFamily {
    /// How many there are.
    pub count: u32,
    /// Whether they take launches.
    pub compute: bool,
    /// Whether they draw.
    pub graphics: bool,
    /// Whether they copy: said of itself, or as a part of the other two.
    pub transfer: bool,
    /// Bits of a timestamp; 0 where they take none.
    pub timestamp_bits: u32,
}

impl DeviceInventory {
    pub(crate) fn of(found: &Snapshot) -> Self {
        let any = |heap: usize, flag| found.types.iter().any(|t| t.heap as usize == heap && t.flags.contains(flag));
        let heap = |(index, heap): (usize, &crate::plan::Heap)| MemoryHeap {
            bytes: heap.bytes,
            budget: heap.budget,
            device_local: any(index, vk::MemoryPropertyFlags::DEVICE_LOCAL),
            host_visible: any(index, vk::MemoryPropertyFlags::HOST_VISIBLE),
        };
        let family = |family: &crate::plan::Family| QueueFamily {
            count: family.count,
            compute: family.flags.contains(vk::QueueFlags::COMPUTE),
            graphics: family.flags.contains(vk::QueueFlags::GRAPHICS),
            transfer: family.flags.intersects(COPYING),
            timestamp_bits: family.timestamp_bits,
        };
        Self {
            api: found.api,
            heaps: found.heaps.iter().enumerate().map(heap).collect(),
            queue_families: found.families.iter().map(family).collect(),
        }
    }
}

/// Graphics and compute queues copy whether they say so or not (Vulkan 1.3, 5.1).
const COPYING: vk::QueueFlags = vk::QueueFlags::from_raw(
    vk::QueueFlags::TRANSFER.as_raw() | vk::QueueFlags::GRAPHICS.as_raw() | vk::QueueFlags::COMPUTE.as_raw(),
);
