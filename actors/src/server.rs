//! What an actor owns: a server is a device together with the way to open it.

use crate::error::ComputeError;
use crate::handle::Handle;
use crate::id::DeviceId;
use crate::port::Device;

/// One kind of device, as a client names it: `Vulkan`, or `Host`.
pub trait Server: Send + Sized + 'static {
    /// What the actor drives.
    type Device: Device;

    /// Opens the device of this id.
    ///
    /// # Errors
    /// [`ComputeError::UnknownDevice`] where there is none, or why it does not open.
    fn open(device: DeviceId) -> Result<Self, ComputeError>;

    /// The device, for its actor.
    fn into_device(self) -> Self::Device;
}

/// How a server keeps memory.
pub trait ComputeStorage: Send {
    /// What names a slice of it for code outside.
    type Resource: Send + 'static;
}

/// A server whose slices can be named.
pub trait ServerStorage: Server {
    /// How it keeps memory.
    type Storage: ComputeStorage<Resource = <Self::Device as Device>::Resource>;
}

/// A resource, and the memory behind it kept alive.
#[derive(Debug)]
pub struct ManagedResource<R> {
    resource: R,
    _keep: Handle,
}

impl<R> ManagedResource<R> {
    /// `resource` names memory of `handle`.
    pub fn new(resource: R, handle: Handle) -> Self {
        Self { resource, _keep: handle }
    }

    /// The resource. It is good while this value lives.
    pub fn resource(&self) -> &R {
        &self.resource
    }
}
