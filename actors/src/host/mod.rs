//! A device made of host memory: the second runtime, and the one that is always there.

#![forbid(unsafe_code)]

mod program;
mod store;
mod worker;

use crate::bytes::{Bytes, Pinned};
use crate::engine::command::{Commands, GraphId, PageId, PipelineId, TimelineValue, TimestampSlot};
use crate::error::ComputeError;
use crate::id::{ActorId, DeviceId};
use crate::mailbox::Mailbox;
use crate::port::{Device, DeviceError, Fill, Limits, Loan, Moment, PageKind, Span};
use crate::profile::TimingMethod;
use crate::properties::{
    DeviceProperties, ElemType, Features, GraphKind, HardwareProperties, MemoryDeviceProperties, TargetProperties,
};
use crate::region::{Region, RegionOwner, RegionSpan};
use crate::server::{ComputeStorage, Server, ServerStorage};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use store::PAGE_ALIGNMENT;
use worker::{Job, Progress, Worker};

pub use program::{HostCompiler, Program};
#[cfg(any(test, feature = "sim"))]
pub(crate) use store::{Block, check_rows, overlap};
pub(crate) use store::{Page, Store};
#[cfg(any(test, feature = "sim"))]
pub(crate) use worker::Watch;

/// A device made of host memory, whose kernels are Rust closures. Every value is a device of its own.
///
/// # Ordering
/// Launches run one at a time, in the order in which they reach the device, on a thread of the device: a closure
/// that takes long holds up the launches behind it and nothing else.
#[derive(Debug, Default)]
pub struct Host {}

impl Host {
    /// A device that has no memory yet.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Server for Host {
    type Device = HostDevice;

    /// Every id names a device: there is as much of them as of host memory.
    fn open(_: DeviceId) -> Result<Self, ComputeError> {
        Ok(Self::new())
    }

    fn into_device(self) -> HostDevice {
        HostDevice::new(total_memory())
    }
}

impl ServerStorage for Host {
    type Storage = HostStorage;
}

/// Pages of host memory.
#[derive(Debug)]
pub struct HostStorage;

impl ComputeStorage for HostStorage {
    type Resource = HostResource;
}

/// A slice of host memory. Its bytes are reached by kernels, reads and writes only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostResource {
    /// Bytes of the slice.
    pub size: u64,
}

/// The device of [`Host`].
#[derive(Debug)]
pub struct HostDevice {
    memory_bytes: u64,
    pages: Store,
    /// Bytes of all pages.
    live_bytes: u64,
    recorded: Vec<Commands>,
    jobs: Sender<Job>,
    /// Until the worker has it.
    unread: Option<Receiver<Job>>,
    /// From the start on.
    progress: Option<Arc<Progress>>,
    compiler: Arc<HostCompiler>,
}

impl HostDevice {
    fn new(memory_bytes: u64) -> Self {
        let (jobs, unread) = channel();
        Self {
            memory_bytes,
            pages: Store::default(),
            live_bytes: 0,
            recorded: Vec::new(),
            jobs,
            unread: Some(unread),
            progress: None,
            compiler: Arc::default(),
        }
    }

    fn progress(&self) -> &Arc<Progress> {
        let Some(progress) = &self.progress else { unreachable!("a device is used before its start") };
        progress
    }

    /// The worker is there as long as it is not lost, which is told by [`Device::reached`] and by an event: a job
    /// that it cannot take needs no answer of its own.
    fn post(&self, job: Job) {
        let _lost = self.jobs.send(job);
    }

    fn alive(&self) -> Result<(), DeviceError> {
        self.progress().reached().map(drop)
    }
}

impl Device for HostDevice {
    type Compiler = HostCompiler;
    type Resource = HostResource;

