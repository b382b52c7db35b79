//! The thread that runs a device's commands.

use super::program::{Program, panic_text};
use super::store::{Page, Store};
use crate::engine::command::{Command, Commands, GraphId, PageId, PipelineId, TimelineValue, TimestampSlot};
use crate::mailbox::Mailbox;
use crate::message::Event;
use crate::port::{DeviceError, Moment};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// What the worker is told, in order: it owns the tables that it works on, so that no lock guards them.
#[derive(Debug)]
pub(super) enum Job {
    /// A page is there.
    AddPage(PageId, Page),
    /// A program is there.
    AddProgram(PipelineId, Program),
    /// A tape is not used any more.
    DropGraph(GraphId),
    /// A page is not used any more.
    FreePage(PageId),
    /// A tape is there.
    Seal(GraphId, Commands),
    /// Run commands.
    Submit {
        /// In order.
        batches: Vec<Commands>,
        /// Reached when they are done.
        value: TimelineValue,
    },
}

/// Values that someone waits for.
#[derive(Debug, Default)]
pub(crate) struct Watch(Vec<TimelineValue>);

impl Watch {
    /// One more value.
    pub(crate) fn add(&mut self, value: TimelineValue) {
        if !self.0.contains(&value) {
            self.0.push(value);
        }
    }

    /// Takes the values that are reached, and tells whether there were any.
    pub(crate) fn take(&mut self, reached: TimelineValue) -> bool {
        let before = self.0.len();
        self.0.retain(|value| *value > reached);
        self.0.len() < before
    }
}

/// What the worker tells: how far it is.
#[derive(Debug)]
pub(super) struct Progress {
    mailbox: Mailbox,
    reached: AtomicU64,
    watch: Mutex<Watch>,
    lost: OnceLock<String>,
    started: Instant,
    times_ns: Mutex<Vec<Option<u64>>>,
}

impl Progress {
    pub(super) fn new(mailbox: Mailbox) -> Self {
        Self {
            mailbox,
            reached: AtomicU64::new(0),
            watch: Mutex::default(),
            lost: OnceLock::new(),
            started: Instant::now(),
            times_ns: Mutex::default(),
        }
    }

    /// Where events go.
    pub(super) fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// How far the worker is. Two loads.
    pub(super) fn reached(&self) -> Result<TimelineValue, DeviceError> {
        match self.lost.get() {
            Some(reason) => Err(DeviceError::Lost(reason.clone())),
            None => Ok(TimelineValue(self.reached.load(Ordering::Acquire))),
        }
    }

    /// Posts progress once `value` is reached, which may be at once.
    pub(super) fn watch(&self, value: TimelineValue) {
        let mut watch = lock(&self.watch);
        watch.add(value);
        self.tell(watch);
    }

    /// When a timestamp was taken last.
    pub(super) fn time_ns(&self, slot: TimestampSlot) -> Option<u64> {
        lock(&self.times_ns).get(slot.0 as usize).copied().flatten()
    }

    /// Ends it all: the caller has not kept its side, or the system gives no thread.
    pub(super) fn lose(&self, reason: String) {
        // Told once, by whoever was first.
        if self.lost.set(reason.clone()).is_ok() {
            self.mailbox.post(Event::Lost(reason));
        }
    }

    /// The value is set under the lock of the watch: no watcher falls between it and the look at the list.
    fn reach(&self, value: TimelineValue) {
        let watch = lock(&self.watch);
        self.reached.store(value.0, Ordering::Release);
        self.tell(watch);
    }

    fn tell(&self, mut watch: MutexGuard<'_, Watch>) {
        let reached = TimelineValue(self.reached.load(Ordering::Relaxed));
        if watch.take(reached) {
            self.mailbox.post(Event::Progress(reached));
        }
    }

    /// Both clocks are the host's.
    pub(super) fn moment(&self) -> Moment {
        let host = Instant::now();
        Moment { device_ns: self.since_start(host), host, error: Duration::ZERO }
    }

    fn since_start(&self, at: Instant) -> u64 {
        u64::try_from(at.duration_since(self.started).as_nanos()).unwrap_or(u64::MAX)
    }

    fn take_time(&self, slot: TimestampSlot) {
        let now = self.since_start(Instant::now());
        let mut times = lock(&self.times_ns);
        let index = slot.0 as usize;
        if times.len() <= index {
            times.resize(index + 1, None);
        }
        times[index] = Some(now);
    }
}

/// What is behind these locks is whole after each statement: a panic leaves nothing to repair.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs submissions one after the other, and their commands in the order in which they were recorded. So barriers
/// ask for nothing.
#[derive(Debug)]
pub(super) struct Worker {
    progress: Arc<Progress>,
    store: Store,
    programs: HashMap<PipelineId, Program>,
    graphs: HashMap<GraphId, Commands>,
}

impl Worker {
    pub(super) fn new(progress: Arc<Progress>) -> Self {
        Self { progress, store: Store::default(), programs: HashMap::new(), graphs: HashMap::new() }
    }

    /// Runs until the device is gone and all that it submitted is done.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        let progress = self.progress.clone();
        // Kernels that panic are caught one by one. What gets here is a broken promise of the caller.
        let end = catch_unwind(AssertUnwindSafe(|| jobs.iter().for_each(|job| self.handle(job))));
        if let Err(payload) = end {
            progress.lose(format!("the worker of host memory stopped: {}", panic_text(&*payload)));
        }
    }

    fn handle(&mut self, job: Job) {
        match job {
            Job::AddPage(id, page) => self.store.insert(id, page),
            Job::AddProgram(id, program) => drop(self.programs.insert(id, program)),
            Job::DropGraph(id) => drop(self.graphs.remove(&id)),
            Job::FreePage(id) => drop(self.store.remove(id)),
            Job::Seal(id, tape) => drop(self.graphs.insert(id, tape)),
            Job::Submit { batches, value } => {
                let mut dispatch = 0;
                for batch in &batches {
                    self.run_commands(batch, value, None, &mut dispatch);
                }
                self.progress.reach(value);
            }
        }
    }

    fn run_commands(&self, commands: &Commands, submission: TimelineValue, graph: Option<GraphId>, dispatch: &mut u32) {
        for command in &commands.list {
            match command {
                Command::Barrier => {}
                Command::Copy(copy) => self.store.copy(copy),
                Command::Dispatch { pipeline, buffers, info, groups } => {
                    let Some(program) = self.programs.get(pipeline) else { unreachable!("{pipeline:?} is not known") };
                    let (buffers, info) = (commands.buffers(*buffers), commands.parameters(*info));
                    if let Err(reason) = self.store.dispatch(program, *groups, buffers, info) {
                        let dispatch = *dispatch;
                        self.progress.mailbox.post(Event::Failed { submission, graph, dispatch, reason });
                    }
                    *dispatch += 1;
                }
                Command::Zero(at) => self.store.zero(*at),
                Command::Replay(id) => {
                    assert!(graph.is_none(), "{graph:?} replays {id:?}");
                    let Some(tape) = self.graphs.get(id) else { unreachable!("{id:?} is not known") };
                    self.run_commands(tape, submission, Some(*id), &mut 0);
                }
                Command::Timestamp(slot) => self.progress.take_time(*slot),
            }
        }
    }
}
