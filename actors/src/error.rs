//! Everything that can go wrong, one enum for each kind of operation.

use crate::id::{DeviceId, ServiceId};
use crate::tensor::Strides;

/// A kernel could not be turned into a program of the device.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CompilationError {
    /// The code is wrong; `reason` quotes the place.
    #[error("{kernel}: {reason}")]
    Source {
        /// Name of the kernel.
        kernel: String,
        /// What the compiler said.
        reason: String,
    },
    /// The code is right and asks for what this device has not.
    #[error("{kernel}: the device lacks {feature}")]
    Unsupported {
        /// Name of the kernel.
        kernel: String,
        /// What is missing.
        feature: String,
    },
}

/// A launch was refused before it ran.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The arguments are not those that the kernel declares.
    #[error("{kernel}: bindings do not fit: {reason}")]
    Bindings {
        /// Name of the kernel.
        kernel: String,
        /// What was given, and what the kernel declares.
        reason: String,
    },
    /// The kernel did not compile.
    #[error(transparent)]
    Compilation(#[from] CompilationError),
    /// The device had no memory for what the launch itself needs.
    #[error("{kernel}: out of memory")]
    OutOfMemory {
        /// Name of the kernel.
        kernel: String,
    },
    /// A limit of the device is exceeded.
    #[error("{kernel}: {resource} asked for {requested}, the device has {limit}")]
    TooManyResources {
        /// Name of the kernel.
        kernel: String,
        /// The limit, in the words of the device's properties.
        resource: String,
        /// What the launch asked for.
        requested: u64,
        /// The most that the device gives.
        limit: u64,
    },
}

/// Memory could not be reserved or copied.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// No state of the device could hold the buffer: asking again is of no use.
    #[error("{size} bytes is more than the device can hold in one buffer ({limit})")]
    BufferTooBig {
        /// Bytes asked for.
        size: u64,
        /// The largest buffer.
        limit: u64,
    },
    /// A file could not be read or written.
    #[error("file: {0}")]
    File(String),
    /// The device is full now: dropping handles may help.
    #[error("out of memory: {requested} bytes asked for, {in_use} in use of {budget}")]
    OutOfMemory {
        /// Bytes asked for.
        requested: u64,
        /// Bytes in live buffers.
        in_use: u64,
        /// Bytes that may be reserved in all.
        budget: u64,
    },
    /// Every pool that takes this size has reached its cap.
    #[error("a pool of {limit} bytes is full ({requested} asked for)")]
    PoolFull {
        /// Bytes asked for.
        requested: u64,
        /// The cap of the last pool tried.
        limit: u64,
    },
    /// The call is not for this kind of memory or device, and why.
    #[error("unsupported operation: {0}")]
    Unsupported(String),
    /// These strides are not row-major with padding between rows.
    #[error("strides {0:?} cannot be copied")]
    UnsupportedStrides(Strides),
}

/// What a call on a client can end with.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Someone else holds the device.
    #[error("the device is busy: {reason}")]
    Busy {
        /// Who, or why.
        reason: String,
    },
    /// The actor of the device has stopped; get a client afresh.
    #[error("the device's actor has stopped")]
    Closed,
    /// The device is gone, and all that was on it.
    #[error("device lost: {reason}")]
    DeviceLost {
        /// What the driver said.
        reason: String,
    },
    /// A handle of one device was given to a client of another.
    #[error("handle of {handle:?} given to a client of {client:?}")]
    ForeignHandle {
        /// Where the handle comes from.
        handle: ServiceId,
        /// What the client reaches.
        client: ServiceId,
    },
    /// Anything else.
    #[error("{reason}")]
    Generic {
        /// What happened.
        reason: String,
    },
    /// The stream's capture state does not allow the call.
    #[error("graph: {reason}")]
    Graph {
        /// What was asked for, and in which state.
        reason: String,
    },
    /// Memory or bytes.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A launch was refused.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The runtime has no way between its devices.
    #[error("no transport between devices for {operation}")]
    NoDeviceTransport {
        /// What was asked for.
        operation: &'static str,
    },
    /// A profiling call failed.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The client reaches a server of another type.
    #[error("the client does not reach a {requested}")]
    ServiceMismatch {
        /// The type asked for.
        requested: &'static str,
    },
    /// More than one failure, each once.
    #[error("several failures: {errors:?}")]
    Several {
        /// The failures.
        errors: Vec<Self>,
    },
    /// Nobody wrote these bytes, because the work that was to write them failed or was skipped.
    #[error("never written ({} steps back): {root}", chain.len())]
    Unwritten {
        /// Names the failure: buffers that share it share this number.
        failure: u64,
        /// From the buffer asked about back to the first cause, newest first; long chains keep their newest steps.
        chain: Vec<String>,
        /// The first cause.
        root: Box<Self>,
    },
    /// The validation layer found an error in what was recorded.
    #[error("validation: {message}")]
    Validation {
        /// What the layer said.
        message: String,
    },
}

