//! All that an actor is told: by clients, by its device and by its own helpers.

use crate::bytes::Bytes;
use crate::engine::command::{GraphId, PipelineId, Span, TimelineValue};
use crate::engine::memory::{
    InstallMemoryPoolsError, MemoryAllocationMode, MemoryPoolsConfig, MemoryReport, MemoryUsage,
};
use crate::error::{LaunchError, ProfileError, ServerError};
use crate::id::{BufferId, Holder, StreamId};
use crate::kernel::{CubeKernel, INLINE_BUFFERS, INLINE_INFO, KernelId};
use crate::port::{Fill, Reflection};
use crate::profile::{ProfileTicks, ProfileWindow};
use crate::properties::GraphKind;
use crate::region::RegionId;
use crate::reply::Reply;
use crate::tensor::Rows;
use crate::trace::{TraceSink, TraceSummary};
use smallvec::SmallVec;
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Everything that can happen to an actor, in one order.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a box would cost each launch an allocation")]
pub enum Event {
    /// Bytes from outside are here.
    Arrived {
        /// Names the arrival.
        token: u64,
        /// The bytes, or why there are none.
        bytes: Result<Bytes, ServerError>,
    },
    /// A client asks.
    Client(Envelope),
    /// A kernel is compiled.
    Compiled {
        /// Which.
        pipeline: PipelineId,
        /// What it takes and the device's pipeline, or why there is none.
        result: Result<(Reflection, Box<dyn Any + Send>), LaunchError>,
    },
    /// One dispatch broke off half-way; the rest of its submission goes on.
    Failed {
        /// The submission that ran it.
        submission: TimelineValue,
        /// The recording that it is part of, if it ran as a replay.
        graph: Option<GraphId>,
        /// Which dispatch: its place among those of the recording, or else among those that were recorded for the
        /// submission itself, from zero.
        dispatch: u32,
        /// What happened.
        reason: String,
    },
    /// The device is gone.
    Lost(String),
    /// Nobody looks at this range of a host page any more.
    PinnedDropped(Span),
    /// The timeline is at this value.
    Progress(TimelineValue),
    /// The device that made a region, which this one took in, has no more use for it.
    RegionGivenUp(RegionId),
    /// The device was waited for this long without progress.
    Stalled(Duration),
    /// The validation layer found an error in what was recorded.
    Validation(String),
}

/// What a client asks, and from where.
#[derive(Debug)]
pub struct Envelope {
    /// The hold of the device under which the call was made, if any.
    pub lease: Option<LeaseId>,
    /// The client's stream.
    pub stream: StreamId,
    /// What is asked.
    pub body: Body,
}

/// An exclusive hold of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseId(pub u64);

/// Bytes of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BufferRange {
    /// The reservation.
    pub buffer: BufferId,
    /// From its start.
    pub offset: u64,
    /// How many.
    pub size: u64,
}

