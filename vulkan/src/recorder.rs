//! Commands become calls of Vulkan. The engine has checked them; what is not as it promised is asserted here (V8).

use crate::binding::SetPools;
use crate::compiler::VulkanCompiler;
use crate::counts::{COUNTS_BYTES, CountCheck};
use crate::device::DeviceShared;
use crate::page::PageTable;
use crate::pipeline::Pipeline;
use crate::query::Timestamps;
use crate::stages::{COMPUTE, INDIRECT, StageBarrier, StageOrder, Stages, TRANSFER};
use ash::vk;
use std::sync::Arc;
use vkactor_actors::engine::command::{Command, Commands, Groups, PipelineId, RowCopy, Span};
use vkactor_actors::port::{DeviceError, PageKind};

/// Regions of one copy command. Columns of a tensor may have millions.
const REGIONS_MAX: usize = 1024;

/// What recordings have in common: where ids lead, and arrays that keep their memory.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) pages: PageTable,
    pipelines: Vec<Option<Pipeline>>,
    pub(crate) timestamps: Timestamps,
    counts: Option<CountCheck>,
    compiler: Arc<VulkanCompiler>,
    regions: Vec<vk::BufferCopy>,
    descriptors: Vec<vk::DescriptorBufferInfo>,
    push: Vec<u8>,
    shared: Arc<DeviceShared>,
}

/// A command buffer that is being recorded.
#[derive(Debug)]
pub(crate) struct Tape {
    pub(crate) buffer: vk::CommandBuffer,
    bound: vk::Pipeline,
    /// How far its commands are ordered: from the queue's commands before it on, or from its own first.
    pub(crate) order: StageOrder,
    /// The stages that wrote what the host is to read.
    pub(crate) reads_back: Stages,
}

impl Tape {
    pub(crate) fn new(buffer: vk::CommandBuffer, order: StageOrder) -> Self {
        Self { buffer, bound: vk::Pipeline::null(), order, reads_back: Stages::empty() }
    }

    fn note_host(&mut self, reads_back: bool, stage: Stages) {
        if reads_back {
            self.reads_back |= stage;
        }
    }
}

impl Recorder {
    pub(crate) fn new(shared: Arc<DeviceShared>, compiler: Arc<VulkanCompiler>) -> Self {
        Self {
            pages: PageTable::default(),
            pipelines: Vec::new(),
            timestamps: Timestamps::new(shared.clone()),
            counts: None,
            compiler,
            regions: Vec::with_capacity(REGIONS_MAX),
            descriptors: Vec::new(),
            push: Vec::new(),
            shared,
        }
    }

    pub(crate) fn add_pipeline(&mut self, id: PipelineId, pipeline: Pipeline) {
        let place = id.0 as usize;
        if place >= self.pipelines.len() {
            self.pipelines.resize_with(place + 1, || None);
        }
        let before = self.pipelines[place].replace(pipeline);
        assert!(before.is_none(), "{id:?} exists");
    }

    /// Records one command. Replays are no part of a command buffer, so they are the caller's to do.
    pub(crate) fn record(
        &mut self,
        tape: &mut Tape,
        sets: &mut SetPools,
        commands: &Commands,
        command: &Command,
    ) -> Result<(), DeviceError> {
        match command {
            Command::Barrier => tape.order.barrier(),
            Command::Copy(rows) => self.copy(tape, rows),
            Command::Dispatch { pipeline, buffers, info, groups } => {
                let (buffers, info) = (commands.buffers(*buffers), commands.parameters(*info));
                return self.dispatch(tape, sets, *pipeline, buffers, info, *groups);
            }
            Command::Replay(graph) => unreachable!("{graph:?} is replayed inside of a command buffer"),
            Command::Timestamp(slot) => return self.timestamps.record(tape.buffer, *slot),
            Command::Zero(at) => self.zero(tape, *at),
        }
        Ok(())
    }

    /// Makes what `written` did to host pages seen by the host, once the submission is done.
    pub(crate) fn show_host(&self, buffer: vk::CommandBuffer, written: Stages) {
        self.barrier(buffer, StageBarrier { before: written, behind: Stages::HOST });
    }

    /// Orders commands before, in this and earlier submissions, before commands behind.
    pub(crate) fn barrier(&self, buffer: vk::CommandBuffer, barrier: StageBarrier) {
        let (none, memory) = (vk::DependencyFlags::empty(), [barrier.memory()]);
        let StageBarrier { before, behind } = barrier;
        // SAFETY: V5. V2: the buffer's pool belongs to the thread that records.
        unsafe { self.shared.raw().cmd_pipeline_barrier(buffer, before, behind, none, &memory, &[], &[]) };
    }

