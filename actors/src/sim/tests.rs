//! The device alone: what it allows, what it refuses, and what it makes visible.

use super::*;
use crate::engine::command::{Command, Groups, RowCopy};
use crate::id::ServiceId;
use crate::kernel::BufferAccess::{self, Read, ReadWrite, Write};
use crate::kernel::{CubeKernel, HostKernel};
use crate::mailbox::{Inbox, mailbox};
use crate::port::Compiler;
use proptest::prelude::*;
use std::any::TypeId;
use std::collections::HashSet;

const ONE: Groups = Groups::Direct([1; 3]);
/// Seeds that a mistake in the barriers has to show within.
const SEEDS: u64 = 32;

struct Rig {
    device: SimDevice,
    control: SimControl,
    inbox: Inbox,
    commands: Commands,
    submitted: TimelineValue,
    pipelines: u32,
}

impl Rig {
    /// Pages of 256 bytes: 0 for the device, set to zero, 1 to upload, 2 to read back.
    fn new(seed: u64) -> Self {
        let device = SimDevice::new(SimOptions { seed, auto_run: false, ..SimOptions::default() });
        let service = ServiceId { device: DeviceId::new(0, 0), service: TypeId::of::<SimDevice>() };
        let (mailbox, inbox) = mailbox(service, 8);
        let (control, commands) = (device.control(), Commands::default());
        let mut rig = Self { device, control, inbox, commands, submitted: TimelineValue(0), pipelines: 0 };
        rig.device.start(mailbox);
        for (id, kind) in [PageKind::Device, PageKind::Upload, PageKind::Readback].into_iter().enumerate() {
            rig.device.allocate_page(PageId(id as u32), 256, kind).unwrap();
        }
        rig.commands.list.push(Command::Zero(span(0, 0, 256)));
        rig.barrier();
        rig.submit();
        rig.control.run();
        rig
    }

    fn kernel(
        &mut self,
        accesses: &[BufferAccess],
        f: impl Fn([u32; 3], &mut [&mut [u8]], &[u8]) + Send + Sync + 'static,
    ) -> PipelineId {
        let id = PipelineId(self.pipelines);
        self.pipelines += 1;
        let kernel = SimKernel::new("k", accesses.to_vec(), f);
        let source = kernel.source(&self.device.target()).unwrap();
        let compiled = self.device.compiler().compile(kernel.name(), source, &kernel.options()).unwrap();
        self.device.add_pipeline(id, compiled.pipeline);
        id
    }

    /// Writes its parameter to the one byte of its buffer.
    fn set(&mut self) -> PipelineId {
        self.kernel(&[Write], |_, buffers, info| buffers[0][0] = info[0])
    }

    /// Adds one to each byte.
    fn add1(&mut self) -> PipelineId {
        self.kernel(&[ReadWrite], |_, buffers, _| buffers[0].iter_mut().for_each(|byte| *byte += 1))
    }

    /// The second buffer becomes the first, plus one.
    fn follow(&mut self) -> PipelineId {
        self.kernel(&[Read, Write], |_, buffers, _| buffers[1][0] = buffers[0][0] + 1)
    }

    fn dispatch(&mut self, kernel: PipelineId, buffers: &[Span], info: &[u8]) {
        self.commands.dispatch(kernel, buffers, info, ONE);
    }

    fn barrier(&mut self) {
        self.commands.list.push(Command::Barrier);
    }

    fn submit(&mut self) -> TimelineValue {
        self.device.record(&self.commands).unwrap();
        self.commands.clear();
        self.submitted.0 += 1;
        self.device.submit(self.submitted).unwrap();
        self.submitted
    }

    fn byte(&self, offset: u64) -> u8 {
        self.control.bytes(byte(offset))[0]
    }

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        self.inbox.take(&mut events);
        events
    }
}

fn span(page: u32, offset: u64, size: u64) -> Span {
    Span { page: PageId(page), offset, size }
}

fn byte(offset: u64) -> Span {
    span(0, offset, 1)
}

fn row(from: Span, to: Span) -> Command {
    Command::Copy(RowCopy { from, from_pitch: from.size, to, to_pitch: to.size, count: 1, bytes: from.size })
}

fn panics(f: impl FnOnce()) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err()
}

// ------------------------------------------------------------------------------------- order

