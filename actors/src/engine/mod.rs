//! The engine: every decision of the runtime, and no I/O.
//!
//! An [`Event`] comes in; [`Commands`] for the device's queue and [`Action`]s for the shell go out. The engine awaits
//! nothing, locks nothing and asks no clock, so each of its decisions is tested without a device. Answers to callers
//! are values that it sends.

mod buffer;
pub mod command;
mod copy;
mod dry;
mod fault;
mod fill;
mod graph;
mod hazard;
mod hold;
mod ids;
mod launch;
mod lease;
pub mod memory;
pub mod observe;
mod profile;
mod questions;
mod reserve;
mod timeline;
mod transfer;
mod window;

use crate::bytes::Bytes;
use crate::error::ServerError;
use crate::id::{ActorId, StreamId};
use crate::message::{Body, Envelope, Event, GraphCall, ProfileCall};
use crate::port::Limits;
use crate::properties::DeviceProperties;
use buffer::Buffers;
use command::{Action, Command, Commands, GraphId, Outbox, PageId, TimelineValue, TimestampSlot};
use graph::{Capture, Graph};
use hazard::{Access, HazardTracker};
use hold::{Held, Reason};
use ids::{IdMap, IdSet};
use launch::Kernels;
use lease::Lease;
use memory::{MemoryLimits, MemoryManager};
use observe::{Tally, Work};
use profile::Windows;
use std::collections::VecDeque;
use std::time::Duration;
use timeline::{Submission, Timeline, Waiter};

/// Commands of a batch while the device works: enough that a submission (11.5 µs on an H200) costs each of them
/// little, few enough that work is not kept back.
const BATCH_COMMANDS: usize = 256;
/// Commands of a batch while the device has nothing to do: it should begin.
const FIRST_BATCH_COMMANDS: usize = 16;
/// Submissions in flight before a batch waits to become full.
const SUBMISSIONS_AHEAD: usize = 2;
/// Turns between two looks for pages whose period is over: a look is a pass over all pages.
const TURNS_PER_SWEEP: u32 = 64;
/// Streams that are remembered though nothing is open on them.
const IDLE_STREAMS_MAX: usize = 1024;
/// How long the device may make no progress before it counts as lost: longer than any kernel that a desktop's
/// watchdog lets run (seconds), short enough that a service notices.
const STALL_LIMIT: Duration = Duration::from_secs(120);

/// What the engine needs to know of its device and its user's wishes.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Which run of an actor it is.
    pub actor: ActorId,
    /// What the device is.
    pub properties: DeviceProperties,
    /// What must be checked.
    pub limits: Limits,
    /// Bytes of device memory that may be reserved.
    pub memory_budget: u64,
    /// New reservations read as zero.
    pub zero_memory: bool,
}

/// What is open on a stream.
#[derive(Debug, Default)]
struct Stream {
    capture: Capture,
    /// Held messages that later ones wait for.
    holds: u32,
}

/// A message behind an answer of the shell about a page.
#[derive(Debug)]
enum Parked {
    /// Its place has come; whether it has waited for memory already.
    Again(Envelope, bool),
    /// Its place comes behind those before it, which may be held up yet.
    Behind(Held),
}

/// The state of one device.
#[derive(Debug)]
pub struct Engine {
    options: EngineOptions,
    memory: MemoryManager,
    hazards: HazardTracker,
    buffers: Buffers,
    streams: IdMap<StreamId, Stream>,
    kernels: Kernels,
    held: Vec<Held>,
    arrivals: IdMap<u64, Option<Result<Bytes, ServerError>>>,
    /// Arrivals that are copies beside the actor.
    fills: IdSet<u64>,
    next_token: u64,
    timeline: Timeline,
    graphs: IdMap<GraphId, Graph>,
    windows: Windows,
    lease: Lease,
    /// Messages behind an answer of the shell about a page, the one that asks first.
    parked: VecDeque<Parked>,
    /// Whether the shell owes that answer.
    awaiting_page: bool,
    /// Reservations that wait for memory, first come first served.
    hungry: VecDeque<Envelope>,
    /// Whether one of them is tried again: it keeps its place.
    feeding: bool,
    /// Somebody waits for what is recorded.
    urgent: bool,
    /// Answers that wait for the timeline.
    waiters: usize,
    stopping: bool,
    lost: Option<String>,
    /// What the validation layer said, until a sync or a flush has told it.
    complaint: Option<String>,
    scratch: launch::Scratch,
    freed: Vec<PageId>,
    turns: u32,
    tally: Tally,
    /// Whether commands get timestamps around them.
    tracing: bool,
}

