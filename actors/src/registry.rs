//! The actors of this process: at most one for each device, stopped when its last client is gone.

use crate::error::ComputeError;
use crate::id::{DeviceId, ServiceId};
use crate::mailbox::Mailbox;
use crate::properties::{DeviceProperties, TargetProperties};
use crate::server::Server;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How an actor is set up.
#[derive(Debug, Clone)]
pub struct ActorOptions {
    /// Launches that may be in flight before senders are held back.
    pub launches_in_flight: usize,
    /// How long a waiter polls before it sleeps.
    pub spin: Duration,
    /// Bytes of device memory that the pools may reserve; `None` is what the device has.
    pub memory_limit: Option<u64>,
    /// New reservations read as zero.
    pub zero_memory: bool,
    /// Where records go.
    pub records: Option<PathBuf>,
}

/// A running actor, as its clients share it. Dropping the last reference lets sent work finish and stops it.
#[derive(Debug)]
pub struct ActorRef {}

impl ActorRef {
    /// How to reach it.
    pub fn mailbox(&self) -> &Mailbox {
        todo!()
    }
    /// What it is.
    pub fn service(&self) -> ServiceId {
        todo!()
    }
    /// The runtime's name.
    pub fn name(&self) -> &'static str {
        todo!()
    }
    /// Its device.
    pub fn properties(&self) -> &Arc<DeviceProperties> {
        todo!()
    }
    /// What kernels may rely on.
    pub fn target(&self) -> &Arc<TargetProperties> {
        todo!()
    }
    /// How long a blocking caller polls before it parks.
    pub fn spin(&self) -> Duration {
        todo!()
    }
    /// Lets sent work finish and stops the actor; resolves when its device is destroyed.
    pub async fn stop(&self) {
        todo!()
    }
}

/// Starts an actor.
pub fn start<S: Server>(device: DeviceId, server: S, options: &ActorOptions) -> Result<Arc<ActorRef>, ComputeError> {
    todo!()
}

/// The actor of this id, started with what `open` gives if none runs. Simultaneous calls open once.
pub fn load<S: Server>(
    device: DeviceId,
    options: &ActorOptions,
    open: impl FnOnce() -> Result<S, ComputeError>,
) -> Result<Arc<ActorRef>, ComputeError> {
    todo!()
}
