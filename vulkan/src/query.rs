//! Timestamps of the device, or of the host where the device's queue takes none.

use crate::device::DeviceShared;
use ash::vk;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vkactor_actors::engine::command::TimestampSlot;
use vkactor_actors::port::{DeviceError, Moment};

/// Slots of one query pool.
const POOL_SLOTS: u32 = 256;
/// Readings of the device's clock for one moment: a thread is seldom interrupted in all of them.
const READINGS: usize = 5;

/// The places that timestamps are written to, in as many pools as the slots need, and the clock behind them.
#[derive(Debug)]
pub(crate) struct Timestamps {
    pools: Vec<vk::QueryPool>,
    clock: Clock,
    /// There where the queue takes no timestamps.
    host: Option<HostClock>,
    shared: Arc<DeviceShared>,
}

/// Times of the host, taken while the queue rests.
#[derive(Debug)]
struct HostClock {
    start: Instant,
    taken: HashMap<TimestampSlot, u64>,
}

/// Ticks as the device counts them, in a number of bits that may be too small for its uptime.
#[derive(Debug, Clone, Copy)]
struct Clock {
    bits: u32,
    /// Nanoseconds of a tick, as a fraction of [`TICK_UNIT`]: floats would lose the low digits of a clock that
    /// counts from 1970.
    tick: u128,
    /// The last reading, with the overflows counted.
    last: u64,
}

/// One nanosecond in [`Clock::tick`].
const TICK_UNIT: f64 = (1u64 << 32) as f64;

impl Timestamps {
    pub(crate) fn new(shared: Arc<DeviceShared>) -> Self {
        let clock = Clock::new(shared.plan.timestamp_bits, shared.plan.limits.tick_ns);
        let host = (clock.bits == 0).then(HostClock::new);
        Self { pools: Vec::new(), clock, host, shared }
    }

    /// Whether times have to be taken by [`Timestamps::take`], each once everything before it is done.
    pub(crate) fn are_of_the_host(&self) -> bool {
        self.host.is_some()
    }

    /// Takes the time of the host.
    pub(crate) fn take(&mut self, slot: TimestampSlot) {
        if let Some(HostClock { start, taken }) = &mut self.host {
            taken.insert(slot, start.elapsed().as_nanos() as u64);
        }
    }

    /// As on a device whose queue takes no timestamps.
    #[cfg(test)]
    pub(crate) fn forget_the_device(&mut self) {
        self.host = Some(HostClock::new());
    }

    /// Records that the time is taken once everything before is done.
    pub(crate) fn record(&mut self, buffer: vk::CommandBuffer, slot: TimestampSlot) -> Result<(), DeviceError> {
        let (pool, query) = (slot.0 / POOL_SLOTS, slot.0 % POOL_SLOTS);
        while self.pools.len() <= pool as usize {
            let created = self.pool()?;
            self.pools.push(created);
        }
        let (raw, pool) = (self.shared.raw(), self.pools[pool as usize]);
        // SAFETY: V2: the buffer is being recorded by the caller. V6: the host resets where the feature is on. The
        // engine gives a slot out again when the submissions that name it are done, so nothing pending uses it. A
        // reset in the buffer is ordered with the commands on the same query before and behind it (Vulkan 1.3,
        // 17.3), so no barrier is needed.
        unsafe {
            if self.shared.plan.features.host_query_reset {
                raw.reset_query_pool(pool, query, 1);
            } else {
                raw.cmd_reset_query_pool(buffer, pool, query, 1);
            }
            raw.cmd_write_timestamp(buffer, vk::PipelineStageFlags::BOTTOM_OF_PIPE, pool, query);
        }
        Ok(())
    }

    /// The time of a slot whose submission is done.
    pub(crate) fn nanoseconds(&mut self, slot: TimestampSlot) -> Option<u64> {
        if let Some(HostClock { taken, .. }) = &self.host {
            return taken.get(&slot).copied();
        }
        let pool = *self.pools.get((slot.0 / POOL_SLOTS) as usize)?;
        let mut ticks = [0u64];
        // SAFETY: V1. The query was written by a submission that is done; where it was not, the result is an error.
        let result = unsafe {
            let query = slot.0 % POOL_SLOTS;
            self.shared.raw().get_query_pool_results(pool, query, &mut ticks, vk::QueryResultFlags::TYPE_64)
        };
        result.is_ok().then(|| self.clock.nanoseconds(ticks[0]))
    }

