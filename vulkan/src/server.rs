//! Finding devices and opening them.

use crate::cache;
use crate::device::DeviceShared;
use crate::error::open_error;
use crate::info::{DeviceInfo, Listing, RefusedDevice};
use crate::instance::{Instance, instance, no_device};
use crate::inventory::DeviceInventory;
use crate::plan::{DevicePlan, Snapshot, Wishes};
use crate::port::{Setup, VulkanDevice};
use crate::snapshot::snapshot;
use ash::vk;
use std::path::PathBuf;
use std::time::Duration;
use vkactor_actors::error::ComputeError;
use vkactor_actors::id::DeviceId;
use vkactor_actors::server::{ComputeStorage, Server, ServerStorage};

/// The family of devices that this crate lists, in their ids.
pub const VULKAN_TYPE: u16 = 1;

/// How long a waiter polls before it sleeps: twice what an H200 takes for a small launch (driver 580).
const SPIN: Duration = Duration::from_micros(50);

/// A Vulkan device that is open, for an actor to drive.
#[derive(Debug)]
pub struct Vulkan {
    device: VulkanDevice,
}

/// How a device is opened.
#[derive(Debug, Clone)]
pub struct VulkanOptions {
    /// Turns the validation layer on; where it is not installed, a warning is all that comes of it.
    pub validation: bool,
    /// Accesses of kernels out of bounds stay inside the buffers of their launch. On by default.
    pub bounds_check: bool,
    /// The directory where compiled pipelines are kept between runs; `None` keeps none. By default `vkactor` in the
    /// user's directory for caches.
    pub pipeline_cache: Option<PathBuf>,
    /// How long the thread that waits for the device polls before it sleeps.
    pub spin: Duration,
    /// Whether descriptors are pushed where the device can do that; otherwise they lie in sets. On by default; off,
    /// a launch may have more buffers on some devices, and costs more on all.
    pub push_descriptors: bool,
    /// Whether host pages lie in memory that other devices can import, where the device can import it itself. On by
    /// default. Off, there is no transport: bytes between devices are copied by the host on their way.
    pub host_import: bool,
}

impl Default for VulkanOptions {
    fn default() -> Self {
        Self {
            validation: false,
            bounds_check: true,
            pipeline_cache: cache::default_directory(),
            spin: SPIN,
            push_descriptors: true,
            host_import: true,
        }
    }
}

impl Vulkan {
    /// Opens a device of [`list`] with the default options.
    ///
    /// # Errors
    /// As [`Vulkan::open_with`].
    pub fn open(device: DeviceId) -> Result<Self, ComputeError> {
        Self::open_with(device, &VulkanOptions::default())
    }

    /// Opens a device of [`list`].
    ///
    /// # Errors
    /// [`ComputeError::UnknownDevice`] where the list has no such device, [`ComputeError::NoLoader`] or
    /// [`ComputeError::NoDevice`] where there is no list, and [`ComputeError::Server`] where the driver refuses.
    pub fn open_with(device: DeviceId, options: &VulkanOptions) -> Result<Self, ComputeError> {
        let instance = instance(options.validation)?;
        let mut found = find(&instance)?.usable;
        let place = usize::from(device.index_id);
        if device.type_id != VULKAN_TYPE || place >= found.len() {
            return Err(ComputeError::UnknownDevice(device));
        }
        let (physical, snapshot) = found.swap_remove(place);
        let VulkanOptions { bounds_check, push_descriptors, host_import, .. } = *options;
        let wishes = Wishes { bounds_check, push_descriptors, host_import };
        let plan = DevicePlan::new(&snapshot, wishes).map_err(|reason| open_error(&snapshot.name, reason))?;
        tracing::debug!(device = %snapshot.name, driver = %snapshot.driver, ?plan, "opening");
        let (shared, queue) = DeviceShared::open(instance, physical, plan)?;
        let setup = Setup {
            cache_directory: options.pipeline_cache.as_deref(),
            cache_key: snapshot.cache,
            matrix: snapshot.matrix,
            spin: options.spin,
        };
        let device = VulkanDevice::new(shared, queue, setup).map_err(|e| open_error(&snapshot.name, e))?;
        Ok(Self { device })
    }
}

