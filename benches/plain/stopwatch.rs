//! Timestamps by plain Vulkan.
#![expect(unsafe_code, reason = "the floor is plain Vulkan calls")]

use std::any::Any;
use std::rc::Rc;

use ash::vk;

use crate::common::Result;
use crate::plain::{Device, Gpu, Recorder};

/// A row of timestamps. Recordings that use it keep it.
#[derive(Clone)]
pub(crate) struct Stopwatch(Rc<Times>);

struct Times {
    pool: vk::QueryPool,
    count: u32,
    device: Rc<Device>,
}

impl Stopwatch {
    /// Room for `count` timestamps.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn new(gpu: &Gpu, count: u32) -> Result<Self> {
        let device = Rc::clone(&gpu.device);
        let create = vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(count);
        // SAFETY: the structure lives to the end of the call (V5).
        let pool = unsafe { device.raw.create_query_pool(&create, None)? };
        Ok(Self(Rc::new(Times { pool, count, device })))
    }

    /// Forgets all timestamps.
    pub(crate) fn reset(&self, recorder: &mut Recorder<'_>) {
        recorder.kept.push(Rc::clone(&self.0) as Rc<dyn Any>);
        // SAFETY: the recording keeps the pool, and this is all of it.
        unsafe { recorder.device.cmd_reset_query_pool(recorder.raw, self.0.pool, 0, self.0.count) }
    }

    /// Takes the time when all before is done. The recording has reset the row.
    ///
    /// # Panics
    /// There is no place `index`.
    pub(crate) fn take(&self, recorder: &mut Recorder<'_>, index: u32) {
        assert!(index < self.0.count, "timestamp {index} of {}", self.0.count);
        let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        // SAFETY: the recording keeps the pool since its reset, and the place is in it, as asserted.
        unsafe { recorder.device.cmd_write_timestamp(recorder.raw, stage, self.0.pool, index) }
    }

    /// The ticks of all places, which submissions that are done have taken.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn ticks(&self) -> Result<Vec<u64>> {
        let mut ticks = vec![0; self.0.count as usize];
        let flags = vk::QueryResultFlags::TYPE_64;
        // SAFETY: the pool has as many places as there is room for.
        unsafe { self.0.device.raw.get_query_pool_results(self.0.pool, 0, &mut ticks, flags)? };
        Ok(ticks)
    }
}

impl Drop for Times {
    fn drop(&mut self) {
        // SAFETY: no recording keeps it any more, so none is pending (V3).
        unsafe { self.device.raw.destroy_query_pool(self.pool, None) }
    }
}
