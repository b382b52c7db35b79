//! How much a device does in a second: measured once, kept for the process and, for the runtime's own probes, on disk.

mod arithmetic;
mod matrix;
mod probe;
mod scalar;
mod spirv;
mod store;

use crate::client::Client;
use dashmap::DashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, TryLockError};
use std::time::Duration;
use vkactor_actors::error::ThroughputError;
use vkactor_actors::id::ServiceId;
use vkactor_actors::properties::ElemType;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ThroughputMode {
    /// Arithmetic on values in registers: operations a second, a multiplication with its addition counting two.
    Compute,
    /// Loads from device memory: bytes a second.
    MemoryRead,
    /// Stores to device memory: bytes a second.
    MemoryWrite,
    /// Copies within device memory by a kernel: bytes a second, those loaded and those stored together.
    MemoryCopy,
    /// Products of matrices `c += a × b` on the matrix units, with `a` of m by k: operations a second, from registers
    /// to registers. `dtype` is that of `a` and `b`; of the shapes that differ in `c`, the widest is measured.
    #[expect(missing_docs, reason = "the variant says what each is")]
    Matrix { m: u32, n: u32, k: u32 },
    /// Uploads from pinned memory of the host: bytes a second.
    HostToDevice,
    /// Reads into pinned memory of the host: bytes a second.
    DeviceToHost,
    /// Small launches that depend on each other, from the call to the end of the last: launches a second.
    Launch,
}

/// Names a rate of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ThroughputKey {
    /// What is measured.
    pub mode: ThroughputMode,
    /// On which elements; the runtime's own probes of memory, transfers and launches move bytes whatever they are.
    pub dtype: ElemType,
}

/// A rate, as it was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThroughputValue {
    /// Operations, bytes or launches, by the key's mode.
    pub amount: f64,
    /// How long they took.
    pub duration: Duration,
}

impl ThroughputValue {
    /// Operations, bytes or launches a second. Infinite for a duration of nothing.
    pub fn per_second(&self) -> f64 {
        self.amount / self.duration.as_secs_f64()
    }
}

impl Client {
    /// The rate of this key on this device, by `probe` the first time in this process and kept from then on.
    /// Simultaneous calls for one key share one probe; errors and panics of it are not kept.
    ///
    /// A probe must not ask for its own key.
    ///
    /// # Ordering
    /// Blocks for as long as the probe, or another caller's. A caller that holds the device (see
    /// [`Client::exclusive`]) waits for no other caller, who may wait for the device.
    ///
    /// # Errors
    /// Those of the probe.
    ///
    /// # Panics
    /// With the panic of the probe.
    pub fn measure_throughput(
        &self,
        key: ThroughputKey,
        probe: impl FnOnce() -> Result<ThroughputValue, ThroughputError>,
    ) -> Result<ThroughputValue, ThroughputError> {
        // The map's own lock is let go of before a cell is waited for.
        let cell = MEASURED.entry((self.service_id(), key)).or_default().clone();
        let mut kept = match cell.try_lock() {
            Ok(kept) => kept,
            Err(TryLockError::Poisoned(after_panic)) => after_panic.into_inner(),
            Err(TryLockError::WouldBlock) if self.holds_device() => return probe(),
            Err(TryLockError::WouldBlock) => cell.lock().unwrap_or_else(PoisonError::into_inner),
        };
        if let Some(value) = *kept {
            return Ok(value);
        }
        let value = probe()?;
        *kept = Some(value);
        Ok(value)
    }

    /// [`Client::measure_throughput`] with the runtime's own probe for the key. It gives the best of a few runs,
    /// so it takes some tenths of a second, and holds the device meanwhile. What it finds is also kept on disk for this device and driver, in the user's
    /// cache folder.
    ///
    /// # Errors
    /// [`ThroughputError::Unsupported`] where the device or the probe lacks the type or the mode; what goes wrong
    /// with the probe's own work.
    pub fn throughput(&self, key: ThroughputKey) -> Result<ThroughputValue, ThroughputError> {
        self.measure_throughput(key, || {
            let store = store::Store::of(self);
            if let Some(value) = store.as_ref().and_then(|store| store.find(key)) {
                return Ok(value);
            }
            let value = probe::run(self, key)?;
            if let Some(store) = store {
                store.keep(key, value);
            }
            Ok(value)
        })
    }
}

/// A value once it is measured. Whoever measures holds the lock, so that others wait for the outcome.
type Cell = Arc<Mutex<Option<ThroughputValue>>>;

static MEASURED: LazyLock<DashMap<(ServiceId, ThroughputKey), Cell>> = LazyLock::new(DashMap::new);
