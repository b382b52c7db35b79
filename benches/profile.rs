//! What being watched costs: launches with a window around each, with a subscriber that wants nothing, and in a trace
//! of the device, beside launches that nobody watches.

#[expect(dead_code, reason = "nothing is polled here")]
mod common;
#[path = "plain/dispatch.rs"]
mod dispatch;
#[expect(dead_code, reason = "nothing is copied here")]
mod plain;
#[path = "plain/stopwatch.rs"]
mod stopwatch;

use std::cell::Cell;
use std::time::Instant;

use common::{Bench, Case, Result, each};
use dispatch::{ADD_ONE, GROUP_BYTES, Kernel, SHADER};
use futures::executor::block_on;
use plain::{Gpu, Wait};
use stopwatch::Stopwatch;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use vkactor::{Client, CubeCount, Handle, KernelArguments, ProfileDuration, WgslKernel};

fn main() -> Result<()> {
    let (mut bench, gpu) = Bench::open("profile")?;
    let count = bench.launches(10_000);
    let launches = Launches::new(&bench.client);
    windows(&mut bench, &launches, &gpu, count)?;
    subscriber(&mut bench, &launches, count)?;
    trace(&mut bench, &launches, count)?;
    launches.verify()?;
    bench.finish()
}

/// A kernel, and a buffer whose every word counts the launches over it: each depends on the last.
struct Launches {
    client: Client,
    kernel: WgslKernel,
    buffer: Handle,
    launched: Cell<u32>,
}

impl Launches {
    fn new(client: &Client) -> Self {
        let buffer = client.create_from_slice(&[0; GROUP_BYTES as usize]);
        let kernel = WgslKernel::new("add_one", ADD_ONE);
        Self { client: client.clone(), kernel, buffer, launched: Cell::new(0) }
    }

    fn launch(&self) {
        let arguments = KernelArguments::new().with_buffer(&self.buffer);
        self.client.launch(Box::new(self.kernel.clone()), CubeCount::new_single(), arguments);
        self.launched.set(self.launched.get() + 1);
    }

    /// Nanoseconds a launch, from the first call to the end of the last.
    fn plain(&self, count: usize) -> Result<f64> {
        let started = Instant::now();
        (0..count).for_each(|_| self.launch());
        block_on(self.client.sync())?;
        Ok(each(started.elapsed(), count))
    }

    /// The same with a window around each, up to the last time.
    fn windowed(&self, count: usize) -> Result<f64> {
        let started = Instant::now();
        let mut times: Vec<ProfileDuration> = Vec::with_capacity(count);
        for _ in 0..count {
            let window = self.client.profile_start()?;
            self.launch();
            times.push(self.client.profile_end(window)?);
        }
        for time in times {
            time.resolve_blocking()?;
        }
        Ok(each(started.elapsed(), count))
    }

    fn verify(&self) -> Result<()> {
        let words: Vec<u32> = bytemuck::pod_collect_to_vec(&self.client.read_one(self.buffer.clone())?);
        match words.iter().find(|&&word| word != self.launched.get()) {
            Some(word) => Err(format!("{} launches, but a word counts {word}", self.launched.get()).into()),
            None => Ok(()),
        }
    }
}

/// A window around each launch, and no time resolved before the last call. What the device's clock costs by itself
/// is told by plain Vulkan, once with a timestamp between two dispatches and once without.
fn windows(bench: &mut Bench, launches: &Launches, gpu: &Gpu, count: usize) -> Result<()> {
    let kernel = Kernel::new(gpu, bench.options.sets, 1)?;
    let target = kernel.target(gpu.filled(&[0; GROUP_BYTES as usize])?)?;
    let stopwatch = Stopwatch::new(gpu, count as u32 + 1)?;
    let (mut timed, mut untimed) = (gpu.commands()?, gpu.commands()?);
    bench.run(Case {
        name: format!("{count} launches, a window around each"),
        bytes: None,
        samples: 5,
        vkactor: Box::new(|| launches.windowed(count)),
        plain: vec![
            ("no windows", Box::new(|| launches.plain(count))),
            (
                "plain Vulkan, timestamps between",
                Box::new(|| {
                    let started = Instant::now();
                    timed.record(gpu, |recorder| {
                        kernel.bind(recorder);
                        stopwatch.reset(recorder);
                        stopwatch.take(recorder, 0);
                        for index in 1..=count as u32 {
                            recorder.barrier(SHADER, SHADER);
                            kernel.dispatch(recorder, &target);
                            stopwatch.take(recorder, index);
                        }
                    })?;
                    gpu.wait(gpu.submit(&timed)?, Wait::Sleep)?;
                    let ticks = stopwatch.ticks()?;
                    let took = each(started.elapsed(), count);
                    if ticks.is_sorted() { Ok(took) } else { Err("timestamps go back".into()) }
                }),
            ),
            (
                "plain Vulkan, no timestamps",
                Box::new(|| {
                    let started = Instant::now();
                    untimed.record(gpu, |recorder| {
                        kernel.bind(recorder);
                        for _ in 0..count {
                            recorder.barrier(SHADER, SHADER);
                            kernel.dispatch(recorder, &target);
                        }
                    })?;
                    gpu.wait(gpu.submit(&untimed)?, Wait::Sleep)?;
                    Ok(each(started.elapsed(), count))
                }),
            ),
        ],
    })
}

/// A process gets one subscriber and keeps it, so the launches without one come first and take no turns.
fn subscriber(bench: &mut Bench, launches: &Launches, count: usize) -> Result<()> {
    let mut before = (0..SAMPLES).map(|_| launches.plain(count)).collect::<Result<Vec<f64>>>()?;
    before.sort_by(f64::total_cmp);
    let before = before[SAMPLES / 2];
    tracing::subscriber::set_global_default(Off)?;
    bench.run(Case {
        name: format!("{count} launches, a subscriber that is off"),
        bytes: None,
        samples: 5,
        vkactor: Box::new(|| launches.plain(count)),
        plain: vec![("no subscriber, median of before", Box::new(move || Ok(before)))],
    })
}

/// A trace that is on costs; one that has ended does not.
fn trace(bench: &mut Bench, launches: &Launches, count: usize) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("trace.json");
    let traced = |path| {
        launches.client.trace_start(path)?;
        let took = launches.plain(count)?;
        launches.client.trace_stop()?;
        Ok(took)
    };
    bench.run(Case {
        name: format!("{count} launches, in a trace of the device"),
        bytes: None,
        samples: 5,
        vkactor: Box::new(|| traced(&path)),
        plain: vec![("no trace", Box::new(|| launches.plain(count)))],
    })
}

/// A subscriber that is there and wants nothing.
struct Off;

impl Subscriber for Off {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Runs of which the median stands for the launches without a subscriber.
const SAMPLES: usize = 25;