/// What is asked.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a box would cost each launch an allocation")]
pub enum Body {
    /// Whether ranges can be trusted, as far as is known.
    Check {
        /// The ranges.
        ranges: Vec<BufferRange>,
        /// The answer.
        reply: Reply<Result<(), ServerError>>,
    },
    /// Give back memory that is empty.
    Cleanup {
        /// Answered when it is done.
        reply: Reply<()>,
    },
    /// Copy on the device.
    Copy {
        /// Where from. It holds the rows.
        from: BufferRange,
        /// What to take there.
        rows: Rows,
        /// Where to, dense, from its start: another buffer, with room for the rows.
        to: BufferRange,
    },
    /// Start or end a dry run of the stream; starts and ends are counted.
    DryRun {
        /// Start, not end.
        on: bool,
        /// Answered when it holds.
        reply: Reply<()>,
    },
    /// Send off what is recorded.
    Flush {
        /// The answer.
        reply: Reply<Result<(), ServerError>>,
    },
    /// A capture call.
    Graph(GraphCall),
    /// Install pools.
    Install {
        /// The layout, known to make sense.
        layout: MemoryPoolsConfig,
        /// The answer.
        reply: Reply<Result<(), InstallMemoryPoolsError>>,
    },
    /// Run a kernel.
    Launch(Launch),
    /// Hold the device for one caller.
    LeaseAsk {
        /// The hold.
        lease: LeaseId,
        /// Answered when it is granted.
        reply: Reply<()>,
    },
    /// Give the device back.
    LeaseEnd {
        /// The hold.
        lease: LeaseId,
    },
    /// The last client of the stream is gone: close the capture window that is open there.
    Left,
    /// Lend pinned memory, for the caller to fill.
    Lend {
        /// Bytes of each piece, not zero.
        sizes: Vec<u64>,
        /// What fills each, in order.
        reply: Reply<Result<Vec<Fill>, ServerError>>,
    },
    /// Change where the stream's reservations go.
    Mode(MemoryAllocationMode),
    /// A profiling call.
    Profile(ProfileCall),
    /// Copy to the host.
    Read {
        /// Ranges and the rows to take from each.
        parts: Vec<(BufferRange, Rows)>,
        /// Dense bytes, in order.
        reply: Reply<Result<Vec<Bytes>, ServerError>>,
    },
    /// Write bytes that are not here yet.
    Receive {
        /// Where to.
        to: BufferRange,
        /// How the dense bytes are spread there; `None` is as many as come, from the start.
        rows: Option<Rows>,
        /// Where the bytes come from.
        from: Incoming,
        /// As of [`Body::Write`].
        budget: usize,
    },
    /// Append a memory report to the records.
    Record {
        /// Its label.
        label: String,
    },
    /// The last handle is gone.
    Release {
        /// The reservation.
        buffer: BufferId,
    },
    /// Report the stream's pools.
    Report {
        /// The answer.
        reply: Reply<MemoryReport>,
    },
    /// Reserve memory.
    Reserve {
        /// Under this name.
        buffer: BufferId,
        /// Bytes.
        size: u64,
        /// Who asks. Where all who hold memory wait for more, the one that asked last fails.
        holder: Holder,
        /// Where set: wait for memory instead of failing, and answer how it ended.
        wait: Option<Reply<Result<(), ServerError>>>,
    },
    /// Name a slice for code outside.
    Resource {
        /// The slice.
        range: BufferRange,
        /// The device's resource.
        reply: Reply<Result<Box<dyn Any + Send>, ServerError>>,
    },
    /// A call that went wrong before it was sent: the range carries the failure.
    Spoil {
        /// What is spoiled.
        range: BufferRange,
        /// By what.
        error: Box<ServerError>,
    },
    /// Finish what was sent, then stop.
    Stop,
    /// Wait for all work before, then check ranges.
    Sync {
        /// The ranges.
        ranges: Vec<BufferRange>,
        /// The answer.
        reply: Reply<Result<(), ServerError>>,
    },
    /// Pin bytes where they lie.
    TakeIn {
        /// Bytes of regions.
        bytes: Vec<Bytes>,
        /// The same, pinned, or nothing for those that the device cannot reach.
        reply: Reply<Result<Vec<Option<Bytes>>, ServerError>>,
    },
    /// A call about the trace of the device.
    Trace(TraceCall),
    /// Sum up memory over all streams.
    Usage {
        /// The answer.
        reply: Reply<MemoryUsage>,
    },
    /// Copy bytes from the host.
    Write {
        /// Where to. It holds the rows.
        to: BufferRange,
        /// How the dense bytes are spread there.
        rows: Rows,
        /// As many bytes as the rows hold. Not lazy.
        bytes: Bytes,
        /// Bytes for which places in the budget were taken, to be given back when the copy is done.
        budget: usize,
        /// Whether its place in the stream has come already: a window opened since does not refuse it.
        placed: bool,
    },
}

