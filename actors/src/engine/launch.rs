//! Launches: the table of kernels, the checks, and the failures that travel along buffers.

use crate::engine::command::{Action, Groups, Outbox, PipelineId, Span};
use crate::engine::fault::{Claim, Found};
use crate::engine::graph::{Capture, Recording};
use crate::engine::hazard::Access;
use crate::engine::hold::Reason;
use crate::engine::ids::IdMap;
use crate::engine::observe::Work;
use crate::engine::{Engine, GraphId, TimelineValue};
use crate::error::{LaunchError, ServerError};
use crate::id::StreamId;
use crate::kernel::{BufferAccess, KernelId};
use crate::message::{Body, BufferRange, Count, Envelope, Launch, LeaseId};
use crate::port::Reflection;
use std::any::Any;
use std::sync::Arc;

/// Bytes of a dynamic count.
const COUNT_BYTES: u64 = 12;

/// The kernels of a device, by id. It grows with the number of different kernels that a process uses.
#[derive(Debug, Default)]
pub(crate) struct Kernels {
    by_id: IdMap<KernelId, PipelineId>,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    name: Arc<str>,
    state: State,
}

#[derive(Debug)]
enum State {
    Compiling,
    Failed(Claim),
    Ready(Reflection),
}

impl Kernels {
    /// What a trace shows.
    fn name(&self, pipeline: PipelineId) -> Arc<str> {
        self.entries[pipeline.0 as usize].name.clone()
    }

    /// Whether messages wait for this kernel.
    pub(crate) fn is_compiling(&self, pipeline: PipelineId) -> bool {
        matches!(self.entries[pipeline.0 as usize].state, State::Compiling)
    }
}

/// Memory for the handling of one launch, used again.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    spans: Vec<Span>,
    accesses: Vec<Access>,
}

/// Why a launch does not run.
enum Refusal {
    /// The launch itself is wrong.
    Error(ServerError),
    /// The kernel did not compile, or what it reads was never written.
    Claims(Vec<Claim>),
}

impl From<LaunchError> for Refusal {
    fn from(error: LaunchError) -> Self {
        Self::Error(error.into())
    }
}

impl Engine {
    /// Carries out a launch whose place has come.
    pub(super) fn launch(&mut self, lease: Option<LeaseId>, stream: StreamId, mut launch: Launch, out: &mut Outbox) {
        let pipeline = match self.kernels.by_id.get(&launch.id) {
            Some(&pipeline) => pipeline,
            None => self.compile(&mut launch, out),
        };
        if self.kernels.is_compiling(pipeline) {
            let body = Body::Launch(launch);
            return self.hold(Envelope { lease, stream, body }, Reason::Kernel(pipeline));
        }
        // Taken and put back, so that what it lends does not keep the engine borrowed.
        let mut scratch = std::mem::take(&mut self.scratch);
        let placed = self.place_launch(pipeline, stream, &launch, &mut scratch, out);
        self.scratch = scratch;
        match placed {
            Ok(true) => self.timeline.open.launches += usize::from(launch.budgeted),
            Ok(false) => self.finish(&launch, out),
            Err(refusal) => {
                self.refuse(pipeline, stream, &launch, refusal);
                self.finish(&launch, out);
            }
        }
    }

    /// A kernel is seen for the first time.
    fn compile(&mut self, launch: &mut Launch, out: &mut Outbox) -> PipelineId {
        let pipeline = PipelineId(self.kernels.entries.len() as u32);
        let Some(kernel) = launch.kernel.0.take() else {
            unreachable!("a kernel is taken from the first launch of its id only");
        };
        self.kernels.entries.push(Entry { name: kernel.name().into(), state: State::Compiling });
        self.kernels.by_id.insert(launch.id, pipeline);
        out.actions.push(Action::Compile { pipeline, kernel });
        pipeline
    }

