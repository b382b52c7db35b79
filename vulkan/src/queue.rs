//! The queue: everything that the device runs goes through here.

use crate::device::DeviceShared;
use crate::timeline::Timeline;
use ash::vk;
use std::sync::Arc;
use vkactor_actors::port::DeviceError;

/// The one queue of a device and its timeline. Vulkan wants it used by one thread at a time: all of it is `&mut`
/// (V2).
#[derive(Debug)]
pub(crate) struct Queue {
    raw: vk::Queue,
    timeline: Arc<Timeline>,
    /// Raised by what the engine does not hear of, so that its values stay its own.
    probe: Timeline,
    shared: Arc<DeviceShared>,
}

impl Queue {
    pub(crate) fn new(shared: Arc<DeviceShared>, raw: vk::Queue) -> Result<Self, DeviceError> {
        let timeline = Arc::new(Timeline::new(shared.clone())?);
        let probe = Timeline::new(shared.clone())?;
        Ok(Self { raw, timeline, probe, shared })
    }

    pub(crate) fn timeline(&self) -> &Arc<Timeline> {
        &self.timeline
    }

    /// Runs the buffers in order; the timeline reaches `value` when they are done.
    pub(crate) fn submit(&mut self, buffers: &[vk::CommandBuffer], value: u64) -> Result<(), DeviceError> {
        self.timeline.promise(value);
        let semaphore = self.timeline.semaphore();
        self.hand_over(buffers, semaphore, value, "submitting")
    }

    /// Asks the device for a sign of life: some drivers tell of a loss at the next submission only.
    pub(crate) fn probe(&mut self) -> Result<(), DeviceError> {
        let value = self.probe.promised() + 1;
        self.probe.promise(value);
        let semaphore = self.probe.semaphore();
        self.hand_over(&[], semaphore, value, "probing the device")?;
        self.timeline.reached().map(drop)
    }

    /// Runs the buffers in order, and waits until they and everything before them are done.
    pub(crate) fn run(&mut self, buffers: &[vk::CommandBuffer]) -> Result<(), DeviceError> {
        let value = self.probe.promised() + 1;
        self.probe.promise(value);
        let semaphore = self.probe.semaphore();
        self.hand_over(buffers, semaphore, value, "submitting")?;
        // SAFETY: V2: `&mut self`.
        let result = unsafe { self.shared.raw().queue_wait_idle(self.raw) };
        result.map_err(|e| self.shared.lose(e, "waiting for the queue"))
    }

    fn hand_over(
        &mut self,
        buffers: &[vk::CommandBuffer],
        semaphore: vk::Semaphore,
        value: u64,
        doing: &str,
    ) -> Result<(), DeviceError> {
        self.shared.alive()?;
        let (semaphores, values) = ([semaphore], [value]);
        let mut signal = vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
        let submit =
            [vk::SubmitInfo::default().command_buffers(buffers).signal_semaphores(&semaphores).push_next(&mut signal)];
        // SAFETY: V2: `&mut self`. V5: everything is in this function. V7: the buffers are complete, and those of
        // graphs may be pending more than once.
        let result = unsafe { self.shared.raw().queue_submit(self.raw, &submit, vk::Fence::null()) };
        // A submission that failed signals nothing: whoever waits for its value must hear of it.
        result.map_err(|e| self.shared.lose(e, doing))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: V2: `&mut self`. A lost device answers at once, and its work counts as done.
        let result = unsafe { self.shared.raw().queue_wait_idle(self.raw) };
        if let Err(error) = result {
            tracing::warn!("the queue did not come to rest: {}", crate::error::describe(error));
        }
    }
}