    /// One moment on the device's clock and on the host's: the narrowest of a few pairs of host readings around one of
    /// the device.
    pub(crate) fn moment(&mut self) -> Option<Moment> {
        if let Some(HostClock { start, .. }) = self.host {
            let host = Instant::now();
            let device_ns = host.duration_since(start).as_nanos() as u64;
            return Some(Moment { device_ns, host, error: Duration::ZERO });
        }
        let calibration = self.shared.calibration.as_ref()?;
        let readings = (0..READINGS).filter_map(|_| {
            let before = Instant::now();
            let ticks = calibration.ticks()?;
            Some((before.elapsed(), before, ticks))
        });
        let (between, before, ticks) = readings.min_by_key(|(between, ..)| *between)?;
        let (device_ns, error) = (self.clock.nanoseconds(ticks), between / 2);
        Some(Moment { device_ns, host: before + error, error })
    }

    fn pool(&self) -> Result<vk::QueryPool, DeviceError> {
        let create = vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(POOL_SLOTS);
        // SAFETY: V1, V5.
        let pool = unsafe { self.shared.raw().create_query_pool(&create, None) };
        pool.map_err(|e| self.shared.fail(e, "making a query pool"))
    }
}

impl Drop for Timestamps {
    fn drop(&mut self) {
        for &pool in &self.pools {
            // SAFETY: V1. V3: the device waits for its queue before it lets go of its pools.
            unsafe { self.shared.raw().destroy_query_pool(pool, None) };
        }
    }
}

impl HostClock {
    fn new() -> Self {
        Self { start: Instant::now(), taken: HashMap::new() }
    }
}

impl Clock {
    fn new(bits: u32, tick_ns: f32) -> Self {
        // One round ahead, so that the first reading has room on both sides.
        let last = if bits < 64 { 1 << bits } else { 0 };
        Self { bits, tick: (f64::from(tick_ns) * TICK_UNIT) as u128, last }
    }

    fn nanoseconds(&mut self, ticks: u64) -> u64 {
        self.last = unwrapped(self.last, ticks, self.bits);
        ((u128::from(self.last) * self.tick) >> 32) as u64
    }
}

/// A reading of a counter of `bits` as the number nearest to the reading before, which counts overflows.
fn unwrapped(last: u64, ticks: u64, bits: u32) -> u64 {
    if bits >= 64 {
        return ticks;
    }
    let range = 1u64 << bits;
    let ahead = ticks.wrapping_sub(last) & (range - 1);
    if ahead < range / 2 { last + ahead } else { last.saturating_sub(range - ahead) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_overflows_goes_on() {
        let bits = 36;
        let end = (1u64 << bits) - 10;
        assert_eq!(unwrapped(end, 5, bits), end + 15);
        assert_eq!(unwrapped(end + 15, end, bits), end, "an older reading is older");
        assert_eq!(unwrapped(7, 7, bits), 7);
        assert_eq!(unwrapped(123, u64::MAX, 64), u64::MAX);
        // Bits above the valid ones are noise.
        assert_eq!(unwrapped(0, 5 | 1 << 40, bits), 5);
    }

    #[test]
    fn readings_are_told_apart_across_any_number_of_overflows() {
        for bits in [8, 16, 36, 48, 63] {
            let range = 1u128 << bits;
            // A counter that never overflows, and what the device shows of it: steps of up to half a round, forward
            // and now and then back.
            let (mut truth, mut last, mut random) = (range, 1u64 << bits, 0x9E37_79B9_7F4A_7C15_u64);
            for step in 0..200 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let by = u128::from(random >> 16) % (range / 2 - 1);
                let next = if step % 5 == 4 { truth - by / 2 } else { truth + by };
                if next > u128::from(u64::MAX) {
                    break;
                }
                truth = next;
                last = unwrapped(last, (truth % range) as u64, bits);
                assert_eq!(u128::from(last), truth, "{bits} bits, step {step}");
            }
        }
    }

    #[test]
    fn ticks_become_nanoseconds() {
        let mut clock = Clock::new(36, 52.08);
        let (start, end) = (clock.nanoseconds((1 << 36) - 1_000_000), clock.nanoseconds(1_000_000));
        assert!((end - start).abs_diff(104_160_000) < 10, "{start} {end}");
        let epoch = 1_700_000_000_123_456_789;
        assert_eq!(Clock::new(64, 1.0).nanoseconds(epoch), epoch);
    }
}
