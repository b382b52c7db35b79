//! The device as its actor drives it.

use crate::binding::SetPools;
use crate::command_pool::CommandPool;
use crate::compiler::VulkanCompiler;
use crate::device::DeviceShared;
use crate::graph::{self, Cut, Graph, Piece};
use crate::messages::{validation_error_count, validation_errors};
use crate::page::PageMemory;
use crate::pipeline::Pipeline;
use crate::properties;
use crate::queue::Queue;
use crate::recorder::{Recorder, Tape};
use crate::server::VulkanResource;
use crate::stages::{StageBarrier, StageOrder, Stages};
use crate::watcher::Watcher;
use ash::vk;
use ash::vk::Handle as _;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use vkactor_actors::bytes::{Bytes, Pinned};
use vkactor_actors::engine::command::{
    Command, Commands, GraphId, PageId, PipelineId, Span, TimelineValue, TimestampSlot,
};
use vkactor_actors::mailbox::Mailbox;
use vkactor_actors::message::Event;
use vkactor_actors::port::{Device, DeviceError, Fill, Limits, Moment, PageKind};
use vkactor_actors::properties::{DeviceProperties, MatrixShape, TargetProperties};
use vkactor_actors::region::Region;

/// A Vulkan device: one queue, one timeline. Fields drop in the order written, and the queue comes to rest first.
#[derive(Debug)]
pub struct VulkanDevice {
    queue: Queue,
    watcher: Option<Watcher>,
    mailbox: Option<Mailbox>,
    /// Parts of the next submission, in order.
    parts: Vec<Part>,
    /// Messages of the validation layer that the actor knows.
    complaints: u64,
    /// Buffers that have run already, and are the next submission's to give back.
    ran: Vec<vk::CommandBuffer>,
    /// The part that is being recorded.
    open: Option<Tape>,
    /// How far the commands of all parts are ordered, while none is being recorded.
    order: StageOrder,
    /// One barrier each and nothing else: what lies between two replays. Recorded when first needed, and `kept`'s.
    lone_barriers: HashMap<StageBarrier, vk::CommandBuffer>,
    /// The stages that wrote what the host reads of the next submission.
    reads_back: Stages,
    graphs: HashMap<GraphId, Graph>,
    recorder: Recorder,
    sets: SetPools,
    commands: CommandPool,
    kept: CommandPool,
    /// The parts as Vulkan takes them.
    buffers: Vec<vk::CommandBuffer>,
    compiler: Arc<VulkanCompiler>,
    matrix: Vec<MatrixShape>,
    spin: Duration,
    shared: Arc<DeviceShared>,
}

/// A command buffer of a submission.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// Runs once, then records again.
    Own(vk::CommandBuffer),
    /// Runs any number of times: a graph, or a lone barrier.
    Kept(vk::CommandBuffer),
}

/// What a device is opened with, beside its plan.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) cache_directory: Option<&'a std::path::Path>,
    pub(crate) cache_key: crate::plan::CacheKey,
    pub(crate) matrix: Vec<MatrixShape>,
    pub(crate) spin: Duration,
}

impl VulkanDevice {
    pub(crate) fn new(shared: Arc<DeviceShared>, queue: vk::Queue, setup: Setup<'_>) -> Result<Self, DeviceError> {
        let queue = Queue::new(shared.clone(), queue)?;
        let compiler = Arc::new(VulkanCompiler::new(shared.clone(), setup.cache_directory, &setup.cache_key));
        Ok(Self {
            queue,
            watcher: None,
            mailbox: None,
            complaints: validation_error_count(),
            parts: Vec::new(),
            ran: Vec::new(),
            open: None,
            order: StageOrder::default(),
            lone_barriers: HashMap::new(),
            reads_back: Stages::empty(),
            graphs: HashMap::new(),
            recorder: Recorder::new(shared.clone(), compiler.clone()),
            sets: SetPools::new(shared.clone()),
            commands: CommandPool::new(shared.clone(), true)?,
            kept: CommandPool::new(shared.clone(), false)?,
            buffers: Vec::new(),
            compiler,
            matrix: setup.matrix,
            spin: setup.spin,
            shared,
        })
    }

