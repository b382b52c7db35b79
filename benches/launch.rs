//! Launches, small reads and allocations beside the same work in plain Vulkan.
//!
//! Plain Vulkan does here what a careful program without a runtime would: it binds the pipeline once, pushes
//! descriptors, knows by itself where a barrier is needed, and reuses its command buffers.

mod common;
#[path = "plain/dispatch.rs"]
mod dispatch;
mod plain;

use std::cell::Cell;
use std::time::Instant;

use common::{Bench, Case, Result, each, spin_on};
use dispatch::{ADD_ONE, GROUP_BYTES, Kernel, SHADER, Target};
use futures::executor::block_on;
use plain::buffer::RawBuffer;
use plain::{COPY, Commands, Gpu, Place, Region, Wait};
use vkactor::{Client, CubeCount, Handle, KernelArguments, WgslKernel};
use vkactor_actors::engine::memory::{MemoryLimits, MemoryManager, Shortage, SliceId};
use vkactor_actors::id::StreamId;

fn main() -> Result<()> {
    let (mut bench, gpu) = Bench::open("launch")?;
    let count = bench.launches(10_000);
    let ours = Ours::new(&bench.client);
    let theirs = Theirs::new(&gpu, bench.options.sets, count)?;
    enqueue(&mut bench, &ours, &theirs)?;
    dependent(&mut bench, &ours, &theirs, count)?;
    independent(&mut bench, &ours, &theirs, count)?;
    launch_and_read(&mut bench, &ours, &theirs)?;
    ours.verify()?;
    theirs.verify()?;
    allocate(&mut bench, &gpu)?;
    pool(&mut bench, &gpu)?;
    bench.finish()
}

/// The runtime's side: a kernel, and a buffer whose every word counts the launches over it.
struct Ours {
    client: Client,
    kernel: WgslKernel,
    buffer: Handle,
    launched: Cell<u32>,
}

impl Ours {
    fn new(client: &Client) -> Self {
        let buffer = client.create_from_slice(&[0; GROUP_BYTES as usize]);
        let kernel = WgslKernel::new("add_one", ADD_ONE);
        Self { client: client.clone(), kernel, buffer, launched: Cell::new(0) }
    }

    fn launch_over(&self, buffer: &Handle) {
        let arguments = KernelArguments::new().with_buffer(buffer);
        self.client.launch(Box::new(self.kernel.clone()), CubeCount::new_single(), arguments);
    }

    /// Launches over the counting buffer, each depending on the last.
    fn launch(&self, count: usize) {
        for _ in 0..count {
            self.launch_over(&self.buffer);
        }
        self.launched.set(self.launched.get() + count as u32);
    }

    /// Fails unless every launch has run, in its turn.
    fn verify(&self) -> Result<()> {
        let bytes = self.client.read_one(self.buffer.clone())?;
        check("vkactor", &bytes, self.launched.get())
    }
}

/// The plain side: the same kernel and buffer, and command buffers that are recorded again and again.
struct Theirs<'a> {
    gpu: &'a Gpu,
    kernel: Kernel,
    region: Region,
    target: Target,
    readback: Region,
    launched: Cell<u32>,
}

impl<'a> Theirs<'a> {
    fn new(gpu: &'a Gpu, sets: bool, targets: usize) -> Result<Self> {
        let kernel = Kernel::new(gpu, sets, targets as u32 + 1)?;
        let region = gpu.filled(&[0; GROUP_BYTES as usize])?;
        let target = kernel.target(region)?;
        let readback = gpu.buffer(GROUP_BYTES, Place::Readback)?;
        Ok(Self { gpu, kernel, region, target, readback, launched: Cell::new(0) })
    }

    /// Records dispatches over the counting buffer, each depending on the last; gives nanoseconds for each. Begin
    /// and end of the command buffer are left out.
    fn record(&self, commands: &mut Commands, count: usize) -> Result<f64> {
        self.launched.set(self.launched.get() + count as u32);
        commands.record(self.gpu, |recorder| {
            self.kernel.bind(recorder);
            let started = Instant::now();
            for _ in 0..count {
                recorder.barrier(SHADER, SHADER);
                self.kernel.dispatch(recorder, &self.target);
            }
            each(started.elapsed(), count)
        })
    }

