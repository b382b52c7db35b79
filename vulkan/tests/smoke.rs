//! The device under commands made by hand, with the validation layer on: it must stay silent.
#![expect(clippy::unwrap_used, reason = "in a test a failure is a panic")]

use std::any::TypeId;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vkactor_actors::bytes::Pinned;
use vkactor_actors::engine::command::{
    Command, Commands, GraphId, Groups, PageId, PipelineId, RowCopy, Span, TimelineValue, TimestampSlot,
};
use vkactor_actors::error::ComputeError;
use vkactor_actors::id::{ActorId, DeviceId, ServiceId};
use vkactor_actors::kernel::{BufferAccess, KernelOptions, KernelSource};
use vkactor_actors::mailbox::{Inbox, mailbox};
use vkactor_actors::message::Event;
use vkactor_actors::port::{Compiler, Device, DeviceError, PageKind};
use vkactor_actors::server::Server;
use vkactor_vulkan::{
    DeviceKind, VULKAN_TYPE, Vulkan, VulkanDevice, VulkanOptions, list, validation_error_count, validation_errors,
};

#[path = "smoke/loops.rs"]
mod loops;
#[path = "smoke/regions.rs"]
mod regions;

/// A liveness guard: no test takes a tenth of it.
const PATIENCE: Duration = Duration::from_secs(30);

const ADD1: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3<u32>) { data[id.x] += 1u; }
";
const ADD: &str = "
struct Amount { value: u32, factor: u32 }
var<immediate> amount: Amount;
@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> target_words: array<u32>;
@compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3<u32>) {
    target_words[id.x] = source[id.x] + amount.value * amount.factor;
}
";
const COUNT: &str = "
@group(0) @binding(0) var<storage, read_write> total: atomic<u32>;
@compute @workgroup_size(1) fn main() { atomicAdd(&total, 1u); }
";

/// A started device, with what tests do to it in one call each.
struct Bench {
    device: VulkanDevice,
    inbox: Inbox,
    commands: Commands,
    value: u64,
    pages: u32,
    pipelines: u32,
}

const IN: PageId = PageId(0);
const DATA: PageId = PageId(1);
const OUT: PageId = PageId(2);
const PAGE_BYTES: u64 = 1 << 16;

fn options() -> VulkanOptions {
    VulkanOptions { validation: true, pipeline_cache: None, ..VulkanOptions::default() }
}

fn sets() -> VulkanOptions {
    VulkanOptions { push_descriptors: false, ..options() }
}