    /// Ends the part that is being recorded, if there is one.
    fn close(&mut self) -> Result<(), DeviceError> {
        if let Some(tape) = self.open.take() {
            self.reads_back |= tape.reads_back;
            self.order = tape.order;
            self.commands.end(tape.buffer)?;
            self.parts.push(Part::Own(tape.buffer));
        }
        Ok(())
    }

    fn mailbox(&self) -> &Mailbox {
        let Some(mailbox) = &self.mailbox else { unreachable!("the device was not started") };
        mailbox
    }
}

impl VulkanDevice {
    /// The part that is being recorded; a new one where there is none.
    fn open(&mut self) -> Result<&mut Tape, DeviceError> {
        let tape = match self.open.take() {
            Some(tape) => tape,
            None => Tape::new(self.commands.begin(|| self.queue.timeline().reached())?, self.order),
        };
        Ok(self.open.insert(tape))
    }

    fn barrier(&mut self) {
        match &mut self.open {
            Some(tape) => tape.order.barrier(),
            None => self.order.barrier(),
        }
    }

    /// A graph is a part of its own. The barrier in front of it ends the part before; between replays it is one too.
    fn replay(&mut self, id: GraphId) -> Result<(), DeviceError> {
        let Some(graph) = self.graphs.get(&id) else { unreachable!("{id:?} is unknown") };
        let order = graph.order();
        self.reads_back |= graph.reads_back();
        if let Some(tape) = &mut self.open {
            if let Some(barrier) = tape.order.replay(&order) {
                self.recorder.barrier(tape.buffer, barrier);
            }
            self.close()?;
        } else if let Some(barrier) = self.order.replay(&order) {
            let lone = self.lone_barrier(barrier)?;
            self.parts.push(Part::Kept(lone));
        }
        let pieces = self.graphs.get(&id).into_iter().flat_map(|graph| &graph.pieces);
        self.parts.extend(pieces.map(|piece| Part::Kept(piece.buffer)));
        Ok(())
    }

    fn lone_barrier(&mut self, barrier: StageBarrier) -> Result<vk::CommandBuffer, DeviceError> {
        if let Some(recorded) = self.lone_barriers.get(&barrier) {
            return Ok(*recorded);
        }
        let buffer = self.kept.begin_kept()?;
        self.recorder.barrier(buffer, barrier);
        self.kept.end(buffer)?;
        self.lone_barriers.insert(barrier, buffer);
        Ok(buffer)
    }

    /// Without memory for it a recording has a hole, and what comes behind cannot be right.
    fn whole<T>(&self, recorded: Result<T, DeviceError>) -> Result<T, DeviceError> {
        recorded.map_err(|error| match error {
            DeviceError::OutOfMemory => self.shared.lose_because("no memory to record commands".into()),
            lost @ DeviceError::Lost(_) => lost,
        })
    }

    fn record_all(&mut self, commands: &Commands) -> Result<(), DeviceError> {
        self.shared.alive()?;
        for command in &commands.list {
            if let Command::Replay(graph) = command {
                self.replay(*graph)?;
                continue;
            }
            if matches!(command, Command::Barrier) {
                self.barrier();
                continue;
            }
            if let Command::Timestamp(slot) = command
                && self.recorder.timestamps.are_of_the_host()
            {
                self.come_to_rest()?;
                self.recorder.timestamps.take(*slot);
                continue;
            }
            self.open()?;
            let Some(tape) = &mut self.open else { unreachable!("opened above") };
            self.recorder.record(tape, &mut self.sets, commands, command)?;
        }
        Ok(())
    }

    /// Tells the actor what the validation layer has said since the last submission. The layer speaks for a whole
    /// process: devices that work side by side share its messages.
    fn tell_complaints(&mut self) {
        let count = validation_error_count();
        if count > self.complaints {
            let new = (count - self.complaints) as usize;
            let kept = validation_errors();
            let text = kept[kept.len().saturating_sub(new)..].join("; ");
            self.complaints = count;
            self.mailbox().post(Event::Validation(text));
        }
    }

    /// Runs what is recorded, and waits for it: the one place where the actor does, on a device that cannot tell the
    /// time itself.
    fn come_to_rest(&mut self) -> Result<(), DeviceError> {
        self.close()?;
        self.gather_buffers();
        self.queue.run(&self.buffers)?;
        self.ran.extend(self.parts.drain(..).filter_map(|part| match part {
            Part::Own(buffer) => Some(buffer),
            Part::Kept(_) => None,
        }));
        Ok(())
    }