    /// One dispatch that depends on the last, and what it left, read by the host.
    fn launch_and_read(&self, commands: &mut Commands, how: Wait) -> Result<[u8; GROUP_BYTES as usize]> {
        self.launched.set(self.launched.get() + 1);
        commands.record(self.gpu, |recorder| {
            recorder.barrier(COPY, SHADER);
            self.kernel.bind(recorder);
            self.kernel.dispatch(recorder, &self.target);
            recorder.read_back(SHADER, self.region, self.readback);
        })?;
        self.gpu.wait(self.gpu.submit(commands)?, how)?;
        let mut bytes = [0; GROUP_BYTES as usize];
        self.gpu.read(self.readback, &mut bytes);
        Ok(bytes)
    }

    fn verify(&self) -> Result<()> {
        self.gpu.run(|recorder| recorder.read_back(SHADER, self.region, self.readback))?;
        let mut bytes = [0; GROUP_BYTES as usize];
        self.gpu.read(self.readback, &mut bytes);
        check("plain Vulkan", &bytes, self.launched.get())
    }
}

fn check(side: &str, bytes: &[u8], launched: u32) -> Result<()> {
    let words: Vec<u32> = bytemuck::pod_collect_to_vec(bytes);
    match words.iter().find(|&&word| word != launched) {
        Some(word) => Err(format!("{side}: {launched} launches, but a word counts {word}").into()),
        None => Ok(()),
    }
}

/// What a launch costs its caller, beside what recording it costs a program that records by itself.
fn enqueue(bench: &mut Bench, ours: &Ours, theirs: &Theirs<'_>) -> Result<()> {
    let count = bench.launches(1000);
    let mut commands = theirs.gpu.commands()?;
    bench.run(Case {
        name: format!("enqueue one launch, of {count}"),
        bytes: None,
        samples: 5,
        vkactor: Box::new(|| {
            let started = Instant::now();
            ours.launch(count);
            let took = started.elapsed();
            spin_on(ours.client.sync())?;
            Ok(each(took, count))
        }),
        plain: vec![(
            "record barrier, descriptors and dispatch",
            Box::new(|| {
                let took = theirs.record(&mut commands, count)?;
                theirs.gpu.wait(theirs.gpu.submit(&commands)?, Wait::Spin)?;
                Ok(took)
            }),
        )],
    })
}

/// Launches that each depend on the last, from the first call to the end of the last.
fn dependent(bench: &mut Bench, ours: &Ours, theirs: &Theirs<'_>, count: usize) -> Result<()> {
    let gpu = theirs.gpu;
    let all = |commands: &mut Commands, how| {
        let started = Instant::now();
        theirs.record(commands, count)?;
        gpu.wait(gpu.submit(commands)?, how)?;
        Ok(each(started.elapsed(), count))
    };
    let (mut spun, mut slept, mut batches) = (gpu.commands()?, gpu.commands()?, batches(gpu, count)?);
    bench.run(Case {
        name: format!("{count} dependent launches, each"),
        bytes: None,
        samples: 5,
        vkactor: Box::new(|| {
            let started = Instant::now();
            ours.launch(count);
            block_on(ours.client.sync())?;
            Ok(each(started.elapsed(), count))
        }),
        plain: vec![
            ("record all, submit once, spin", Box::new(|| all(&mut spun, Wait::Spin))),
            ("record all, submit once, sleep", Box::new(|| all(&mut slept, Wait::Sleep))),
            (
                "record and submit by batches, spin",
                Box::new(|| {
                    let started = Instant::now();
                    let mut last = 0;
                    for (commands, size) in &mut batches {
                        theirs.record(commands, *size)?;
                        last = gpu.submit(commands)?;
                    }
                    gpu.wait(last, Wait::Spin)?;
                    Ok(each(started.elapsed(), count))
                }),
            ),
        ],
    })
}