fn at(page: PageId, offset: u64, size: u64) -> Span {
    Span { page, offset, size }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

impl Bench {
    /// The first device, with an upload page, a device page and a readback page.
    fn new(options: &VulkanOptions) -> Self {
        let id = list(options.validation).unwrap()[0].id;
        let mut device = Vulkan::open_with(id, options).unwrap().into_device();
        let (sender, inbox) = mailbox(ServiceId { device: id, service: TypeId::of::<Vulkan>() }, 64);
        device.start(sender);
        let mut bench = Self { device, inbox, commands: Commands::default(), value: 0, pages: 0, pipelines: 0 };
        for kind in [PageKind::Upload, PageKind::Device, PageKind::Readback] {
            bench.page(PAGE_BYTES, kind).unwrap();
        }
        bench
    }

    fn page(&mut self, bytes: u64, kind: PageKind) -> Result<PageId, DeviceError> {
        let page = PageId(self.pages);
        self.device.allocate_page(page, bytes, kind)?;
        self.pages += 1;
        Ok(page)
    }

    fn kernel(&mut self, name: &str, code: &'static str) -> PipelineId {
        self.add_kernel(name, KernelSource::Wgsl { code: code.into(), entry: "main".into() })
    }

    fn add_kernel(&mut self, name: &str, source: KernelSource) -> PipelineId {
        let compiled = self.device.compiler().compile(name, source, &KernelOptions::default()).unwrap();
        let id = PipelineId(self.pipelines);
        self.pipelines += 1;
        self.device.add_pipeline(id, compiled.pipeline);
        id
    }

    fn upload(&mut self, to: Span, bytes: &[u8]) {
        self.device.write_page(at(IN, to.offset, to.size), bytes);
        self.copy(at(IN, to.offset, to.size), to);
        self.barrier();
    }

    fn barrier(&mut self) {
        self.commands.list.push(Command::Barrier);
    }

    fn copy(&mut self, from: Span, to: Span) {
        let bytes = from.size;
        let rows = RowCopy { from, from_pitch: bytes, to, to_pitch: bytes, count: 1, bytes };
        self.commands.list.push(Command::Copy(rows));
    }

    fn submit(&mut self) -> TimelineValue {
        self.device.record(&self.commands).unwrap();
        self.commands.clear();
        self.value += 1;
        self.device.submit(TimelineValue(self.value)).unwrap();
        TimelineValue(self.value)
    }

    fn finish(&mut self) {
        let value = self.submit();
        let started = Instant::now();
        while self.device.reached().unwrap() < value {
            assert!(started.elapsed() < PATIENCE, "{value:?} is never reached");
            std::thread::yield_now();
        }
    }

    /// The bytes of a span of the device page, behind all commands so far.
    fn read(&mut self, from: Span) -> Vec<u8> {
        let to = at(OUT, from.offset, from.size);
        self.barrier();
        self.copy(from, to);
        self.finish();
        self.device.pinned(to).as_slice().to_vec()
    }

    fn read_words(&mut self, offset: u64, count: u64) -> Vec<u32> {
        let bytes = self.read(at(DATA, offset, count * 4));
        bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
    }

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        self.inbox.take(&mut events);
        events
    }

    fn wait_for(&self, what: impl Fn(&Event) -> bool) {
        let started = Instant::now();
        while !self.events().iter().any(&what) {
            assert!(started.elapsed() < PATIENCE, "the event never comes");
            std::thread::yield_now();
        }
    }
}

fn check_silence() {
    assert_eq!(validation_error_count(), 0, "{:#?}", validation_errors());
}

fn run(options: &VulkanOptions, test: impl FnOnce(&mut Bench)) {
    let mut bench = Bench::new(options);
    test(&mut bench);
    drop(bench);
    check_silence();
}

#[test]
fn devices_are_listed_with_ids_of_their_own() {
    let devices = list(true).unwrap();
    assert!(!devices.is_empty());
    for (place, device) in devices.iter().enumerate() {
        assert_eq!(device.id, DeviceId::new(VULKAN_TYPE, place as u16));
        assert!(!device.name.is_empty() && !device.driver.is_empty() && device.memory > 0);
    }
    let first_cpu = devices.iter().position(|d| d.kind == DeviceKind::Cpu).unwrap_or(devices.len());
    assert!(devices[first_cpu..].iter().all(|d| d.kind == DeviceKind::Cpu));
    let unknown = DeviceId::new(VULKAN_TYPE, 999);
    assert!(matches!(Vulkan::open(unknown), Err(ComputeError::UnknownDevice(id)) if id == unknown));
    assert!(matches!(Vulkan::open(DeviceId::new(77, 0)), Err(ComputeError::UnknownDevice(_))));
}

/// Set in a process of a test that has no driver.
const NO_DRIVER: &str = "VKACTOR_SMOKE_NO_DRIVER";

#[test]
fn without_a_driver_the_error_says_what_to_install() {
    if std::env::var_os(NO_DRIVER).is_some() {
        for _ in 0..2 {
            let Err(ComputeError::NoDevice(reason)) = list(false) else { panic!("a device without a driver") };
            assert!(reason.contains("mesa-vulkan-drivers"), "{reason}");
        }
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "without_a_driver_the_error_says_what_to_install"])
        .envs([(NO_DRIVER, "1"), ("VK_DRIVER_FILES", "/nowhere"), ("VK_ICD_FILENAMES", "/nowhere")])
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
}

#[test]
fn a_device_opens_and_goes_many_times() {
    for _ in 0..3 {
        run(&options(), |bench| {
            let properties = bench.device.properties();
            assert!(properties.memory.alignment.is_power_of_two());
            assert!(properties.memory.max_page_size >= 1 << 27);
            assert!(properties.hardware.max_bindings >= 4 && properties.hardware.max_info_size >= 128);
            assert_eq!(bench.device.name(), "vulkan");
        });
    }
}

