//! What the benches share: options, sampling in turns, and the table of ratios.
//!
//! A machine's clocks, caches and neighbours change while a bench runs, so no figure stands alone: the runtime and
//! each floor take turns, A B A B, and only medians of one run are compared.

mod options;
mod report;

use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use vkactor::{Client, Compute, DeviceInfo, DeviceKind};

use crate::plain::Gpu;
pub(crate) use options::Options;
use report::{Report, Row, Spread};

/// What ends a bench early: the runtime's or the driver's error.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Measures once; gives nanoseconds an operation.
pub(crate) type Sample<'a> = Box<dyn FnMut() -> Result<f64> + 'a>;

/// One thing that is measured both ways.
pub(crate) struct Case<'a> {
    /// What it is.
    pub(crate) name: String,
    /// Bytes that an operation moves, where it is told in GB/s.
    pub(crate) bytes: Option<u64>,
    /// Samples a turn.
    pub(crate) samples: usize,
    /// The runtime's way.
    pub(crate) vkactor: Sample<'a>,
    /// The plain ways, each with its name.
    pub(crate) plain: Vec<(&'static str, Sample<'a>)>,
}

/// A bench under way: the device, reached through the runtime.
pub(crate) struct Bench {
    /// A client of the device, on a stream of its own.
    pub(crate) client: Client,
    /// What the command line said.
    pub(crate) options: Options,
    info: DeviceInfo,
    report: Report,
    _compute: Compute,
}

impl Bench {
    /// Reads the command line and opens the default device both ways.
    ///
    /// # Errors
    /// Wrong options, or no device.
    pub(crate) fn open(name: &'static str) -> Result<(Self, Gpu)> {
        let options = Options::parse(std::env::args().skip(1))?;
        let compute = Compute::new()?;
        let client = compute.default_client()?.fork();
        let id = client.service_id().device;
        let info = compute.devices().iter().find(|info| info.id == id).ok_or("the default device is not listed")?;
        let gpu = Gpu::open(info)?;
        let report = Report::new(name, info, &options);
        Ok((Self { client, info: info.clone(), options, report, _compute: compute }, gpu))
    }

    /// `full` launches, or fewer where the device is slow (a software device takes some 50 µs each) or time short.
    pub(crate) fn launches(&self, full: usize) -> usize {
        let slow = if self.info.kind == DeviceKind::Cpu { SOFTWARE_CUT } else { 1 };
        let quick = if self.options.quick { QUICK_CUT } else { 1 };
        (full / (slow * quick)).max(LAUNCHES_MIN)
    }

    /// Measures a case in turns and adds its rows to the table.
    ///
    /// # Errors
    /// What a sample ends with.
    pub(crate) fn run(&mut self, mut case: Case<'_>) -> Result<()> {
        if !self.options.takes(&case.name) {
            return Ok(());
        }
        let mut taken = vec![Vec::new(); 1 + case.plain.len()];
        for round in 0..=self.options.rounds {
            let sides = std::iter::once(&mut case.vkactor).chain(case.plain.iter_mut().map(|(_, sample)| sample));
            for (sample, taken) in sides.zip(&mut taken) {
                let turn = self.turn(sample, case.samples)?;
                // The first round warms up pools, pipelines and clocks.
                if round > 0 {
                    taken.extend(turn);
                }
            }
        }
        let mut spreads = taken.into_iter().map(Spread::of);
        let Some(vkactor) = spreads.next() else { unreachable!("there is one more than plain ways") };
        for ((floor, _), plain) in case.plain.iter().zip(spreads) {
            self.report.add(Row::new(&case.name, floor, case.bytes, vkactor, plain))?;
        }
        Ok(())
    }

    /// Prints what is left and writes the figures where the command line wants them.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn finish(self) -> Result<()> {
        self.report.finish(self.options.json.as_deref())
    }

    fn turn(&self, sample: &mut Sample<'_>, samples: usize) -> Result<Vec<f64>> {
        // The first of a turn pays for what the other side pushed out: caches, and the device's own context.
        sample()?;
        let (started, limit) = (Instant::now(), if self.options.quick { QUICK_TURN } else { TURN });
        let mut taken = vec![sample()?];
        while taken.len() < samples && started.elapsed() < limit {
            taken.push(sample()?);
        }
        Ok(taken)
    }
}

/// Nanoseconds an operation, of `count` in `took`.
pub(crate) fn each(took: Duration, count: usize) -> f64 {
    took.as_nanos() as f64 / count as f64
}

/// Polls `future` to its end without a pause: how a caller waits that has nothing better to do.
pub(crate) fn spin_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        pause();
    }
}

/// One turn of a spinning wait, for either side. Where the cores do not suffice for the caller, the runtime's threads
/// and a software device, the caller steps aside.
pub(crate) fn pause() {
    static CROWDED: LazyLock<bool> =
        LazyLock::new(|| std::thread::available_parallelism().is_ok_and(|cores| cores.get() < SPINNING_CORES_MIN));
    if *CROWDED {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// By how much a software device's launches are cut: 10,000 of them take 25 ms instead of half a second.
const SOFTWARE_CUT: usize = 20;
/// By how much `--quick` cuts launches.
const QUICK_CUT: usize = 10;
/// No cut goes below: two groups of 8 chains.
const LAUNCHES_MIN: usize = 16;
/// After how long a turn takes no more samples.
const TURN: Duration = Duration::from_millis(100);
/// The same with `--quick`.
const QUICK_TURN: Duration = Duration::from_millis(5);
/// On fewer cores a polling caller would keep the threads that it waits for from running: on two of them, a
/// scheduler's slice of 4 ms for an answer of 70 µs.
const SPINNING_CORES_MIN: usize = 4;
