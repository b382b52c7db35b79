//! Finding devices, and starting the actor of each at most once.

use crate::client::Client;
use dashmap::DashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use vkactor_actors::error::{ComputeError, ServerError};
use vkactor_actors::id::DeviceId;
use vkactor_actors::registry::{ActorOptions, ActorRef, load};
use vkactor_vulkan::{DeviceInfo, DeviceInventory, Listing, RefusedDevice, VULKAN_TYPE, Vulkan, VulkanOptions};

/// The Vulkan devices of this machine, and the way to their clients.
///
/// There is one actor for each device in a process, whichever `Compute` starts it; a device that runs already keeps
/// the options that it was started with. The devices that a `Compute` reached run at least until its last clone is
/// dropped, so that short-lived clients do not restart them.
///
/// Cloning is one atomic increment.
#[derive(Clone)]
pub struct Compute(Arc<Shared>);

struct Shared {
    devices: Vec<DeviceInfo>,
    /// How many of them are there; the others are these once more.
    physical: u16,
    refused: Vec<RefusedDevice>,
    vulkan: VulkanOptions,
    actor: ActorOptions,
    /// The newest run of each device that was reached.
    reached: DashMap<DeviceId, Arc<ActorRef>>,
}

impl Compute {
    /// Lists the devices and starts none.
    ///
    /// # Errors
    /// [`ComputeError::NoLoader`] or [`ComputeError::NoDevice`], with what to install.
    pub fn new() -> Result<Self, ComputeError> {
        Self::builder().build()
    }

    /// The options of devices, at their defaults.
    pub fn builder() -> ComputeBuilder {
        ComputeBuilder::default()
    }

    /// The devices: GPUs first, software drivers last. Ids differ even where names and UUIDs do not. With
    /// [`ComputeBuilder::logical_devices`] the list is repeated behind, with ids of their own.
    pub fn devices(&self) -> &[DeviceInfo] {
        &self.0.devices
    }

    /// Devices that the drivers list and that cannot be used, with what they lack.
    pub fn refused_devices(&self) -> &[RefusedDevice] {
        &self.0.refused
    }

    /// What a device is made of: its queues and heaps, with what this process may use of them now. Starts nothing, and
    /// asks the driver each time.
    ///
    /// # Errors
    /// [`ComputeError::UnknownDevice`] for an id that is not in [`Compute::devices`]; otherwise as [`Compute::new`].
    pub fn inventory(&self, device: DeviceId) -> Result<DeviceInventory, ComputeError> {
        vkactor_vulkan::inventory(self.physical(device)?, self.0.vulkan.validation)
    }

    /// A client of this device, on [`StreamId::DEFAULT`](crate::StreamId::DEFAULT). Starts the device if it does not
    /// run. Simultaneous calls start it once.
    ///
    /// # Errors
    /// [`ComputeError::UnknownDevice`] for an id that is not in [`Compute::devices`]; otherwise why the device does
    /// not start.
    pub fn client(&self, device: DeviceId) -> Result<Client, ComputeError> {
        let Shared { vulkan, actor, reached, .. } = &*self.0;
        let physical = self.physical(device)?;
        let actor = load(device, actor, || Vulkan::open_with(physical, vulkan))?;
        // An entry of an earlier run is dropped behind the map's lock: it may be the last holder of that run.
        let _earlier = reached.insert(device, actor.clone());
        Ok(Client::of(actor))
    }

    /// The device that an id of the list opens.
    fn physical(&self, device: DeviceId) -> Result<DeviceId, ComputeError> {
        let place = self.0.devices.iter().position(|listed| listed.id == device);
        let place = place.ok_or(ComputeError::UnknownDevice(device))?;
        Ok(self.0.devices[place % usize::from(self.0.physical)].id)
    }

    /// A client of the first device, or of the one that the environment variable `VKACTOR_DEVICE` names by its place
    /// in [`Compute::devices`] or by a part of its name, upper or lower case.
    ///
    /// # Errors
    /// [`ComputeError::NoDevice`] where the variable names none; otherwise as [`Compute::client`].
    pub fn default_client(&self) -> Result<Client, ComputeError> {
        let wish = std::env::var(DEVICE_VARIABLE).unwrap_or_default();
        let device = choose(self.devices(), wish.trim())?;
        self.client(device)
    }