#[test]
fn nothing_runs_before_it_is_stepped_and_ends_are_told_in_order() {
    let mut rig = Rig::new(3);
    let set = rig.set();
    rig.dispatch(set, &[byte(0)], &[5]);
    let first = rig.submit();
    rig.dispatch(set, &[byte(4)], &[6]);
    let second = rig.submit();
    rig.device.watch(second);
    assert_eq!((rig.device.reached().unwrap() < first, rig.byte(0)), (true, 0));
    assert_eq!(rig.control.counters().pending, 2);
    while rig.control.step() {
        let reached = rig.device.reached().unwrap();
        assert!(reached < first || rig.byte(0) == 5, "the first is told before it is done");
        assert!(reached < second || rig.byte(4) == 6, "the second is told before it is done");
    }
    assert!(matches!(rig.events()[..], [Event::Progress(value)] if value == second));
    assert_eq!(rig.control.counters().pending, 0);
}

#[test]
fn a_device_that_runs_by_itself_is_done_when_asked() {
    let mut rig = Rig::new(0);
    let set = rig.set();
    rig.control.auto_run(true);
    rig.dispatch(set, &[byte(0)], &[5]);
    let first = rig.submit();
    assert_eq!(rig.device.reached(), Ok(first));
    rig.dispatch(set, &[byte(0)], &[6]);
    let second = rig.submit();
    rig.device.watch(second);
    assert!(matches!(rig.events()[..], [Event::Progress(value)] if value == second));
    assert_eq!(rig.byte(0), 6);
}

#[test]
fn the_order_varies_with_the_seed_and_is_the_same_for_one_seed() {
    let last_writer = |seed| {
        let mut rig = Rig::new(seed);
        let set = rig.set();
        (1..=4).for_each(|value| rig.dispatch(set, &[byte(0)], &[value]));
        rig.submit();
        rig.control.run();
        rig.byte(0)
    };
    let seen: HashSet<u8> = (0..SEEDS).map(last_writer).collect();
    assert_eq!(seen.len(), 4, "each of four may be last: {seen:?}");
    assert!((0..8).all(|seed| last_writer(seed) == last_writer(seed)));
}

/// A chain of one copy and three kernels over two submissions, with a barrier in each gap but those left out.
/// Gives the end of the chain, and whether conflicts were found.
fn chain(seed: u64, missing: Option<u64>) -> (u8, bool) {
    let mut rig = Rig::new(seed);
    let barriers_before = rig.control.counters().barriers;
    if let Some(number) = missing {
        rig.control.drop_barrier(barriers_before + number);
    }
    let (follow, add1) = (rig.follow(), rig.add1());
    rig.device.write_page(span(1, 0, 1), &[10]);
    rig.commands.list.push(row(span(1, 0, 1), byte(0)));
    rig.barrier();
    rig.dispatch(follow, &[byte(0), byte(4)], &[]);
    rig.submit();
    rig.barrier();
    rig.dispatch(add1, &[byte(4)], &[]);
    rig.barrier();
    rig.dispatch(add1, &[byte(4)], &[]);
    rig.submit();
    rig.control.run();
    assert_eq!(rig.control.counters().barriers, barriers_before + 3);
    (rig.byte(4), !rig.control.conflicts().is_empty())
}

#[test]
fn barriers_give_one_result_for_every_seed() {
    assert!((0..SEEDS).all(|seed| chain(seed, None) == (13, false)));
}

#[test]
fn each_missing_barrier_shows_as_a_conflict_and_as_other_bytes() {
    for missing in 0..3 {
        let results: Vec<(u8, bool)> = (0..SEEDS).map(|seed| chain(seed, Some(missing))).collect();
        assert!(results.iter().all(|(_, conflict)| *conflict), "without barrier {missing}");
        assert!(results.iter().any(|(byte, _)| *byte != 13), "without barrier {missing}: {results:?}");
    }
}

#[test]
fn two_additions_without_a_barrier_lose_one() {
    let ends: HashSet<u8> = (0..SEEDS)
        .map(|seed| {
            let mut rig = Rig::new(seed);
            let add1 = rig.add1();
            (0..3).for_each(|_| rig.dispatch(add1, &[byte(0)], &[]));
            rig.submit();
            rig.control.run();
            rig.byte(0)
        })
        .collect();
    assert!(ends.contains(&1) && ends.contains(&3), "{ends:?}");
}