    /// A kernel is compiled, or is not to be had.
    pub(super) fn compiled(
        &mut self,
        pipeline: PipelineId,
        result: Result<(Reflection, Box<dyn Any + Send>), LaunchError>,
        out: &mut Outbox,
    ) {
        let state = match result {
            Ok((reflection, compiled)) => {
                out.actions.push(Action::AddPipeline { pipeline, compiled });
                State::Ready(reflection)
            }
            Err(error) => State::Failed(self.buffers.ledger.fail(error.into())),
        };
        self.kernels.entries[pipeline.0 as usize].state = state;
    }

    /// Gives back the place of a launch that is done with.
    fn finish(&self, launch: &Launch, out: &mut Outbox) {
        if launch.budgeted {
            out.actions.push(Action::FinishLaunches(1));
        }
    }

    /// Checks a launch and puts it where it belongs. True where it went to the queue.
    fn place_launch(
        &mut self,
        pipeline: PipelineId,
        stream: StreamId,
        launch: &Launch,
        scratch: &mut Scratch,
        out: &mut Outbox,
    ) -> Result<bool, Refusal> {
        let entry = &self.kernels.entries[pipeline.0 as usize];
        let reflection = match &entry.state {
            State::Ready(reflection) => reflection,
            State::Failed(claim) => return Err(Refusal::Claims(vec![claim.clone()])),
            State::Compiling => unreachable!("launches wait for their kernel"),
        };
        if let Some(error) = &launch.refused {
            return Err(Refusal::Error((**error).clone()));
        }
        self.check_arguments(&entry.name, reflection, launch)?;
        if self.lost.is_some() || self.memory.is_dry(stream) {
            return Ok(false);
        }
        let recording = self.streams.get(&stream).is_some_and(|s| s.capture.is_open());
        self.look_up(&entry.name, reflection, launch, recording, scratch)?;
        let Scratch { spans, accesses } = scratch;
        let (groups, buffers) = match launch.count {
            Count::Static(count) => (Groups::Direct(count), &spans[..]),
            // The counts are the last span.
            Count::Dynamic(_) => (Groups::Indirect(spans[launch.buffers.len()]), &spans[..launch.buffers.len()]),
        };
        if recording {
            self.record(stream, launch, |r| r.tape.push(pipeline, buffers, &launch.info, groups, accesses), accesses);
            return Ok(false);
        }
        let work = |engine: &Self| Work::Launch { kernel: engine.kernels.name(pipeline), groups };
        self.emit(stream, accesses, out, work, |commands| commands.dispatch(pipeline, buffers, &launch.info, groups));
        self.tally.launches += 1;
        let healed = accesses.iter().zip(&launch.buffers).filter(|(a, _)| a.write && !a.read);
        healed.for_each(|(_, range)| self.buffers.heal(range));
        if self.options.limits.late_failures {
            let written = accesses.iter().zip(&launch.buffers).filter(|(a, _)| a.write);
            self.timeline.open.outputs.push(written.map(|(_, range)| *range).collect());
        }
        Ok(true)
    }

    /// Whether the arguments are those that the kernel declares, and within the limits of the device.
    fn check_arguments(&self, name: &str, reflection: &Reflection, launch: &Launch) -> Result<(), LaunchError> {
        let kernel = || name.to_owned();
        let wrong = |reason: String| Err(LaunchError::Bindings { kernel: kernel(), reason });
        let hardware = &self.options.properties.hardware;
        if let Some(buffers) = &reflection.buffers
            && buffers.len() != launch.buffers.len()
        {
            return wrong(format!("{} buffers given, the kernel has {}", launch.buffers.len(), buffers.len()));
        }
        if let Some(bytes) = reflection.info_bytes
            && bytes as usize != launch.info.len()
        {
            return wrong(format!("{} bytes of parameters given, the kernel has {bytes}", launch.info.len()));
        }
        let too_many = |resource: String, requested: u64, limit: u64| {
            Err(LaunchError::TooManyResources { kernel: kernel(), resource, requested, limit })
        };
        if launch.buffers.len() as u64 > u64::from(hardware.max_bindings) {
            return too_many("buffers".into(), launch.buffers.len() as u64, u64::from(hardware.max_bindings));
        }
        if launch.info.len() > hardware.max_info_size {
            let (requested, limit) = (launch.info.len() as u64, hardware.max_info_size as u64);
            return too_many("bytes of parameters".into(), requested, limit);
        }
        match &launch.count {
            Count::Static(count) => {
                let (x, y, z) = hardware.max_cube_count;
                for ((count, limit), axis) in count.iter().zip([x, y, z]).zip(["x", "y", "z"]) {
                    if *count > limit {
                        return too_many(format!("workgroups in {axis}"), u64::from(*count), u64::from(limit));
                    }
                }
            }
            Count::Dynamic(range) if range.size < COUNT_BYTES => {
                return wrong(format!("a dynamic count in {} bytes, it takes {COUNT_BYTES}", range.size));
            }
            Count::Dynamic(_) => {}
        }
        Ok(())
    }

