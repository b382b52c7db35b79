//! A simulated device: it runs commands in any order that the barriers allow, and fails on demand.
//!
//! Memory and kernels are those of the host device. What differs is time: submitted commands wait until they are
//! stepped, and between two barriers they run in an order that a seed chooses, each in two halves (it reads all,
//! later it writes all), so that commands overlap as they do on hardware. A barrier that is missing shows as other
//! bytes for some seed, and always in [`SimControl::conflicts`].

#![forbid(unsafe_code)]

mod kernel;
mod order;
mod scheduler;
mod state;

use crate::bytes::{Bytes, Pinned};
use crate::engine::command::{Commands, GraphId, PageId, PipelineId, TimelineValue, TimestampSlot};
use crate::error::ComputeError;
use crate::host::{HostCompiler, PinnedCopy, Program, device_properties, target_properties};
use crate::id::DeviceId;
use crate::mailbox::Mailbox;
use crate::message::Event;
use crate::port::{Device, DeviceError, Fill, Limits, Loan, Moment, PageKind, Span};
use crate::profile::TimingMethod;
use crate::properties::{DeviceProperties, GraphKind, TargetProperties};
use crate::region::Region;
use crate::server::{ComputeStorage, Server, ServerStorage};
use state::State;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use kernel::SimKernel;
pub use order::{Conflict, OrderChecker};

/// Memory of a device that was given no other properties: fresh pages are written whole, so it is small.
const MEMORY_BYTES: u64 = 64 << 20;
/// Workgroups in each dimension: what every Vulkan device takes.
const CUBES_MAX: u32 = 65_535;

/// How a simulated device behaves.
#[derive(Debug, Clone)]
pub struct SimOptions {
    /// Chooses the order of commands.
    pub seed: u64,
    /// Whether [`Device::reached`] and [`Device::watch`] run all that is pending. Without it only the control does.
    pub auto_run: bool,
    /// Whether commands without a barrier between them are compared with each other, which takes quadratic time.
    pub check_order: bool,
    /// What the engine must check.
    pub limits: Limits,
    /// What the device says of itself; its total memory is kept to.
    pub properties: DeviceProperties,
}

impl Default for SimOptions {
    fn default() -> Self {
        let mut properties = device_properties(MEMORY_BYTES);
        properties.features.graph = GraphKind::Hardware;
        properties.features.host_import = true;
        properties.hardware.max_cube_count = (CUBES_MAX, CUBES_MAX, CUBES_MAX);
        properties.timing_method = TimingMethod::Device;
        let limits = Limits {
            binding_bytes: properties.memory.max_page_size,
            length_bytes: u64::MAX,
            empty_bindings: true,
            aliased_bindings: false,
            late_failures: true,
        };
        Self { seed: 0, auto_run: true, check_order: true, limits, properties }
    }
}

/// Something that goes wrong. Counts start with [`SimControl::inject`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No page is granted.
    AllPages,
    /// The device is lost when this many more commands are done; none is at once.
    Commands(u64),
    /// One page is refused: zero is the next that is asked for.
    Page(u64),
    /// The device is lost at the next probe.
    Probe,
    /// Nothing runs, nothing is reached, and the device does not say why.
    Silence,
    /// The device is lost at a submission: zero is the next.
    Submission(u64),
}

/// What a device holds, and what it did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SimCounters {
    /// Barriers recorded, those of tapes once.
    pub barriers: u64,
    /// Bytes of the pages that are there.
    pub bytes: u64,
    /// Commands done.
    pub commands: u64,
    /// Kernels run, those of replays each time.
    pub dispatches: u64,
    /// Graphs that are there.
    pub graphs: usize,
    /// Pages that are there.
    pub pages: usize,
    /// Commands submitted and not done.
    pub pending: usize,
    /// Submissions taken.
    pub submissions: u64,
}

/// A simulated device.
///
/// # Panics
/// Where the caller breaks the contract of [`Device`]: ranges outside of pages, unknown ids, memory that is freed or
/// touched by the host while pending work names it, and kernels that store to what they declare to read.
#[derive(Debug)]
pub struct SimDevice {
    control: SimControl,
    compiler: Arc<HostCompiler>,
}

impl SimDevice {
    /// A device that behaves like this.
    pub fn new(options: SimOptions) -> Self {
        let state = Arc::new(Mutex::new(State::new(options)));
        Self { control: SimControl { state }, compiler: Arc::default() }
    }

    /// A handle that stays when the device goes to an actor.
    pub fn control(&self) -> SimControl {
        self.control.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.control.state()
    }

    fn loan(&self, at: Span) -> Loan {
        let Some(mailbox) = self.state().mailbox.clone() else { unreachable!("a device is used before its start") };
        Loan::new(at, mailbox)
    }
}

/// Steps, breaks and watches a device. Clones are for the same device.
///
/// Kernels run inside of these calls and must not call them.
#[derive(Debug, Clone)]
pub struct SimControl {
    state: Arc<Mutex<State>>,
}

impl SimControl {
    /// Goes on in the order of this seed.
    pub fn seed(&self, seed: u64) {
        self.state().seed(seed);
    }

    /// Whether the device runs by itself: see [`SimOptions::auto_run`].
    pub fn auto_run(&self, on: bool) {
        self.state().options.auto_run = on;
    }

