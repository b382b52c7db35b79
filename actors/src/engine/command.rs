//! What the engine says: commands for the device's queue, and actions for the shell.

use crate::bytes::Bytes;
use crate::engine::memory::MemoryReport;
use crate::engine::observe::Noted;
use crate::error::{ProfileError, ServerError};
use crate::kernel::CubeKernel;
use crate::message::Sealed;
use crate::port::{Fill, PageKind};
use crate::profile::ProfileTicks;
use crate::reply::Reply;
use crate::trace::{TraceSink, TraceSummary};
use std::any::Any;

/// One device allocation. Never used again within one run of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(pub u32);

/// A compiled kernel: dense, from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PipelineId(pub u32);

/// A sealed recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GraphId(pub u64);

/// A place for one timestamp: dense, from zero, used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimestampSlot(pub u32);

/// A point of the device's timeline; reached when the timeline is at it or past it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct TimelineValue(pub u64);

/// A range of a page, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// The page.
    pub page: PageId,
    /// From the start of the page.
    pub offset: u64,
    /// How many bytes.
    pub size: u64,
}

impl Span {
    /// Whether the two have a byte in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.page == other.page && self.offset < other.offset + other.size && other.offset < self.offset + self.size
    }
}

/// A run of entries of one of the arrays of [`Commands`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub start: u32,
    /// How many.
    pub len: u32,
}

/// How many workgroups a dispatch has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Groups {
    /// In x, y and z.
    Direct([u32; 3]),
    /// Three u32 at the start of this range.
    Indirect(Span),
}

/// Equal runs of bytes, copied from one pitch to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowCopy {
    /// Where the first row lies; `size` is up to the end of the last.
    pub from: Span,
    /// Bytes between starts of rows there.
    pub from_pitch: u64,
    /// Where the first row goes; `size` is up to the end of the last.
    pub to: Span,
    /// Bytes between starts of rows there.
    pub to_pitch: u64,
    /// Rows.
    pub count: u64,
    /// Bytes of a row.
    pub bytes: u64,
}

/// One entry of a command buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Everything before happens before everything after.
    Barrier,
    /// Copies rows between pages of any kind. The two sides do not overlap.
    Copy(RowCopy),
    /// Runs a kernel.
    Dispatch {
        /// Which.
        pipeline: PipelineId,
        /// Its buffers, in order: a run of [`Commands::spans`].
        buffers: Run,
        /// Its parameters: a run of [`Commands::info`].
        info: Run,
        /// How much of it.
        groups: Groups,
    },
    /// Sets bytes to zero. Offset and size are multiples of four.
    Zero(Span),
    /// Runs a recording. The engine puts a barrier before it and after it.
    Replay(GraphId),
    /// Takes the time once everything before is done.
    Timestamp(TimestampSlot),
}

/// Commands in order, flat: a warm launch writes into arrays that are there already.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Commands {
    /// The commands.
    pub list: Vec<Command>,
    /// Buffers of dispatches.
    pub spans: Vec<Span>,
    /// Parameters of dispatches.
    pub info: Vec<u8>,
}

impl Commands {
    /// Forgets all and keeps the arrays.
    pub fn clear(&mut self) {
        self.list.clear();
        self.spans.clear();
        self.info.clear();
    }

    /// The buffers of a dispatch.
    pub fn buffers(&self, run: Run) -> &[Span] {
        &self.spans[run.start as usize..][..run.len as usize]
    }

    /// The parameters of a dispatch.
    pub fn parameters(&self, run: Run) -> &[u8] {
        &self.info[run.start as usize..][..run.len as usize]
    }

    /// Adds a dispatch.
    pub fn dispatch(&mut self, pipeline: PipelineId, buffers: &[Span], info: &[u8], groups: Groups) {
        let at = |start: usize, len: usize| Run { start: start as u32, len: len as u32 };
        let (spans, bytes) = (at(self.spans.len(), buffers.len()), at(self.info.len(), info.len()));
        self.spans.extend_from_slice(buffers);
        self.info.extend_from_slice(info);
        self.list.push(Command::Dispatch { pipeline, buffers: spans, info: bytes, groups });
    }
}

