//! Descriptor sets for devices that cannot push descriptors: from pools that grow, and are used again.

use crate::device::DeviceShared;
use crate::retire::RetireList;
use ash::vk;
use std::sync::Arc;
use vkactor_actors::port::DeviceError;

/// Sets of one pool, and descriptors where kernels have four buffers on average.
const POOL_SETS: u32 = 256;
const POOL_DESCRIPTORS: u32 = 4 * POOL_SETS;

/// Pools that sets are taken from. Vulkan wants each used by one thread at a time: all of it is `&mut` (V2).
#[derive(Debug)]
pub(crate) struct SetPools {
    /// Where the next set comes from.
    open: Option<vk::DescriptorPool>,
    /// Pools that are full, with sets of what is not submitted yet.
    full: Vec<vk::DescriptorPool>,
    pending: RetireList<vk::DescriptorPool>,
    free: Vec<vk::DescriptorPool>,
    /// Every pool that was made.
    all: Vec<vk::DescriptorPool>,
    shared: Arc<DeviceShared>,
}

impl SetPools {
    pub(crate) fn new(shared: Arc<DeviceShared>) -> Self {
        let pending = RetireList::new();
        Self { open: None, full: Vec::new(), pending, free: Vec::new(), all: Vec::new(), shared }
    }

    /// A set of this layout. It may be written until the commands that name it are submitted.
    pub(crate) fn take(&mut self, layout: vk::DescriptorSetLayout) -> Result<vk::DescriptorSet, DeviceError> {
        if let Some(set) = self.open.and_then(|pool| self.allocate(pool, layout).transpose()) {
            return set;
        }
        self.full.extend(self.open.take());
        let pool = match self.free.pop() {
            Some(pool) => pool,
            None => self.make()?,
        };
        self.open = Some(pool);
        match self.allocate(pool, layout)? {
            Some(set) => Ok(set),
            None => Err(self.shared.lose_because("an empty descriptor pool has no room for one set".into())),
        }
    }

    /// The sets taken so far are in use until the timeline reaches `value`. The open pool goes on: it is full at
    /// some later value, and waits for that one.
    pub(crate) fn submitted(&mut self, value: u64) {
        for pool in self.full.drain(..) {
            self.pending.retire(value, pool);
        }
    }

    /// Empties the pools whose submissions are done.
    pub(crate) fn reached(&mut self, value: u64) {
        while let Some(pool) = self.pending.take(value) {
            // SAFETY: V2: `&mut self`. V3: the list keeps a pool until its sets are done with.
            let reset = unsafe { self.shared.raw().reset_descriptor_pool(pool, vk::DescriptorPoolResetFlags::empty()) };
            // Vulkan gives no error here; a pool that somehow was not reset is not used again.
            if reset.is_ok() {
                self.free.push(pool);
            }
        }
    }

    /// A set from `pool`, or nothing where it is full.
    fn allocate(
        &self,
        pool: vk::DescriptorPool,
        layout: vk::DescriptorSetLayout,
    ) -> Result<Option<vk::DescriptorSet>, DeviceError> {
        let layouts = [layout];
        let allocate = vk::DescriptorSetAllocateInfo::default().descriptor_pool(pool).set_layouts(&layouts);
        // SAFETY: V1, V5. V2: the only caller has `&mut self`.
        match unsafe { self.shared.raw().allocate_descriptor_sets(&allocate) } {
            Ok(sets) => Ok(Some(sets[0])),
            Err(vk::Result::ERROR_OUT_OF_POOL_MEMORY | vk::Result::ERROR_FRAGMENTED_POOL) => Ok(None),
            Err(error) => Err(self.shared.fail(error, "taking a descriptor set")),
        }
    }

    fn make(&mut self) -> Result<vk::DescriptorPool, DeviceError> {
        let count = POOL_DESCRIPTORS.max(self.shared.plan.limits.binding_count.min(u16::MAX.into()));
        let sizes = [vk::DescriptorPoolSize::default().ty(vk::DescriptorType::STORAGE_BUFFER).descriptor_count(count)];
        let create = vk::DescriptorPoolCreateInfo::default().max_sets(POOL_SETS).pool_sizes(&sizes);
        // SAFETY: V1, V5.
        let pool = unsafe { self.shared.raw().create_descriptor_pool(&create, None) };
        let pool = pool.map_err(|e| self.shared.fail(e, "making a descriptor pool"))?;
        self.all.push(pool);
        Ok(pool)
    }
}

impl Drop for SetPools {
    fn drop(&mut self) {
        for &pool in &self.all {
            // SAFETY: V1, V2. V3: the device waits for its queue before it lets go of its pools, and a graph is
            // dropped when no submission names it.
            unsafe { self.shared.raw().destroy_descriptor_pool(pool, None) };
        }
    }
}