impl Engine {
    /// An engine with nothing on it.
    pub fn new(options: EngineOptions) -> Self {
        let memory = MemoryManager::new(MemoryLimits {
            page_bytes_max: options.properties.memory.max_page_size,
            alignment: options.properties.memory.alignment,
            budget: options.memory_budget,
        });
        Self {
            buffers: Buffers::of(options.actor),
            options,
            memory,
            hazards: HazardTracker::default(),
            streams: IdMap::default(),
            kernels: Kernels::default(),
            held: Vec::new(),
            arrivals: IdMap::default(),
            fills: IdSet::default(),
            next_token: 0,
            timeline: Timeline::new(),
            graphs: IdMap::default(),
            windows: Windows::default(),
            lease: Lease::default(),
            parked: VecDeque::new(),
            awaiting_page: false,
            hungry: VecDeque::new(),
            feeding: false,
            urgent: false,
            waiters: 0,
            stopping: false,
            lost: None,
            complaint: None,
            scratch: launch::Scratch::default(),
            freed: Vec::new(),
            turns: 0,
            tally: Tally::default(),
            tracing: false,
        }
    }

    // ------------------------------------------------------------------------------ what comes in

    /// Something happened. The shell carries the outbox out before it calls again.
    pub fn handle(&mut self, event: Event, out: &mut Outbox) {
        match event {
            Event::Arrived { token, bytes } => {
                self.fills.remove(&token);
                if let Some(place) = self.arrivals.get_mut(&token) {
                    *place = Some(bytes);
                }
                self.resume(out);
            }
            Event::Client(envelope) => {
                if let Some(envelope) = self.lease.admit(envelope) {
                    self.client(envelope, out);
                }
            }
            Event::Compiled { pipeline, result } => {
                self.compiled(pipeline, result, out);
                self.resume(out);
            }
            Event::Failed { submission, dispatch, graph, reason } => {
                self.failed_late(submission, dispatch, graph, &reason);
            }
            Event::Lost(reason) => self.lose(reason, out),
            Event::PinnedDropped(span) => self.memory.release_host(span),
            Event::Progress(value) => self.progress(value, out),
            // The shell's own: no page of the engine lies in it.
            Event::RegionGivenUp(_) => {}
            Event::Stalled(waited) if waited >= STALL_LIMIT => {
                self.lose(format!("the device has made no progress for {waited:?}"), out);
            }
            Event::Stalled(_) => out.actions.push(Action::Probe),
            Event::Validation(message) => {
                self.complaint.get_or_insert(message);
            }
        }
    }

    /// The events of a turn are handled, and `idle` tells that no more are waiting: decides whether to submit.
    pub fn end_turn(&mut self, idle: bool, out: &mut Outbox) {
        if idle && (self.urgent || self.timeline.in_flight() < SUBMISSIONS_AHEAD) {
            self.submit(out);
        } else {
            self.make_room(out);
        }
        self.turns = self.turns.wrapping_add(1);
        if idle && self.turns.is_multiple_of(TURNS_PER_SWEEP) {
            self.sweep(false, out);
        }
        self.clear_for_lease(out);
    }

    // ------------------------------------------------------------------------------ what it is like

    /// Whether `Stop` was handled and everything sent before it is done.
    pub fn is_finished(&self) -> bool {
        self.stopping
            && self.parked.is_empty()
            && self.held.is_empty()
            && self.lease.is_idle()
            && self.timeline.is_idle()
    }

    /// Whether something is recorded that nobody waits for yet.
    pub fn is_batching(&self) -> bool {
        self.timeline.open.commands > 0 && !self.urgent
    }

    /// Whether the device is gone.
    pub fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// What the shell waits for on the device, if anything.
    pub fn awaited(&self) -> Option<TimelineValue> {
        (self.timeline.in_flight() > 0).then(|| TimelineValue(self.timeline.reached().0 + 1))
    }

