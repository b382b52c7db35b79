//! The runtime's own probes. Each repeats its work until one run is long enough to trust.

use super::{ThroughputKey, ThroughputMode, ThroughputValue};
use crate::client::Client;
use std::time::{Duration, Instant};
use vkactor_actors::bytes::Bytes;
use vkactor_actors::error::ThroughputError;
use vkactor_actors::handle::Handle;
use vkactor_actors::kernel::{CubeCount, KernelArguments, WgslKernel};
use vkactor_actors::properties::ElemType;

/// Measures a key on a stream of its own.
pub(super) fn run(client: &Client, key: ThroughputKey) -> Result<ThroughputValue, ThroughputError> {
    let probe = Probe { client: client.fork() };
    // Nobody else's work is to be in the way. Every path inside ends: each run is bounded.
    let held = probe.client.exclusive(|| match key.mode {
        ThroughputMode::Compute => probe.compute(key.dtype),
        ThroughputMode::MemoryRead => probe.memory(READ, 1),
        ThroughputMode::MemoryWrite => probe.memory(WRITE, 1),
        ThroughputMode::MemoryCopy => probe.memory(COPY, 2),
        ThroughputMode::Matrix { m, n, k } => {
            let dtype = key.dtype;
            Err(ThroughputError::Unsupported(format!("no probe for matrices of {m} by {n} by {k} {dtype:?}")))
        }
        ThroughputMode::HostToDevice => probe.upload(),
        ThroughputMode::DeviceToHost => probe.download(),
        ThroughputMode::Launch => probe.launches(),
    });
    held?
}

struct Probe {
    client: Client,
}

impl Probe {
    fn compute(&self, dtype: ElemType) -> Result<ThroughputValue, ThroughputError> {
        if !self.client.features().types.contains(&dtype) {
            return Err(ThroughputError::Unsupported(format!("the device does not compute with {dtype:?}")));
        }
        let code = arithmetic(dtype).ok_or_else(|| ThroughputError::Unsupported(format!("no probe for {dtype:?}")))?;
        let kernel = WgslKernel::new(format!("throughput compute {dtype:?}"), code);
        let out = self.client.empty(ARITHMETIC_THREADS as usize * 4);
        let groups = CubeCount::new_1d(ARITHMETIC_THREADS / GROUP);
        let launch = |steps: u32| {
            let bindings = KernelArguments::new().with_buffer(&out).with_info(steps);
            self.client.launch(Box::new(kernel.clone()), groups.clone(), bindings);
        };
        launch(1);
        self.settle(&out)?;
        let (steps, duration) = grow(ARITHMETIC_STEPS, |steps| {
            // Steps of one launch are bounded, so that no driver takes it for a hang.
            let launches = steps.div_ceil(STEPS_A_LAUNCH);
            self.on_device(|| (0..launches).for_each(|_| launch((steps / launches) as u32)))
        })?;
        let launches = steps.div_ceil(STEPS_A_LAUNCH);
        let operations = (steps / launches * launches) as f64 * OPERATIONS_A_STEP * f64::from(ARITHMETIC_THREADS);
        Ok(ThroughputValue { amount: operations, duration })
    }

    /// A kernel over large buffers, each of whose bytes it touches `touched` times.
    fn memory(&self, code: &'static str, touched: u32) -> Result<ThroughputValue, ThroughputError> {
        let bytes = self.large();
        let kernel = WgslKernel::new("throughput memory", code);
        let buffers = [self.client.empty(bytes), self.client.empty(if touched > 1 { bytes } else { LOAD })];
        let groups = (bytes / LOAD / GROUP as usize).clamp(1, GROUPS_MAX) as u32;
        let launch = || {
            let bindings = KernelArguments::new().with_buffer(&buffers[0]).with_buffer(&buffers[1]);
            self.client.launch(Box::new(kernel.clone()), CubeCount::new_1d(groups), bindings);
        };
        launch();
        self.settle(&buffers[1])?;
        let (launches, duration) = grow(1, |launches| self.on_device(|| (0..launches).for_each(|_| launch())))?;
        Ok(ThroughputValue { amount: launches as f64 * f64::from(touched) * bytes as f64, duration })
    }

    fn upload(&self) -> Result<ThroughputValue, ThroughputError> {
        let mut bytes = Bytes::from(vec![1; self.large() / 4]);
        self.client.staging(std::iter::once(&mut bytes), false);
        let to = self.client.create(bytes.clone());
        self.settle(&to)?;
        let (writes, duration) = grow(1, |writes| {
            self.by_the_clock(|| {
                (0..writes).for_each(|_| self.client.write(&to, bytes.clone()));
                self.settle(&to)
            })
        })?;
        Ok(ThroughputValue { amount: writes as f64 * bytes.len() as f64, duration })
    }

