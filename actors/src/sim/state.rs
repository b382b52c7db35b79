//! What the simulated device and its control share.

use super::order::OrderChecker;
use super::scheduler::Scheduler;
use super::{Fault, SimCounters, SimOptions};
use crate::engine::command::{
    Command, Commands, GraphId, Groups, PageId, PipelineId, RowCopy, TimelineValue, TimestampSlot,
};
use crate::host::{Block, Page, Program, Store, Watch, check_rows, overlap};
use crate::kernel::BufferAccess;
use crate::mailbox::Mailbox;
use crate::message::Event;
use crate::port::{DeviceError, PageKind, Span};
use crate::region::{Region, RegionOwner};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What fresh memory holds: neither zero nor anything that a test would expect.
const FRESH: u8 = 0xC7;
/// Nanoseconds of the device's clock that a step takes.
const STEP_NS: u64 = 1000;

/// One command that was submitted and is not done.
#[derive(Debug)]
struct Work {
    batch: Arc<Commands>,
    command: Command,
    accesses: Vec<(Span, BufferAccess)>,
    submission: TimelineValue,
    graph: Option<GraphId>,
    dispatch: u32,
    /// Of a work that has started.
    outcome: Outcome,
}

/// What a work does when it ends.
#[derive(Debug, Default)]
struct Outcome {
    writes: Vec<(Span, Vec<u8>)>,
    failure: Option<String>,
}

/// Faults that wait for their time.
#[derive(Debug, Default)]
struct Faults {
    all_pages: bool,
    commands: Option<u64>,
    page: Option<u64>,
    probe: bool,
    silence: bool,
    submission: Option<u64>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) options: SimOptions,
    pub(super) mailbox: Option<Mailbox>,
    pub(super) store: Store,
    kinds: HashMap<PageId, PageKind>,
    /// Host pages, as other devices may take them in.
    regions: HashMap<PageId, Arc<RegionOwner>>,
    /// Pages of other devices: they take no memory of this one.
    adopted: HashSet<PageId>,
    programs: HashMap<PipelineId, Program>,
    graphs: HashMap<GraphId, Arc<Commands>>,
    recorded: Vec<Arc<Commands>>,
    scheduler: Scheduler<Work>,
    pub(super) checker: OrderChecker,
    pub(super) dropped_barriers: HashSet<u64>,
    counters: SimCounters,
    faults: Faults,
    lost: Option<String>,
    submitted: TimelineValue,
    reached: TimelineValue,
    watch: Watch,
    times_ns: HashMap<TimestampSlot, u64>,
    clock_ns: u64,
}

impl State {
    pub(super) fn new(options: SimOptions) -> Self {
        Self {
            scheduler: Scheduler::new(options.seed),
            options,
            mailbox: None,
            store: Store::default(),
            kinds: HashMap::new(),
            regions: HashMap::new(),
            adopted: HashSet::new(),
            programs: HashMap::new(),
            graphs: HashMap::new(),
            recorded: Vec::new(),
            checker: OrderChecker::new(),
            dropped_barriers: HashSet::new(),
            counters: SimCounters::default(),
            faults: Faults::default(),
            lost: None,
            submitted: TimelineValue(0),
            reached: TimelineValue(0),
            watch: Watch::default(),
            times_ns: HashMap::new(),
            clock_ns: STEP_NS,
        }
    }

    // --------------------------------------------------------------------------------- memory

    pub(super) fn allocate_page(&mut self, id: PageId, bytes: u64, kind: PageKind) -> Result<(), DeviceError> {
        self.alive()?;
        let refused = due(&mut self.faults.page) || self.faults.all_pages;
        let fits = self.counters.bytes.checked_add(bytes).is_some_and(|b| b <= self.options.properties.memory.total);
        let page = if refused || !fits { None } else { Page::zeroed(bytes) };
        let Some(page) = page else { return Err(DeviceError::OutOfMemory) };
        page.write(Span { page: id, offset: 0, size: bytes }, &vec![FRESH; bytes as usize]);
        if kind != PageKind::Device && self.options.properties.features.host_import {
            self.regions.insert(id, Arc::new(RegionOwner::new(page.clone())));
        }
        self.store.insert(id, page);
        self.kinds.insert(id, kind);
        self.counters.pages += 1;
        self.counters.bytes += bytes;
        Ok(())
    }