    /// Whether somebody waits for the device, so that polling it is worth while.
    pub fn has_waiters(&self) -> bool {
        self.waiters > 0
    }

    /// Whether messages wait for what a thread of the pool does.
    #[cfg(test)]
    pub(crate) fn is_waiting_for_threads(&self) -> bool {
        self.held.iter().any(|held| matches!(held.reason, Reason::Arrival(_) | Reason::Kernel(_)))
    }

    /// Live reservations, host and device bytes in use, graphs, and held messages: all are zero when all is gone.
    pub fn counts(&mut self) -> [u64; 4] {
        let auxiliary = self.memory.report(StreamId::DEFAULT).auxiliary;
        let host: u64 = auxiliary.iter().map(|(_, usage)| usage.bytes_in_use).sum();
        [
            self.buffers.len() as u64,
            self.memory.usage().bytes_in_use + host,
            self.graphs.len() as u64,
            self.held.len() as u64,
        ]
    }

    // ------------------------------------------------------------------------------ messages

    /// Carries a message out, or holds it up behind what it must not overtake.
    fn client(&mut self, envelope: Envelope, out: &mut Outbox) {
        if self.stopping {
            return self.refuse_stopped(envelope, out);
        }
        self.reconsider(Held { envelope, reason: Reason::Behind }, out);
    }

    /// The message came after the stop: dropping it answers `Closed`. What it took is given back.
    fn refuse_stopped(&mut self, envelope: Envelope, out: &mut Outbox) {
        match envelope.body {
            Body::LeaseEnd { lease } => self.end_lease(lease, out),
            Body::Release { buffer } => self.release(buffer, out),
            Body::Graph(GraphCall::Drop { graph }) => self.drop_graph(graph, out),
            _ => {}
        }
    }

    fn perform(&mut self, envelope: Envelope, waited: bool, out: &mut Outbox) {
        if self.awaiting_page {
            self.parked.push_back(Parked::Again(envelope, waited));
            return;
        }
        let Some(Envelope { lease, stream, body }) = self.back_used(envelope, waited, out) else { return };
        match body {
            Body::Check { ranges, reply } => reply.send(self.alive().and_then(|()| self.buffers.check(&ranges))),
            Body::Cleanup { reply } => {
                self.sweep(true, out);
                reply.send(());
            }
            Body::Copy { from, rows, to } => self.copy(stream, &from, rows, &to, out),
            Body::DryRun { on, reply } => {
                self.memory.dry_run(stream, on);
                reply.send(());
            }
            Body::Flush { reply } => {
                self.submit(out);
                reply.send(self.alive().and_then(|()| self.told()));
            }
            Body::Graph(call) => self.graph_call(stream, call, out),
            Body::Install { layout, reply } => {
                let result = self.memory.install(stream, &layout);
                self.sweep(false, out);
                reply.send(result);
            }
            Body::Launch(launch) => self.launch(lease, stream, launch, out),
            Body::LeaseAsk { lease, reply } => {
                self.lease.ask(lease, reply);
                self.clear_for_lease(out);
            }
            Body::LeaseEnd { lease } => self.end_lease(lease, out),
            Body::Left => self.leave(stream, out),
            Body::Lend { sizes, reply } => self.lend(lease, stream, sizes, reply, waited, out),
            Body::Mode(mode) => self.memory.set_mode(stream, mode),
            Body::Profile(ProfileCall::Abandon { window }) => self.abandon_window(window),
            Body::Profile(ProfileCall::End { window, reply, ticks }) => self.end_window(window, reply, ticks, out),
            Body::Profile(ProfileCall::Start { window, reply }) => self.start_window(window, reply),
            Body::Read { parts, reply } => self.read(lease, stream, parts, reply, waited, out),
            Body::Receive { to, rows, from, budget } => {
                self.receive(lease, stream, transfer::Expected { to, rows, budget }, from, out);
            }
            Body::Record { label } => {
                out.actions.push(Action::Record { label, report: self.memory.report(stream) });
            }
            Body::Release { buffer } => self.release(buffer, out),
            Body::Report { reply } => reply.send(self.memory.report(stream)),
            Body::Reserve { buffer, size, holder, wait } => {
                self.reserve(lease, stream, reserve::Wish { buffer, size, holder, wait }, waited, out);
            }
            Body::Resource { range, reply } => self.resource(&range, reply, out),
            Body::Spoil { range, error } => self.spoil(stream, &range, *error),
            Body::Stop => {
                self.stopping = true;
                self.hungry.clear();
                self.submit(out);
            }
            Body::Sync { ranges, reply } => self.sync(stream, ranges, reply, out),
            Body::TakeIn { bytes, reply } => match self.alive() {
                Ok(()) => out.actions.push(Action::TakeIn { bytes, reply }),
                Err(error) => reply.send(Err(error)),
            },
            Body::Trace(call) => self.trace_call(call, out),
            Body::Usage { reply } => reply.send(self.memory.usage()),
            Body::Write { to, rows, bytes, budget, placed } => {
                let upload = transfer::Upload { to, rows, bytes, budget, placed };
                self.write(lease, stream, upload, waited, out);
            }
        }
    }