    fn download(&self) -> Result<ThroughputValue, ThroughputError> {
        let from = self.client.create(Bytes::from(vec![1; self.large() / 4]));
        self.settle(&from)?;
        let (reads, duration) = grow(1, |reads| {
            self.by_the_clock(|| {
                for _ in 0..reads {
                    self.client.read_one(from.clone())?;
                }
                Ok(())
            })
        })?;
        Ok(ThroughputValue { amount: reads as f64 * from.size() as f64, duration })
    }

    fn launches(&self) -> Result<ThroughputValue, ThroughputError> {
        let kernel = WgslKernel::new("throughput launch", STEP);
        let word = self.client.create(Bytes::from(vec![0; 4]));
        let launch = || {
            let bindings = KernelArguments::new().with_buffer(&word);
            self.client.launch(Box::new(kernel.clone()), CubeCount::new_single(), bindings);
        };
        launch();
        self.settle(&word)?;
        let (launches, duration) = grow(LAUNCHES, |launches| {
            self.by_the_clock(|| {
                (0..launches).for_each(|_| launch());
                self.settle(&word)
            })
        })?;
        Ok(ThroughputValue { amount: launches as f64, duration })
    }

    /// Waits for the work on a buffer. A server that refuses the kernel, as one without WGSL does, lacks the mode.
    fn settle(&self, handle: &Handle) -> Result<(), ThroughputError> {
        self.client.wait_for([handle]).map_err(|error| match error.is_refusal() {
            true => ThroughputError::Unsupported(error.to_string()),
            false => error.into(),
        })
    }

    /// The time that the device takes for work.
    fn on_device(&self, work: impl FnOnce() + Send) -> Result<Duration, ThroughputError> {
        let ((), time) = self.client.profile(work, "throughput")?;
        Ok(time.resolve_blocking()?.duration())
    }

    /// The time from the first call to the end of the last, which the caller of transfers and launches sees.
    fn by_the_clock(&self, work: impl FnOnce() -> Result<(), ThroughputError>) -> Result<Duration, ThroughputError> {
        let started = Instant::now();
        work()?;
        Ok(started.elapsed())
    }

    /// Bytes that no cache of the device holds, and that leave most of its memory to others: a multiple of `LOAD`.
    fn large(&self) -> usize {
        let memory = &self.client.properties().memory;
        let bytes = (memory.total / 64).clamp(LARGE_MIN, LARGE_MAX).min(memory.max_page_size);
        bytes as usize / LOAD * LOAD
    }
}

/// Repeats work, more of it each time, until it takes long enough: how much that was, and how long it took.
fn grow(
    start: u64,
    mut work: impl FnMut(u64) -> Result<Duration, ThroughputError>,
) -> Result<(u64, Duration), ThroughputError> {
    let mut amount = start;
    loop {
        let duration = work(amount)?;
        if duration >= LONG_ENOUGH || amount >= start.saturating_mul(GROWTH_MAX) {
            return Ok((amount, duration));
        }
        // A short run tells little about a long one: the next is aimed past the mark, and bounded.
        let factor = AIM.as_nanos().div_ceil(duration.as_nanos().max(1)).clamp(2, 16);
        amount = amount.saturating_mul(factor as u64);
    }
}

/// A kernel that computes in registers: each step is a chain of sixteen products and sums on four lanes.
fn arithmetic(dtype: ElemType) -> Option<String> {
    let (enable, scalar, factor, step) = match dtype {
        ElemType::F32 => ("", "f32", "0.9990234375", "0.0009765625"),
        ElemType::F16 => ("enable f16;", "f16", "0.9990234375h", "0.0009765625h"),
        ElemType::U32 => ("", "u32", "1664525u", "1013904223u"),
        ElemType::I32 => ("", "i32", "1103515245i", "12345i"),
        ElemType::F64
        | ElemType::BF16
        | ElemType::I64
        | ElemType::I16
        | ElemType::I8
        | ElemType::U64
        | ElemType::U16
        | ElemType::U8
        | ElemType::Bool => return None,
    };
    let vector = format!("vec4<{scalar}>");
    let one = |v: &str| match dtype {
        ElemType::F32 | ElemType::F16 => format!("{v} = fma({v}, m, s);"),
        _ => format!("{v} = {v} * m + s;"),
    };
    // Four independent chains hide the latency of each.
    let round: String = ["a", "b", "c", "d"].into_iter().map(one).collect();
    let body = round.repeat(4);
    Some(format!(
        "{enable}
var<immediate> steps: u32;
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@compute @workgroup_size({GROUP})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    let m = {vector}({factor});
    let s = {vector}({step});
    var a = {vector}({scalar}(id.x % 61u));
    var b = a + s;
    var c = b + s;
    var d = c + s;
    for (var i = 0u; i < steps; i = i + 1u) {{ {body} }}
    let sum = a + b + c + d;
    out[id.x] = f32(sum.x) + f32(sum.y) + f32(sum.z) + f32(sum.w);
}}"
    ))
}

