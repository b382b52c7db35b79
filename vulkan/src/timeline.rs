//! A timeline semaphore: a number that submissions raise when they are done.

use crate::device::DeviceShared;
use ash::vk;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vkactor_actors::port::DeviceError;

/// A timeline of the queue. Reading it and waiting for it is free of outside synchronisation, so the watcher shares
/// it with the device.
pub(crate) struct Timeline {
    semaphore: vk::Semaphore,
    /// The last value that a submission was given.
    promised: AtomicU64,
    /// The last value that was reached while the device's status was good.
    trusted: AtomicU64,
    shared: Arc<DeviceShared>,
}

impl Timeline {
    pub(crate) fn new(shared: Arc<DeviceShared>) -> Result<Self, DeviceError> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let create = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: V1, V5. V6: no plan is made for a device without timelines.
        let semaphore = unsafe { shared.raw().create_semaphore(&create, None) };
        let semaphore = semaphore.map_err(|e| shared.fail(e, "making a timeline"))?;
        Ok(Self { semaphore, promised: AtomicU64::new(0), trusted: AtomicU64::new(0), shared })
    }

    pub(crate) fn semaphore(&self) -> vk::Semaphore {
        self.semaphore
    }

    /// The last value that a submission was given.
    pub(crate) fn promised(&self) -> u64 {
        self.promised.load(Ordering::Acquire)
    }

    /// A submission is about to promise `value`.
    pub(crate) fn promise(&self, value: u64) {
        let last = self.promised.swap(value, Ordering::AcqRel);
        assert!(value > last, "timeline went from {last} to {value}");
    }

    /// How far it is: one call of the driver, and a second only when it has moved.
    ///
    /// # Errors
    /// [`DeviceError::Lost`]: a lost device may show any value, so one that moved counts only with a good status.
    pub(crate) fn reached(&self) -> Result<u64, DeviceError> {
        self.shared.alive()?;
        // SAFETY: V1.
        let value = unsafe { self.shared.raw().get_semaphore_counter_value(self.semaphore) };
        let value = value.map_err(|e| self.shared.lose(e, "reading the timeline"))?;
        if value > self.trusted.load(Ordering::Acquire) {
            let promised = self.promised();
            if value > promised {
                return Err(self.shared.lose_because(format!("the timeline shows {value}, promised was {promised}")));
            }
            // A wait for what is reached returns at once, and asks the kernel driver about the device on the way.
            self.wait(value, Duration::ZERO)?;
        }
        Ok(value)
    }

    /// Waits until `value` is reached, or for `limit`. False where the time is over.
    pub(crate) fn wait(&self, value: u64, limit: Duration) -> Result<bool, DeviceError> {
        self.shared.alive()?;
        let (semaphores, values) = ([self.semaphore], [value]);
        let wait = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: V1, V5.
        match unsafe { self.shared.raw().wait_semaphores(&wait, limit) } {
            Ok(()) => {
                self.trusted.fetch_max(value, Ordering::AcqRel);
                Ok(true)
            }
            Err(vk::Result::TIMEOUT) => Ok(false),
            Err(error) => Err(self.shared.lose(error, "waiting for the timeline")),
        }
    }
}

impl fmt::Debug for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (promised, trusted) = (&self.promised, &self.trusted);
        f.debug_struct("Timeline").field("promised", promised).field("trusted", trusted).finish_non_exhaustive()
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        // SAFETY: V1. V3: the queue waits for its work before it lets go of its timelines.
        unsafe { self.shared.raw().destroy_semaphore(self.semaphore, None) };
    }
}