    /// Finds where the buffers lie, and what keeps the launch from running on them.
    fn look_up(
        &self,
        name: &str,
        reflection: &Reflection,
        launch: &Launch,
        recording: bool,
        scratch: &mut Scratch,
    ) -> Result<(), Refusal> {
        scratch.spans.clear();
        scratch.accesses.clear();
        let mut found = Found::default();
        for (index, range) in launch.buffers.iter().enumerate() {
            let access = access_of(reflection, index);
            if self.buffers.any_spoiled() && access.reads() && !recording {
                self.buffers.find(range, &mut found);
            }
            let span = self.binding(name, reflection, index, range, &mut found)?;
            scratch.spans.push(span);
            scratch.accesses.push(Access { span, write: access.writes(), read: access.reads() });
        }
        if let Count::Dynamic(range) = &launch.count {
            if !recording {
                self.buffers.find(range, &mut found);
            }
            let span = self.backed(range, &mut found);
            if !span.offset.is_multiple_of(4) {
                let reason = format!("a dynamic count at byte {} is not on a word", range.offset);
                return Err(LaunchError::Bindings { kernel: name.to_owned(), reason }.into());
            }
            scratch.spans.push(span);
            scratch.accesses.push(Access::read(span));
        }
        if !found.is_empty() {
            let step = Arc::from(name);
            return Err(Refusal::Claims(found.claims().iter().map(|claim| claim.through(&step)).collect()));
        }
        if !self.options.limits.aliased_bindings {
            check_aliases(name, &scratch.accesses)?;
        }
        Ok(())
    }

    /// Where one binding lies, within what a binding may be.
    fn binding(
        &self,
        name: &str,
        reflection: &Reflection,
        index: usize,
        range: &BufferRange,
        found: &mut Found,
    ) -> Result<Span, LaunchError> {
        let wrong = |reason| Err(LaunchError::Bindings { kernel: name.to_owned(), reason });
        if range.size > 0 && self.buffers.span(range).is_none() {
            // Why there is no memory says more than that there is too much of it.
            return Ok(self.backed(range, found));
        }
        let limits = &self.options.limits;
        let alignment = self.options.properties.memory.alignment;
        let too_large = |what: &str, limit| {
            let resource = format!("bytes of buffer {index}{what}");
            Err(LaunchError::TooManyResources { kernel: name.to_owned(), resource, requested: range.size, limit })
        };
        if range.size > limits.binding_bytes {
            return too_large("", limits.binding_bytes);
        }
        if range.size > limits.length_bytes && reflection.measured.contains(&index) {
            return too_large(", whose length the kernel asks for,", limits.length_bytes);
        }
        if !range.offset.is_multiple_of(alignment) {
            return wrong(format!("buffer {index} starts at byte {}, not on a multiple of {alignment}", range.offset));
        }
        if range.size == 0 {
            if !limits.empty_bindings {
                return wrong(format!("buffer {index} has no bytes, and the device binds no empty buffers"));
            }
            return Ok(Span { page: crate::engine::command::PageId(0), offset: 0, size: 0 });
        }
        Ok(self.backed(range, found))
    }

