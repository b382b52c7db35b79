//! The actor of one device: takes events, lets the engine decide, and carries out what it says.

use crate::bytes::Bytes;
use crate::ending::Ending;
use crate::engine::command::{Action, Commands, Outbox, SealReply, Span, TimelineValue, TimestampSlot};
use crate::engine::memory::MemoryReport;
use crate::engine::observe::Noted;
use crate::engine::{Engine, EngineOptions};
use crate::error::{IoError, LaunchError, ProfileError, ServerError};
use crate::kernel::CubeKernel;
use crate::mailbox::{Inbox, Mailbox};
use crate::message::{Body, Envelope, Event, Incoming};
use crate::meter::{Meter, Snapshot};
use crate::port::{Compiler, Device, DeviceError, Reflection, wrong_source};
use crate::profile::ProfileTicks;
use crate::properties::TargetProperties;
use crate::region::Guests;
use crate::reply::Reply;
use crate::trace::{Trace, TraceSink, TraceSummary};
use std::any::Any;
use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Events of one turn before the device is looked at again. At about 1.5 µs a launch, a turn is under half a
/// millisecond.
const EVENTS_PER_TURN: usize = 256;
/// How long an open batch waits for the next message before it is submitted: a caller's next call comes within a
/// microsecond or two, and a submission costs 11.5 µs on an H200.
const PATIENCE: Duration = Duration::from_micros(3);
/// How many times as long the actor polls while somebody waits for the device: two threads that must wake up first, the
/// watcher and this one, cost him some 100 µs on a virtual machine. With the default it is 2.5 ms.
const WAITED_SPINS: u32 = 50;
/// Polls between two offers of the core to other threads: on a machine of two cores a software device needs it.
const POLLS_PER_YIELD: u32 = 16;

/// How the shell behaves; what the engine needs is in [`EngineOptions`].
#[derive(Debug, Clone)]
pub(crate) struct ShellOptions {
    /// How long the actor polls before it sleeps.
    pub(crate) spin: Duration,
    /// Where records go.
    pub(crate) records: Option<PathBuf>,
    /// Told once the device is lost.
    pub(crate) ending: Arc<Ending>,
    /// What is published.
    pub(crate) meter: Meter,
}

/// One device, its engine, and what is between them.
pub(crate) struct DeviceActor<D: Device> {
    engine: Engine,
    device: D,
    inbox: Inbox,
    compiler: Arc<D::Compiler>,
    target: Arc<TargetProperties>,
    late_failures: bool,
    options: ShellOptions,
    outbox: Outbox,
    actions: VecDeque<Action>,
    /// The queue's other half, for turns that begin with events left of the last.
    taken: Vec<Event>,
    /// Taken and not handled yet.
    events: VecDeque<Event>,
    trace: Option<Trace>,
    guests: Guests,
}

impl<D: Device> DeviceActor<D> {
    /// An actor that is not running yet.
    pub(crate) fn new(
        mut device: D,
        inbox: Inbox,
        target: Arc<TargetProperties>,
        engine: EngineOptions,
        options: ShellOptions,
    ) -> Self {
        let late_failures = engine.limits.late_failures;
        device.start(inbox.mailbox().clone());
        Self {
            engine: Engine::new(engine),
            compiler: device.compiler(),
            device,
            inbox,
            target,
            late_failures,
            options,
            outbox: Outbox::default(),
            actions: VecDeque::new(),
            taken: Vec::new(),
            events: VecDeque::new(),
            trace: None,
            guests: Guests::default(),
        }
    }

    /// Runs until the actor is told to stop and everything sent before is done. It waits for events only, never for
    /// the device.
    pub(crate) async fn run(mut self) {
        loop {
            let idle = self.turn();
            if self.engine.is_finished() {
                return;
            }
            if idle {
                self.sleep().await;
            }
        }
    }

    /// One turn: takes what is there, up to a bound, lets the engine decide, and looks at the device. True where
    /// nothing more is waiting.
    pub(crate) fn turn(&mut self) -> bool {
        self.take_events();
        let messages = self.events.len();
        for _ in 0..EVENTS_PER_TURN {
            let Some(event) = self.events.pop_front() else { break };
            self.handle(event);
        }
        self.look_at_device();
        let idle = self.events.is_empty() && self.stays_quiet();
        self.engine.end_turn(idle, &mut self.outbox);
        self.carry_out();
        self.publish(messages);
        idle
    }

    /// Takes all that is waiting. Mostly nothing is left of the last turn: then the queue becomes the mailbox's, and no
    /// message is moved.
    fn take_events(&mut self) {
        if self.events.is_empty() {
            let mut taken = Vec::from(std::mem::take(&mut self.events));
            self.inbox.take(&mut taken);
            self.events = taken.into();
        } else {
            self.inbox.take(&mut self.taken);
            self.events.extend(self.taken.drain(..));
        }
    }

