//! How a device is listed.

use vkactor_actors::id::DeviceId;

/// A device that can be opened.
#[derive(Debug, Clone)]
pub struct DeviceInfo {
    /// What opens it: its own, even where names and UUIDs repeat.
    pub id: DeviceId,
    /// What the driver calls it.
    pub name: String,
    /// What it is.
    pub kind: DeviceKind,
    /// The driver and its version.
    pub driver: String,
    /// What the driver identifies it by. Two drivers of one device may give the same.
    pub uuid: [u8; 16],
    /// Bytes of the heap that buffers lie in.
    pub memory: u64,
}

/// A device that the driver lists and the runtime cannot use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedDevice {
    /// What the driver calls it.
    pub name: String,
    /// What it lacks.
    pub reason: &'static str,
}

/// What the drivers of this machine list.
#[derive(Debug, Clone)]
pub struct Listing {
    /// Devices that can be opened: GPUs first, software last, otherwise in the drivers' order.
    pub devices: Vec<DeviceInfo>,
    /// The others.
    pub refused: Vec<RefusedDevice>,
}

/// What kind of device it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// A card of its own.
    DiscreteGpu,
    /// Part of the host's chip.
    IntegratedGpu,
    /// A share of a device elsewhere.
    VirtualGpu,
    /// Software.
    Cpu,
    /// Anything else.
    Other,
}

impl DeviceKind {
    /// Where it stands in the list: devices likely to be fast first, software last.
    pub(crate) fn rank(self) -> u8 {
        match self {
            Self::DiscreteGpu => 0,
            Self::IntegratedGpu => 1,
            Self::VirtualGpu => 2,
            Self::Other => 3,
            Self::Cpu => 4,
        }
    }
}