/// What the shell is to do, in order, besides recording commands.
#[derive(Debug)]
pub enum Action {
    /// Make a compiled kernel known to the device.
    AddPipeline {
        /// Which.
        pipeline: PipelineId,
        /// The device's pipeline.
        compiled: Box<dyn Any + Send>,
    },
    /// Answer a question for a device's name of a slice.
    AnswerResource {
        /// The slice.
        at: Span,
        /// Who asks; the value is the device's resource.
        reply: Reply<Result<Box<dyn Any + Send>, ServerError>>,
    },
    /// Take memory, and tell the engine at once by `page_granted` or `page_refused`.
    AllocatePage {
        /// Which page it becomes.
        page: PageId,
        /// Bytes.
        bytes: u64,
        /// Where.
        kind: PageKind,
    },
    /// Compile a kernel on the pool and post the result.
    Compile {
        /// Which pipeline it becomes.
        pipeline: PipelineId,
        /// The kernel.
        kernel: Box<dyn CubeKernel>,
    },
    /// Give the readers of host ranges their bytes.
    Deliver {
        /// One range a part, in order; nothing for parts without bytes.
        parts: Vec<Option<Span>>,
        /// Who asks.
        reply: Reply<Result<Vec<Bytes>, ServerError>>,
    },
    /// Forget a sealed recording.
    DropGraph(GraphId),
    /// A capture window was refused, or is closed.
    EndCapture,
    /// Give back places for so many launches.
    FinishLaunches(usize),
    /// Give back the places of an upload of so many bytes.
    FinishUpload(usize),
    /// Give memory back.
    FreePage(PageId),
    /// Ask the device whether it lives.
    Probe,
    /// Append a line to the records.
    Record {
        /// The label.
        label: String,
        /// What to record.
        report: MemoryReport,
    },
    /// Keep a recording, tell the engine at once by `seal_answered`, and answer.
    Seal {
        /// The device's name for it.
        recording: GraphId,
        /// The one that it takes the place of, if any.
        like: Option<GraphId>,
        /// What it becomes.
        sealed: Sealed,
        /// What it runs.
        tape: Commands,
        /// Who asks.
        reply: SealReply,
    },
    /// Copy bytes into an upload page.
    Stage {
        /// Where.
        to: Span,
        /// What.
        bytes: Bytes,
    },
    /// Begin a trace at the moment of a timestamp, have the engine note commands, and answer.
    StartTrace {
        /// The moment from which it counts.
        at: TimestampSlot,
        /// Where it goes.
        sink: TraceSink,
        /// Who asks.
        reply: Reply<Result<(), ServerError>>,
    },
    /// End the trace and answer.
    StopTrace {
        /// Who asks.
        reply: Reply<Result<TraceSummary, ServerError>>,
    },
    /// Record commands, then submit. The shell clears them and puts them into [`Outbox::spare`].
    Submit {
        /// What the timeline reaches.
        value: TimelineValue,
        /// What to record.
        commands: Commands,
    },
    /// Make regions known to the device, and answer.
    TakeIn {
        /// Bytes of them.
        bytes: Vec<Bytes>,
        /// Who asks.
        reply: Reply<Result<Vec<Option<Bytes>>, ServerError>>,
    },
    /// Read two timestamps and answer.
    Ticks {
        /// Start of the window.
        start: TimestampSlot,
        /// End of the window.
        end: TimestampSlot,
        /// Who asks.
        reply: Reply<Result<ProfileTicks, ProfileError>>,
    },
    /// Write what a submission did to the trace. Its timestamps are read now: the places are used again.
    Trace {
        /// The submission.
        value: TimelineValue,
        /// Its commands, in order.
        noted: Vec<Noted>,
    },
    /// Lend upload pages, and answer.
    Lend {
        /// What to lend.
        places: Vec<Span>,
        /// Who asks.
        reply: Reply<Result<Vec<Fill>, ServerError>>,
    },
    /// Copy bytes into pinned memory on a thread of their own, and post them as an arrival.
    Fill {
        /// Names the arrival.
        token: u64,
        /// Where to.
        to: Span,
        /// The bytes. Not lazy.
        bytes: Bytes,
    },
    /// Wait for bytes that come from outside, and post them.
    Fetch {
        /// Names the arrival.
        token: u64,
        /// Where they come from.
        from: crate::message::Incoming,
    },
}

/// Who waits for a recording to be kept.
#[derive(Debug)]
pub enum SealReply {
    /// A caller of `rebind`.
    Rebound(Reply<Result<(), ServerError>>),
    /// A caller of `stop_capture`.
    Stopped(Reply<Result<Sealed, ServerError>>),
}

/// What the engine asks for. Commands gather over many calls, until a submission takes them along.
#[derive(Debug, Default)]
pub struct Outbox {
    /// For the device's queue, with the next submission.
    pub commands: Commands,
    /// For the shell, in order.
    pub actions: Vec<Action>,
    /// Cleared commands, so that their memory is used again.
    pub spare: Vec<Commands>,
}