    /// Lets the work that was sent finish, then stops the actor of each device that this `Compute` reached. Clients
    /// that are left get [`ServerError::Closed`], and so does whoever waits for a device. Calling it again, or with
    /// no device running, is harmless; a later [`Compute::client`] starts the device afresh.
    ///
    /// # Errors
    /// None at present: a device that is lost has stopped too.
    ///
    /// # Cancellation
    /// Nothing happens before the first poll. A future that is dropped after it leaves the devices stopping.
    pub fn shutdown(&self) -> impl Future<Output = Result<(), ServerError>> + Send + use<> {
        let shared = self.0.clone();
        async move {
            let actors: Vec<Arc<ActorRef>> = shared.reached.iter().map(|entry| entry.value().clone()).collect();
            let mut stops: Vec<_> = actors.iter().map(|actor| Box::pin(actor.stop())).collect();
            poll_fn(|context| {
                stops.retain_mut(|stop| stop.as_mut().poll(context).is_pending());
                if stops.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            for actor in &actors {
                shared.reached.remove_if(&actor.service().device, |_, newest| Arc::ptr_eq(newest, actor));
            }
            Ok(())
        }
    }
}

impl fmt::Debug for Compute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compute").field("devices", &self.0.devices).finish_non_exhaustive()
    }
}

/// How the devices of a [`Compute`] are set up. It holds for devices that do not run yet.
#[derive(Debug)]
pub struct ComputeBuilder {
    vulkan: VulkanOptions,
    actor: ActorOptions,
    logical: u16,
}

impl Default for ComputeBuilder {
    fn default() -> Self {
        let actor = ActorOptions::default();
        let vulkan = VulkanOptions { spin: actor.spin, ..VulkanOptions::default() };
        Self { vulkan, actor, logical: 1 }
    }
}

impl ComputeBuilder {
    /// Turns the validation layer on where it is installed, and otherwise nothing. What it finds becomes
    /// [`ServerError::Validation`]. Off by default.
    #[must_use]
    pub fn validation(mut self, on: bool) -> Self {
        self.vulkan.validation = on;
        self
    }

    /// Whether a kernel's accesses out of bounds stay inside the buffers that it was given. On by default; off, such
    /// an access is undefined, and kernels may be faster.
    #[must_use]
    pub fn bounds_check(mut self, on: bool) -> Self {
        self.vulkan.bounds_check = on;
        self
    }

    /// Whether new reservations read as zero, so that no bytes pass from one owner of memory to the next. Off by
    /// default: it costs one pass over the memory.
    #[must_use]
    pub fn zero_memory(mut self, on: bool) -> Self {
        self.actor.zero_memory = on;
        self
    }

    /// How long the actor, its watcher and blocking callers poll before they sleep. The default is 50 µs, or 5 µs
    /// where there are no cores to spare. While somebody waits for the device, the actor polls 50 times as long.
    #[must_use]
    pub fn spin(mut self, spin: Duration) -> Self {
        self.vulkan.spin = spin;
        self.actor.spin = spin;
        self
    }

    /// Launches and replays that may be in flight before a sender is held back; at least one.
    #[must_use]
    pub fn max_in_flight(mut self, launches: usize) -> Self {
        self.actor.launches_in_flight = launches.max(1);
        self
    }

    /// Bytes of device memory that the pools may reserve. By default what the device has.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.actor.memory_limit = Some(bytes);
        self
    }

    /// A file to which [`Client::record_memory`] appends lines of JSON. By default there is none.
    #[must_use]
    pub fn records(mut self, path: impl Into<PathBuf>) -> Self {
        self.actor.records = Some(path.into());
        self
    }

    /// The folder where compiled pipelines are kept between runs; `None` keeps none. A damaged cache is ignored.
    #[must_use]
    pub fn pipeline_cache(mut self, dir: Option<PathBuf>) -> Self {
        self.vulkan.pipeline_cache = dir;
        self
    }

    /// How many logical devices each device of the machine is, at least one. Each has an actor, a queue and memory
    /// pools of its own and takes part in collectives by itself: for tests of several devices on a machine of one, and
    /// to keep services apart. They share the memory of the machine's device, so give them a
    /// [`memory_limit`](Self::memory_limit).
    #[must_use]
    pub fn logical_devices(mut self, count: u16) -> Self {
        self.logical = count.max(1);
        self
    }

    /// Lists the devices and starts none.
    ///
    /// # Errors
    /// As [`Compute::new`].
    pub fn build(self) -> Result<Compute, ComputeError> {
        let Listing { devices, refused } = vkactor_vulkan::listing(self.vulkan.validation)?;
        let physical = devices.len() as u16;
        let devices = repeated(devices, self.logical);
        let reached = DashMap::new();
        Ok(Compute(Arc::new(Shared { devices, physical, refused, vulkan: self.vulkan, actor: self.actor, reached })))
    }
}