    pub(super) fn free_page(&mut self, id: PageId) {
        if self.lost.is_none() {
            self.assert_unnamed(id);
        }
        let page = self.store.remove(id);
        if !self.adopted.remove(&id) {
            self.counters.bytes -= page.bytes();
        }
        self.counters.pages -= 1;
        self.kinds.remove(&id);
        self.regions.remove(&id);
    }

    pub(super) fn region(&self, id: PageId) -> Option<Arc<RegionOwner>> {
        self.regions.get(&id).cloned()
    }

    /// A page of another simulated device becomes one of this: commands see its bytes when they run.
    pub(super) fn adopt(&mut self, id: PageId, region: &Region) -> bool {
        let shared = region.memory::<Page>().filter(|_| self.options.properties.features.host_import);
        let Some(page) = shared.cloned() else { return false };
        self.counters.pages += 1;
        self.adopted.insert(id);
        self.store.insert(id, page);
        self.kinds.insert(id, PageKind::Readback);
        true
    }

    /// V3: nothing that is to run names the page.
    fn assert_unnamed(&self, id: PageId) {
        let touches = |accesses: &[(Span, BufferAccess)]| accesses.iter().any(|(span, _)| span.page == id);
        let pending = self.scheduler.pending().find(|work| touches(&work.accesses)).map(|work| work.command);
        assert!(pending.is_none(), "{id:?} is freed, and named by {pending:?}");
        let named = |commands: &Commands| commands.list.iter().any(|c| touches(&self.accesses(commands, c)));
        assert!(!self.recorded.iter().any(|batch| named(batch)), "{id:?} is freed, and named by what was recorded");
        let graph = self.graphs.iter().find(|(_, tape)| named(tape)).map(|(graph, _)| graph);
        assert!(graph.is_none(), "{id:?} is freed, and named by {graph:?}");
    }

    pub(super) fn write_page(&mut self, to: Span, bytes: &[u8]) {
        assert!(self.kinds.get(&to.page) == Some(&PageKind::Upload), "{to:?} is written and not of an upload page");
        self.assert_host_may_touch(to, true);
        self.store.page(to.page).write(to, bytes);
    }

    pub(super) fn host_bytes(&self, at: Span) -> Vec<u8> {
        assert!(self.kinds.get(&at.page) != Some(&PageKind::Device), "{at:?} is shown and not of a host page");
        self.assert_host_may_touch(at, false);
        self.store.page(at.page).read(at)
    }

    /// V4: the host keeps off what pending work touches.
    fn assert_host_may_touch(&self, at: Span, writes: bool) {
        let meets = |(span, access): &(Span, BufferAccess)| (writes || access.writes()) && overlap(span, &at);
        let pending = self.scheduler.pending().find(|work| work.accesses.iter().any(meets)).map(|work| work.command);
        assert!(pending.is_none() || self.lost.is_some(), "the host touches {at:?}, as does {pending:?}");
    }

    // ------------------------------------------------------------------------------- commands

    pub(super) fn add_pipeline(&mut self, id: PipelineId, program: Program) {
        let old = self.programs.insert(id, program);
        assert!(old.is_none(), "{id:?} is given out twice");
    }

    pub(super) fn record(&mut self, commands: &Commands) -> Result<(), DeviceError> {
        self.alive()?;
        let batch = self.take_in(commands);
        self.recorded.push(batch);
        Ok(())
    }

    pub(super) fn seal(&mut self, id: GraphId, tape: &Commands) -> Result<(), DeviceError> {
        self.alive()?;
        let nested = tape.list.iter().find(|command| matches!(command, Command::Replay(_) | Command::Timestamp(_)));
        assert!(nested.is_none(), "{nested:?} on the tape of {id:?}");
        let tape = self.take_in(tape);
        let old = self.graphs.insert(id, tape);
        assert!(old.is_none(), "{id:?} is given out twice");
        self.counters.graphs += 1;
        Ok(())
    }