    fn name(&self) -> &'static str {
        "host"
    }

    fn properties(&self) -> DeviceProperties {
        device_properties(self.memory_bytes)
    }

    fn target(&self) -> TargetProperties {
        target_properties()
    }

    fn limits(&self) -> Limits {
        Limits {
            binding_bytes: max_page_bytes(self.memory_bytes),
            length_bytes: u64::MAX,
            empty_bindings: true,
            aliased_bindings: false,
            late_failures: true,
        }
    }

    fn compiler(&self) -> Arc<HostCompiler> {
        self.compiler.clone()
    }

    fn start(&mut self, mailbox: Mailbox) {
        let progress = Arc::new(Progress::new(mailbox));
        let Some(jobs) = self.unread.take() else { unreachable!("a device is started twice") };
        let worker = Worker::new(progress.clone());
        // It ends by itself when the device is dropped, and is not waited for: a closure may take any time.
        let thread = std::thread::Builder::new().name("vkactor-host".into());
        if let Err(error) = thread.spawn(move || worker.run(&jobs)) {
            progress.lose(format!("no thread for the device: {error}"));
        }
        self.progress = Some(progress);
    }

    fn allocate_page(&mut self, page: PageId, bytes: u64, _: PageKind) -> Result<(), DeviceError> {
        // The system would promise more than it has, and end the process when the promise is called in.
        let live = self.live_bytes.checked_add(bytes).filter(|live| *live <= self.memory_bytes);
        let (Some(live), Some(memory)) = (live, Page::zeroed(bytes)) else { return Err(DeviceError::OutOfMemory) };
        self.live_bytes = live;
        self.pages.insert(page, memory.clone());
        self.post(Job::AddPage(page, memory));
        Ok(())
    }

    fn free_page(&mut self, page: PageId) {
        self.live_bytes -= self.pages.remove(page).bytes();
        self.post(Job::FreePage(page));
    }

    fn write_page(&mut self, to: Span, bytes: &[u8]) {
        self.pages.page(to.page).write(to, bytes);
    }

    fn lend(&mut self, at: Span) -> Fill {
        let page = self.pages.page(at.page).clone();
        let loan = Loan::new(at, self.progress().mailbox().clone());
        Fill::new(move |bytes| {
            page.write(at, bytes);
            Bytes::from_pinned(Arc::new(PinnedCopy::new(bytes.to_vec(), loan, None)))
        })
    }

    fn pinned(&self, at: Span) -> Arc<dyn Pinned> {
        let bytes = self.pages.page(at.page).read(at);
        Arc::new(PinnedCopy::new(bytes, Loan::new(at, self.progress().mailbox().clone()), None))
    }

    /// The device is the host: bytes of others lie in its own memory as it is, and are copied from there.
    fn adopt(&mut self, _: PageId, _: &Arc<Region>) -> bool {
        false
    }

    fn add_pipeline(&mut self, id: PipelineId, pipeline: Program) {
        self.post(Job::AddProgram(id, pipeline));
    }

    fn record(&mut self, commands: &Commands) -> Result<(), DeviceError> {
        self.alive()?;
        self.recorded.push(commands.clone());
        Ok(())
    }

    fn submit(&mut self, value: TimelineValue) -> Result<(), DeviceError> {
        self.alive()?;
        let batches = std::mem::take(&mut self.recorded);
        self.post(Job::Submit { batches, value });
        Ok(())
    }

    fn reached(&mut self) -> Result<TimelineValue, DeviceError> {
        self.progress().reached()
    }

    fn watch(&mut self, value: TimelineValue) {
        self.progress().watch(value);
    }

    fn probe(&mut self) -> Result<(), DeviceError> {
        self.alive()
    }

    fn timestamp_ns(&mut self, slot: TimestampSlot) -> Option<u64> {
        self.progress().time_ns(slot)
    }

    fn moment(&mut self) -> Option<Moment> {
        Some(self.progress().moment())
    }

    fn seal(&mut self, graph: GraphId, tape: &Commands, _like: Option<GraphId>) -> Result<(), DeviceError> {
        self.alive()?;
        self.post(Job::Seal(graph, tape.clone()));
        Ok(())
    }

    fn drop_graph(&mut self, graph: GraphId) {
        self.post(Job::DropGraph(graph));
    }

    fn resource(&self, at: Span) -> HostResource {
        HostResource { size: at.size }
    }
}

/// Bytes of a host page, copied out: a borrow of the page itself would have to hold its lock.
pub(crate) struct PinnedCopy {
    bytes: Vec<u8>,
    loan: Loan,
    /// The page as others may take it in.
    owner: Option<Arc<RegionOwner>>,
}

impl PinnedCopy {
    pub(crate) fn new(bytes: Vec<u8>, loan: Loan, owner: Option<Arc<RegionOwner>>) -> Self {
        Self { bytes, loan, owner }
    }
}

impl Pinned for PinnedCopy {
    fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// The page keeps these bytes until the drop is told, so a device copy from there is as good.
    fn place(&self, actor: ActorId) -> Option<Span> {
        self.loan.place(actor)
    }

    fn region(&self) -> Option<RegionSpan> {
        let owner = self.owner.as_ref()?;
        Some(RegionSpan { region: owner.region().clone(), offset: self.loan.span().offset })
    }
}

/// Memory where the system does not say how much there is.
const MEMORY_BYTES_UNKNOWN: u64 = 4 << 30;
/// Parameters of a launch. Closures set no limit; messages are kept small.
const INFO_BYTES_MAX: usize = 64 << 10;
/// Buffers of a launch, likewise.
const BINDINGS_MAX: u32 = 1024;

/// Bytes of memory in this machine.
fn total_memory() -> u64 {
    let table = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    memory_of(&table).unwrap_or(MEMORY_BYTES_UNKNOWN)
}

/// The total in the kernel's table, which counts in KiB.
fn memory_of(table: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1 << 10).filter(|bytes| *bytes > 0)
}

/// Half of all: one buffer never leaves the rest of the machine without memory.
fn max_page_bytes(memory_bytes: u64) -> u64 {
    (memory_bytes / 2).next_multiple_of(PAGE_ALIGNMENT).min(memory_bytes)
}

/// The properties of a device with this much memory.
pub(crate) fn device_properties(memory_bytes: u64) -> DeviceProperties {
    DeviceProperties {
        features: Features {
            types: types(),
            atomic_float: false,
            subgroups: false,
            matrix: Vec::new(),
            device_transport: false,
            host_import: false,
            graph: GraphKind::Software,
        },
        memory: MemoryDeviceProperties {
            max_page_size: max_page_bytes(memory_bytes),
            alignment: PAGE_ALIGNMENT,
            total: memory_bytes,
        },
        // A closure is called once a launch: one unit that is told how many cubes were asked for.
        hardware: HardwareProperties {
            plane_size_min: 1,
            plane_size_max: 1,
            max_bindings: BINDINGS_MAX,
            max_shared_memory_size: 0,
            max_cube_count: (u32::MAX, u32::MAX, u32::MAX),
            max_units_per_cube: 1,
            max_cube_dim: (1, 1, 1),
            load_width: u128::BITS,
            max_info_size: INFO_BYTES_MAX,
            queues: 1,
        },
        timing_method: TimingMethod::System,
    }
}

/// What closures may rely on. They are Rust: no SPIR-V, all types, and slices know their bounds.
pub(crate) fn target_properties() -> TargetProperties {
    TargetProperties { spirv: (0, 0), subgroup_size: 1, bounds_check: true, types: types() }
}

fn types() -> BTreeSet<ElemType> {
    use ElemType::{BF16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    [F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, Bool].into()
}

#[cfg(test)]
mod tests;