#[test]
fn a_replay_expands_in_place_and_its_barriers_count() {
    let run = |seed, missing: Option<u64>| {
        let mut rig = Rig::new(seed);
        let add1 = rig.add1();
        if let Some(number) = missing {
            rig.control.drop_barrier(rig.control.counters().barriers + number);
        }
        let mut tape = Commands::default();
        tape.dispatch(add1, &[byte(0)], &[], ONE);
        tape.list.push(Command::Barrier);
        tape.dispatch(add1, &[byte(0)], &[], ONE);
        rig.device.seal(GraphId(1), &tape, None).unwrap();
        for _ in 0..3 {
            rig.commands.list.push(Command::Replay(GraphId(1)));
            rig.barrier();
        }
        rig.submit();
        assert_eq!(rig.control.counters().graphs, 1);
        assert!(panics(|| rig.device.drop_graph(GraphId(1))), "it is pending");
        rig.control.run();
        rig.device.drop_graph(GraphId(1));
        assert_eq!(rig.control.counters().graphs, 0);
        rig.byte(0)
    };
    assert!((0..SEEDS).all(|seed| run(seed, None) == 6));
    for missing in 0..4 {
        let broken = (0..SEEDS).any(|seed| run(seed, Some(missing)) != 6);
        assert_eq!(broken, missing < 3, "without barrier {missing}; the last orders nothing");
    }
}

#[test]
fn timestamps_enclose_the_work_between_them() {
    for seed in 0..SEEDS {
        let mut rig = Rig::new(seed);
        let add1 = rig.add1();
        rig.commands.list.push(Command::Timestamp(TimestampSlot(0)));
        (0..4).for_each(|i| rig.dispatch(add1, &[byte(i)], &[]));
        rig.commands.list.push(Command::Timestamp(TimestampSlot(1)));
        rig.submit();
        rig.control.run();
        let time = |rig: &mut Rig, slot| rig.device.timestamp_ns(TimestampSlot(slot));
        let (start, end) = (time(&mut rig, 0).unwrap(), time(&mut rig, 1).unwrap());
        assert!(end > start, "seed {seed}");
        assert_eq!(time(&mut rig, 2), None);
    }
}

#[test]
fn indirect_counts_are_read_when_the_dispatch_starts_and_kept_to_the_limit() {
    for (counts, calls) in [([2u32, 3, 4], 24), ([0, 3, 4], 0), ([70_000, 1, 1], 0)] {
        let mut rig = Rig::new(5);
        let count = rig.kernel(&[Write], |groups, buffers, _| buffers[0][0] = groups.iter().product::<u32>() as u8);
        rig.device.write_page(span(1, 0, 12), bytemuck::cast_slice(&counts));
        rig.commands.list.push(row(span(1, 0, 12), span(0, 64, 12)));
        rig.barrier();
        rig.commands.dispatch(count, &[byte(0)], &[], Groups::Indirect(span(0, 64, 12)));
        rig.submit();
        rig.control.run();
        assert_eq!(rig.byte(0), calls);
    }
}

#[test]
fn one_buffer_may_be_read_twice() {
    let mut rig = Rig::new(0);
    let sum = rig.kernel(&[Read, Read, Write], |_, buffers, _| buffers[2][0] = buffers[0][0] + buffers[1][1] + 7);
    rig.dispatch(sum, &[span(0, 0, 4), span(0, 0, 4), byte(8)], &[]);
    rig.submit();
    rig.control.run();
    assert_eq!(rig.byte(8), 7);
    assert_eq!(rig.control.conflicts(), [], "a command does not conflict with itself");
}

/// `target = target * 3 + source + 1`, so that every order gives another result.
#[derive(Debug, Clone, Copy)]
struct Mix {
    source: u64,
    target: u64,
    submit: bool,
}

impl Mix {
    fn accesses(self) -> [(Span, BufferAccess); 2] {
        [(byte(self.source), Read), (byte(self.target), ReadWrite)]
    }
}