#[test]
fn pages_of_all_kinds_come_and_go() {
    run(&options(), |bench| {
        for kind in [PageKind::Device, PageKind::Upload, PageKind::Readback] {
            for bytes in [1, 3, 4096, 1 << 20] {
                let page = bench.page(bytes, kind).unwrap();
                assert_eq!(bench.device.resource(at(page, 0, bytes)).size, bytes);
                bench.device.free_page(page);
            }
        }
        assert_eq!(bench.page(1 << 60, PageKind::Device), Err(DeviceError::OutOfMemory));
        assert!(bench.page(64, PageKind::Device).is_ok(), "a refusal leaves all as it was");
    });
}

fn round_trip(options: &VulkanOptions) {
    run(options, |bench| {
        let add1 = bench.kernel("add1", ADD1);
        let add = bench.kernel("add", ADD);
        bench.upload(at(DATA, 0, 256), &words(&[5; 64]));
        bench.commands.dispatch(add1, &[at(DATA, 0, 256)], &[], Groups::Direct([64, 1, 1]));
        bench.barrier();
        bench.commands.dispatch(add1, &[at(DATA, 0, 256)], &[], Groups::Direct([32, 1, 1]));
        bench.barrier();
        let both = [at(DATA, 0, 256), at(DATA, 1024, 256)];
        bench.commands.dispatch(add, &both, &words(&[10, 3]), Groups::Direct([64, 1, 1]));
        let mut expected = vec![37; 32];
        expected.extend([36; 32]);
        assert_eq!(bench.read_words(1024, 64), expected);
    });
}

#[test]
fn bytes_go_up_through_kernels_and_back() {
    round_trip(&options());
}

#[test]
fn descriptor_sets_do_what_pushed_descriptors_do() {
    round_trip(&sets());
    run(&sets(), |bench| {
        let add1 = bench.kernel("add1", ADD1);
        bench.upload(at(DATA, 0, 4), &words(&[0]));
        for _ in 0..10 {
            for _ in 0..300 {
                bench.commands.dispatch(add1, &[at(DATA, 0, 4)], &[], Groups::Direct([1, 1, 1]));
                bench.barrier();
            }
            bench.submit();
        }
        assert_eq!(bench.read_words(0, 1), [3000]);
    });
}

#[test]
fn a_barrier_orders_submissions_too() {
    run(&options(), |bench| {
        let add1 = bench.kernel("add1", ADD1);
        bench.upload(at(DATA, 0, 4), &words(&[0]));
        for launch in 0..2000 {
            bench.commands.dispatch(add1, &[at(DATA, 0, 4)], &[], Groups::Direct([1, 1, 1]));
            bench.barrier();
            if launch % 7 == 0 {
                bench.submit();
            }
        }
        assert_eq!(bench.read_words(0, 1), [2000]);
    });
}

fn indirect(options: &VulkanOptions) {
    run(options, |bench| {
        let count = bench.kernel("count", COUNT);
        let (x, y, z) = bench.device.properties().hardware.max_cube_count;
        let mut cases = vec![([3, 1, 1], 3), ([2, 3, 4], 24), ([0, 1, 1], 0), ([1, 0, 1], 0)];
        // Where every number is within the limit there is nothing to refuse.
        cases.extend([x, y, z].into_iter().enumerate().filter(|(_, limit)| *limit < u32::MAX).map(|(axis, limit)| {
            let mut counts = [1; 3];
            counts[axis] = limit + 1;
            (counts, 0)
        }));
        cases.push(([1, u32::MAX, 1], if y == u32::MAX { u32::MAX } else { 0 }));
        cases.retain(|(_, runs)| *runs < 100);
        for (counts, runs) in cases {
            // An offset that is no multiple of any device's alignment.
            bench.upload(at(DATA, 2052, 12), &words(&counts));
            bench.upload(at(DATA, 0, 4), &words(&[100]));
            bench.commands.dispatch(count, &[at(DATA, 0, 4)], &[], Groups::Indirect(at(DATA, 2052, 12)));
            assert_eq!(bench.read_words(0, 1), [100 + runs], "{counts:?}");
            assert_eq!(bench.read_words(2052, 3), counts, "the counts themselves stay");
        }
    });
}