/// Launches that share nothing, each over a buffer of its own.
fn independent(bench: &mut Bench, ours: &Ours, theirs: &Theirs<'_>, count: usize) -> Result<()> {
    let gpu = theirs.gpu;
    let handles: Vec<Handle> = (0..count).map(|_| ours.client.empty(GROUP_BYTES as usize)).collect();
    let region = gpu.buffer(count as u64 * GROUP_BYTES, Place::Device)?;
    let target = |index| theirs.kernel.target(region.slice(index as u64 * GROUP_BYTES, GROUP_BYTES));
    let targets = (0..count).map(target).collect::<Result<Vec<_>>>()?;
    let record = |commands: &mut Commands, targets: &[Target], first: bool| {
        commands.record(gpu, |recorder| {
            if first {
                recorder.barrier(SHADER, SHADER);
            }
            theirs.kernel.bind(recorder);
            for target in targets {
                theirs.kernel.dispatch(recorder, target);
            }
        })
    };
    let all = |commands: &mut Commands, how| {
        let started = Instant::now();
        record(commands, &targets, true)?;
        gpu.wait(gpu.submit(commands)?, how)?;
        Ok(each(started.elapsed(), count))
    };
    let (mut spun, mut slept, mut batches) = (gpu.commands()?, gpu.commands()?, batches(gpu, count)?);
    bench.run(Case {
        name: format!("{count} independent launches, each"),
        bytes: None,
        samples: 5,
        vkactor: Box::new(|| {
            let started = Instant::now();
            handles.iter().for_each(|handle| ours.launch_over(handle));
            block_on(ours.client.sync())?;
            Ok(each(started.elapsed(), count))
        }),
        plain: vec![
            ("record all, submit once, spin", Box::new(|| all(&mut spun, Wait::Spin))),
            ("record all, submit once, sleep", Box::new(|| all(&mut slept, Wait::Sleep))),
            (
                "record and submit by batches, spin",
                Box::new(|| {
                    let started = Instant::now();
                    let (mut last, mut rest) = (0, &targets[..]);
                    for (index, (commands, size)) in batches.iter_mut().enumerate() {
                        let (these, others) = rest.split_at(*size);
                        record(commands, these, index == 0)?;
                        last = gpu.submit(commands)?;
                        rest = others;
                    }
                    gpu.wait(last, Wait::Spin)?;
                    Ok(each(started.elapsed(), count))
                }),
            ),
        ],
    })
}

/// A launch and the 256 bytes that it leaves: the shortest answer of the device.
fn launch_and_read(bench: &mut Bench, ours: &Ours, theirs: &Theirs<'_>) -> Result<()> {
    let commands = || theirs.gpu.commands();
    let (mut spun, mut slept, mut awaited) = (commands()?, commands()?, commands()?);
    let plain = |commands: &mut Commands, how| {
        let started = Instant::now();
        theirs.launch_and_read(commands, how)?;
        Ok(each(started.elapsed(), 1))
    };
    bench.run(Case {
        name: "launch + read 256 bytes, blocking".to_owned(),
        bytes: None,
        samples: 50,
        vkactor: Box::new(|| {
            let started = Instant::now();
            ours.launch(1);
            ours.client.read_one(ours.buffer.clone())?;
            Ok(each(started.elapsed(), 1))
        }),
        plain: vec![
            ("spin", Box::new(|| plain(&mut spun, Wait::Spin))),
            ("sleep", Box::new(|| plain(&mut slept, Wait::Sleep))),
        ],
    })?;
    bench.run(Case {
        name: "launch + read 256 bytes, future polled".to_owned(),
        bytes: None,
        samples: 50,
        vkactor: Box::new(|| {
            let started = Instant::now();
            ours.launch(1);
            spin_on(ours.client.read_one_async(ours.buffer.clone()))?;
            Ok(each(started.elapsed(), 1))
        }),
        plain: vec![("spin", Box::new(|| plain(&mut awaited, Wait::Spin)))],
    })
}

