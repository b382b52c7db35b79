//! The instance and the device, made as small as the benches allow.

use std::ffi::CStr;

use ash::{khr, vk};
use vkactor::DeviceInfo;

use crate::common::Result;

/// A logical device with one queue, and the instance that it belongs to.
pub(crate) struct Device {
    pub(crate) raw: ash::Device,
    /// The family of the queue.
    pub(crate) family: u32,
    pub(crate) physical: vk::PhysicalDevice,
    pub(crate) memory: vk::PhysicalDeviceMemoryProperties,
    pub(crate) instance: Instance,
}

/// An instance without layers. The loader stays as long as it.
pub(crate) struct Instance {
    pub(crate) raw: ash::Instance,
    _entry: ash::Entry,
}

impl Device {
    /// Opens the device that `info` describes.
    pub(super) fn open(info: &DeviceInfo) -> Result<Self> {
        let instance = Instance::new()?;
        let physical = instance.find(info)?;
        // SAFETY: the physical device is the instance's, here and below.
        let memory = unsafe { instance.raw.get_physical_device_memory_properties(physical) };
        let family = compute_family(&instance.raw, physical).ok_or("the device has no compute queue")?;

        let priorities = [1.0];
        let queues = [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&priorities)];
        let mut extensions = Vec::new();
        if has_extension(&instance.raw, physical, khr::push_descriptor::NAME)? {
            extensions.push(khr::push_descriptor::NAME.as_ptr());
        }
        let mut timeline = vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
        let create = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .push_next(&mut timeline);
        // SAFETY: the family and the extensions exist (V6), and what `create` points to outlives the call (V5).
        let raw = unsafe { instance.raw.create_device(physical, &create, None)? };
        Ok(Self { raw, family, physical, memory, instance })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: every object of the device holds it, so there are none left (V1).
        unsafe { self.raw.destroy_device(None) }
    }
}

impl Instance {
    fn new() -> Result<Self> {
        // SAFETY: the loader's start-up code is sound, as for every user of Vulkan.
        let entry = unsafe { ash::Entry::load()? };
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_2);
        let create = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: `application` outlives the call (V5).
        let raw = unsafe { entry.create_instance(&create, None)? };
        Ok(Self { raw, _entry: entry })
    }

    /// The device with the name and the UUID of `info`.
    fn find(&self, info: &DeviceInfo) -> Result<vk::PhysicalDevice> {
        // SAFETY: the instance lives.
        let all = unsafe { self.raw.enumerate_physical_devices()? };
        let same = |device: &vk::PhysicalDevice| {
            let mut id = vk::PhysicalDeviceIDProperties::default();
            let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut id);
            // SAFETY: `id` outlives the call (V5).
            unsafe { self.raw.get_physical_device_properties2(*device, &mut properties) };
            let name = properties.properties.device_name_as_c_str().map(CStr::to_string_lossy);
            name.is_ok_and(|name| name == info.name) && id.device_uuid == info.uuid
        };
        all.into_iter().find(same).ok_or_else(|| format!("plain Vulkan finds no device called {}", info.name).into())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: the device of the instance is destroyed before (V1), and the loader is still there.
        unsafe { self.raw.destroy_instance(None) };
    }
}

/// Whether the device offers an extension.
///
/// # Errors
/// What the driver says.
pub(crate) fn has_extension(instance: &ash::Instance, device: vk::PhysicalDevice, name: &CStr) -> Result<bool> {
    // SAFETY: the device is the instance's.
    let all = unsafe { instance.enumerate_device_extension_properties(device)? };
    Ok(all.iter().any(|extension| extension.extension_name_as_c_str() == Ok(name)))
}

/// A family that computes and does not draw where there is one: its submissions start sooner on NVIDIA.
fn compute_family(instance: &ash::Instance, device: vk::PhysicalDevice) -> Option<u32> {
    // SAFETY: the device is the instance's.
    let families = unsafe { instance.get_physical_device_queue_family_properties(device) };
    let computes = |index: &usize| families[*index].queue_flags.contains(vk::QueueFlags::COMPUTE);
    let draws = |index: &usize| families[*index].queue_flags.contains(vk::QueueFlags::GRAPHICS);
    (0..families.len()).filter(computes).min_by_key(draws).map(|index| index as u32)
}
