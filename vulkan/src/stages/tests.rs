//! Against the slow and obvious: every two commands with a barrier of the engine between them must have a written one
//! between them too, which names the stages of both.

use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Barrier,
    Kernel,
    Transfer,
    /// A dispatch that finds its group counts on the device.
    Counted,
    /// Begins a sealed recording, or ends it; it runs where it lies.
    Seal,
}

use Step::{Barrier, Counted, Kernel, Seal, Transfer};

const STEPS: [Step; 5] = [Barrier, Kernel, Transfer, Counted, Seal];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trace {
    Wanted,
    Work(Stages),
    Written(StageBarrier),
}

fn run(order: &mut StageOrder, steps: &[Step]) -> Vec<Trace> {
    let mut trace = Vec::new();
    for step in steps {
        match step {
            Barrier => {
                order.barrier();
                trace.push(Trace::Wanted);
            }
            Kernel => work(order, COMPUTE, &mut trace),
            Transfer => work(order, TRANSFER, &mut trace),
            Counted => {
                order.barrier_within(COMPUTE);
                work(order, COMPUTE, &mut trace);
                let barrier = StageBarrier { before: COMPUTE, behind: COMPUTE | INDIRECT };
                order.written(barrier);
                trace.push(Trace::Written(barrier));
                work(order, COMPUTE, &mut trace);
            }
            Seal => unreachable!("recordings are taken out first"),
        }
    }
    trace
}

fn work(order: &mut StageOrder, stages: Stages, trace: &mut Vec<Trace>) {
    trace.extend(order.work(stages).map(Trace::Written));
    trace.push(Trace::Work(stages));
}

/// All that is written for the steps. Every second run between two seals is a recording.
fn traced(steps: &[Step]) -> Vec<Trace> {
    let mut order = StageOrder::default();
    let mut trace = Vec::new();
    for (turn, part) in steps.split(|step| *step == Seal).enumerate() {
        if turn % 2 == 0 {
            trace.extend(run(&mut order, part));
            continue;
        }
        let mut tape = StageOrder::default();
        let inner = run(&mut tape, part);
        trace.push(Trace::Wanted);
        trace.extend(order.replay(&tape).map(Trace::Written));
        trace.extend(inner);
    }
    trace
}

fn check(steps: &[Step]) {
    let trace = traced(steps);
    for (first, from) in trace.iter().enumerate() {
        let Trace::Work(from) = *from else { continue };
        let mut wanted = false;
        let mut waits = Stages::empty();
        for step in &trace[first + 1..] {
            match *step {
                Trace::Wanted => wanted = true,
                Trace::Written(barrier) if barrier.before.contains(from) => waits |= barrier.behind,
                Trace::Written(_) => {}
                Trace::Work(to) => assert!(!wanted || waits.contains(to), "{from:?} {to:?}: {steps:?} {trace:?}"),
            }
        }
    }
    // None is written for nothing: what it names has worked, and work in the stage that waits comes next.
    for (place, step) in trace.iter().enumerate() {
        let Trace::Written(barrier) = *step else { continue };
        let worked = trace[..place].iter().fold(Stages::empty(), |all, step| match step {
            Trace::Work(at) => all | *at,
            Trace::Wanted | Trace::Written(_) => all,
        });
        assert!(worked.contains(barrier.before), "{steps:?} {trace:?}");
        let next = trace[place + 1..].iter().find_map(|step| match step {
            Trace::Work(at) => Some(*at),
            Trace::Wanted | Trace::Written(_) => None,
        });
        assert!(next.is_some_and(|at| barrier.behind.contains(at)), "{steps:?} {trace:?}");
    }
}

fn numbered(number: usize, length: u32) -> Vec<Step> {
    (0..length).map(|place| STEPS[number / STEPS.len().pow(place) % STEPS.len()]).collect()
}

#[test]
fn every_short_program_is_ordered() {
    const LENGTH: u32 = 7;
    for number in 0..STEPS.len().pow(LENGTH) {
        check(&numbered(number, LENGTH));
    }
}

#[test]
fn long_programs_are_ordered() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        STEPS[(seed >> 33) as usize % STEPS.len()]
    };
    for _ in 0..500 {
        let steps: Vec<Step> = (0..60).map(|_| draw()).collect();
        check(&steps);
    }
}

fn written(steps: &[Step]) -> Vec<(Stages, Stages)> {
    let all = traced(steps).into_iter();
    all.filter_map(|step| match step {
        Trace::Written(barrier) => Some((barrier.before, barrier.behind)),
        Trace::Wanted | Trace::Work(_) => None,
    })
    .collect()
}

#[test]
fn kernels_wait_for_kernels_only() {
    let chain = [Kernel, Barrier].repeat(20);
    assert_eq!(written(&chain), [(COMPUTE, COMPUTE)].repeat(19));
    let replays = [Seal, Kernel, Barrier, Kernel, Seal, Barrier].repeat(20);
    assert_eq!(written(&replays), [(COMPUTE, COMPUTE)].repeat(39), "one inside, one between");
}

#[test]
fn a_copy_is_waited_for_once() {
    let steps = [Transfer, Barrier, Kernel, Barrier, Kernel];
    assert_eq!(written(&steps), [(TRANSFER, COMPUTE), (COMPUTE, COMPUTE)]);
}

#[test]
fn work_that_was_not_named_stays_unordered() {
    // The kernel waits for the first kernel; the copy beside it is for the second barrier to order.
    let steps = [Kernel, Barrier, Transfer, Kernel, Barrier, Kernel];
    assert_eq!(written(&steps), [(COMPUTE, TRANSFER), (COMPUTE, COMPUTE), (COMPUTE | TRANSFER, COMPUTE)]);
}

#[test]
fn a_barrier_that_nothing_follows_is_not_written() {
    assert_eq!(written(&[Kernel, Barrier, Barrier]), []);
    assert_eq!(written(&[Barrier, Kernel]), []);
}

#[test]
fn counts_are_the_only_thing_that_the_front_end_waits_for() {
    let counts = (COMPUTE, COMPUTE | INDIRECT);
    let steps = [Transfer, Barrier, Counted, Barrier, Kernel, Counted];
    let expected = [(TRANSFER, COMPUTE), counts, (COMPUTE, COMPUTE), (COMPUTE, COMPUTE), counts];
    assert_eq!(written(&steps), expected);
}

#[test]
fn memory_is_told_what_was_written_and_who_sees_it() {
    use vk::AccessFlags as Access;
    let memory = StageBarrier { before: COMPUTE | TRANSFER, behind: COMPUTE | INDIRECT }.memory();
    assert_eq!(memory.src_access_mask, Access::SHADER_WRITE | Access::TRANSFER_WRITE);
    let seen = Access::SHADER_READ | Access::SHADER_WRITE | Access::INDIRECT_COMMAND_READ;
    assert_eq!(memory.dst_access_mask, seen);
    let host = StageBarrier { before: TRANSFER, behind: Stages::HOST }.memory();
    assert_eq!((host.src_access_mask, host.dst_access_mask), (Access::TRANSFER_WRITE, Access::HOST_READ));
}
