//! The device alone, driven as its actor would.

use super::*;
use crate::engine::command::{Command, Groups, RowCopy, Run};
use crate::id::ServiceId;
use crate::kernel::{BufferAccess, CubeKernel, HostKernel, KernelOptions};
use crate::mailbox::{Inbox, mailbox};
use crate::message::Event;
use crate::port::Compiler;
use std::any::TypeId;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A liveness guard.
const LIMIT: Duration = Duration::from_secs(20);
const ONE: Groups = Groups::Direct([1; 3]);

/// A device that was started, and its mailbox.
struct Rig {
    device: HostDevice,
    inbox: Inbox,
    commands: Commands,
    submitted: TimelineValue,
    pipelines: u32,
}

impl Rig {
    fn new() -> Self {
        let service = ServiceId { device: DeviceId::new(0, 0), service: TypeId::of::<Host>() };
        let (mailbox, inbox) = mailbox(service, 8);
        let mut device = HostDevice::new(1 << 20);
        device.start(mailbox);
        Self { device, inbox, commands: Commands::default(), submitted: TimelineValue(0), pipelines: 0 }
    }

    /// Pages of 256 bytes: 0 for the device, 1 to upload, 2 to read back.
    fn with_pages() -> Self {
        let mut rig = Self::new();
        for (id, kind) in [PageKind::Device, PageKind::Upload, PageKind::Readback].into_iter().enumerate() {
            rig.device.allocate_page(PageId(id as u32), 256, kind).unwrap();
        }
        rig
    }

    fn kernel(&mut self, f: impl Fn([u32; 3], &mut [&mut [u8]], &[u8]) + Send + Sync + 'static) -> PipelineId {
        let id = PipelineId(self.pipelines);
        self.pipelines += 1;
        let source = HostKernel::new("k", f).source(&self.device.target()).unwrap();
        let compiled = self.device.compiler().compile("k", source, &KernelOptions::default()).unwrap();
        self.device.add_pipeline(id, compiled.pipeline);
        id
    }

    fn submit(&mut self) -> TimelineValue {
        self.device.record(&self.commands).unwrap();
        self.commands.clear();
        self.submitted.0 += 1;
        self.device.submit(self.submitted).unwrap();
        self.submitted
    }

    fn wait(&mut self) {
        let start = Instant::now();
        while self.device.reached().unwrap() < self.submitted {
            assert!(start.elapsed() < LIMIT, "the device does not come to an end");
            std::thread::yield_now();
        }
    }

    /// Waits for an event, and takes all.
    fn events(&self) -> Vec<Event> {
        let start = Instant::now();
        while self.inbox.is_empty() {
            assert!(start.elapsed() < LIMIT, "no event comes");
            std::thread::yield_now();
        }
        let mut events = Vec::new();
        self.inbox.take(&mut events);
        events
    }

    fn read(&mut self, at: Span) -> Vec<u8> {
        let to = span(2, 0, at.size);
        self.commands.list.push(Command::Copy(row(at, to)));
        self.submit();
        self.wait();
        self.device.pinned(to).as_slice().to_vec()
    }
}

fn span(page: u32, offset: u64, size: u64) -> Span {
    Span { page: PageId(page), offset, size }
}

fn row(from: Span, to: Span) -> RowCopy {
    RowCopy { from, from_pitch: from.size, to, to_pitch: to.size, count: 1, bytes: from.size }
}

fn add(amount: u8) -> impl Fn([u32; 3], &mut [&mut [u8]], &[u8]) + Send + Sync + 'static {
    move |_, buffers, _| buffers[0].iter_mut().for_each(|byte| *byte = byte.wrapping_mul(2).wrapping_add(amount))
}

#[test]
fn bytes_go_up_through_kernels_and_back_in_order() {
    let mut rig = Rig::with_pages();
    let (three, five) = (rig.kernel(add(3)), rig.kernel(add(5)));
    let target = span(0, 64, 4);
    rig.device.write_page(span(1, 8, 4), &[1, 2, 3, 4]);
    rig.commands.list.push(Command::Copy(row(span(1, 8, 4), target)));
    rig.commands.dispatch(three, &[target], &[], ONE);
    rig.submit();
    rig.commands.dispatch(five, &[target], &[], ONE);
    rig.commands.list.push(Command::Zero(span(0, 64, 0)));
    assert_eq!(rig.read(target), [1, 2, 3, 4].map(|b| (b * 2 + 3) * 2 + 5));
    assert_eq!(rig.read(span(0, 60, 4)), [0; 4], "nothing beside the buffer is touched");
}