    pub(super) fn drop_graph(&mut self, id: GraphId) {
        let pending = self.scheduler.pending().find(|work| work.graph == Some(id)).map(|work| work.command);
        assert!(pending.is_none() || self.lost.is_some(), "{id:?} is dropped, and {pending:?} is pending");
        assert!(self.graphs.remove(&id).is_some(), "{id:?} is dropped and not known");
        self.counters.graphs -= 1;
    }

    pub(super) fn submit(&mut self, value: TimelineValue) -> Result<(), DeviceError> {
        if due(&mut self.faults.submission) {
            self.lose("lost at a submission");
        }
        self.alive()?;
        assert!(value > self.submitted, "the timeline goes back: {value:?} after {:?}", self.submitted);
        self.submitted = value;
        self.counters.submissions += 1;
        let mut dispatch = 0;
        for batch in std::mem::take(&mut self.recorded) {
            self.enqueue(&batch, None, &mut dispatch);
        }
        self.scheduler.push_end(value);
        Ok(())
    }

    /// Checks commands, and takes barriers out that are to be missing.
    fn take_in(&mut self, commands: &Commands) -> Arc<Commands> {
        let mut kept = commands.clone();
        kept.list.clear();
        for command in &commands.list {
            self.assert_known(commands, command);
            if *command == Command::Barrier {
                self.counters.barriers += 1;
                if self.dropped_barriers.contains(&(self.counters.barriers - 1)) {
                    continue;
                }
            }
            kept.list.push(*command);
        }
        Arc::new(kept)
    }

    /// V7 and V8: ids are known, ranges lie inside their pages.
    fn assert_known(&self, commands: &Commands, command: &Command) {
        match command {
            Command::Barrier | Command::Timestamp(_) => {}
            Command::Copy(copy) => check_rows(copy),
            Command::Dispatch { pipeline, .. } => {
                assert!(self.programs.contains_key(pipeline), "{pipeline:?} is not known");
            }
            Command::Replay(id) => assert!(self.graphs.contains_key(id), "{id:?} is not known"),
            Command::Zero(at) => {
                let aligned = at.offset.is_multiple_of(4) && at.size.is_multiple_of(4);
                assert!(aligned, "{at:?} is set to zero: not words");
            }
        }
        for (span, _) in self.accesses(commands, command) {
            self.store.page(span.page).range(span);
        }
    }

    fn enqueue(&mut self, batch: &Arc<Commands>, graph: Option<GraphId>, dispatch: &mut u32) {
        for &command in &batch.list {
            match command {
                Command::Barrier => {
                    self.checker.barrier();
                    self.scheduler.push_barrier();
                }
                Command::Replay(id) => {
                    let tape = self.graphs.get(&id).cloned();
                    let Some(tape) = tape else { unreachable!("{id:?} is replayed and not known") };
                    self.enqueue(&tape, Some(id), &mut 0);
                }
                Command::Copy(_) | Command::Dispatch { .. } | Command::Timestamp(_) | Command::Zero(_) => {
                    let accesses = self.accesses(batch, &command);
                    if self.options.check_order {
                        // A readback range is given out again when its last reader has dropped it, which is after
                        // the timeline: the host orders the two copies.
                        let on_readback =
                            |(at, _): &&(Span, BufferAccess)| self.kinds.get(&at.page) == Some(&PageKind::Readback);
                        let checked: Vec<_> = accesses.iter().filter(|a| !on_readback(a)).copied().collect();
                        self.checker.command(&checked);
                    }
                    let last = matches!(command, Command::Timestamp(_));
                    let (batch, submission, outcome) = (batch.clone(), self.submitted, Outcome::default());
                    let work = Work { batch, command, accesses, submission, graph, dispatch: *dispatch, outcome };
                    self.scheduler.push_work(work, last);
                    *dispatch += u32::from(matches!(command, Command::Dispatch { .. }));
                }
            }
        }
    }