    /// Whether the device is there.
    fn alive(&self) -> Result<(), ServerError> {
        match &self.lost {
            None => Ok(()),
            Some(reason) => Err(ServerError::DeviceLost { reason: reason.clone() }),
        }
    }

    /// Tells what the validation layer said, once.
    fn told(&mut self) -> Result<(), ServerError> {
        match self.complaint.take() {
            None => Ok(()),
            Some(message) => Err(ServerError::Validation { message }),
        }
    }

    /// The stream in which a message has its place.
    fn place(envelope: &Envelope) -> StreamId {
        match &envelope.body {
            Body::Profile(ProfileCall::End { window, .. } | ProfileCall::Abandon { window }) => window.stream_id,
            _ => envelope.stream,
        }
    }

    fn stream(&mut self, stream: StreamId) -> &mut Stream {
        if self.streams.len() > IDLE_STREAMS_MAX && !self.streams.contains_key(&stream) {
            self.streams.retain(|_, s| s.holds > 0 || !s.capture.is_idle());
        }
        self.streams.entry(stream).or_default()
    }

    // ------------------------------------------------------------------------------ the queue

    /// Puts a command behind whatever it conflicts with. A trace asks what `work` it is.
    fn emit(
        &mut self,
        stream: StreamId,
        accesses: &[Access],
        out: &mut Outbox,
        work: impl FnOnce(&Self) -> Work,
        put: impl FnOnce(&mut Commands),
    ) {
        self.make_room(out);
        self.begin_work(stream, out);
        let noted = self.begin_note(out);
        let conflicts = self.hazards.access(accesses);
        self.separate(conflicts, out);
        put(&mut out.commands);
        self.timeline.open.commands += 1;
        if let Some(start) = noted {
            self.end_note(stream, work(self), start, out);
        }
    }

    /// Puts a barrier where the next command conflicts with something.
    fn separate(&mut self, conflicts: bool, out: &mut Outbox) {
        if conflicts {
            out.commands.list.push(Command::Barrier);
        }
        self.tally.barriers += u64::from(conflicts);
        self.tally.barriers_avoided += u64::from(!conflicts);
    }

    /// Starts the windows that wait for work on the stream.
    fn begin_work(&mut self, stream: StreamId, out: &mut Outbox) {
        let waiting = self.windows.unstarted(stream);
        if waiting > 0 {
            let slot = self.take_time(waiting, out);
            self.windows.begin(stream, slot);
        }
    }

    /// The place of a timestamp of this moment, for so many windows. Nothing has happened since the last command
    /// where that is a timestamp itself.
    fn take_time(&mut self, users: u32, out: &mut Outbox) -> TimestampSlot {
        if let Some(Command::Timestamp(slot)) = out.commands.list.last() {
            self.windows.share(*slot, users);
            return *slot;
        }
        let slot = self.windows.take(users);
        out.commands.list.push(Command::Timestamp(slot));
        self.timeline.open.commands += 1;
        slot
    }

    /// Sends a full batch off. It comes before a command and not behind it, so that what is owed for a command is
    /// noted in the submission that has it.
    fn make_room(&mut self, out: &mut Outbox) {
        let full = if self.timeline.in_flight() == 0 { FIRST_BATCH_COMMANDS } else { BATCH_COMMANDS };
        if self.timeline.open.commands >= full {
            self.submit(out);
        }
    }