    /// Lets one command start, end, or both. False where nothing can happen.
    pub fn step(&self) -> bool {
        self.state().step()
    }

    /// Steps until nothing can happen.
    pub fn run(&self) {
        self.state().run();
    }

    /// From now on, or from its count on, this goes wrong.
    pub fn inject(&self, fault: Fault) {
        self.state().inject(fault);
    }

    /// Takes back all faults, and a device that runs by itself goes on. A lost device stays lost.
    pub fn clear_faults(&self) {
        self.state().clear_faults();
    }

    /// Leaves out the barrier of this number: barriers are counted from zero as they are recorded, those of tapes when
    /// they are sealed.
    pub fn drop_barrier(&self, number: u64) {
        self.state().dropped_barriers.insert(number);
    }

    /// Posts that the device was waited for this long, as the watcher of a real device does.
    pub fn stall(&self, waited: Duration) {
        if let Some(mailbox) = &self.state().mailbox {
            mailbox.post(Event::Stalled(waited));
        }
    }

    /// What the device holds, and what it did.
    pub fn counters(&self) -> SimCounters {
        self.state().counters()
    }

    /// Submitted commands that touch the same bytes without a barrier between them. They are numbered in the order of
    /// submission, without barriers and with those of replays.
    pub fn conflicts(&self) -> Vec<Conflict> {
        self.state().checker.conflicts().to_vec()
    }

    /// A range of any page, as it is now.
    pub fn bytes(&self, at: Span) -> Vec<u8> {
        self.state().store.page(at.page).read(at)
    }

    /// A test that failed inside is not to hide behind the tests that follow.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for SimDevice {
    type Compiler = HostCompiler;
    type Resource = Span;

    fn name(&self) -> &'static str {
        "sim"
    }

    fn properties(&self) -> DeviceProperties {
        self.state().options.properties.clone()
    }

    fn target(&self) -> TargetProperties {
        target_properties()
    }

    fn limits(&self) -> Limits {
        self.state().options.limits
    }

    fn compiler(&self) -> Arc<HostCompiler> {
        self.compiler.clone()
    }

    fn start(&mut self, mailbox: Mailbox) {
        self.state().mailbox = Some(mailbox);
    }

    fn allocate_page(&mut self, page: PageId, bytes: u64, kind: PageKind) -> Result<(), DeviceError> {
        self.state().allocate_page(page, bytes, kind)
    }

    fn free_page(&mut self, page: PageId) {
        self.state().free_page(page);
    }

    fn write_page(&mut self, to: Span, bytes: &[u8]) {
        self.state().write_page(to, bytes);
    }

    fn lend(&mut self, at: Span) -> Fill {
        let (control, loan, owner) = (self.control.clone(), self.loan(at), self.state().region(at.page));
        Fill::new(move |bytes| {
            control.state().write_page(at, bytes);
            Bytes::from_pinned(Arc::new(PinnedCopy::new(bytes.to_vec(), loan, owner)))
        })
    }

    fn pinned(&self, at: Span) -> Arc<dyn Pinned> {
        let (bytes, owner) = {
            let state = self.state();
            (state.host_bytes(at), state.region(at.page))
        };
        Arc::new(PinnedCopy::new(bytes, self.loan(at), owner))
    }

    fn adopt(&mut self, page: PageId, region: &Arc<Region>) -> bool {
        self.state().adopt(page, region)
    }

    fn add_pipeline(&mut self, id: PipelineId, pipeline: Program) {
        self.state().add_pipeline(id, pipeline);
    }

    fn record(&mut self, commands: &Commands) -> Result<(), DeviceError> {
        self.state().record(commands)
    }

    fn submit(&mut self, value: TimelineValue) -> Result<(), DeviceError> {
        self.state().submit(value)
    }

    fn reached(&mut self) -> Result<TimelineValue, DeviceError> {
        self.state().reached()
    }

    fn watch(&mut self, value: TimelineValue) {
        self.state().watch(value);
    }

    fn probe(&mut self) -> Result<(), DeviceError> {
        self.state().probe()
    }

    fn timestamp_ns(&mut self, slot: TimestampSlot) -> Option<u64> {
        self.state().timestamp_ns(slot)
    }

    fn moment(&mut self) -> Option<Moment> {
        // Its time passes with its work, and not otherwise.
        None
    }

    fn seal(&mut self, graph: GraphId, tape: &Commands, _like: Option<GraphId>) -> Result<(), DeviceError> {
        self.state().seal(graph, tape)
    }

    fn drop_graph(&mut self, graph: GraphId) {
        self.state().drop_graph(graph);
    }

    fn resource(&self, at: Span) -> Span {
        at
    }
}

impl Server for SimDevice {
    type Device = Self;

    /// A device that runs by itself, in an order that follows from its id.
    fn open(device: DeviceId) -> Result<Self, ComputeError> {
        let seed = u64::from(device.type_id) << 16 | u64::from(device.index_id);
        Ok(Self::new(SimOptions { seed, ..SimOptions::default() }))
    }

    fn into_device(self) -> Self {
        self
    }
}

/// Memory of a simulated device; a slice is named by its range.
#[derive(Debug)]
pub struct SimStorage;

impl ComputeStorage for SimStorage {
    type Resource = Span;
}

impl ServerStorage for SimDevice {
    type Storage = SimStorage;
}

#[cfg(test)]
mod tests;