    /// Where a range lies. A range without memory has the failure of its reservation, which no launch heals.
    fn backed(&self, range: &BufferRange, found: &mut Found) -> Span {
        self.buffers.span(range).unwrap_or_else(|| {
            self.buffers.find(range, found);
            assert!(!found.is_empty(), "{range:?} has no memory and no failure");
            Span { page: crate::engine::command::PageId(0), offset: 0, size: 0 }
        })
    }

    /// Spoils what a launch that does not run would have written.
    fn refuse(&mut self, pipeline: PipelineId, stream: StreamId, launch: &Launch, refusal: Refusal) {
        let claims = match refusal {
            Refusal::Error(error) => vec![self.buffers.ledger.fail(error)],
            Refusal::Claims(claims) => claims,
        };
        let mut told = Found::default();
        claims.iter().for_each(|claim| told.add(claim));
        if let Err(error) = told.result() {
            let kernel = &self.kernels.entries[pipeline.0 as usize].name;
            tracing::debug!(%kernel, stream = stream.0, %error, "launch refused");
            self.windows.fail(stream, &error);
            self.stream(stream).capture.poison(|| error);
        }
        for (index, range) in launch.buffers.iter().enumerate() {
            let writes = match &self.kernels.entries[pipeline.0 as usize].state {
                State::Ready(reflection) => access_of(reflection, index).writes(),
                State::Compiling | State::Failed(_) => true,
            };
            if writes {
                claims.iter().for_each(|claim| self.buffers.claim(range, claim.clone()));
            }
        }
    }

    /// Keeps a launch on the tape of its window, and what it names alive.
    fn record(&mut self, stream: StreamId, launch: &Launch, push: impl FnOnce(&mut Recording), accesses: &[Access]) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        // A window that is doomed keeps nothing more.
        let Capture::Recording(window) = &mut state.capture else { return };
        push(window);
        let counts = match &launch.count {
            Count::Dynamic(range) => Some(*range),
            Count::Static(_) => None,
        };
        for (range, access) in launch.buffers.iter().copied().chain(counts).zip(accesses) {
            if window.touch(range.buffer)
                && let Some(buffer) = self.buffers.get_mut(range.buffer)
            {
                buffer.owners += 1;
            }
            if access.read {
                window.reads.push((range, access.span));
            }
            if access.write {
                window.writes.push((range, access.read));
            }
        }
    }

    /// A kernel failed when it ran: what it was to write is spoiled, after the fact.
    pub(super) fn failed_late(
        &mut self,
        submission: TimelineValue,
        dispatch: u32,
        graph: Option<GraphId>,
        reason: &str,
    ) {
        let outputs = self.timeline.submission(submission).and_then(|s| match graph {
            Some(graph) => s.replays.iter().find(|(recording, _)| *recording == graph).map(|(_, outputs)| outputs),
            None => s.outputs.get(dispatch as usize),
        });
        let written: Vec<BufferRange> = outputs.cloned().unwrap_or_default();
        tracing::warn!(submission = submission.0, dispatch, graph = graph.map(|g| g.0), reason, "a kernel failed");
        let claim = self.buffers.ledger.fail(ServerError::Generic { reason: reason.to_owned() }).late();
        written.iter().for_each(|range| self.buffers.claim(range, claim.clone()));
    }
}

/// What a kernel does to one of its buffers; anything, where that is not known.
fn access_of(reflection: &Reflection, index: usize) -> BufferAccess {
    let known = reflection.buffers.as_ref().and_then(|buffers| buffers.get(index));
    known.copied().unwrap_or(BufferAccess::ReadWrite)
}

/// Refuses bindings that overlap where one of them is written.
pub(super) fn check_aliases(name: &str, accesses: &[Access]) -> Result<(), LaunchError> {
    for (i, a) in accesses.iter().enumerate() {
        for (j, b) in accesses.iter().enumerate().skip(i + 1) {
            if a.span.overlaps(b.span) && (a.write || b.write) {
                let reason = format!("buffers {i} and {j} overlap and one is written, which this device cannot bind");
                return Err(LaunchError::Bindings { kernel: name.to_owned(), reason });
            }
        }
    }
    Ok(())
}
