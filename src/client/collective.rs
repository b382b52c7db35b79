//! Work that several devices do together, and its refusal where nothing moves bytes between them.

use crate::client::Client;
use std::collections::HashSet;
use vkactor_actors::error::{IoError, ServerError};
use vkactor_actors::handle::Handle;
use vkactor_actors::id::DeviceId;
use vkactor_actors::properties::ElemType;

/// How the members' values become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReduceOperation {
    /// They are added.
    Sum,
    /// They are added, and divided by their number.
    Mean,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// They are multiplied.
    Prod,
}

impl Client {
    /// Whether devices of this runtime move bytes between each other without the host. Without it
    /// [`Client::to_client`] goes through the host, and the collectives refuse.
    pub fn has_device_transport(&self) -> bool {
        self.features().device_transport
    }

    /// Prepares collectives over these devices. Without a transport between them there is nothing to prepare, and the
    /// collectives themselves tell it.
    pub fn ensure_init_collective(&mut self, device_ids: Vec<DeviceId>) {
        tracing::debug!(error = %self.refusal("ensure_init_collective", &device_ids), "nothing was prepared");
    }

    /// Combines `src` of each of the devices, element by element, into `dst` on each of them.
    ///
    /// # Ordering
    /// Returns at once. Work sent later on this stream finds the result in `dst`.
    ///
    /// # Errors
    /// `dst` carries what goes wrong: [`ServerError::NoDeviceTransport`], which is the case for every runtime in this
    /// crate; a group that is empty, names a device twice or lacks this one; a `src` of another device. A `dst` of
    /// another device is left as it is. `src` is good as before.
    pub fn all_reduce(
        &mut self,
        src: Handle,
        dst: Handle,
        _dtype: ElemType,
        device_ids: Vec<DeviceId>,
        _op: ReduceOperation,
    ) {
        let to = match self.range_of(&dst) {
            Ok(to) => to,
            Err(error) => return tracing::warn!(%error, "a collective was refused"),
        };
        let foreign = self.refuse_foreign(&src).err();
        self.spoil(to, foreign.unwrap_or_else(|| self.refusal("all_reduce", &device_ids)));
    }

    /// Waits until the collectives that were sent before are with the device. Without a transport there are none:
    /// what was handed over is sent off.
    ///
    /// # Ordering
    /// As [`Client::flush`].
    pub fn sync_collective(&self) {
        if let Err(error) = self.flush() {
            tracing::warn!(%error, "waiting for collectives ended early");
        }
    }

    /// Why a collective over this group does not run.
    fn refusal(&self, operation: &'static str, group: &[DeviceId]) -> ServerError {
        let distinct: HashSet<&DeviceId> = group.iter().collect();
        if distinct.len() < group.len() || !distinct.contains(&self.service_id().device) {
            return IoError::Unsupported(format!("{operation} over the group {group:?}")).into();
        }
        ServerError::NoDeviceTransport { operation }
    }
}
