//! Group counts that lie on the device: checked there before they are used.
//!
//! Vulkan leaves an indirect dispatch past the limit undefined, and the host does not know the counts. A small
//! kernel copies them to a slot of the device's own, as zero where one of them is too large; the dispatch reads that.

use crate::compiler::VulkanCompiler;
use crate::device::DeviceShared;
use crate::page::PageMemory;
use crate::pipeline::Pipeline;
use ash::vk;
use std::sync::Arc;
use vkactor_actors::engine::command::Span;
use vkactor_actors::error::LaunchError;
use vkactor_actors::kernel::{KernelOptions, KernelSource};
use vkactor_actors::port::{Compiler, DeviceError, PageKind};

/// Bytes of three group counts.
pub(crate) const COUNTS_BYTES: u64 = 12;

const CODE: &str = "
struct Check { limit_x: u32, limit_y: u32, limit_z: u32, first: u32 }
var<immediate> check: Check;
@group(0) @binding(0) var<storage, read> counts: array<u32>;
@group(0) @binding(1) var<storage, read_write> slot: array<u32>;

@compute @workgroup_size(1)
fn main() {
    let wanted = vec3(counts[check.first], counts[check.first + 1u], counts[check.first + 2u]);
    let limit = vec3(check.limit_x, check.limit_y, check.limit_z);
    let used = select(vec3(0u), wanted, all(wanted <= limit));
    slot[0] = used.x;
    slot[1] = used.y;
    slot[2] = used.z;
}
";

/// The kernel and the slot: made at the first dispatch that needs them, as most programs never do.
#[derive(Debug)]
pub(crate) struct CountCheck {
    pub(crate) pipeline: Pipeline,
    slot: PageMemory,
    limit: [u32; 3],
    alignment: u64,
}

impl CountCheck {
    pub(crate) fn new(shared: &Arc<DeviceShared>, compiler: &VulkanCompiler) -> Result<Self, DeviceError> {
        let source = KernelSource::Wgsl { code: CODE.into(), entry: "main".into() };
        let compiled = compiler.compile("vkactor count check", source, &KernelOptions::default());
        let pipeline = match compiled {
            Ok(compiled) => compiled.pipeline,
            Err(LaunchError::OutOfMemory { .. }) => return Err(DeviceError::OutOfMemory),
            // The code is ours and of the plainest kind: a device that refuses it runs nothing else either.
            Err(error) => return Err(shared.lose_because(error.to_string())),
        };
        let slot = PageMemory::new(shared, COUNTS_BYTES, PageKind::Device)?;
        let limits = &shared.plan.limits;
        Ok(Self { pipeline, slot, limit: limits.groups, alignment: limits.storage_alignment })
    }

    /// Where the checked counts are.
    pub(crate) fn slot(&self) -> vk::Buffer {
        self.slot.buffer()
    }

    /// The bindings and parameters that check the counts at `at` of `buffer`. A binding starts on the device's
    /// alignment only, so it may start before the counts.
    pub(crate) fn arguments(&self, buffer: vk::Buffer, at: Span) -> ([vk::DescriptorBufferInfo; 2], [u32; 4]) {
        assert!(at.size >= COUNTS_BYTES && at.offset.is_multiple_of(4), "group counts at {at:?}");
        let start = at.offset / self.alignment * self.alignment;
        let before = at.offset - start;
        let counts = vk::DescriptorBufferInfo { buffer, offset: start, range: before + COUNTS_BYTES };
        let slot = vk::DescriptorBufferInfo { buffer: self.slot(), offset: 0, range: COUNTS_BYTES };
        let [x, y, z] = self.limit;
        ([counts, slot], [x, y, z, (before / 4) as u32])
    }
}