impl ServerError {
    /// Whether every cause is a launch that was refused before it ran, so that nothing broke.
    pub fn is_refusal(&self) -> bool {
        self.every_root(&|e| matches!(e, Self::Launch(_)))
    }

    /// Whether the device itself is gone.
    pub fn is_device_lost(&self) -> bool {
        self.any_root(&|e| matches!(e, Self::DeviceLost { .. }))
    }

    /// Whether the same call may succeed once memory has been freed.
    pub fn is_out_of_memory(&self) -> bool {
        self.any_root(&|e| {
            matches!(
                e,
                Self::Io(IoError::OutOfMemory { .. } | IoError::PoolFull { .. })
                    | Self::Launch(LaunchError::OutOfMemory { .. })
            )
        })
    }

    fn any_root(&self, is: &dyn Fn(&Self) -> bool) -> bool {
        match self {
            Self::Several { errors } => errors.iter().any(|e| e.any_root(is)),
            Self::Unwritten { root, .. } => root.any_root(is),
            Self::Profile(ProfileError::Server(inner)) => inner.any_root(is),
            first => is(first),
        }
    }

    fn every_root(&self, is: &dyn Fn(&Self) -> bool) -> bool {
        match self {
            Self::Several { errors } => !errors.is_empty() && errors.iter().all(|e| e.every_root(is)),
            Self::Unwritten { root, .. } => root.every_root(is),
            Self::Profile(ProfileError::Server(inner)) => inner.every_root(is),
            first => is(first),
        }
    }
}

/// A window gave no time.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// Nothing ran between the start of the window and its end.
    #[error("nothing in the window was timed")]
    NotMeasured,
    /// The window was ended, abandoned, or never opened.
    #[error("no such window")]
    NotRegistered,
    /// Something else failed.
    #[error("{0}")]
    Server(Box<ServerError>),
    /// The device has no clock that the queue can read.
    #[error("the device cannot take timestamps")]
    Unsupported,
}

impl From<ServerError> for ProfileError {
    fn from(error: ServerError) -> Self {
        match error {
            ServerError::Profile(inner) => inner,
            other => Self::Server(Box::new(other)),
        }
    }
}

/// A rate was not measured.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ThroughputError {
    /// The window of a probe gave no time.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The probe's own calls failed.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The device does not do this at all.
    #[error("unsupported: {0}")]
    Unsupported(String),
}

/// No client could be had.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ComputeError {
    /// The id is taken: `load` reaches what runs there.
    #[error("device already has a server: {0:?}")]
    AlreadyRunning(DeviceId),
    /// A loader is there and lists no device; the text says what to install.
    #[error("no Vulkan device: {0}")]
    NoDevice(String),
    /// There is no Vulkan loader; the text says what to install.
    #[error("no Vulkan loader: {0}")]
    NoLoader(String),
    /// The device was found and did not start.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// No device has this id.
    #[error("unknown device {0:?}")]
    UnknownDevice(DeviceId),
}

/// A pool layout was not installed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InstallMemoryPoolsError {
    /// The stream kept its pools; later streams have the new ones. Drop what lives and try again.
    #[error("{bytes_in_use} bytes are still live in the stream's pools")]
    PoolsInUse {
        /// Bytes that live in the stream's pools.
        bytes_in_use: u64,
    },
    /// The runtime has no pools.
    #[error("the runtime has no pools to configure")]
    Unsupported,
}