    /// Notes an answer that is owed once everything before now is done; at once where it is. The work before is sent
    /// off soon, but for a time of it: that is answered whenever the work is done.
    fn when_done(&mut self, waiter: Waiter, out: &mut Outbox) {
        self.waiters += 1;
        self.urgent |= !matches!(waiter, Waiter::Ticks { .. });
        match self.timeline.last() {
            Some(submission) => submission.waiters.push(waiter),
            None => self.answer(waiter, out),
        }
    }

    fn submit(&mut self, out: &mut Outbox) {
        self.urgent = false;
        if let Some(value) = self.timeline.submit() {
            self.tally.submissions += 1;
            let next = out.spare.pop().unwrap_or_default();
            let commands = std::mem::replace(&mut out.commands, next);
            out.actions.push(Action::Submit { value, commands });
            if self.lost.is_some() {
                self.progress(value, out);
            }
        }
    }

    fn progress(&mut self, value: TimelineValue, out: &mut Outbox) {
        let mut any = false;
        while let Some(mut done) = self.timeline.reach(value) {
            any = true;
            self.complete(&mut done, out);
            self.timeline.recycle(done);
        }
        if any {
            self.resume(out);
            self.feed(out);
            self.clear_for_lease(out);
        }
    }

    fn complete(&mut self, done: &mut Submission, out: &mut Outbox) {
        if done.launches > 0 {
            out.actions.push(Action::FinishLaunches(done.launches));
        }
        out.actions.extend(done.uploads.drain(..).map(Action::FinishUpload));
        for span in done.staged.drain(..) {
            self.memory.release_host(span);
        }
        done.kept.clear();
        for page in done.pages.drain(..) {
            self.memory.page_freed(page);
            out.actions.push(Action::FreePage(page));
        }
        out.actions.extend(done.graphs.drain(..).map(Action::DropGraph));
        for slot in done.slots.drain(..) {
            self.windows.give_back(slot);
        }
        self.hand_over_notes(done, out);
        for waiter in done.waiters.extract_if(.., |waiter| !matches!(waiter, Waiter::Ticks { .. })) {
            self.answer(waiter, out);
        }
        // The last first: a caller that waits for times one by one is woken once, when all of a submission are there.
        for waiter in done.waiters.drain(..).rev() {
            self.answer(waiter, out);
        }
    }

    fn answer(&mut self, waiter: Waiter, out: &mut Outbox) {
        self.waiters -= 1;
        match waiter {
            Waiter::Read { parts, sources, reply } => {
                let told = self.alive().and_then(|()| self.buffers.find_late(&sources).result());
                match told {
                    Ok(()) if !reply.is_abandoned() => out.actions.push(Action::Deliver { parts, reply }),
                    told => {
                        parts.into_iter().flatten().for_each(|span| self.memory.release_host(span));
                        reply.send(told.map(|()| Vec::new()));
                    }
                }
            }
            Waiter::Sync { ranges, reply } => {
                let told = self.alive().and_then(|()| self.told());
                reply.send(told.and_then(|()| self.buffers.check(&ranges)));
            }
            Waiter::Ticks { start, end, reply } => match self.alive() {
                Ok(()) => {
                    out.actions.push(Action::Ticks { start, end, reply });
                    self.windows.give_back(start);
                    self.windows.give_back(end);
                }
                Err(error) => reply.send(Err(error.into())),
            },
            Waiter::TraceStart { at, sink, reply } => {
                self.windows.give_back(at);
                match self.alive() {
                    Ok(()) => out.actions.push(Action::StartTrace { at, sink, reply }),
                    Err(error) => reply.send(Err(error)),
                }
            }
            Waiter::TraceStop { reply } => out.actions.push(Action::StopTrace { reply }),
        }
    }

    /// The device is gone: everything that waits is told, and everything later is refused.
    fn lose(&mut self, reason: String, out: &mut Outbox) {
        if self.lost.is_some() {
            return;
        }
        self.lost = Some(reason);
        self.submit(out);
        self.progress(self.timeline.submitted(), out);
        let hungry = std::mem::take(&mut self.hungry);
        hungry.into_iter().for_each(|envelope| self.perform(envelope, true, out));
        self.resume(out);
    }
}
