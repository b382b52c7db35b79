//! What a device must be able to do: the contract between the actor and the code that drives hardware.

use crate::bytes::{Bytes, Pinned};
use crate::engine::command::{Commands, GraphId, PageId, PipelineId, TimelineValue, TimestampSlot};
use crate::error::{CompilationError, LaunchError};
use crate::id::ActorId;
use crate::kernel::{BufferAccess, KernelOptions, KernelSource};
use crate::mailbox::Mailbox;
use crate::message::Event;
use crate::properties::{DeviceProperties, TargetProperties};
use crate::region::Region;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use crate::engine::command::Span;

/// Where a page lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PageKind {
    /// Memory of the device, for buffers.
    Device,
    /// Host memory that the device copies from.
    Upload,
    /// Host memory that the device copies to, cached for the host.
    Readback,
}

/// What the device said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The driver has no memory of this kind left.
    #[error("out of device memory")]
    OutOfMemory,
    /// The device is gone.
    #[error("{0}")]
    Lost(String),
}

/// Limits that the engine checks before a command is made, beside those of [`DeviceProperties`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes that one binding may cover.
    pub binding_bytes: u64,
    /// The most bytes of a binding whose length the kernel asks for.
    pub length_bytes: u64,
    /// Whether a binding of no bytes can be made.
    pub empty_bindings: bool,
    /// Whether bindings of one launch may overlap where one of them is written.
    pub aliased_bindings: bool,
    /// Whether a kernel can fail while it runs, which the device tells by
    /// [`Event::Failed`](crate::message::Event).
    pub late_failures: bool,
}

/// What a compiled kernel takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reflection {
    /// What the kernel does to each buffer, in the order of the arguments; `None` takes any number of buffers and
    /// may do anything to them.
    pub buffers: Option<Vec<BufferAccess>>,
    /// The arguments whose length the kernel asks for.
    pub measured: Vec<usize>,
    /// Bytes of the parameter block, without addresses; `None` takes any number.
    pub info_bytes: Option<u32>,
}

/// A kernel that the device can run.
#[derive(Debug)]
pub struct Compiled<P> {
    /// What the device runs.
    pub pipeline: P,
    /// What it takes.
    pub reflection: Reflection,
}

/// The same moment on two clocks.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// On the device's, as [`Device::timestamp_ns`] tells it.
    pub device_ns: u64,
    /// On the host's.
    pub host: Instant,
    /// How far the two may be apart.
    pub error: Duration,
}

/// A range of a host page, lent to be filled. Dropped instead, it goes back.
pub struct Fill(Write);

type Write = Box<dyn FnOnce(&[u8]) -> Bytes + Send>;

impl Fill {
    /// A range that `write` writes whole.
    pub fn new(write: impl FnOnce(&[u8]) -> Bytes + Send + 'static) -> Self {
        Self(Box::new(write))
    }

    /// Writes the range, and gives its bytes as they lie there, pinned.
    ///
    /// # Panics
    /// When there are not as many bytes as the range has.
    pub fn write(self, bytes: &[u8]) -> Bytes {
        self.0(bytes)
    }
}

impl fmt::Debug for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fill")
    }
}

/// A range of a host page in other hands than the engine's. Dropping it gives the range back: it posts
/// [`Event::PinnedDropped`].
#[derive(Debug)]
pub struct Loan {
    at: Span,
    mailbox: Mailbox,
}

impl Loan {
    /// A range of the actor behind `mailbox`.
    pub fn new(at: Span, mailbox: Mailbox) -> Self {
        Self { at, mailbox }
    }

    /// The range.
    pub fn span(&self) -> Span {
        self.at
    }

    /// The range, if it is one of `actor`.
    pub fn place(&self, actor: ActorId) -> Option<Span> {
        (self.mailbox.actor() == actor).then_some(self.at)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        // An actor that is gone has no use for the range.
        let _taken = self.mailbox.post(Event::PinnedDropped(self.at));
    }
}

/// Turns kernels into programs, on threads of a pool.
pub trait Compiler: Send + Sync + 'static {
    /// What the device runs.
    type Pipeline: Send + 'static;

    /// Compiles one kernel. May take long; several run at once.
    ///
    /// # Errors
    /// A [`CompilationError`] with the place in the code, or the limit of the device that the kernel exceeds.
    fn compile(
        &self,
        kernel: &str,
        source: KernelSource,
        options: &KernelOptions,
    ) -> Result<Compiled<Self::Pipeline>, LaunchError>;
}

/// A compile error that says that `kernel` needs `feature`.
pub fn unsupported(kernel: &str, feature: &str) -> LaunchError {
    CompilationError::Unsupported { kernel: kernel.to_owned(), feature: feature.to_owned() }.into()
}

/// A compile error that quotes `reason`.
pub fn wrong_source(kernel: &str, reason: impl Into<String>) -> LaunchError {
    CompilationError::Source { kernel: kernel.to_owned(), reason: reason.into() }.into()
}