    /// What a command touches.
    fn accesses(&self, commands: &Commands, command: &Command) -> Vec<(Span, BufferAccess)> {
        match command {
            Command::Barrier | Command::Replay(_) | Command::Timestamp(_) => Vec::new(),
            Command::Copy(copy) if copy.count == 0 || copy.bytes == 0 => Vec::new(),
            Command::Copy(copy) => vec![(copy.from, BufferAccess::Read), (copy.to, BufferAccess::Write)],
            Command::Dispatch { pipeline, buffers, groups, .. } => {
                let access = |index| self.programs.get(pipeline).map_or(BufferAccess::ReadWrite, |p| p.access(index));
                let buffers = commands.buffers(*buffers).iter().enumerate();
                let mut accesses: Vec<_> = buffers.map(|(index, span)| (*span, access(index))).collect();
                if let Groups::Indirect(at) = groups {
                    accesses.push((*at, BufferAccess::Read));
                }
                accesses
            }
            Command::Zero(at) => vec![(*at, BufferAccess::Write)],
        }
    }

    // ------------------------------------------------------------------------------- progress

    /// Lets one work start, end, or both. False where nothing can happen.
    pub(super) fn step(&mut self) -> bool {
        if self.lost.is_some() || self.faults.silence {
            return false;
        }
        let turn = self.scheduler.poll_turn();
        if let Some(turn) = turn {
            self.clock_ns += STEP_NS;
            if turn.start {
                self.start_work(turn.id);
            }
            if turn.end {
                self.end_work(turn.id);
            }
        }
        self.tell_progress();
        turn.is_some()
    }

    pub(super) fn run(&mut self) {
        while self.step() {}
    }

    pub(super) fn reached(&mut self) -> Result<TimelineValue, DeviceError> {
        if self.options.auto_run {
            self.run();
        }
        self.alive()?;
        Ok(self.reached)
    }

    pub(super) fn watch(&mut self, value: TimelineValue) {
        self.watch.add(value);
        if let Some(reason) = &self.lost {
            self.post(Event::Lost(reason.clone()));
        } else if self.options.auto_run {
            self.run();
        }
        self.tell_progress();
    }

    pub(super) fn timestamp_ns(&self, slot: TimestampSlot) -> Option<u64> {
        self.times_ns.get(&slot).copied()
    }

    /// Reads all that the work reads. It sees nothing of what others write after this.
    fn start_work(&mut self, id: u64) {
        let work = self.scheduler.work(id);
        let (batch, command) = (work.batch.clone(), work.command);
        let outcome = match command {
            Command::Copy(copy) => Outcome { writes: self.copied_rows(&copy), failure: None },
            Command::Dispatch { pipeline, buffers, info, groups } => {
                let Some(program) = self.programs.get(&pipeline) else { unreachable!("{pipeline:?} is not known") };
                self.counters.dispatches += 1;
                let limit = self.options.properties.hardware.max_cube_count;
                let groups = self.store.groups(groups);
                if groups.iter().zip([limit.0, limit.1, limit.2]).any(|(count, limit)| *count > limit) {
                    Outcome::default()
                } else {
                    dispatched(&self.store, program, groups, batch.buffers(buffers), batch.parameters(info))
                }
            }
            Command::Zero(at) => Outcome { writes: vec![(at, vec![0; at.size as usize])], failure: None },
            Command::Timestamp(slot) => {
                self.times_ns.insert(slot, self.clock_ns);
                Outcome::default()
            }
            Command::Barrier | Command::Replay(_) => unreachable!("{command:?} is no work"),
        };
        self.scheduler.work(id).outcome = outcome;
    }

    fn end_work(&mut self, id: u64) {
        let Work { outcome, submission, graph, dispatch, .. } = self.scheduler.finish(id);
        for (at, bytes) in outcome.writes {
            self.store.page(at.page).write(at, &bytes);
        }
        if let Some(reason) = outcome.failure {
            self.post(Event::Failed { submission, graph, dispatch, reason });
        }
        self.counters.commands += 1;
        if let Some(left) = &mut self.faults.commands {
            *left = left.saturating_sub(1);
        }
        self.lose_when_due();
    }

    fn copied_rows(&self, copy: &RowCopy) -> Vec<(Span, Vec<u8>)> {
        let row = |side: Span, pitch: u64, index: u64| Span {
            page: side.page,
            offset: side.offset + index * pitch,
            size: copy.bytes,
        };
        let rows = if copy.bytes == 0 { 0 } else { copy.count };
        (0..rows)
            .map(|index| {
                let (from, to) = (row(copy.from, copy.from_pitch, index), row(copy.to, copy.to_pitch, index));
                (to, self.store.page(from.page).read(from))
            })
            .collect()
    }

