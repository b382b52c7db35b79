//! Replays of captured launches beside command buffers that were recorded by hand.
//!
//! The hand knows what the runtime must find out: which launches depend on each other, and so how few barriers do.

mod common;
#[path = "plain/dispatch.rs"]
mod dispatch;
mod plain;

use std::cell::Cell;
use std::time::Instant;

use common::{Bench, Case, Result, each, spin_on};
use dispatch::{ADD_ONE, GROUP_BYTES, Kernel, SHADER, Target};
use futures::executor::block_on;
use plain::{Commands, Gpu, Place, Region, Wait};
use vkactor::{Client, CubeCount, Graph, Handle, KernelArguments, WgslKernel};

fn main() -> Result<()> {
    let (mut bench, gpu) = Bench::open("replay")?;
    let launches = bench.launches(1000);
    chains(&mut bench, &gpu, 1, launches)?;
    chains(&mut bench, &gpu, CHAINS, launches / CHAINS)?;
    rebind(&mut bench, &gpu, launches)?;
    bench.finish()
}

/// Chains of launches: within one each depends on the last, between them nothing does.
#[derive(Clone, Copy)]
struct Chains {
    count: usize,
    length: usize,
}

impl Chains {
    fn launches(self) -> usize {
        self.count * self.length
    }

    fn name(self) -> String {
        match self.count {
            1 => format!("{} dependent launches", self.length),
            _ => format!("{} chains of {} launches", self.count, self.length),
        }
    }
}

/// The runtime's side: a graph, and a buffer for each chain whose every word counts the launches over it.
struct Ours {
    client: Client,
    graph: Graph,
    buffers: Vec<Handle>,
    replayed: Cell<usize>,
}

impl Ours {
    /// Captures chain after chain, the order that asks most of the runtime.
    fn capture(client: &Client, chains: Chains) -> Result<Self> {
        let kernel = WgslKernel::new("add_one", ADD_ONE);
        let zero = [0; GROUP_BYTES as usize];
        let buffers: Vec<Handle> = (0..chains.count).map(|_| client.create_from_slice(&zero)).collect();
        block_on(client.sync())?;
        client.graph_prepare()?;
        client.start_capture()?;
        for buffer in &buffers {
            for _ in 0..chains.length {
                let arguments = KernelArguments::new().with_buffer(buffer);
                client.launch(Box::new(kernel.clone()), CubeCount::new_single(), arguments);
            }
        }
        let graph = client.stop_capture()?;
        Ok(Self { client: client.clone(), graph, buffers, replayed: Cell::new(0) })
    }

    fn replay(&self, times: usize) -> Result<()> {
        self.replayed.set(self.replayed.get() + times);
        (0..times).try_for_each(|_| self.graph.replay())?;
        Ok(())
    }

    /// Fails unless every launch of every replay has run, in its turn.
    fn verify(&self, chains: Chains) -> Result<()> {
        for buffer in &self.buffers {
            let bytes = self.client.read_one(buffer.clone())?;
            check("vkactor", &bytes, self.replayed.get() * chains.length)?;
        }
        Ok(())
    }
}

/// The plain side: one command buffer, recorded once.
struct Theirs<'a> {
    gpu: &'a Gpu,
    commands: Commands,
    region: Region,
    submitted: Cell<usize>,
}

impl<'a> Theirs<'a> {
    /// Records the chains, with one barrier before each level of them, or with one before each launch.
    fn record(gpu: &'a Gpu, kernel: &Kernel, chains: Chains, levels: bool) -> Result<Self> {
        let region = gpu.filled(&vec![0; chains.count * GROUP_BYTES as usize])?;
        let target = |chain| kernel.target(region.slice(chain as u64 * GROUP_BYTES, GROUP_BYTES));
        let targets: Vec<Target> = (0..chains.count).map(target).collect::<Result<_>>()?;
        let mut commands = gpu.commands()?;
        commands.record(gpu, |recorder| {
            kernel.bind(recorder);
            for _ in 0..chains.length {
                for (index, target) in targets.iter().enumerate() {
                    if index == 0 || !levels {
                        recorder.barrier(SHADER, SHADER);
                    }
                    kernel.dispatch(recorder, target);
                }
            }
        })?;
        Ok(Self { gpu, commands, region, submitted: Cell::new(0) })
    }

    fn submit(&self, times: usize) -> Result<u64> {
        self.submitted.set(self.submitted.get() + times);
        (0..times).try_fold(0, |_, _| self.gpu.submit(&self.commands))
    }

    fn replay(&self, times: usize, how: Wait) -> Result<()> {
        self.gpu.wait(self.submit(times)?, how)
    }

    fn verify(&self, chains: Chains) -> Result<()> {
        let readback = self.gpu.buffer(self.region.bytes, Place::Readback)?;
        self.gpu.run(|recorder| recorder.read_back(SHADER, self.region, readback))?;
        let mut bytes = vec![0; self.region.bytes as usize];
        self.gpu.read(readback, &mut bytes);
        check("plain Vulkan", &bytes, self.submitted.get() * chains.length)
    }
}

fn check(side: &str, bytes: &[u8], launched: usize) -> Result<()> {
    let words: Vec<u32> = bytemuck::pod_collect_to_vec(bytes);
    match words.iter().find(|&&word| word as usize != launched) {
        Some(word) => Err(format!("{side}: {launched} launches, but a word counts {word}").into()),
        None => Ok(()),
    }
}