/// The list so many times, each device under an id of its own. What no id is left for is not listed.
fn repeated(devices: Vec<DeviceInfo>, times: u16) -> Vec<DeviceInfo> {
    let ids = (0..=u16::MAX).map(|index| DeviceId::new(VULKAN_TYPE, index));
    let all = std::iter::repeat_n(devices, usize::from(times)).flatten();
    all.zip(ids).map(|(device, id)| DeviceInfo { id, ..device }).collect()
}

/// The device that `wish` names, or the first.
fn choose(devices: &[DeviceInfo], wish: &str) -> Result<DeviceId, ComputeError> {
    let by_name = || {
        let wish = wish.to_lowercase();
        devices.iter().find(|d| d.name.to_lowercase().contains(&wish))
    };
    // A number that is no index may be a part of a name, as in "4090". Every name contains the empty wish.
    let found = wish.parse::<usize>().ok().and_then(|index| devices.get(index)).or_else(by_name);
    found.map(|d| d.id).ok_or_else(|| {
        let names: Vec<&str> = devices.iter().map(|d| d.name.as_str()).collect();
        ComputeError::NoDevice(format!("{DEVICE_VARIABLE} is {wish:?}, the devices are {names:?}"))
    })
}

/// Chooses the default device.
const DEVICE_VARIABLE: &str = "VKACTOR_DEVICE";

#[cfg(test)]
mod tests {
    use super::*;
    use vkactor_vulkan::DeviceKind;

    fn device(index: u16, name: &str) -> DeviceInfo {
        DeviceInfo {
            id: DeviceId::new(0, index),
            name: name.to_owned(),
            kind: DeviceKind::Other,
            driver: String::new(),
            uuid: [0; 16],
            memory: 1,
        }
    }

    fn chosen(wish: &str) -> Option<u16> {
        let devices = [device(0, "RTX 4090"), device(1, "llvmpipe (LLVM 15)"), device(2, "llvmpipe (LLVM 15)")];
        choose(&devices, wish).ok().map(|id| id.index_id)
    }

    #[test]
    fn logical_devices_follow_the_list_with_ids_of_their_own() {
        let listed = || [device(0, "RTX 4090"), device(1, "llvmpipe (LLVM 15)")].to_vec();
        let all = repeated(listed(), 3);
        let found: Vec<(u16, &str)> = all.iter().map(|d| (d.id.index_id, d.name.as_str())).collect();
        let [gpu, software] = ["RTX 4090", "llvmpipe (LLVM 15)"];
        assert_eq!(found, [(0, gpu), (1, software), (2, gpu), (3, software), (4, gpu), (5, software)]);
        assert_eq!(repeated(listed(), u16::MAX).len(), 1 << 16, "as many as there are ids");
    }

    #[test]
    fn a_wish_is_an_index_or_a_part_of_a_name() {
        assert_eq!(chosen(""), Some(0));
        assert_eq!(chosen("2"), Some(2));
        assert_eq!(chosen("4090"), Some(0));
        assert_eq!(chosen("LLVMpipe"), Some(1));
        assert_eq!(chosen("3"), None);
        assert_eq!(chosen("radeon"), None);
    }

    #[test]
    fn a_wish_that_is_not_met_is_quoted_with_the_names() {
        let error = choose(&[device(0, "RTX 4090")], "radeon").unwrap_err().to_string();
        assert!(error.contains("radeon") && error.contains("RTX 4090"), "{error}");
    }

    #[test]
    fn without_devices_nothing_is_chosen() {
        assert!(matches!(choose(&[], ""), Err(ComputeError::NoDevice(_))));
    }
}