    /// The parts as Vulkan takes them.
    fn gather_buffers(&mut self) {
        self.buffers.clear();
        self.buffers.extend(self.parts.iter().map(|part| match part {
            Part::Kept(buffer) | Part::Own(buffer) => *buffer,
        }));
    }

    fn submit_all(&mut self, value: u64) -> Result<(), DeviceError> {
        let written = self.reads_back | self.open.as_ref().map_or(Stages::empty(), |tape| tape.reads_back);
        if !written.is_empty() {
            let buffer = self.open()?.buffer;
            self.recorder.show_host(buffer, written);
        }
        self.close()?;
        self.reads_back = Stages::empty();
        self.gather_buffers();
        self.queue.submit(&self.buffers, value)?;
        for buffer in self.ran.drain(..) {
            self.commands.retire(buffer, value);
        }
        for part in self.parts.drain(..) {
            if let Part::Own(buffer) = part {
                self.commands.retire(buffer, value);
            }
        }
        if self.shared.push.is_none() {
            self.sets.submitted(value);
            self.sets.reached(self.queue.timeline().reached()?);
        }
        Ok(())
    }

    /// Records a part of a recording, behind commands that are ordered as `entry` says.
    fn record_piece(
        &mut self,
        commands: &Commands,
        range: Range<usize>,
        entry: StageOrder,
    ) -> Result<Arc<Piece>, DeviceError> {
        let mut tape = Tape::new(self.kept.begin_kept()?, entry);
        let mut sets = SetPools::new(self.shared.clone());
        let mut recorded = commands.list[range.clone()]
            .iter()
            .try_for_each(|c| self.recorder.record(&mut tape, &mut sets, commands, c));
        if recorded.is_ok() {
            recorded = self.kept.end(tape.buffer);
        }
        let Tape { buffer, order, reads_back, .. } = tape;
        if let Err(error) = recorded {
            self.kept.free(buffer);
            return Err(error);
        }
        Ok(Arc::new(Piece { commands: range, buffer, entry, order, reads_back, _sets: sets }))
    }

    /// Records what the recording `like` does not have already.
    fn record_graph(
        &mut self,
        tape: &Commands,
        like: Option<GraphId>,
        pieces: &mut Vec<Arc<Piece>>,
    ) -> Result<(), DeviceError> {
        let before = like.and_then(|like| self.graphs.get(&like));
        let cuts = match before {
            None => vec![Cut { commands: 0..tape.list.len(), is_kept: false }],
            Some(before) => {
                let ends: Vec<usize> = before.pieces.iter().map(|piece| piece.commands.end).collect();
                graph::cut(tape, &before.tape, &ends)
            }
        };
        let kept: Vec<Option<Arc<Piece>>> = cuts
            .iter()
            .map(|cut| before.filter(|_| cut.is_kept).and_then(|before| before.piece(&cut.commands)).cloned())
            .collect();
        let mut entry = StageOrder::default();
        for (cut, kept) in cuts.into_iter().zip(kept) {
            let piece = match kept.filter(|piece| piece.entry == entry) {
                Some(piece) => piece,
                None => self.record_piece(tape, cut.commands, entry)?,
            };
            entry = piece.order;
            pieces.push(piece);
        }
        Ok(())
    }

    /// Frees what no other recording shares. No pending submission names it.
    fn free_pieces(&mut self, pieces: Vec<Arc<Piece>>) {
        for piece in pieces.into_iter().filter_map(Arc::into_inner) {
            self.kept.free(piece.buffer);
        }
    }
}

impl Device for VulkanDevice {
    type Compiler = VulkanCompiler;
    type Resource = VulkanResource;

