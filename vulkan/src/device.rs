//! The logical device that everything else holds on to.

use crate::calibration::Calibration;
use crate::error::{describe, device_error, open_error};
use crate::extensions;
use crate::features::FeatureChain;
use crate::instance::Instance;
use crate::plan::DevicePlan;
use crate::snapshot::text;
use ash::{ext, khr, vk};
use gpu_allocator::vulkan::{Allocator, AllocatorCreateDesc};
use std::fmt;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use vkactor_actors::error::ComputeError;
use vkactor_actors::port::DeviceError;

/// A logical device, what was enabled on it, and whether it is lost. Every owner of a Vulkan object holds it in an
/// `Arc`, so it dies last (V1); its fields drop in the order written.
pub(crate) struct DeviceShared {
    allocator: Mutex<Allocator>,
    /// Allocations that live, pages and others.
    pub(crate) allocations: AtomicU32,
    /// Present where the extension was enabled (V6).
    pub(crate) push: Option<khr::push_descriptor::Device>,
    fault: Option<ext::device_fault::Device>,
    /// Present where the host can read the device's clock.
    pub(crate) calibration: Option<Calibration>,
    /// Present where host memory is imported (V6).
    pub(crate) import: Option<ext::external_memory_host::Device>,
    lost: OnceLock<String>,
    pub(crate) plan: DevicePlan,
    logical: Logical,
}

/// The `VkDevice`, destroyed before its instance.
struct Logical {
    raw: ash::Device,
    physical: vk::PhysicalDevice,
    instance: Arc<Instance>,
}

impl DeviceShared {
    /// Makes the logical device of a plan, and gives its queue.
    pub(crate) fn open(
        instance: Arc<Instance>,
        physical: vk::PhysicalDevice,
        plan: DevicePlan,
    ) -> Result<(Arc<Self>, vk::Queue), ComputeError> {
        let logical = Logical::new(instance, physical, &plan)?;
        let allocator = Allocator::new(&AllocatorCreateDesc {
            instance: logical.instance.raw.clone(),
            device: logical.raw.clone(),
            physical_device: physical,
            debug_settings: gpu_allocator::AllocatorDebugSettings::default(),
            buffer_device_address: plan.features.addresses,
            allocation_sizes: gpu_allocator::AllocationSizes::default(),
        });
        let allocator = allocator.map_err(|e| open_error("making the allocator", e))?;
        let (raw, instance) = (&logical.raw, &logical.instance.raw);
        let push = plan.has(extensions::PUSH_DESCRIPTOR).then(|| khr::push_descriptor::Device::new(instance, raw));
        let fault = plan.features.fault.then(|| ext::device_fault::Device::new(instance, raw));
        let calibration = Calibration::new(&logical.instance, physical, raw, &plan);
        let import = plan.import_alignment.map(|_| ext::external_memory_host::Device::new(instance, raw));
        // SAFETY: V1: the device is alive, and was made with one queue of this family.
        let queue = unsafe { raw.get_device_queue(plan.family, 0) };
        let shared = Self {
            allocator: Mutex::new(allocator),
            allocations: AtomicU32::new(0),
            push,
            fault,
            calibration,
            import,
            lost: OnceLock::new(),
            plan,
            logical,
        };
        Ok((Arc::new(shared), queue))
    }

    /// The device's functions.
    pub(crate) fn raw(&self) -> &ash::Device {
        &self.logical.raw
    }

    pub(crate) fn allocator(&self) -> MutexGuard<'_, Allocator> {
        self.allocator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that this process may still take from a heap, where the driver tells.
    pub(crate) fn room(&self, heap: usize) -> Option<u64> {
        if !self.plan.has(extensions::MEMORY_BUDGET) {
            return None;
        }
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut head = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        let Logical { physical, instance, .. } = &self.logical;
        // SAFETY: V1, V5, V6.
        unsafe { instance.raw.get_physical_device_memory_properties2(*physical, &mut head) };
        let (budget, usage) = (budget.heap_budget[heap], budget.heap_usage[heap]);
        (budget > 0).then(|| budget.saturating_sub(usage))
    }