impl Server for Vulkan {
    type Device = VulkanDevice;

    fn open(device: DeviceId) -> Result<Self, ComputeError> {
        Self::open(device)
    }

    fn into_device(self) -> VulkanDevice {
        self.device
    }
}

/// How [`Vulkan`] keeps memory.
#[derive(Debug)]
pub struct VulkanStorage;

/// Raw Vulkan names of a slice of memory, for code that calls Vulkan itself.
#[derive(Debug, Clone)]
pub struct VulkanResource {
    /// The `VkBuffer`. It holds other slices as well.
    pub buffer: u64,
    /// Where the slice starts in the buffer, in bytes.
    pub offset: u64,
    /// Bytes of the slice.
    pub size: u64,
    /// The device's address of the first byte, where shaders can use addresses.
    pub address: Option<u64>,
}

impl ComputeStorage for VulkanStorage {
    type Resource = VulkanResource;
}

impl ServerStorage for Vulkan {
    type Storage = VulkanStorage;
}

/// The devices that can be opened: see [`Listing::devices`]. Ids are the places in this list, and stay the same while
/// the system's devices do.
///
/// # Errors
/// As [`listing`].
pub fn list(validation: bool) -> Result<Vec<DeviceInfo>, ComputeError> {
    listing(validation).map(|listing| listing.devices)
}

/// All devices, those too that cannot be used, with the reason.
///
/// # Errors
/// [`ComputeError::NoLoader`], or [`ComputeError::NoDevice`] where none can be used, saying what to install.
pub fn listing(validation: bool) -> Result<Listing, ComputeError> {
    let instance = instance(validation)?;
    let Found { usable, refused } = find(&instance)?;
    let info = |(place, (_, snapshot)): (usize, (vk::PhysicalDevice, Snapshot))| DeviceInfo {
        id: DeviceId::new(VULKAN_TYPE, place as u16),
        memory: snapshot.device_bytes(),
        name: snapshot.name,
        kind: snapshot.kind,
        driver: snapshot.driver,
        uuid: snapshot.uuid,
    };
    Ok(Listing { devices: usable.into_iter().enumerate().map(info).collect(), refused })
}

/// What a device of [`list`] is made of. Starts nothing.
///
/// # Errors
/// [`ComputeError::UnknownDevice`] where the list has no such device; otherwise as [`list`].
pub fn inventory(device: DeviceId, validation: bool) -> Result<DeviceInventory, ComputeError> {
    let instance = instance(validation)?;
    let found = find(&instance)?.usable;
    let place = found.get(usize::from(device.index_id)).filter(|_| device.type_id == VULKAN_TYPE);
    place.map(|(_, snapshot)| DeviceInventory::of(snapshot)).ok_or(ComputeError::UnknownDevice(device))
}

/// What the drivers list.
struct Found {
    usable: Vec<(vk::PhysicalDevice, Snapshot)>,
    refused: Vec<RefusedDevice>,
}

fn find(instance: &Instance) -> Result<Found, ComputeError> {
    let mut found = Found { usable: Vec::new(), refused: Vec::new() };
    for physical in instance.physical_devices()? {
        let snapshot = snapshot(instance, physical);
        match snapshot.refusal() {
            None => found.usable.push((physical, snapshot)),
            Some(reason) => {
                tracing::info!("a device is left out: {}: {reason}", snapshot.name);
                found.refused.push(RefusedDevice { name: snapshot.name, reason });
            }
        }
    }
    if found.usable.is_empty() {
        let refused: Vec<String> = found.refused.iter().map(|d| format!("{}: {}", d.name, d.reason)).collect();
        return Err(no_device(if refused.is_empty() { "no driver lists one".to_owned() } else { refused.join("; ") }));
    }
    found.usable.sort_by_key(|(_, snapshot)| snapshot.kind.rank());
    found.usable.truncate(usize::from(u16::MAX));
    Ok(found)
}