fn mixes() -> impl Strategy<Value = Vec<Mix>> {
    let mix = (0..6u64, 0..5u64, any::<bool>()).prop_map(|(source, step, submit)| {
        let target = (source + 1 + step) % 6;
        Mix { source, target, submit }
    });
    proptest::collection::vec(mix, 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn barriers_between_conflicts_give_the_bytes_of_the_order_of_recording(program in mixes(), seed in any::<u64>()) {
        let mut rig = Rig::new(seed);
        let mix = rig.kernel(&[Read, ReadWrite], |_, buffers, _| {
            buffers[1][0] = buffers[1][0].wrapping_mul(3).wrapping_add(buffers[0][0]).wrapping_add(1);
        });
        let (mut expected, mut checker) = ([0u8; 6], OrderChecker::new());
        for (index, step) in program.iter().enumerate() {
            let (source, target) = (expected[step.source as usize], &mut expected[step.target as usize]);
            *target = target.wrapping_mul(3).wrapping_add(source).wrapping_add(1);
            let before = checker.conflicts().len();
            checker.command(&step.accesses());
            if checker.conflicts().len() > before {
                rig.barrier();
                checker.barrier();
                checker.command(&step.accesses());
            }
            rig.dispatch(mix, &step.accesses().map(|(span, _)| span), &[]);
            if step.submit || index + 1 == program.len() {
                rig.submit();
            }
        }
        rig.control.run();
        prop_assert_eq!(rig.control.bytes(span(0, 0, 6)), expected);
        prop_assert_eq!(rig.control.conflicts(), []);
    }
}

// ------------------------------------------------------------------------------------ faults

#[test]
fn a_panic_is_posted_before_progress() {
    let mut rig = Rig::new(1);
    let broken = rig.kernel(&[ReadWrite], |_, _, info| assert!(info.is_empty(), "on purpose"));
    rig.dispatch(broken, &[byte(0)], &[]);
    rig.dispatch(broken, &[byte(4)], &[1]);
    let value = rig.submit();
    rig.device.watch(value);
    rig.control.run();
    let events = rig.events();
    assert!(
        matches!(&events[..], [Event::Failed { submission, graph: None, dispatch: 1, reason }, Event::Progress(at)]
            if *submission == value && *at == value && reason == "k panicked: on purpose"),
        "{events:?}"
    );
}

#[test]
fn pages_are_refused_on_demand_and_past_the_total() {
    let mut rig = Rig::new(0);
    let mut allocate = |id, bytes| rig.device.allocate_page(PageId(id), bytes, PageKind::Device);
    rig.control.inject(Fault::Page(1));
    assert_eq!(allocate(10, 64), Ok(()));
    assert_eq!(allocate(11, 64), Err(DeviceError::OutOfMemory));
    assert_eq!(allocate(11, 64), Ok(()));
    rig.control.inject(Fault::AllPages);
    assert_eq!(allocate(12, 64), Err(DeviceError::OutOfMemory));
    rig.control.clear_faults();
    assert_eq!(allocate(12, MEMORY_BYTES), Err(DeviceError::OutOfMemory), "pages are there already");
    assert_eq!((rig.control.counters().pages, rig.control.counters().bytes), (5, 3 * 256 + 128));
    rig.device.free_page(PageId(10));
    assert_eq!((rig.control.counters().pages, rig.control.counters().bytes), (4, 3 * 256 + 64));
    assert_ne!(rig.control.bytes(span(11, 0, 64)), [0; 64], "fresh memory is not zero");
}

#[test]
fn a_device_is_lost_at_a_submission() {
    let mut rig = Rig::new(0);
    rig.control.inject(Fault::Submission(1));
    let first = rig.submit();
    rig.device.watch(TimelineValue(first.0 + 1));
    assert!(matches!(rig.device.submit(TimelineValue(first.0 + 1)), Err(DeviceError::Lost(_))));
    assert!(matches!(rig.events()[..], [Event::Lost(_)]), "who watches is told");
    assert!(matches!(rig.device.reached(), Err(DeviceError::Lost(_))));
    assert!(matches!(rig.device.record(&Commands::default()), Err(DeviceError::Lost(_))));
    rig.device.watch(first);
    assert!(matches!(rig.events()[..], [Event::Lost(_)]), "and who watches later");
    rig.control.run();
    assert!(rig.events().is_empty());
}

#[test]
fn a_device_is_lost_after_commands() {
    let mut rig = Rig::new(0);
    let set = rig.set();
    (0..4).for_each(|i| rig.dispatch(set, &[byte(i)], &[1]));
    rig.submit();
    let done = rig.control.counters().commands;
    rig.control.inject(Fault::Commands(3));
    rig.control.run();
    assert_eq!(rig.control.counters().commands, done + 3);
    assert!(matches!(rig.device.reached(), Err(DeviceError::Lost(_))));
    (0..3).for_each(|page| rig.device.free_page(PageId(page)));
    assert_eq!(rig.control.counters().pages, 0, "memory of a lost device is freed though work is pending");
}

#[test]
fn a_silent_device_reaches_nothing_until_it_is_probed_or_goes_on() {
    let mut rig = Rig::new(0);
    rig.control.inject(Fault::Silence);
    let value = rig.submit();
    rig.device.watch(value);
    rig.control.run();
    assert!(rig.device.reached().unwrap() < value);
    rig.control.stall(Duration::from_secs(3));
    assert!(matches!(rig.events()[..], [Event::Stalled(waited)] if waited == Duration::from_secs(3)));
    assert_eq!(rig.device.probe(), Ok(()));
    rig.control.clear_faults();
    rig.control.run();
    assert!(matches!(rig.events()[..], [Event::Progress(at)] if at == value));
    rig.control.inject(Fault::Probe);
    assert!(matches!(rig.device.probe(), Err(DeviceError::Lost(_))));
}

// ------------------------------------------------------------------------------ what is owed

#[test]
fn the_host_keeps_off_what_pending_work_touches() {
    let mut rig = Rig::new(0);
    rig.commands.list.push(row(span(1, 0, 4), span(2, 0, 4)));
    rig.submit();
    assert!(panics(|| rig.device.write_page(span(1, 3, 4), &[0; 4])), "it is read");
    assert!(panics(|| drop(rig.device.pinned(span(2, 0, 1)))), "it is written");
    rig.device.write_page(span(1, 4, 4), &[0; 4]);
    drop(rig.device.pinned(span(1, 0, 4)));
    for page in 1..3 {
        assert!(panics(|| rig.device.free_page(PageId(page))), "{page} is pending");
    }
    rig.control.run();
    rig.device.write_page(span(1, 3, 4), &[0; 4]);
    assert_eq!(rig.device.pinned(span(2, 0, 4)).place(rig.inbox.mailbox().actor()), Some(span(2, 0, 4)));
    assert!(panics(|| drop(rig.device.pinned(byte(0)))), "not a host page");
    assert!(panics(|| rig.device.write_page(span(2, 0, 1), &[0])), "not an upload page");
}

#[test]
fn wrong_commands_are_refused_when_they_are_recorded() {
    let record = |command: Command| {
        let mut rig = Rig::new(0);
        rig.commands.list.push(command);
        panics(|| rig.device.record(&rig.commands).unwrap())
    };
    assert!(record(Command::Zero(span(0, 252, 8))), "outside of its page");
    assert!(record(Command::Zero(span(0, 2, 4))), "not words");
    assert!(record(row(span(0, 0, 8), span(0, 4, 8))), "sides overlap");
    assert!(record(row(span(7, 0, 8), span(0, 0, 8))), "unknown page");
    assert!(record(Command::Replay(GraphId(1))), "unknown graph");
    assert!(!record(row(span(0, 0, 8), span(1, 0, 8))));
    let mut rig = Rig::new(0);
    rig.dispatch(PipelineId(9), &[], &[]);
    assert!(panics(|| rig.device.record(&rig.commands).unwrap()), "unknown kernel");
}

#[test]
fn pages_that_a_graph_or_a_recording_names_are_not_freed() {
    let mut rig = Rig::new(0);
    let set = rig.set();
    let mut tape = Commands::default();
    tape.dispatch(set, &[byte(0)], &[1], ONE);
    rig.device.seal(GraphId(1), &tape, None).unwrap();
    assert!(panics(|| rig.device.free_page(PageId(0))));
    rig.device.drop_graph(GraphId(1));
    rig.device.record(&tape).unwrap();
    assert!(panics(|| rig.device.free_page(PageId(0))));
    rig.device.submit(TimelineValue(2)).unwrap();
    rig.control.run();
    rig.device.free_page(PageId(0));
    assert!(panics(|| rig.device.submit(TimelineValue(2)).unwrap()), "the timeline does not rise");
}

#[test]
fn a_kernel_is_held_to_what_it_declares() {
    let mut rig = Rig::new(0);
    let liar = rig.kernel(&[Read], |_, buffers, _| buffers[0][0] = 9);
    rig.dispatch(liar, &[byte(0)], &[]);
    rig.submit();
    assert!(panics(|| rig.control.run()));
    assert_eq!(rig.byte(0), 0);
}

#[test]
fn plain_host_kernels_do_anything_to_any_buffer() {
    let mut rig = Rig::new(0);
    let source = HostKernel::new("h", |_, buffers: &mut [&mut [u8]], _: &[u8]| buffers[0][0] = 3)
        .source(&rig.device.target())
        .unwrap();
    let compiled = rig.device.compiler().compile("h", source, &Default::default()).unwrap();
    rig.device.add_pipeline(PipelineId(40), compiled.pipeline);
    rig.dispatch(PipelineId(40), &[byte(0)], &[]);
    rig.dispatch(PipelineId(40), &[byte(0)], &[]);
    rig.submit();
    assert_eq!(rig.control.conflicts(), [Conflict { first: 1, second: 2, at: byte(0) }]);
    assert_eq!(rig.device.resource(byte(3)), byte(3));
}

#[test]
fn a_device_opens_by_its_id() {
    let device = SimDevice::open(DeviceId::new(1, 2)).unwrap().into_device();
    assert_eq!(device.name(), "sim");
    assert!(device.control().counters() == SimCounters::default());
    assert_eq!(device.limits().binding_bytes, device.properties().memory.max_page_size);
}