    /// Publishes what the turn has done, and the levels that it leaves.
    fn publish(&mut self, messages: usize) {
        if self.trace.is_none() && !self.options.meter.is_heard() {
            return;
        }
        let (levels, launches) = (self.engine.levels(), self.inbox.mailbox().in_flight());
        if let Some(trace) = &mut self.trace {
            if trace.wants_moment(Instant::now())
                && let Some(moment) = self.device.moment()
            {
                trace.calibrate(moment);
            }
            trace.level(levels.clone(), launches);
        }
        if self.options.meter.is_heard() {
            self.options.meter.publish(self.engine.tally(), Snapshot { levels, messages, launches });
        }
    }

    /// Whether no more events are waiting. While a batch is open, the next is given a moment to come.
    fn stays_quiet(&self) -> bool {
        if self.inbox.is_empty() && self.engine.is_batching() {
            let started = Instant::now();
            while self.inbox.is_empty() && started.elapsed() < PATIENCE {
                std::hint::spin_loop();
            }
        }
        self.inbox.is_empty()
    }

    /// The engine, to look at.
    #[cfg(test)]
    pub(crate) fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    fn handle(&mut self, mut event: Event) {
        self.see_regions(&mut event);
        self.engine.handle(event, &mut self.outbox);
        // However the engine learnt of it: from a call on the device, its watcher, or a stall.
        if self.engine.is_lost() {
            self.options.ending.lose();
        }
        self.carry_out();
    }

    /// Bytes that lie in the memory of another device are taken in where this one can reach them, and the memory is
    /// let go when that device gives it up.
    fn see_regions(&mut self, event: &mut Event) {
        match event {
            Event::Arrived { bytes: Ok(bytes), .. }
            | Event::Client(Envelope { body: Body::Write { bytes, .. }, .. })
                if !self.engine.is_lost() =>
            {
                if let Some(own) = self.guests.take_in(&mut self.device, self.inbox.mailbox(), bytes) {
                    *bytes = own;
                }
            }
            Event::RegionGivenUp(region) => {
                if let Some(page) = self.guests.let_go(*region) {
                    self.device.free_page(page);
                }
            }
            _ => {}
        }
    }

    /// Takes up progress that the device has made. True where there was any.
    fn look_at_device(&mut self) -> bool {
        let Some(awaited) = self.engine.awaited() else { return false };
        match self.device.reached() {
            Ok(value) if value >= awaited && self.late_failures => {
                // What failed was posted before the value was reached: it comes before the readers are answered.
                self.inbox.mailbox().post(Event::Progress(value));
                true
            }
            Ok(value) if value >= awaited => {
                tracing::trace!(value = value.0, "reached");
                self.handle(Event::Progress(value));
                true
            }
            Ok(_) => false,
            Err(error) => {
                self.lose(&error);
                true
            }
        }
    }