#[test]
fn a_kernel_that_blocks_blocks_neither_submissions_nor_pages() {
    let mut rig = Rig::with_pages();
    let (open, gate) = channel::<()>();
    let gate = Mutex::new(gate);
    let gate = rig.kernel(move |_, _, _| gate.lock().unwrap().recv().unwrap());
    rig.commands.dispatch(gate, &[span(0, 0, 64)], &[], ONE);
    rig.submit();
    let five = rig.kernel(add(5));
    rig.device.write_page(span(1, 0, 1), &[4]);
    rig.commands.list.push(Command::Copy(row(span(1, 0, 1), span(0, 0, 1))));
    rig.commands.dispatch(five, &[span(0, 0, 1)], &[], ONE);
    let second = rig.submit();
    rig.device.watch(second);
    rig.device.allocate_page(PageId(9), 64, PageKind::Device).unwrap();
    rig.device.free_page(PageId(9));
    assert_eq!(rig.device.reached(), Ok(TimelineValue(0)));
    assert!(rig.inbox.is_empty());
    open.send(()).unwrap();
    assert!(matches!(rig.events()[..], [Event::Progress(value)] if value == second));
    assert_eq!(rig.read(span(0, 0, 1)), [13]);
}

#[test]
fn watching_posts_progress_once_also_for_values_that_are_reached() {
    let mut rig = Rig::with_pages();
    let value = rig.submit();
    rig.wait();
    rig.device.watch(value);
    assert!(matches!(rig.events()[..], [Event::Progress(at)] if at == value));
    rig.submit();
    rig.wait();
    assert!(rig.inbox.is_empty(), "nobody watches the second value");
}

#[test]
fn a_panic_is_posted_before_progress_and_spoils_nothing_else() {
    let mut rig = Rig::with_pages();
    let (broken, three) = (rig.kernel(|_, _, _| panic!("on purpose")), rig.kernel(add(3)));
    rig.commands.dispatch(three, &[span(0, 0, 1)], &[], ONE);
    rig.commands.dispatch(broken, &[span(0, 64, 1)], &[], ONE);
    rig.commands.dispatch(three, &[span(0, 0, 1)], &[], ONE);
    let value = rig.submit();
    rig.wait();
    let events = rig.events();
    let [Event::Failed { submission, graph: None, dispatch: 1, reason }] = &events[..] else {
        unreachable!("{events:?}")
    };
    assert_eq!((*submission, reason.as_str()), (value, "k panicked: on purpose"));
    assert_eq!(rig.read(span(0, 0, 1)), [9]);
    assert_eq!(rig.device.probe(), Ok(()));
}

#[test]
fn replays_run_the_tape_again_and_name_the_graph_of_a_failure() {
    let mut rig = Rig::with_pages();
    let three = rig.kernel(add(3));
    let broken = rig.kernel(|_, buffers, _| assert!(buffers[0][0] < 9, "too large"));
    let mut tape = Commands::default();
    tape.dispatch(three, &[span(0, 0, 1)], &[], ONE);
    tape.list.push(Command::Barrier);
    tape.dispatch(broken, &[span(0, 0, 1)], &[], ONE);
    rig.device.seal(GraphId(7), &tape, None).unwrap();
    rig.commands.dispatch(three, &[span(0, 64, 1)], &[], ONE);
    rig.commands.list.extend([Command::Replay(GraphId(7)), Command::Replay(GraphId(7))]);
    let value = rig.submit();
    rig.wait();
    let events = rig.events();
    assert!(
        matches!(&events[..], [Event::Failed { submission, graph: Some(GraphId(7)), dispatch: 1, .. }]
            if *submission == value),
        "{events:?}"
    );
    rig.device.drop_graph(GraphId(7));
    assert_eq!(rig.read(span(0, 0, 1)), [9]);
}

