//! The runtime's own probes. Each finds how much work is long enough to trust, runs that a few times, and gives the
//! best: what a rate falls short of the device's is the doing of others.

use super::{ThroughputKey, ThroughputMode, ThroughputValue, arithmetic, matrix};
use crate::client::Client;
use std::time::{Duration, Instant};
use vkactor_actors::bytes::Bytes;
use vkactor_actors::error::ThroughputError;
use vkactor_actors::handle::Handle;
use vkactor_actors::kernel::{CubeCount, KernelArguments, WgslKernel};
use vkactor_actors::properties::{ElemType, MatrixShape};

/// Measures a key on a stream of its own.
pub(super) fn run(client: &Client, key: ThroughputKey) -> Result<ThroughputValue, ThroughputError> {
    let probe = Probe { client: client.fork() };
    // Nobody else's work is to be in the way. Every path inside ends: each run is bounded.
    let held = probe.client.exclusive(|| match key.mode {
        ThroughputMode::Compute => probe.compute(key.dtype),
        ThroughputMode::MemoryRead => probe.memory(READ, 1),
        ThroughputMode::MemoryWrite => probe.memory(WRITE, 1),
        ThroughputMode::MemoryCopy => probe.memory(COPY, 2),
        ThroughputMode::Matrix { m, n, k } => probe.matrix([m, n, k], key.dtype),
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
        let no_number = || ThroughputError::Unsupported(format!("{dtype:?} is no number"));
        let kernel = arithmetic::kernel(dtype).ok_or_else(no_number)?;
        let out = self.client.empty(GROUPS_MAX as usize * arithmetic::GROUP as usize * 4);
        let [factor, addend] = match dtype {
            // Values go towards one, and never to where a product is slow.
            ElemType::F64 | ElemType::F32 | ElemType::F16 => [0.999_023_44_f32, 0.000_976_562_5].map(f32::to_bits),
            _ => [1_664_525, 1_013_904_223],
        };
        let launch = |groups: u64, turns: u32| {
            let parameters: arithmetic::Parameters = [turns, factor, addend];
            let bindings = KernelArguments::new().with_buffer(&out).with_info(parameters);
            self.client.launch(Box::new(kernel.clone()), CubeCount::new_1d(groups as u32), bindings);
        };
        launch(1, 1);
        self.settle(&out)?;
        let group = f64::from(arithmetic::GROUP * TURNS) * f64::from(arithmetic::OPERATIONS);
        best(group, ARITHMETIC_GROUPS, GROUPS_MAX, |groups| self.on_device(|| launch(groups, TURNS)))
    }

    /// The fastest way to keep the tiles of a shape. Of shapes that differ in what they sum in, the widest counts.
    fn matrix(&self, [m, n, k]: [u32; 3], dtype: ElemType) -> Result<ThroughputValue, ThroughputError> {
        let fits = |s: &&MatrixShape| [s.m, s.n, s.k] == [m, n, k] && s.a == dtype && s.b == dtype;
        let shape = self.client.features().matrix.iter().filter(fits).max_by_key(|s| s.c.size());
        let unsupported = || {
            let shape = format!("the device has no matrix unit for {m} by {n} by {k} {dtype:?}");
            ThroughputError::Unsupported(shape)
        };
        let shape = shape.ok_or_else(unsupported)?;
        let mut found: Option<ThroughputValue> = None;
        for tiles in matrix::TILES {
            let value = self.tiles(shape, tiles)?;
            if found.is_none_or(|found| found.per_second() < value.per_second()) {
                found = Some(value);
            }
        }
        found.ok_or_else(unsupported)
    }

    fn tiles(&self, shape: &MatrixShape, tiles: [u32; 2]) -> Result<ThroughputValue, ThroughputError> {
        let MatrixShape { m, n, k, a, c, .. } = *shape;
        let subgroup_size = self.client.target_properties().subgroup_size;
        let kernel = matrix::kernel(shape, tiles, subgroup_size)
            .ok_or_else(|| ThroughputError::Unsupported(format!("{shape:?} has elements that are no numbers")))?;
        let tile_bytes = (m * n) as usize * c.size();
        let out = self.client.empty((MATRIX_GROUPS_MAX * u64::from(matrix::SUBGROUPS)) as usize * tile_bytes);
        let unit = match a {
            ElemType::F64 | ElemType::F32 | ElemType::F16 => UNIT.to_bits(),
            _ => 1,
        };
        let launch = |groups: u64, turns: u32| {
            let parameters: matrix::Parameters = [turns, unit];
            let bindings = KernelArguments::new().with_buffer(&out).with_info(parameters);
            self.client.launch(Box::new(kernel.clone()), CubeCount::new_1d(groups as u32), bindings);
        };
        launch(1, 1);
        self.settle(&out)?;
        let product = 2.0 * f64::from(m) * f64::from(n) * f64::from(k);
        let group = product * f64::from(matrix::PRODUCTS * matrix::SUBGROUPS);
        let turns = matrix::turns(tiles);
        best(group, MATRIX_GROUPS, MATRIX_GROUPS_MAX, |groups| self.on_device(|| launch(groups, turns)))
    }

    /// A kernel over large buffers, each of whose bytes it touches `touched` times.
    fn memory(&self, code: &'static str, touched: u32) -> Result<ThroughputValue, ThroughputError> {
        let kernel = WgslKernel::new("throughput memory", code);
        let mut blocks = self.large() / BLOCK;
        loop {
            let groups = if blocks > GROUPS_MAX as usize { [1 << 15, blocks >> 15] } else { [blocks, 1] };
            let bytes = groups[0] * groups[1] * BLOCK;
            let buffers = [self.client.empty(bytes), self.client.empty(if touched > 1 { bytes } else { BLOCK })];
            let launch = || {
                let bindings = KernelArguments::new().with_buffer(&buffers[0]).with_buffer(&buffers[1]);
                let groups = CubeCount::new_2d(groups[0] as u32, groups[1] as u32);
                self.client.launch(Box::new(kernel.clone()), groups, bindings);
            };
            launch();
            match self.settle(&buffers[1]) {
                // A binding may be smaller than a buffer, and memory short.
                Err(_) if bytes > LARGE_MIN as usize => blocks /= 2,
                Err(error) => return Err(error),
                Ok(()) => {
                    let amount = f64::from(touched) * bytes as f64;
                    return best(amount, 1, REPEATS_MAX, |n| self.on_device(|| (0..n).for_each(|_| launch())));
                }
            }
        }
    }

    fn upload(&self) -> Result<ThroughputValue, ThroughputError> {
        let mut bytes = Bytes::from(vec![1; self.large() / 4]);
        self.client.staging(std::iter::once(&mut bytes), false);
        let to = self.client.create(bytes.clone());
        self.settle(&to)?;
        best(bytes.len() as f64, 1, REPEATS_MAX, |writes| {
            self.by_the_clock(|| {
                (0..writes).for_each(|_| self.client.write(&to, bytes.clone()));
                self.settle(&to)
            })
        })
    }

    fn download(&self) -> Result<ThroughputValue, ThroughputError> {
        let from = self.client.create(Bytes::from(vec![1; self.large() / 4]));
        // The first read reserves the memory of the host that the others use again.
        self.client.read_one(from.clone())?;
        best(from.size() as f64, 1, REPEATS_MAX, |reads| {
            self.by_the_clock(|| {
                for _ in 0..reads {
                    self.client.read_one(from.clone())?;
                }
                Ok(())
            })
        })
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
        best(1.0, LAUNCHES, LAUNCHES * REPEATS_MAX, |launches| {
            self.by_the_clock(|| {
                (0..launches).for_each(|_| launch());
                self.settle(&word)
            })
        })
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

    /// Bytes that no cache of the device holds, and that leave most of its memory to others: a multiple of [`BLOCK`].
    fn large(&self) -> usize {
        let memory = &self.client.properties().memory;
        let bytes = (memory.total / 64).clamp(LARGE_MIN, LARGE_MAX).min(memory.max_page_size);
        bytes as usize / BLOCK * BLOCK
    }
}

/// The best of a few runs of as much work as takes long enough: from `start` of it up to `max`, each of `amount`.
fn best(
    amount: f64,
    start: u64,
    max: u64,
    mut work: impl FnMut(u64) -> Result<Duration, ThroughputError>,
) -> Result<ThroughputValue, ThroughputError> {
    let (count, first) = grow(start, max, &mut work)?;
    let (mut duration, mut spent) = (first, first);
    for _ in 1..RUNS {
        if spent >= RUNS_TIME {
            break;
        }
        let took = work(count)?;
        duration = duration.min(took);
        spent += took;
    }
    Ok(ThroughputValue { amount: amount * count as f64, duration })
}

/// Repeats work, more of it each time, until it takes long enough: how much that was, and how long it took. The
/// device's clocks go up meanwhile.
fn grow(
    start: u64,
    max: u64,
    mut work: impl FnMut(u64) -> Result<Duration, ThroughputError>,
) -> Result<(u64, Duration), ThroughputError> {
    let mut count = start;
    loop {
        let duration = work(count)?;
        if duration >= LONG_ENOUGH || count >= max {
            return Ok((count, duration));
        }
        // A short run tells little about a long one: the next is aimed past the mark, and bounded.
        let factor = AIM.as_nanos().div_ceil(duration.as_nanos().max(1)).clamp(2, 16);
        count = count.saturating_mul(factor as u64).min(max);
    }
}

/// Where an invocation of a memory kernel begins; `unit` and `group` say which it is. Eight accesses follow at strides
/// of a workgroup: enough in flight for the memory, and no loop around them.
macro_rules! memory_kernel {
    ($body:literal) => {
        concat!(
            "@group(0) @binding(0) var<storage, read_write> a: array<vec4<u32>>;
            @group(0) @binding(1) var<storage, read_write> b: array<vec4<u32>>;
            @compute @workgroup_size(128)
            fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
                    @builtin(local_invocation_index) unit: u32) {
                let at = (group.y * groups.x + group.x) * 1024u + unit;",
            $body,
            "}"
        )
    };
}

/// Loads the first buffer whole. What it finds is stored only if it is one value that it is not: every word is needed.
const READ: &str = memory_kernel!(
    "let seen = a[at] ^ a[at + 128u] ^ a[at + 256u] ^ a[at + 384u]
        ^ a[at + 512u] ^ a[at + 640u] ^ a[at + 768u] ^ a[at + 896u];
    if (all(seen == vec4<u32>(0x9e3779b9u, 0x7f4a7c15u, 0xf39cc060u, 0x5cedc834u))) { b[0] = seen; }"
);

/// Stores to the first buffer whole.
const WRITE: &str = memory_kernel!(
    "let value = vec4<u32>(at);
    a[at] = value; a[at + 128u] = value; a[at + 256u] = value; a[at + 384u] = value;
    a[at + 512u] = value; a[at + 640u] = value; a[at + 768u] = value; a[at + 896u] = value;
    if (at == 0u) { b[0] = value; }"
);

/// Copies the first buffer to the second.
const COPY: &str = memory_kernel!(
    "let s = a[at]; let t = a[at + 128u]; let u = a[at + 256u]; let v = a[at + 384u];
    let w = a[at + 512u]; let x = a[at + 640u]; let y = a[at + 768u]; let z = a[at + 896u];
    b[at] = s; b[at + 128u] = t; b[at + 256u] = u; b[at + 384u] = v;
    b[at + 512u] = w; b[at + 640u] = x; b[at + 768u] = y; b[at + 896u] = z;"
);

/// The least that a launch can do, and that the next has to wait for.
const STEP: &str = "
@group(0) @binding(0) var<storage, read_write> d: array<u32>;
@compute @workgroup_size(1) fn main() { d[0] = d[0] + 1u; }";

/// Bytes that a workgroup of the memory kernels takes, as written in them: eight vectors for each of 128 invocations.
const BLOCK: usize = 8 * 16 * 128;
/// Workgroups in one dimension that every device takes.
const GROUPS_MAX: u64 = 65_535;
/// Turns of the arithmetic kernel: 17 million operations a workgroup, and 18 ms for the most workgroups on an H200.
const TURNS: u32 = 256;
/// Workgroups of its first run: 30 ms at 2 GFLOP/s, as lavapipe has them.
const ARITHMETIC_GROUPS: u64 = 4;
/// Workgroups of the first run of the matrix kernel: 17 ms at 1 TFLOP/s.
const MATRIX_GROUPS: u64 = 16;
/// And of the last: 29 ms at 600 TFLOP/s, and 64 MiB of results of 16 by 16 f32.
const MATRIX_GROUPS_MAX: u64 = 1 << 14;
/// What operands of matrices are multiples of: sums of all products of a launch stay far from the largest f16.
const UNIT: f32 = 0.015_625;
/// Launches of the first run: 46 ms where each takes 46 µs, as on lavapipe.
const LAUNCHES: u64 = 500;
/// A run that can be trusted: a thousand times the error of a timestamp or a wake-up.
const LONG_ENOUGH: Duration = Duration::from_millis(20);
/// What the next run is aimed at.
const AIM: Duration = Duration::from_millis(30);
/// How many times the first run the last may be, where a clock stands still.
const REPEATS_MAX: u64 = 1 << 16;
/// Runs that are long enough, of which the best counts.
const RUNS: u32 = 5;
/// No more of them are begun after this time.
const RUNS_TIME: Duration = Duration::from_millis(200);
/// Past the last-level cache of a CPU that a software driver runs on, mostly; a 64th of 2 GiB is 32 MiB.
const LARGE_MIN: u64 = 8 << 20;
/// Twenty times the cache of an H200, and so much that the start and the end of a launch are a hundredth of it.
const LARGE_MAX: u64 = 1 << 30;

#[cfg(test)]
mod tests;