/// A buffer that comes and goes, beside one from the driver.
fn allocate(bench: &mut Bench, gpu: &Gpu) -> Result<()> {
    const PAIRS: usize = 1000;
    let client = bench.client.clone();
    let pairs = || (0..PAIRS).for_each(|_| drop(client.empty(ALLOCATION)));
    bench.run(Case {
        name: "empty(4096) + drop, the caller's part".to_owned(),
        bytes: None,
        samples: 5,
        vkactor: Box::new(|| {
            let started = Instant::now();
            pairs();
            let took = started.elapsed();
            client.memory_usage();
            Ok(each(took, PAIRS))
        }),
        plain: vec![("vkAllocateMemory + vkFreeMemory", Box::new(|| from_driver(gpu, &[ALLOCATION as u64])))],
    })?;
    bench.run(Case {
        name: "empty(4096) + drop, the actor's part too".to_owned(),
        bytes: None,
        samples: 5,
        vkactor: Box::new(|| {
            let started = Instant::now();
            pairs();
            // Answered behind all that was asked before.
            client.memory_usage();
            Ok(each(started.elapsed(), PAIRS))
        }),
        plain: vec![("vkAllocateMemory + vkFreeMemory", Box::new(|| from_driver(gpu, &[ALLOCATION as u64])))],
    })
}

/// The pools by themselves: no actor, no device.
fn pool(bench: &mut Bench, gpu: &Gpu) -> Result<()> {
    const PAIRS: usize = 1000;
    let limits = MemoryLimits { page_bytes_max: 1 << 30, alignment: 256, budget: 64 << 30 };
    let mut one = MemoryManager::new(limits);
    bench.run(Case {
        name: "pool: reserve + release 4096 bytes".to_owned(),
        bytes: None,
        samples: 5,
        vkactor: Box::new(|| {
            let started = Instant::now();
            for _ in 0..PAIRS {
                let slice = reserve(&mut one, ALLOCATION as u64)?;
                one.release(slice);
            }
            Ok(each(started.elapsed(), PAIRS))
        }),
        plain: vec![("vkAllocateMemory + vkFreeMemory", Box::new(|| from_driver(gpu, &[ALLOCATION as u64])))],
    })?;

    let sizes = mixed_sizes();
    let mut many = MemoryManager::new(limits);
    let mut live = sizes.iter().map(|&size| reserve(&mut many, size)).collect::<Result<Vec<_>>>()?;
    let mut turn = 0;
    bench.run(Case {
        name: "pool: the same, mixed sizes, 1024 live".to_owned(),
        bytes: None,
        samples: 5,
        vkactor: Box::new(|| {
            let started = Instant::now();
            for _ in 0..PAIRS {
                turn += 1;
                // An odd stride visits them all, and gives each place a new size every time.
                let place = turn * 619 % live.len();
                many.release(live[place]);
                live[place] = reserve(&mut many, sizes[turn % sizes.len()])?;
            }
            Ok(each(started.elapsed(), PAIRS))
        }),
        plain: vec![("vkAllocateMemory + vkFreeMemory", Box::new(|| from_driver(gpu, &sizes[..16])))],
    })
}

/// Reserves as the engine does, with a device that never refuses a page.
fn reserve(memory: &mut MemoryManager, size: u64) -> Result<SliceId> {
    loop {
        match memory.reserve(StreamId::DEFAULT, size) {
            Ok(slice) => return Ok(slice.id),
            Err(Shortage::Page { page, .. }) => memory.page_granted(page),
            Err(Shortage::Failed(error)) => return Err(error.into()),
        }
    }
}

/// Takes buffers from the driver and gives them back, one by one; gives nanoseconds for each.
fn from_driver(gpu: &Gpu, sizes: &[u64]) -> Result<f64> {
    let started = Instant::now();
    for &size in sizes {
        drop(RawBuffer::new(&gpu.device, size, Place::Device)?);
    }
    Ok(each(started.elapsed(), sizes.len()))
}

/// 1024 sizes from 256 bytes to 1 MiB, as many of one power of two as of another.
fn mixed_sizes() -> Vec<u64> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let size = |_| {
        let power = 1 << (8 + random() % 12);
        power + random() % power
    };
    (0..1024).map(size).collect()
}

/// Command buffers for `count` dispatches, each with how many it takes.
fn batches(gpu: &Gpu, count: usize) -> Result<Vec<(Commands, usize)>> {
    let sizes = (0..count).step_by(BATCH).map(|start| BATCH.min(count - start));
    sizes.map(|size| Ok((gpu.commands()?, size))).collect()
}

/// Dispatches a submission where recording and running overlap: enough to pay for the submission, few enough for
/// the device to start early.
const BATCH: usize = 128;
/// Bytes of the small buffer.
const ALLOCATION: usize = 4096;