    /// What stands in front of a command that works in `stage`.
    fn work(&self, tape: &mut Tape, stage: Stages) {
        if let Some(barrier) = tape.order.work(stage) {
            self.barrier(tape.buffer, barrier);
        }
    }

    fn zero(&self, tape: &mut Tape, at: Span) {
        assert!(at.offset.is_multiple_of(4) && at.size.is_multiple_of(4), "zero of {at:?}");
        let place = self.pages.place(at);
        if at.size == 0 {
            return;
        }
        self.work(tape, TRANSFER);
        tape.note_host(place.kind == PageKind::Readback, TRANSFER);
        // SAFETY: V2. V7, V8: `place` checked the range.
        unsafe { self.shared.raw().cmd_fill_buffer(tape.buffer, place.buffer, at.offset, at.size, 0) };
    }

    fn copy(&mut self, tape: &mut Tape, rows: &RowCopy) {
        let (from, to) = (self.pages.place(rows.from), self.pages.place(rows.to));
        if rows.count == 0 || rows.bytes == 0 {
            return;
        }
        assert!(extent(rows, rows.from_pitch) <= rows.from.size, "rows past their source: {rows:?}");
        assert!(extent(rows, rows.to_pitch) <= rows.to.size, "rows past their target: {rows:?}");
        self.work(tape, TRANSFER);
        tape.note_host(to.kind == PageKind::Readback, TRANSFER);
        let dense = rows.from_pitch == rows.bytes && rows.to_pitch == rows.bytes;
        let (count, bytes) = if dense { (1, rows.count * rows.bytes) } else { (rows.count, rows.bytes) };
        let mut row = 0;
        while row < count {
            let end = count.min(row + REGIONS_MAX as u64);
            self.regions.clear();
            self.regions.extend((row..end).map(|row| vk::BufferCopy {
                src_offset: rows.from.offset + row * rows.from_pitch,
                dst_offset: rows.to.offset + row * rows.to_pitch,
                size: bytes,
            }));
            // SAFETY: V2, V5. V7, V8: `place` checked both ranges, and the rows lie in them.
            unsafe { self.shared.raw().cmd_copy_buffer(tape.buffer, from.buffer, to.buffer, &self.regions) };
            row = end;
        }
    }

    fn dispatch(
        &mut self,
        tape: &mut Tape,
        sets: &mut SetPools,
        id: PipelineId,
        buffers: &[Span],
        info: &[u8],
        groups: Groups,
    ) -> Result<(), DeviceError> {
        if let Groups::Direct(counts) = groups {
            if counts.contains(&0) {
                return Ok(());
            }
            let limit = self.shared.plan.limits.groups;
            assert!(counts.iter().zip(limit).all(|(n, limit)| *n <= limit), "{counts:?} groups of at most {limit:?}");
        }
        if let Groups::Indirect(at) = groups {
            self.check_counts(tape, sets, at)?;
        }
        let reads_back = self.gather(id, buffers, info);
        tape.note_host(reads_back, COMPUTE);
        self.work(tape, COMPUTE);
        issue(&self.shared, tape, sets, self.pipeline(id), &self.descriptors, &self.push)?;
        // SAFETY: V2. V7: pipeline and arguments are bound. The counts keep to the limit: asserted, or by the check.
        unsafe {
            let raw = self.shared.raw();
            match (groups, &self.counts) {
                (Groups::Direct([x, y, z]), _) => raw.cmd_dispatch(tape.buffer, x, y, z),
                (Groups::Indirect(_), Some(check)) => raw.cmd_dispatch_indirect(tape.buffer, check.slot(), 0),
                (Groups::Indirect(_), None) => unreachable!("counts were checked without a check"),
            }
        }
        Ok(())
    }