    fn tell_progress(&mut self) {
        if self.lost.is_some() || self.faults.silence {
            return;
        }
        if let Some(value) = self.scheduler.take_reached() {
            self.reached = value;
        }
        if self.watch.take(self.reached) {
            self.post(Event::Progress(self.reached));
        }
    }

    fn post(&self, event: Event) {
        if let Some(mailbox) = &self.mailbox {
            mailbox.post(event);
        }
    }

    pub(super) fn seed(&mut self, seed: u64) {
        self.scheduler.seed(seed);
    }

    pub(super) fn counters(&self) -> SimCounters {
        SimCounters { pending: self.scheduler.pending().count(), ..self.counters }
    }

    // --------------------------------------------------------------------------------- faults

    pub(super) fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::AllPages => self.faults.all_pages = true,
            Fault::Commands(count) => self.faults.commands = Some(count),
            Fault::Page(count) => self.faults.page = Some(count),
            Fault::Probe => self.faults.probe = true,
            Fault::Silence => self.faults.silence = true,
            Fault::Submission(count) => self.faults.submission = Some(count),
        }
        self.lose_when_due();
    }

    pub(super) fn clear_faults(&mut self) {
        self.faults = Faults::default();
        if self.options.auto_run {
            self.run();
        }
    }

    pub(super) fn probe(&mut self) -> Result<(), DeviceError> {
        if self.faults.probe {
            self.lose("lost at a probe");
        }
        self.alive()
    }

    fn lose_when_due(&mut self) {
        if self.faults.commands == Some(0) {
            self.lose("lost while commands ran");
        }
    }

    /// Who watches is told now; others learn it from their next call.
    fn lose(&mut self, reason: &str) {
        if self.lost.is_none() {
            self.lost = Some(reason.to_owned());
            if self.watch.take(TimelineValue(u64::MAX)) {
                self.post(Event::Lost(reason.to_owned()));
            }
        }
    }

    pub(super) fn alive(&self) -> Result<(), DeviceError> {
        match &self.lost {
            Some(reason) => Err(DeviceError::Lost(reason.clone())),
            None => Ok(()),
        }
    }
}

/// Runs a program on copies of its buffers: the bytes that it changed are its outcome.
fn dispatched(store: &Store, program: &Program, groups: [u32; 3], buffers: &[Span], info: &[u8]) -> Outcome {
    let before: Vec<Block> = buffers.iter().map(|at| store.page(at.page).read_aligned(*at)).collect();
    let mut after: Vec<Block> = before.iter().map(|block| Block::copy_of(block.bytes())).collect();
    let mut slices: Vec<&mut [u8]> = after.iter_mut().map(Block::bytes_mut).collect();
    let failure = program.call(groups, &mut slices, info).err();
    let mut writes = Vec::new();
    for (index, (span, (before, after))) in buffers.iter().zip(before.iter().zip(&after)).enumerate() {
        let runs = changed(before.bytes(), after.bytes());
        let kept = program.access(index).writes() || runs.is_empty();
        assert!(kept, "{} stores to buffer {index}, which it declares to read", program.name());
        writes.extend(runs.into_iter().map(|(start, end)| {
            let at = Span { offset: span.offset + start as u64, size: (end - start) as u64, ..*span };
            (at, after.bytes()[start..end].to_vec())
        }));
    }
    Outcome { writes, failure }
}

/// Where two runs of bytes of one length differ: starts and ends.
fn changed(before: &[u8], after: &[u8]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for index in (0..before.len()).filter(|&index| before[index] != after[index]) {
        match runs.last_mut() {
            Some((_, end)) if *end == index => *end += 1,
            Some(_) | None => runs.push((index, index + 1)),
        }
    }
    runs
}

/// Whether a countdown is at its end; it ends once.
fn due(countdown: &mut Option<u64>) -> bool {
    match countdown {
        Some(0) => {
            *countdown = None;
            true
        }
        Some(left) => {
            *left -= 1;
            false
        }
        None => false,
    }
}