/// A launch, as the client packs it.
#[derive(Debug)]
pub struct Launch {
    /// The kernel's id.
    pub id: KernelId,
    /// The kernel.
    pub kernel: Kernel,
    /// How many workgroups.
    pub count: Count,
    /// Its buffers, in order.
    pub buffers: SmallVec<[BufferRange; INLINE_BUFFERS]>,
    /// Its parameters.
    pub info: SmallVec<[u8; INLINE_INFO]>,
    /// Set where the client knows already that the launch cannot run. A buffer of another device has the id
    /// [`BufferId::FOREIGN`] in `buffers` then.
    pub refused: Option<Box<ServerError>>,
    /// Whether a place in the budget was taken, to be given back when the launch is done.
    pub budgeted: bool,
}

/// A kernel in a message; the engine takes it from the first launch of its id.
#[derive(Debug)]
pub struct Kernel(pub Option<Box<dyn CubeKernel>>);

/// Workgroups of a launch.
#[derive(Debug, Clone, Copy)]
pub enum Count {
    /// In x, y and z.
    Static([u32; 3]),
    /// Three u32 on the device.
    Dynamic(BufferRange),
}

/// A capture call of the client's stream.
#[derive(Debug)]
pub enum GraphCall {
    /// The last holder of a graph is gone.
    Drop {
        /// Which.
        graph: GraphId,
    },
    /// Make the stream ready for a window.
    Prepare {
        /// The answer.
        reply: Reply<Result<(), ServerError>>,
    },
    /// Use another buffer in later replays.
    Rebind {
        /// Which.
        graph: GraphId,
        /// The buffer in the tape.
        old: BufferRange,
        /// The buffer instead.
        new: BufferRange,
        /// The answer.
        reply: Reply<Result<(), ServerError>>,
    },
    /// Replay a graph.
    Replay {
        /// Which.
        graph: GraphId,
        /// Answered when it is enqueued.
        reply: Reply<Result<(), ServerError>>,
        /// Whether a place in the budget was taken.
        budgeted: bool,
    },
    /// Open the window.
    Start {
        /// The answer.
        reply: Reply<Result<(), ServerError>>,
    },
    /// Close the window.
    Stop {
        /// The graph.
        reply: Reply<Result<Sealed, ServerError>>,
    },
}

/// What closing a window gives.
#[derive(Debug, Clone, Copy)]
pub struct Sealed {
    /// The graph.
    pub graph: GraphId,
    /// How it is replayed.
    pub kind: GraphKind,
    /// Launches on the tape.
    pub launches: usize,
    /// Barriers on the tape.
    pub barriers: usize,
    /// Bytes that live as long as the graph.
    pub bytes_held: u64,
}

/// A profiling call.
#[derive(Debug)]
pub enum ProfileCall {
    /// Forget a window.
    Abandon {
        /// Which.
        window: ProfileWindow,
    },
    /// Close a window.
    End {
        /// Which.
        window: ProfileWindow,
        /// Whether it is closed, where it may be refused; without one a refusal is told by the time.
        reply: Option<Reply<Result<(), ProfileError>>>,
        /// Its time, once the work is done.
        ticks: Reply<Result<ProfileTicks, ProfileError>>,
    },
    /// Open a window.
    Start {
        /// Which: a fresh one, on the stream of the message.
        window: ProfileWindow,
        /// Whether it is open, where it may be refused; without one a refusal is told by its time.
        reply: Option<Reply<Result<(), ProfileError>>>,
    },
}

/// A call about the trace of a device.
#[derive(Debug)]
pub enum TraceCall {
    /// Begin.
    Start {
        /// Where it goes.
        sink: TraceSink,
        /// Answered when work that comes later is in the trace.
        reply: Reply<Result<(), ServerError>>,
    },
    /// End behind all that was sent before.
    Stop {
        /// Answered when the file is whole.
        reply: Reply<Result<TraceSummary, ServerError>>,
    },
}

/// Bytes that are on their way.
pub enum Incoming {
    /// Made by a call that blocks, such as reading a file.
    Blocking(Box<dyn FnOnce() -> Result<Bytes, ServerError> + Send>),
    /// Made by someone else.
    Future(Pin<Box<dyn Future<Output = Result<Bytes, ServerError>> + Send>>),
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocking(_) => write!(f, "Blocking"),
            Self::Future(_) => write!(f, "Future"),
        }
    }
}