    /// Polls for a while, then sleeps until there is an event. The device posts one when it is done.
    async fn sleep(&mut self) {
        let started = Instant::now();
        let mut polls = 0u32;
        let waited_for = if self.engine.has_waiters() { WAITED_SPINS } else { 1 };
        let spin = self.options.spin.saturating_mul(waited_for);
        while started.elapsed() < spin {
            if !self.inbox.is_empty() || self.look_at_device() {
                return;
            }
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(POLLS_PER_YIELD) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        if let Some(value) = self.engine.awaited() {
            self.device.watch(value);
        }
        self.inbox.wait().await;
    }

    // ------------------------------------------------------------------------------ carrying out

    fn carry_out(&mut self) {
        self.actions.extend(self.outbox.actions.drain(..));
        while let Some(action) = self.actions.pop_front() {
            self.act(action);
            // What an answer to the engine brings comes before what was to follow.
            for action in self.outbox.actions.drain(..).rev() {
                self.actions.push_front(action);
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::AddPipeline { pipeline, compiled } => {
                let Ok(compiled) = compiled.downcast::<<D::Compiler as Compiler>::Pipeline>() else {
                    unreachable!("pipelines are made by the device's own compiler");
                };
                self.device.add_pipeline(pipeline, *compiled);
            }
            Action::AllocatePage { page, bytes, kind } => {
                let granted = self.is_alive() && self.allocate(page, bytes, kind);
                self.engine.page_answered(page, granted, &mut self.outbox);
            }
            Action::AnswerResource { at, reply } => {
                let resource: Box<dyn Any + Send> = Box::new(self.device.resource(at));
                reply.send(Ok(resource));
            }
            Action::Compile { pipeline, kernel } => self.compile(pipeline, kernel),
            Action::Deliver { parts, reply } => self.deliver(parts, reply),
            Action::DropGraph(graph) => self.device.drop_graph(graph),
            Action::EndCapture => self.inbox.mailbox().windows().end_capture(),
            Action::Fetch { token, from } => fetch(self.inbox.mailbox().clone(), token, from),
            Action::Fill { token, to, bytes } => {
                let fill = self.device.lend(to);
                let copy = Incoming::Blocking(Box::new(move || Ok(fill.write(bytes.try_materialize()?))));
                fetch(self.inbox.mailbox().clone(), token, copy);
            }
            Action::FinishLaunches(count) => self.inbox.finish_launches(count),
            Action::FinishUpload(bytes) => self.inbox.finish_upload(bytes),
            Action::FreePage(page) => {
                tracing::trace!(page = page.0, "page freed");
                self.device.free_page(page);
            }
            Action::Lend { places, reply } => {
                reply.send(Ok(places.into_iter().map(|at| self.device.lend(at)).collect()));
            }
            Action::Probe => {
                if let Err(error) = self.device.probe() {
                    self.lose(&error);
                }
            }
            Action::Record { label, report } => self.record(&label, &report),
            Action::Seal { recording, like, sealed, tape, reply } => {
                let kept = self.device.seal(recording, &tape, like).map_err(|error| server_error(&error));
                self.engine.seal_answered(sealed.graph, kept.is_ok(), &mut self.outbox);
                match reply {
                    SealReply::Rebound(reply) => reply.send(kept),
                    SealReply::Stopped(reply) => reply.send(kept.map(|()| sealed)),
                }
            }
            Action::Stage { to, bytes } => match bytes.try_materialize() {
                Ok(bytes) => self.device.write_page(to, bytes),
                Err(error) => unreachable!("bytes are at hand before they are staged: {error}"),
            },
            Action::StartTrace { at, sink, reply } => reply.send(self.start_trace(at, sink)),
            Action::StopTrace { reply } => self.stop_trace(reply),
            Action::Submit { value, commands } => self.submit(value, commands),
            Action::TakeIn { bytes, reply } => {
                let mailbox = self.inbox.mailbox();
                let take = |bytes| self.guests.take_in(&mut self.device, mailbox, bytes);
                reply.send(Ok(bytes.iter().map(take).collect()));
            }
            Action::Ticks { start, end, reply } => reply.send(self.ticks(start, end)),
            Action::Trace { value, noted } => self.trace(value, noted),
        }
    }

    fn submit(&mut self, value: TimelineValue, mut commands: Commands) {
        if self.is_alive() {
            tracing::trace!(value = value.0, commands = commands.list.len(), "submission");
            let submitted = self.device.record(&commands).and_then(|()| self.device.submit(value));
            if let Err(error) = submitted {
                self.lose(&error);
            }
        }
        commands.clear();
        self.outbox.spare.push(commands);
    }

    fn is_alive(&self) -> bool {
        !self.options.ending.is_lost()
    }

    fn lose(&mut self, error: &DeviceError) {
        if self.options.ending.lose() {
            tracing::error!(%error, "device lost");
            self.engine.handle(Event::Lost(error.to_string()), &mut self.outbox);
        }
    }

    fn allocate(&mut self, page: crate::engine::command::PageId, bytes: u64, kind: crate::port::PageKind) -> bool {
        match self.device.allocate_page(page, bytes, kind) {
            Ok(()) => {
                tracing::debug!(page = page.0, bytes, ?kind, "page allocated");
                true
            }
            Err(DeviceError::OutOfMemory) => {
                tracing::warn!(bytes, ?kind, "the driver has no memory for a page");
                false
            }
            Err(error) => {
                self.lose(&error);
                false
            }
        }
    }

    fn deliver(&self, parts: Vec<Option<Span>>, reply: Reply<Result<Vec<Bytes>, ServerError>>) {
        // Where the caller is gone, dropping the bytes gives their memory back.
        let bytes = parts.into_iter().map(|part| part.map_or_else(Bytes::default, |span| self.show(span)));
        reply.send(Ok(bytes.collect()));
    }

    fn show(&self, span: Span) -> Bytes {
        Bytes::from_pinned(self.device.pinned(span))
    }

    fn ticks(&mut self, start: TimestampSlot, end: TimestampSlot) -> Result<ProfileTicks, ProfileError> {
        match (self.device.timestamp_ns(start), self.device.timestamp_ns(end)) {
            (Some(start), Some(end)) => Ok(ProfileTicks::new(start, end)),
            _ => Err(ProfileError::Unsupported),
        }
    }

    /// Begins a trace at the moment of a timestamp.
    fn start_trace(&mut self, at: TimestampSlot, sink: TraceSink) -> Result<(), ServerError> {
        if self.trace.is_some() {
            return Err(ServerError::Busy { reason: "a trace of the device is going on".to_owned() });
        }
        let Some(zero_ns) = self.device.timestamp_ns(at) else { return Err(ProfileError::Unsupported.into()) };
        self.trace = Some(Trace::begin(sink, zero_ns, self.device.moment()));
        self.engine.set_tracing(true);
        Ok(())
    }

    /// Ends the trace, with the levels at its end. The disk is waited for beside the actor.
    fn stop_trace(&mut self, reply: Reply<Result<TraceSummary, ServerError>>) {
        self.engine.set_tracing(false);
        let Some(mut trace) = self.trace.take() else {
            return reply.send(Err(ServerError::Generic { reason: "no trace of the device is going on".to_owned() }));
        };
        trace.level(self.engine.levels(), self.inbox.mailbox().in_flight());
        let window = trace.age();
        tokio::task::spawn_blocking(move || reply.send(trace.end(window)));
    }

    fn trace(&mut self, value: TimelineValue, noted: Vec<Noted>) {
        let Some(trace) = &mut self.trace else { return };
        for Noted { stream, work, start, end } in noted {
            match (self.device.timestamp_ns(start), self.device.timestamp_ns(end)) {
                (Some(start), Some(end)) => trace.slice(value, stream, work, start, end),
                _ => trace.drop_one(),
            }
        }
        trace.flush();
    }

    fn compile(&self, pipeline: crate::engine::command::PipelineId, kernel: Box<dyn CubeKernel>) {
        let (compiler, target) = (self.compiler.clone(), self.target.clone());
        let (mailbox, histogram) = (self.inbox.mailbox().clone(), self.options.meter.compile().clone());
        tokio::task::spawn_blocking(move || {
            let span = tracing::debug_span!("compile", kernel = kernel.name(), pipeline = pipeline.0);
            let _entered = span.enter();
            let began = Instant::now();
            let result = compile(&*compiler, &target, &*kernel);
            let took = began.elapsed();
            histogram.record(took.as_secs_f64());
            match &result {
                Ok(_) => tracing::debug!(?took, "compiled"),
                Err(error) => tracing::debug!(?took, %error, "not compiled"),
            }
            drop(kernel);
            mailbox.post(Event::Compiled { pipeline, result });
        });
    }

    /// Appends a line to the records. That it cannot is logged: nobody waits for it.
    fn record(&self, label: &str, report: &MemoryReport) {
        let Some(path) = &self.options.records else { return };
        let line = serde_json::json!({ "label": label, "memory": report });
        let append = || {
            let mut file = OpenOptions::new().create(true).append(true).open(path)?;
            writeln!(file, "{line}")
        };
        if let Err(error) = append() {
            tracing::warn!(path = %path.display(), %error, "a record was not written");
        }
    }
}

/// What a compilation gives: what the kernel takes, and the device's pipeline.
type CompileResult = Result<(Reflection, Box<dyn Any + Send>), LaunchError>;

/// Compiles one kernel. A panic in its source, or in the compiler, is a failure of the kernel.
fn compile<C: Compiler>(compiler: &C, target: &TargetProperties, kernel: &dyn CubeKernel) -> CompileResult {
    let attempt = || {
        let source = kernel.source(target)?;
        let compiled = compiler.compile(kernel.name(), source, &kernel.options())?;
        let pipeline: Box<dyn Any + Send> = Box::new(compiled.pipeline);
        Ok((compiled.reflection, pipeline))
    };
    catch_unwind(AssertUnwindSafe(attempt))
        .unwrap_or_else(|panic| Err(wrong_source(kernel.name(), format!("panicked: {}", panic_text(&*panic)))))
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text")
}

/// Waits for bytes from outside beside the actor, on its own runtime, and posts them.
fn fetch(mailbox: Mailbox, token: u64, from: Incoming) {
    match from {
        Incoming::Blocking(make) => {
            tokio::task::spawn_blocking(move || mailbox.post(Event::Arrived { token, bytes: make() }));
        }
        Incoming::Future(future) => {
            tokio::spawn(async move {
                let bytes = match future.await {
                    // Lazy bytes are looked at here, where nobody waits.
                    Ok(bytes) => bytes.materialize_async().await.map(drop).map(|()| bytes.clone()),
                    Err(error) => Err(error),
                };
                mailbox.post(Event::Arrived { token, bytes });
            });
        }
    }
}

/// What a caller is told of a device's refusal.
fn server_error(error: &DeviceError) -> ServerError {
    match error {
        DeviceError::Lost(reason) => ServerError::DeviceLost { reason: reason.clone() },
        DeviceError::OutOfMemory => IoError::OutOfMemory { requested: 0, in_use: 0, budget: 0 }.into(),
    }
}