#[test]
fn counts_on_the_device_run_or_do_nothing() {
    indirect(&options());
    indirect(&sets());
}

#[test]
fn no_groups_are_no_work() {
    run(&options(), |bench| {
        let add1 = bench.kernel("add1", ADD1);
        bench.upload(at(DATA, 0, 4), &words(&[4]));
        for groups in [[0, 1, 1], [1, 0, 1], [1, 1, 0], [1, 1, 1]] {
            bench.commands.dispatch(add1, &[at(DATA, 0, 4)], &[], Groups::Direct(groups));
            bench.barrier();
        }
        assert_eq!(bench.read_words(0, 1), [5]);
    });
}

#[test]
fn an_empty_binding_is_a_binding() {
    run(&options(), |bench| {
        if !bench.device.limits().empty_bindings {
            return;
        }
        let add = bench.kernel("add", ADD);
        let both = [at(DATA, 0, 0), at(DATA, 64, 4)];
        bench.commands.dispatch(add, &both, &words(&[1, 1]), Groups::Direct([1, 1, 1]));
        assert_eq!(bench.read_words(64, 1).len(), 1);
    });
}

#[test]
fn buffers_go_in_by_their_address() {
    run(&options(), |bench| {
        if bench.device.resource(at(DATA, 0, 4)).address.is_none() {
            return;
        }
        let code = include_bytes!("by_address.spv");
        let words_of_code: Vec<u32> = code.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
        let source = KernelSource::Spirv { words: words_of_code.into(), entry: "main".into() };
        let accesses = vec![BufferAccess::Read, BufferAccess::Write];
        let options = KernelOptions { addresses: Some(accesses.clone()), ..KernelOptions::default() };
        let compiled = bench.device.compiler().compile("by address", source, &options).unwrap();
        assert_eq!(compiled.reflection.buffers, Some(accesses));
        assert_eq!(compiled.reflection.info_bytes, Some(4));
        bench.device.add_pipeline(PipelineId(0), compiled.pipeline);
        bench.upload(at(DATA, 0, 12), &words(&[1, 2, 3]));
        // Addresses keep to no alignment but that of the words.
        let both = [at(DATA, 4, 8), at(DATA, 1028, 8)];
        bench.commands.dispatch(PipelineId(0), &both, &words(&[40]), Groups::Direct([2, 1, 1]));
        assert_eq!(bench.read_words(1028, 2), [42, 43]);
    });
}

#[test]
fn timestamps_rise() {
    run(&options(), |bench| {
        let add1 = bench.kernel("add1", ADD1);
        for (start, end) in [(0, 1), (255, 256), (700, 3)] {
            bench.commands.list.push(Command::Timestamp(TimestampSlot(start)));
            bench.barrier();
            bench.commands.dispatch(add1, &[at(DATA, 0, 4)], &[], Groups::Direct([1, 1, 1]));
            bench.barrier();
            bench.commands.list.push(Command::Timestamp(TimestampSlot(end)));
            bench.finish();
            let times = [start, end].map(|slot| bench.device.timestamp_ns(TimestampSlot(slot)));
            let [Some(start), Some(end)] = times else {
                assert_eq!(bench.device.properties().timing_method, vkactor_actors::profile::TimingMethod::System);
                return;
            };
            assert!(start <= end && end - start < PATIENCE.as_nanos() as u64, "{start} {end}");
        }
    });
}

#[test]
fn the_clock_that_the_host_reads_is_that_of_timestamps() {
    run(&options(), |bench| {
        let before = bench.device.moment();
        bench.commands.list.push(Command::Timestamp(TimestampSlot(0)));
        bench.finish();
        let time = bench.device.timestamp_ns(TimestampSlot(0));
        // A device without the extension has neither moment.
        let (Some(before), Some(time), Some(after)) = (before, time, bench.device.moment()) else { return };
        assert!(before.device_ns <= time && time <= after.device_ns, "{before:?}, {time}, {after:?}");
        let (device, host) = (after.device_ns - before.device_ns, after.host - before.host);
        // Clocks drift by less than a part in a thousand, and a tick of the device may be as long as a microsecond.
        let apart = before.error + after.error + host / 1000 + Duration::from_micros(2);
        assert!(u128::from(device).abs_diff(host.as_nanos()) <= apart.as_nanos(), "{before:?}, {after:?}");
    });
}