    fn name(&self) -> &'static str {
        "vulkan"
    }

    fn properties(&self) -> DeviceProperties {
        properties::properties(&self.shared.plan, &self.matrix)
    }

    fn target(&self) -> TargetProperties {
        properties::target(&self.shared.plan)
    }

    fn limits(&self) -> Limits {
        properties::limits(&self.shared.plan)
    }

    fn compiler(&self) -> Arc<VulkanCompiler> {
        self.compiler.clone()
    }

    fn start(&mut self, mailbox: Mailbox) {
        assert!(self.mailbox.is_none(), "the device was started before");
        match Watcher::start(self.queue.timeline().clone(), mailbox.clone(), self.spin) {
            Ok(watcher) => self.watcher = Some(watcher),
            Err(error) => {
                // Nothing would ever be told: better to end now.
                let lost = self.shared.lose_because(format!("no thread to wait for the device: {error}"));
                mailbox.post(Event::Lost(lost.to_string()));
            }
        }
        self.mailbox = Some(mailbox);
    }

    fn allocate_page(&mut self, page: PageId, bytes: u64, kind: PageKind) -> Result<(), DeviceError> {
        self.shared.alive()?;
        let memory = PageMemory::new(&self.shared, bytes, kind)?;
        self.recorder.pages.insert(page, memory, kind);
        Ok(())
    }

    fn free_page(&mut self, page: PageId) {
        self.recorder.pages.remove(page);
    }

    fn write_page(&mut self, to: Span, bytes: &[u8]) {
        self.recorder.pages.write(to, bytes);
    }

    fn lend(&mut self, at: Span) -> Fill {
        let place = self.recorder.pages.show(at, self.mailbox().clone());
        Fill::new(move |bytes| {
            place.fill(bytes);
            Bytes::from_pinned(Arc::new(place))
        })
    }

    fn pinned(&self, at: Span) -> Arc<dyn Pinned> {
        Arc::new(self.recorder.pages.show(at, self.mailbox().clone()))
    }

    fn adopt(&mut self, page: PageId, region: &Arc<Region>) -> bool {
        match PageMemory::adopted(&self.shared, region) {
            Ok(memory) => {
                self.recorder.pages.insert(page, memory, PageKind::Upload);
                true
            }
            Err(error) => {
                tracing::debug!(%error, "host memory of another device is not imported");
                false
            }
        }
    }

    fn add_pipeline(&mut self, id: PipelineId, pipeline: Pipeline) {
        self.recorder.add_pipeline(id, pipeline);
    }

    fn record(&mut self, commands: &Commands) -> Result<(), DeviceError> {
        let recorded = self.record_all(commands);
        self.whole(recorded)
    }

    fn submit(&mut self, value: TimelineValue) -> Result<(), DeviceError> {
        let submitted = self.submit_all(value.0);
        self.tell_complaints();
        self.whole(submitted)
    }

    fn reached(&mut self) -> Result<TimelineValue, DeviceError> {
        self.queue.timeline().reached().map(TimelineValue)
    }

    fn watch(&mut self, value: TimelineValue) {
        if let Some(watcher) = &self.watcher {
            watcher.watch(value.0);
        }
    }

    fn probe(&mut self) -> Result<(), DeviceError> {
        let probed = self.queue.probe();
        self.whole(probed)
    }

    fn timestamp_ns(&mut self, slot: TimestampSlot) -> Option<u64> {
        self.recorder.timestamps.nanoseconds(slot)
    }

    fn moment(&mut self) -> Option<Moment> {
        self.recorder.timestamps.moment()
    }

    fn seal(&mut self, graph: GraphId, tape: &Commands, like: Option<GraphId>) -> Result<(), DeviceError> {
        self.shared.alive()?;
        let mut pieces = Vec::new();
        if let Err(error) = self.record_graph(tape, like, &mut pieces) {
            self.free_pieces(pieces);
            return Err(error);
        }
        let before = self.graphs.insert(graph, Graph { tape: tape.clone(), pieces });
        assert!(before.is_none(), "{graph:?} exists");
        Ok(())
    }

    fn drop_graph(&mut self, graph: GraphId) {
        let Some(dropped) = self.graphs.remove(&graph) else { unreachable!("{graph:?} is unknown") };
        self.free_pieces(dropped.pieces);
    }

    fn resource(&self, at: Span) -> VulkanResource {
        let place = self.recorder.pages.place(at);
        VulkanResource { buffer: place.buffer.as_raw(), offset: at.offset, size: at.size, address: place.address }
    }
}

#[cfg(test)]
mod tests;