    /// The loss, where it is known.
    pub(crate) fn alive(&self) -> Result<(), DeviceError> {
        match self.lost.get() {
            Some(reason) => Err(DeviceError::Lost(reason.clone())),
            None => Ok(()),
        }
    }

    /// The error of a call that work depends on. Whatever it was, the state of the work is unknown from here on, so
    /// the device counts as lost: the first reason is kept, with what the driver knows about it.
    pub(crate) fn lose(&self, result: vk::Result, doing: &str) -> DeviceError {
        self.lose_because(format!("{doing}: {}", describe(result)))
    }

    /// As [`DeviceShared::lose`], for what no result of Vulkan tells.
    pub(crate) fn lose_because(&self, reason: String) -> DeviceError {
        let reason = self.lost.get_or_init(|| match self.fault_text() {
            Some(text) => format!("{reason} ({text})"),
            None => reason,
        });
        DeviceError::Lost(reason.clone())
    }

    /// The error of making an object, which leaves the device as it was unless it is lost.
    pub(crate) fn fail(&self, result: vk::Result, doing: &str) -> DeviceError {
        match result {
            vk::Result::ERROR_DEVICE_LOST => self.lose(result, doing),
            other => device_error(other, doing),
        }
    }

    /// The driver's description of a fault.
    fn fault_text(&self) -> Option<String> {
        let api = self.fault.as_ref()?;
        let mut counts = vk::DeviceFaultCountsEXT::default();
        let call = api.fp().get_device_fault_info_ext;
        // SAFETY: V6: the feature was enabled. V5: `counts` outlives the call.
        let result = unsafe { call(api.device(), &mut counts, std::ptr::null_mut()) };
        if result != vk::Result::SUCCESS {
            return None;
        }
        // No room for the arrays: the description is all that is of use here.
        counts.address_info_count = 0;
        counts.vendor_info_count = 0;
        counts.vendor_binary_size = 0;
        let mut found = vk::DeviceFaultInfoEXT::default();
        // SAFETY: as above; the counts say that there is no room behind the null pointers of `found`.
        let result = unsafe { call(api.device(), &mut counts, &mut found) };
        let told = matches!(result, vk::Result::SUCCESS | vk::Result::INCOMPLETE);
        Some(text(&found.description)).filter(|text| told && !text.is_empty())
    }
}

impl fmt::Debug for DeviceShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceShared").field("plan", &self.plan).field("lost", &self.lost).finish_non_exhaustive()
    }
}

impl Logical {
    fn new(instance: Arc<Instance>, physical: vk::PhysicalDevice, plan: &DevicePlan) -> Result<Self, ComputeError> {
        let names: Vec<_> = plan.extensions.iter().map(|name| name.as_ptr()).collect();
        let priorities = [1.0];
        let queues =
            [vk::DeviceQueueCreateInfo::default().queue_family_index(plan.family).queue_priorities(&priorities)];
        let mut chain = FeatureChain::of(&plan.features);
        let mut features = chain.link(plan.api, |name| plan.has(name));
        let create = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&names)
            .push_next(&mut features);
        // SAFETY: V5: all that `create` points to is in this function. V6: extensions and features were listed by
        // the device. The family exists.
        let raw = unsafe { instance.raw.create_device(physical, &create, None) };
        let raw = raw.map_err(|e| open_error("making the device", describe(e)))?;
        crate::exit::stop_actors_at_exit();
        Ok(Self { raw, physical, instance })
    }
}

impl Drop for Logical {
    fn drop(&mut self) {
        // SAFETY: V1: every object of the device holds `DeviceShared`, so none is left.
        unsafe { self.raw.destroy_device(None) };
    }
}