fn graphs(options: &VulkanOptions) {
    run(options, |bench| {
        let (add1, count) = (bench.kernel("add1", ADD1), bench.kernel("count", COUNT));
        let mut tape = Commands::default();
        for _ in 0..10 {
            tape.dispatch(add1, &[at(DATA, 0, 4)], &[], Groups::Direct([1, 1, 1]));
            tape.list.push(Command::Barrier);
        }
        tape.dispatch(count, &[at(DATA, 64, 4)], &[], Groups::Indirect(at(DATA, 128, 12)));
        let out = at(OUT, 512, 4);
        tape.list.push(Command::Barrier);
        tape.list.push(Command::Copy(RowCopy {
            from: at(DATA, 0, 4),
            from_pitch: 4,
            to: out,
            to_pitch: 4,
            count: 1,
            bytes: 4,
        }));
        bench.device.seal(GraphId(7), &tape, None).unwrap();
        bench.upload(at(DATA, 0, 4), &words(&[0]));
        bench.upload(at(DATA, 64, 4), &words(&[0]));
        bench.upload(at(DATA, 128, 12), &words(&[2, 1, 1]));
        for _ in 0..5 {
            bench.commands.list.push(Command::Replay(GraphId(7)));
            bench.barrier();
        }
        bench.finish();
        assert_eq!(bench.device.pinned(out).as_slice(), words(&[50]));
        bench.commands.list.push(Command::Replay(GraphId(7)));
        bench.finish();
        assert_eq!(bench.device.pinned(out).as_slice(), words(&[60]), "a replay alone shows the host its bytes");
        // Dynamic counts stay dynamic.
        bench.upload(at(DATA, 128, 12), &words(&[5, 1, 1]));
        bench.commands.list.push(Command::Replay(GraphId(7)));
        bench.barrier();
        bench.commands.dispatch(add1, &[at(DATA, 0, 4)], &[], Groups::Direct([1, 1, 1]));
        assert_eq!(bench.read_words(0, 1), [71]);
        assert_eq!(bench.read_words(64, 1), [17]);
        // A barrier that ends a submission orders the next one.
        bench.commands.dispatch(add1, &[at(DATA, 0, 4)], &[], Groups::Direct([1, 1, 1]));
        bench.barrier();
        bench.submit();
        bench.commands.list.push(Command::Replay(GraphId(7)));
        bench.barrier();
        bench.barrier();
        bench.submit();
        assert_eq!(bench.read_words(0, 1), [82]);
        bench.device.drop_graph(GraphId(7));
    });
}

#[test]
fn a_graph_replays_what_was_sealed() {
    graphs(&options());
    graphs(&sets());
}

#[test]
fn zero_clears_what_it_names() {
    run(&options(), |bench| {
        bench.upload(at(DATA, 0, 32), &words(&[9; 8]));
        bench.commands.list.push(Command::Zero(at(DATA, 8, 12)));
        bench.commands.list.push(Command::Zero(at(DATA, 0, 0)));
        assert_eq!(bench.read_words(0, 8), [9, 9, 0, 0, 0, 9, 9, 9]);
    });
}