#[test]
fn timestamps_rise_and_unused_slots_have_none() {
    let mut rig = Rig::with_pages();
    let slow = rig.kernel(|_, _, _| std::thread::sleep(Duration::from_millis(2)));
    rig.commands.list.push(Command::Timestamp(TimestampSlot(3)));
    rig.commands.dispatch(slow, &[], &[], ONE);
    rig.commands.list.push(Command::Timestamp(TimestampSlot(1)));
    rig.submit();
    rig.wait();
    let (start, end) = (rig.device.timestamp_ns(TimestampSlot(3)), rig.device.timestamp_ns(TimestampSlot(1)));
    assert!(end.unwrap() - start.unwrap() >= 2_000_000);
    assert_eq!(rig.device.timestamp_ns(TimestampSlot(0)), None);
    assert_eq!(rig.device.timestamp_ns(TimestampSlot(9)), None);
    assert_eq!(rig.device.properties().timing_method, TimingMethod::System);
}

#[test]
fn memory_is_limited_and_comes_back() {
    let mut rig = Rig::new();
    let allocate = |rig: &mut Rig, id, bytes| rig.device.allocate_page(PageId(id), bytes, PageKind::Device);
    assert_eq!(allocate(&mut rig, 0, 1 << 20), Ok(()));
    assert_eq!(allocate(&mut rig, 1, 1), Err(DeviceError::OutOfMemory));
    assert_eq!(allocate(&mut rig, 1, u64::MAX), Err(DeviceError::OutOfMemory));
    rig.device.free_page(PageId(0));
    assert_eq!(allocate(&mut rig, 2, 1 << 19), Ok(()));
}

#[test]
fn pinned_bytes_know_their_place_stay_as_they_are_and_tell_their_end() {
    let mut rig = Rig::with_pages();
    let at = span(1, 64, 2);
    rig.device.write_page(at, &[1, 2]);
    let pinned = rig.device.pinned(at);
    rig.device.write_page(at, &[3, 4]);
    assert_eq!(pinned.as_slice(), [1, 2]);
    assert_eq!(pinned.place(rig.inbox.mailbox().actor()), Some(at));
    assert_eq!(pinned.place(ActorId::fresh()), None);
    drop(pinned);
    assert!(matches!(rig.events()[..], [Event::PinnedDropped(range)] if range == at));
    assert_eq!(rig.device.resource(at), HostResource { size: 2 });
}

#[test]
fn a_broken_promise_of_the_caller_loses_the_device() {
    let mut rig = Rig::with_pages();
    let nobody = PipelineId(99);
    let command = Command::Dispatch {
        pipeline: nobody,
        buffers: Run { start: 0, len: 0 },
        info: Run { start: 0, len: 0 },
        groups: ONE,
    };
    rig.commands.list.push(command);
    rig.submit();
    assert!(matches!(&rig.events()[..], [Event::Lost(reason)] if reason.contains("PipelineId(99)")));
    assert!(matches!(rig.device.reached(), Err(DeviceError::Lost(_))));
    assert!(matches!(rig.device.submit(TimelineValue(2)), Err(DeviceError::Lost(_))));
    rig.device.free_page(PageId(0));
}

#[test]
fn the_kernel_s_table_of_memory_is_read() {
    assert_eq!(memory_of("MemFree: 1 kB\nMemTotal:       16384 kB\n"), Some(16 << 20));
    for broken in ["", "MemTotal: 5", "MemTotal: many kB", "MemTotal: 0 kB"] {
        assert_eq!(memory_of(broken), None, "{broken:?}");
    }
    assert!(total_memory() > 0);
    assert!(device_properties(total_memory()).memory.alignment.is_power_of_two());
    assert_eq!(max_page_bytes(1 << 20), 1 << 19);
}

#[test]
fn declared_accesses_reach_the_reflection() {
    let kernel = crate::sim::SimKernel::new("s", vec![BufferAccess::Read], |_, _, _| {});
    let source = kernel.source(&target_properties()).unwrap();
    let compiled = HostCompiler::default().compile("s", source, &kernel.options()).unwrap();
    assert_eq!(compiled.reflection.buffers, Some(vec![BufferAccess::Read]));
}
