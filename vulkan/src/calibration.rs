//! The device's clock, read by the host.

use crate::extensions;
use crate::instance::Instance;
use crate::plan::DevicePlan;
use ash::{ext, khr, vk};

/// Reads the clock that timestamps are taken from. The extension has two names, and the same call under both.
pub(crate) enum Calibration {
    Ext(ext::calibrated_timestamps::Device),
    Khr(khr::calibrated_timestamps::Device),
}

impl Calibration {
    /// `None` where the device lacks the extension, or its clock is none of those that can be read.
    pub(crate) fn new(
        instance: &Instance,
        physical: vk::PhysicalDevice,
        device: &ash::Device,
        plan: &DevicePlan,
    ) -> Option<Self> {
        let (entry, raw) = (instance.entry(), &instance.raw);
        // SAFETY: V1: the instance lives. V6: the plan has enabled the extension, here and below.
        let (domains, found) = unsafe {
            if plan.has(extensions::CALIBRATED_KHR) {
                let domains = khr::calibrated_timestamps::Instance::new(entry, raw)
                    .get_physical_device_calibrateable_time_domains(physical);
                (domains, Self::Khr(khr::calibrated_timestamps::Device::new(raw, device)))
            } else if plan.has(extensions::CALIBRATED) {
                let domains = ext::calibrated_timestamps::Instance::new(entry, raw)
                    .get_physical_device_calibrateable_time_domains(physical);
                (domains, Self::Ext(ext::calibrated_timestamps::Device::new(raw, device)))
            } else {
                return None;
            }
        };
        domains.is_ok_and(|domains| domains.contains(&vk::TimeDomainKHR::DEVICE)).then_some(found)
    }

    /// What the device's clock shows now.
    pub(crate) fn ticks(&self) -> Option<u64> {
        let of_device = [vk::CalibratedTimestampInfoKHR::default().time_domain(vk::TimeDomainKHR::DEVICE)];
        // SAFETY: V1: whoever holds the device holds this. V6: the domain was listed.
        let read = unsafe {
            match self {
                Self::Ext(api) => api.get_calibrated_timestamps(&of_device),
                Self::Khr(api) => api.get_calibrated_timestamps(&of_device),
            }
        };
        read.ok()?.0.first().copied()
    }
}