fn chains(bench: &mut Bench, gpu: &Gpu, count: usize, length: usize) -> Result<()> {
    let chains = Chains { count, length };
    let kernel = Kernel::new(gpu, bench.options.sets, 2 * count as u32)?;
    let ours = Ours::capture(&bench.client, chains)?;
    let by_levels = Theirs::record(gpu, &kernel, chains, true)?;
    let one_by_one = Theirs::record(gpu, &kernel, chains, false)?;
    replay_and_wait(bench, chains, &ours, &by_levels, &one_by_one)?;
    back_to_back(bench, chains, &ours, &by_levels)?;
    ours.verify(chains)?;
    by_levels.verify(chains)?;
    one_by_one.verify(chains)
}

/// One replay until it is done.
fn replay_and_wait(
    bench: &mut Bench,
    chains: Chains,
    ours: &Ours,
    by_levels: &Theirs<'_>,
    one_by_one: &Theirs<'_>,
) -> Result<()> {
    let launches = chains.launches();
    let plain = |theirs: &Theirs<'_>, how| {
        let started = Instant::now();
        theirs.replay(1, how)?;
        Ok(each(started.elapsed(), launches))
    };
    bench.run(Case {
        name: format!("replay {}, polled, each", chains.name()),
        bytes: None,
        samples: 20,
        vkactor: Box::new(|| {
            let started = Instant::now();
            ours.replay(1)?;
            spin_on(ours.client.sync())?;
            Ok(each(started.elapsed(), launches))
        }),
        plain: vec![
            ("fewest barriers, spin", Box::new(|| plain(by_levels, Wait::Spin))),
            ("a barrier before each, spin", Box::new(|| plain(one_by_one, Wait::Spin))),
        ],
    })?;
    bench.run(Case {
        name: format!("replay {}, parked, each", chains.name()),
        bytes: None,
        samples: 20,
        vkactor: Box::new(|| {
            let started = Instant::now();
            ours.replay(1)?;
            block_on(ours.client.sync())?;
            Ok(each(started.elapsed(), launches))
        }),
        plain: vec![("fewest barriers, sleep", Box::new(|| plain(by_levels, Wait::Sleep)))],
    })
}

/// Replays that follow each other: what the caller pays for one, and what the device does a launch when nobody waits
/// in between.
fn back_to_back(bench: &mut Bench, chains: Chains, ours: &Ours, theirs: &Theirs<'_>) -> Result<()> {
    bench.run(Case {
        name: format!("enqueue a replay of {}", chains.name()),
        bytes: None,
        samples: 20,
        vkactor: Box::new(|| {
            let started = Instant::now();
            ours.replay(IN_A_ROW)?;
            let took = started.elapsed();
            spin_on(ours.client.sync())?;
            Ok(each(took, IN_A_ROW))
        }),
        plain: vec![(
            "vkQueueSubmit",
            Box::new(|| {
                let started = Instant::now();
                let last = theirs.submit(IN_A_ROW)?;
                let took = started.elapsed();
                theirs.gpu.wait(last, Wait::Spin)?;
                Ok(each(took, IN_A_ROW))
            }),
        )],
    })?;
    let launches = chains.launches() * IN_A_ROW;
    bench.run(Case {
        name: format!("{IN_A_ROW} replays of {}, each", chains.name()),
        bytes: None,
        samples: 20,
        vkactor: Box::new(|| {
            let started = Instant::now();
            ours.replay(IN_A_ROW)?;
            spin_on(ours.client.sync())?;
            Ok(each(started.elapsed(), launches))
        }),
        plain: vec![(
            "fewest barriers, spin",
            Box::new(|| {
                let started = Instant::now();
                theirs.replay(IN_A_ROW, Wait::Spin)?;
                Ok(each(started.elapsed(), launches))
            }),
        )],
    })
}

/// Another buffer for the first launch of a graph, until replays may use it; by hand everything is recorded again.
fn rebind(bench: &mut Bench, gpu: &Gpu, launches: usize) -> Result<()> {
    let client = bench.client.clone();
    let kernel = WgslKernel::new("add_one", ADD_ONE);
    let zero = [0; GROUP_BYTES as usize];
    let [first, second, rest] = [(); 3].map(|()| client.create_from_slice(&zero));
    client.graph_prepare()?;
    client.start_capture()?;
    for at in 0..launches {
        let buffer = if at == 0 { &first } else { &rest };
        let arguments = KernelArguments::new().with_buffer(buffer);
        client.launch(Box::new(kernel.clone()), CubeCount::new_single(), arguments);
    }
    let graph = client.stop_capture()?;
    let exchanged = Cell::new(false);
    let plain = Kernel::new(gpu, bench.options.sets, 1)?;
    let region = gpu.filled(&zero)?;
    let target = plain.target(region)?;
    let mut commands = gpu.commands()?;
    bench.run(Case {
        name: format!("rebind a launch of {launches}, the caller's part and the actor's"),
        bytes: None,
        samples: 20,
        vkactor: Box::new(|| {
            let (old, new) = if exchanged.replace(!exchanged.get()) { (&second, &first) } else { (&first, &second) };
            let started = Instant::now();
            graph.rebind(old, new)?;
            Ok(each(started.elapsed(), 1))
        }),
        plain: vec![(
            "record all again",
            Box::new(|| {
                let started = Instant::now();
                commands.record(gpu, |recorder| {
                    plain.bind(recorder);
                    for _ in 0..launches {
                        recorder.barrier(SHADER, SHADER);
                        plain.dispatch(recorder, &target);
                    }
                })?;
                Ok(each(started.elapsed(), 1))
            }),
        )],
    })
}

/// Independent chains of the second half.
const CHAINS: usize = 8;
/// Replays without a wait in between.
const IN_A_ROW: usize = 10;