/// Loads the first buffer whole. What it finds is stored only if it is one value that it is not: the loads stay.
const READ: &str = "
@group(0) @binding(0) var<storage, read> s: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> d: array<vec4<u32>>;
@compute @workgroup_size(128)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    var seen = vec4<u32>(1u);
    for (var i = id.x; i < arrayLength(&s); i = i + groups.x * 128u) { seen = seen * 3u + s[i]; }
    if (seen.x == 0x9e3779b9u && seen.y == 0x7f4a7c15u) { d[0] = seen; }
}";

/// Stores to the first buffer whole.
const WRITE: &str = "
@group(0) @binding(0) var<storage, read_write> d: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> other: array<vec4<u32>>;
@compute @workgroup_size(128)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var i = id.x; i < arrayLength(&d); i = i + groups.x * 128u) { d[i] = vec4<u32>(i); }
    if (id.x == 0u) { other[0] = vec4<u32>(0u); }
}";

/// Copies the first buffer to the second.
const COPY: &str = "
@group(0) @binding(0) var<storage, read> s: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> d: array<vec4<u32>>;
@compute @workgroup_size(128)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var i = id.x; i < arrayLength(&d); i = i + groups.x * 128u) { d[i] = s[i]; }
}";

/// The least that a launch can do, and that the next has to wait for.
const STEP: &str = "
@group(0) @binding(0) var<storage, read_write> d: array<u32>;
@compute @workgroup_size(1) fn main() { d[0] = d[0] + 1u; }";

/// Bytes of one load of the memory kernels.
const LOAD: usize = 16;
/// Units of a workgroup of the large kernels, as written in them: every device has that many.
const GROUP: u32 = 128;
/// Workgroups of a memory kernel: what every device takes in one dimension.
const GROUPS_MAX: usize = 65_535;
/// Threads of the arithmetic kernel: two for each that the largest GPUs hold at once (an H200: 270,336).
const ARITHMETIC_THREADS: u32 = 4096 * GROUP;
/// Steps of its first run: a few milliseconds on two cores of a CPU.
const ARITHMETIC_STEPS: u64 = 2;
/// Products and sums of one step: 4 rounds of 4 chains of 4 lanes, each a product and a sum.
const OPERATIONS_A_STEP: f64 = 4.0 * 4.0 * 4.0 * 2.0;
/// Steps of one launch at the most: under a second at 100 GFLOP/s.
const STEPS_A_LAUNCH: u64 = 1024;
/// Launches of the first run: 46 ms where each takes 46 µs, as on lavapipe.
const LAUNCHES: u64 = 500;
/// A run that can be trusted: a thousand times the error of a timestamp or a wake-up.
const LONG_ENOUGH: Duration = Duration::from_millis(20);
/// What the next run is aimed at.
const AIM: Duration = Duration::from_millis(30);
/// How many times the first run the last may be, where a clock stands still.
const GROWTH_MAX: u64 = 1 << 16;
/// Past the last-level cache of a CPU that a software driver runs on, mostly; a 64th of 2 GiB is 32 MiB.
const LARGE_MIN: u64 = 8 << 20;
/// Five times the cache of an H200.
const LARGE_MAX: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_grows_until_it_is_long_enough() {
        let (amount, duration) = grow(3, |n| Ok(Duration::from_micros(n * 7))).unwrap();
        assert!(duration >= LONG_ENOUGH && duration < 3 * AIM, "{amount}: {duration:?}");
        assert_eq!(duration, Duration::from_micros(amount * 7));
    }

    #[test]
    fn work_that_takes_no_time_ends_too() {
        assert!(grow(1, |_| Ok(Duration::ZERO)).unwrap().0 <= 16 * GROWTH_MAX);
        assert!(grow(1, |_| Err(ThroughputError::Unsupported("it".into()))).is_err());
    }
}