/// One device, as its actor drives it: from one thread, through `&mut`.
///
/// # Ordering
/// Commands are *recorded* in order and run when they are *submitted*. Between two barriers the device may run them
/// in any order and at once, those of earlier submissions included: a barrier orders everything recorded before it,
/// in any submission, before everything recorded after it. When the timeline reaches the value of a submission, all
/// commands up to its end are done and what they wrote to host pages can be read.
///
/// # Failures
/// Where a kernel can break off, as a closure that panics, the device posts [`Event::Failed`] before the timeline
/// reaches the submission's value. Who sees the value reached, by [`Device::reached`] or by an event, finds the failure
/// in the mailbox already.
///
/// # What the caller owes
/// Ids are fresh when they are given and known when they are used; ranges lie inside their pages; nothing is freed
/// that a pending submission names. The engine keeps this, and devices assert it.
pub trait Device: Send + 'static {
    /// Compiles kernels for this device.
    type Compiler: Compiler;
    /// Names a slice for code outside.
    type Resource: Send + 'static;

    /// The runtime's name.
    fn name(&self) -> &'static str;
    /// What the device is.
    fn properties(&self) -> DeviceProperties;
    /// What its kernels may rely on.
    fn target(&self) -> TargetProperties;
    /// What the engine must check.
    fn limits(&self) -> Limits;
    /// The compiler, shared with the threads of the pool.
    fn compiler(&self) -> Arc<Self::Compiler>;

    /// Called once, before anything else: where progress and loss are to be posted.
    fn start(&mut self, mailbox: Mailbox);

    /// Takes memory.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] leaves all as it was.
    fn allocate_page(&mut self, page: PageId, bytes: u64, kind: PageKind) -> Result<(), DeviceError>;
    /// Gives memory back. Host memory that a [`Pinned`] value still shows stays until that is dropped.
    fn free_page(&mut self, page: PageId);
    /// Writes to an [`PageKind::Upload`] page: visible to every command submitted after.
    fn write_page(&mut self, to: Span, bytes: &[u8]);
    /// Lends a range of an [`PageKind::Upload`] page, to be written by any thread. What is written is visible to
    /// every command submitted after.
    fn lend(&mut self, at: Span) -> Fill;
    /// Shows a range of a host page. Dropping the value ends a [`Loan`] of it to the mailbox given to
    /// [`Device::start`].
    fn pinned(&self, at: Span) -> Arc<dyn Pinned>;
    /// Makes a region of another device known as a page from which commands copy, until [`Device::free_page`]. False
    /// where this device cannot reach it: nothing is known then, and its bytes are copied by the host.
    fn adopt(&mut self, page: PageId, region: &Arc<Region>) -> bool;

    /// Makes a compiled kernel known.
    fn add_pipeline(&mut self, id: PipelineId, pipeline: <Self::Compiler as Compiler>::Pipeline);
    /// Records commands behind those recorded before.
    ///
    /// # Errors
    /// [`DeviceError::Lost`]; nothing further is asked of a lost device but to free what it has.
    fn record(&mut self, commands: &Commands) -> Result<(), DeviceError>;
    /// Submits what was recorded since the last submission; the timeline reaches `value` when it is done.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn submit(&mut self, value: TimelineValue) -> Result<(), DeviceError>;
    /// How far the timeline is. Cheap: it is polled while the actor spins.
    ///
    /// # Errors
    /// [`DeviceError::Lost`]; a reached value is only told once the device's status is known to be good.
    fn reached(&mut self) -> Result<TimelineValue, DeviceError>;
    /// Posts [`Event::Progress`](crate::message::Event) once `value` is reached, or `Lost`, or `Stalled` meanwhile.
    fn watch(&mut self, value: TimelineValue);
    /// Asks the device whether it lives, by an empty submission.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn probe(&mut self) -> Result<(), DeviceError>;

    /// When the timestamp of a submission that is done was taken, in nanoseconds of the device's clock.
    /// `None` where the device has no clock.
    fn timestamp_ns(&mut self, slot: TimestampSlot) -> Option<u64>;

    /// One moment on the device's clock and on the host's. `None` where the host cannot read the device's.
    fn moment(&mut self) -> Option<Moment>;

    /// Keeps a recording that [`Command::Replay`](crate::engine::command::Command) runs. It starts with no barrier.
    /// Much of it may be as in the recording `like`, which stays as it is.
    ///
    /// # Errors
    /// [`DeviceError`]; the recording is then unknown.
    fn seal(&mut self, graph: GraphId, tape: &Commands, like: Option<GraphId>) -> Result<(), DeviceError>;
    /// Forgets a recording that no pending submission names.
    fn drop_graph(&mut self, graph: GraphId);

    /// Names a slice for code outside.
    fn resource(&self, at: Span) -> Self::Resource;
}