#[test]
fn rows_are_copied_from_one_pitch_to_another() {
    run(&options(), |bench| {
        let bytes: Vec<u8> = (0..=255).cycle().take(9000).collect();
        bench.upload(at(DATA, 0, 9000), &bytes);
        // 3,000 rows of one byte each: more than one copy command.
        bench.commands.list.push(Command::Copy(RowCopy {
            from: at(DATA, 1, 8998),
            from_pitch: 3,
            to: at(DATA, 20_000, 3000),
            to_pitch: 1,
            count: 3000,
            bytes: 1,
        }));
        let expected: Vec<u8> = bytes.iter().copied().skip(1).step_by(3).collect();
        assert_eq!(bench.read(at(DATA, 20_000, 3000)), expected);
        bench.commands.list.push(Command::Zero(at(DATA, 40_000, 100)));
        bench.barrier();
        bench.commands.list.push(Command::Copy(RowCopy {
            from: at(DATA, 0, 15),
            from_pitch: 5,
            to: at(DATA, 40_000, 21),
            to_pitch: 8,
            count: 3,
            bytes: 5,
        }));
        let read = bench.read(at(DATA, 40_000, 24));
        assert_eq!(read, [0, 1, 2, 3, 4, 0, 0, 0, 5, 6, 7, 8, 9, 0, 0, 0, 10, 11, 12, 13, 14, 0, 0, 0]);
    });
}

#[test]
fn the_watcher_tells_of_progress() {
    run(&options(), |bench| {
        for _ in 0..5 {
            let value = bench.submit();
            bench.device.watch(value);
            bench.wait_for(|event| matches!(event, Event::Progress(reached) if *reached >= value));
        }
        bench.device.probe().unwrap();
        bench.device.watch(TimelineValue(1));
        bench.wait_for(|event| matches!(event, Event::Progress(_)));
    });
}

#[test]
fn shown_bytes_outlive_the_page_and_the_device() {
    let mut bench = Bench::new(&options());
    let shown = at(IN, 100, 4);
    bench.device.write_page(shown, b"abcd");
    let pinned = bench.device.pinned(shown);
    let actor = bench.inbox.mailbox().actor();
    assert_eq!(pinned.place(actor), Some(shown));
    assert_eq!(pinned.place(ActorId::fresh()), None);
    let second: Arc<dyn Pinned> = bench.device.pinned(at(IN, 102, 1));
    bench.device.free_page(IN);
    drop(second);
    bench.wait_for(|event| matches!(event, Event::PinnedDropped(Span { offset: 102, .. })));
    drop(bench);
    assert_eq!(pinned.as_slice(), b"abcd");
    drop(pinned);
    check_silence();
}

#[test]
fn several_threads_compile_at_once() {
    run(&options(), |bench| {
        let compiler = bench.device.compiler();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let source = KernelSource::Wgsl { code: ADD.into(), entry: "main".into() };
                    let compiled = compiler.compile("add", source, &KernelOptions::default()).unwrap();
                    assert_eq!(compiled.reflection.info_bytes, Some(8));
                    assert_eq!(compiled.reflection.buffers.map(|b| b.len()), Some(2));
                });
            }
        });
        let bad = KernelSource::Wgsl { code: "not a shader".into(), entry: "main".into() };
        assert!(compiler.compile("bad", bad, &KernelOptions::default()).is_err());
    });
}

#[test]
fn pipelines_are_kept_between_runs_and_bad_files_are_not_believed() {
    let directory: PathBuf = std::env::temp_dir().join(format!("vkactor-smoke-{}", std::process::id()));
    let options = VulkanOptions { pipeline_cache: Some(directory.clone()), ..options() };
    let once = || {
        run(&options, |bench| {
            let add1 = bench.kernel("add1", ADD1);
            bench.upload(at(DATA, 0, 4), &words(&[1]));
            bench.commands.dispatch(add1, &[at(DATA, 0, 4)], &[], Groups::Direct([1, 1, 1]));
            assert_eq!(bench.read_words(0, 1), [2]);
        });
    };
    once();
    let file = std::fs::read_dir(&directory).unwrap().next().unwrap().unwrap().path();
    let good = std::fs::read(&file).unwrap();
    for damaged in [&good[..good.len() / 2], &[], &vec![0xff; good.len()]] {
        std::fs::write(&file, damaged).unwrap();
        once();
        assert_eq!(std::fs::read(&file).unwrap().len(), good.len(), "the file is made anew");
    }
    once();
    std::fs::remove_dir_all(&directory).unwrap();
    // A file where the directory should be: nothing is kept, and everything works.
    std::fs::write(&directory, b"in the way").unwrap();
    once();
    std::fs::remove_file(&directory).unwrap();
}