    /// Collects the arguments of a dispatch as Vulkan takes them. Tells whether a readback page is among them.
    fn gather(&mut self, id: PipelineId, buffers: &[Span], info: &[u8]) -> bool {
        let Pipeline { addresses, bindings, push_bytes, .. } = *self.pipeline(id);
        assert_eq!(buffers.len(), (addresses + bindings) as usize, "buffers of {id:?}");
        let (by_address, by_binding) = buffers.split_at(addresses as usize);
        let mut reads_back = false;
        let mut find = |at: &Span| {
            let place = (at.size > 0).then(|| self.pages.place(*at));
            reads_back |= place.is_some_and(|place| place.kind == PageKind::Readback);
            place
        };
        self.push.clear();
        for at in by_address {
            let address = find(at).map_or(Some(0), |place| place.address);
            let Some(address) = address else { unreachable!("{id:?} takes addresses, the device has none") };
            self.push.extend(address.to_ne_bytes());
        }
        assert!(self.push.len() + info.len() <= push_bytes as usize, "{} bytes for {id:?}", info.len());
        self.push.extend_from_slice(info);
        self.push.resize(push_bytes as usize, 0);
        let plan = &self.shared.plan;
        self.descriptors.clear();
        self.descriptors.extend(by_binding.iter().map(|at| match find(at) {
            Some(place) => {
                assert!(at.size <= plan.limits.binding, "a binding of {} bytes", at.size);
                assert!(at.offset.is_multiple_of(plan.limits.storage_alignment), "a binding at {}", at.offset);
                vk::DescriptorBufferInfo { buffer: place.buffer, offset: at.offset, range: at.size }
            }
            None => {
                assert!(plan.features.null_descriptor, "an empty binding of {id:?}");
                vk::DescriptorBufferInfo { buffer: vk::Buffer::null(), offset: 0, range: vk::WHOLE_SIZE }
            }
        }));
        reads_back
    }

    fn pipeline(&self, id: PipelineId) -> &Pipeline {
        let Some(Some(pipeline)) = self.pipelines.get(id.0 as usize) else { unreachable!("{id:?} is unknown") };
        pipeline
    }

    /// Brings group counts into the device's slot. The barriers order the slot's uses among themselves; the counts
    /// themselves were ordered by the engine, and recordings are ordered with all that is before and behind.
    fn check_counts(&mut self, tape: &mut Tape, sets: &mut SetPools, at: Span) -> Result<(), DeviceError> {
        assert!(at.size >= COUNTS_BYTES, "group counts in {at:?}");
        if self.counts.is_none() {
            self.counts = Some(CountCheck::new(&self.shared, &self.compiler)?);
        }
        let Some(check) = &self.counts else { unreachable!("made above") };
        let (descriptors, parameters) = check.arguments(self.pages.place(at).buffer, at);
        tape.order.barrier_within(COMPUTE);
        self.work(tape, COMPUTE);
        issue(&self.shared, tape, sets, &check.pipeline, &descriptors, bytemuck::bytes_of(&parameters))?;
        // SAFETY: V2. V7: pipeline and arguments are bound.
        unsafe { self.shared.raw().cmd_dispatch(tape.buffer, 1, 1, 1) };
        let barrier = StageBarrier { before: COMPUTE, behind: COMPUTE | INDIRECT };
        self.barrier(tape.buffer, barrier);
        tape.order.written(barrier);
        Ok(())
    }
}

/// Bytes from the first of the first row to the last of the last.
fn extent(rows: &RowCopy, pitch: u64) -> u64 {
    (rows.count - 1).saturating_mul(pitch).saturating_add(rows.bytes)
}

/// Binds a pipeline with its arguments.
fn issue(
    shared: &DeviceShared,
    tape: &mut Tape,
    sets: &mut SetPools,
    pipeline: &Pipeline,
    descriptors: &[vk::DescriptorBufferInfo],
    push: &[u8],
) -> Result<(), DeviceError> {
    let (raw, buffer, layout) = (shared.raw(), tape.buffer, pipeline.layout);
    let point = vk::PipelineBindPoint::COMPUTE;
    assert_eq!((descriptors.len(), push.len()), (pipeline.bindings as usize, pipeline.push_bytes as usize));
    if tape.bound != pipeline.raw {
        // SAFETY: V2, V7.
        unsafe { raw.cmd_bind_pipeline(buffer, point, pipeline.raw) };
        tape.bound = pipeline.raw;
    }
    if !push.is_empty() {
        // SAFETY: V2, V5. The layout has a range of exactly this size, as asserted.
        unsafe { raw.cmd_push_constants(buffer, layout, vk::ShaderStageFlags::COMPUTE, 0, push) };
    }
    if descriptors.is_empty() {
        return Ok(());
    }
    let (set_layout, template) = pipeline.set();
    let bytes = descriptors.as_ptr().cast();
    if let Some(api) = &shared.push {
        // SAFETY: V2, V5, V6. The template reads one entry for each binding, and there are as many, as asserted.
        unsafe { api.cmd_push_descriptor_set_with_template(buffer, template, layout, 0, bytes) };
        return Ok(());
    }
    let set = sets.take(set_layout)?;
    // SAFETY: V2, V5. The set is fresh, so nothing uses it; the template as above.
    unsafe {
        raw.update_descriptor_set_with_template(set, template, bytes);
        raw.cmd_bind_descriptor_sets(buffer, point, layout, 0, &[set], &[]);
    }
    Ok(())
}
