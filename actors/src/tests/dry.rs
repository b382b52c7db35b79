//! Buffers that a dry run reserved, when they are used.

use super::rig::Rig;
use crate::error::{IoError, ServerError};
use crate::id::{BufferId, StreamId};
use crate::message::{Body, BufferRange, Count, GraphCall, Kernel, Launch};
use crate::sim::{Fault, SimOptions};

const STREAM: StreamId = StreamId(1);
const WORDS: usize = 16;

fn whole(buffer: BufferId) -> BufferRange {
    BufferRange { buffer, offset: 0, size: 4 * WORDS as u64 }
}

fn dry_run(rig: &mut Rig, on: bool) {
    rig.ask(STREAM, |reply| Body::DryRun { on, reply });
}

/// As many buffers of a dry run that is over, each in a page of its own.
fn planned<const N: usize>(rig: &mut Rig) -> [BufferRange; N] {
    dry_run(rig, true);
    let buffers = [0; N].map(|_| rig.reserve(STREAM, PAGE_BYTES));
    dry_run(rig, false);
    assert_eq!(rig.control.counters().bytes, 0, "a dry run takes nothing");
    buffers.map(whole)
}

/// Larger than any page that the pools would share.
const PAGE_BYTES: u64 = 5 << 20;

fn resource(rig: &mut Rig, range: BufferRange) -> Result<(), ServerError> {
    rig.ask(STREAM, |reply| Body::Resource { range, reply }).map(|_| ())
}

fn graph(rig: &mut Rig, call: impl FnOnce(crate::reply::Reply<Result<(), ServerError>>) -> GraphCall) {
    rig.ask(STREAM, |reply| Body::Graph(call(reply))).unwrap();
}

fn is_dry(error: &ServerError) -> bool {
    matches!(error, ServerError::Io(IoError::Unsupported(reason)) if reason.contains("dry run"))
}

#[test]
fn each_kind_of_use_after_the_dry_run_finds_memory() {
    let uses: [fn(&mut Rig, BufferRange); 6] = [
        |rig, range| assert_eq!(rig.read(STREAM, range).unwrap().len(), WORDS),
        |rig, range| {
            rig.write(STREAM, range, &[7; WORDS]);
            assert_eq!(rig.read(STREAM, range).unwrap(), [7; WORDS]);
        },
        |rig, range| {
            let fill = rig.kernels.fill.clone();
            rig.launch(STREAM, &fill, &[range], &[8]);
            assert_eq!(rig.read(STREAM, range).unwrap(), [8; WORDS]);
        },
        |rig, range| {
            let launch = Launch {
                id: crate::kernel::CubeKernel::id(&rig.kernels.fill),
                kernel: Kernel(Some(Box::new(rig.kernels.fill.clone()))),
                count: Count::Dynamic(range),
                buffers: [].into_iter().collect(),
                info: [].into_iter().collect(),
                refused: None,
                budgeted: false,
            };
            rig.mailbox.send(STREAM, Body::Launch(launch));
            rig.sync().unwrap();
        },
        |rig, range| resource(rig, range).unwrap(),
        |rig, range| {
            // From another stream, and while the first is in a dry run again.
            dry_run(rig, true);
            let fill = rig.kernels.fill.clone();
            rig.launch(StreamId(2), &fill, &[range], &[9]);
            assert_eq!(rig.read(StreamId(2), range).unwrap(), [9; WORDS]);
            dry_run(rig, false);
        },
    ];
    for (number, used) in uses.into_iter().enumerate() {
        let mut rig = Rig::new(SimOptions::default());
        let [range, other] = planned(&mut rig);
        used(&mut rig, range);
        let taken = rig.ask(STREAM, |reply| Body::Report { reply }).dynamic;
        let unmapped: u64 = taken.iter().map(|pool| pool.pages_unmapped).sum();
        assert_eq!(unmapped, 1, "use {number}: the other buffer has no memory yet");
        rig.release(STREAM, range.buffer);
        rig.release(STREAM, other.buffer);
        rig.sync().unwrap();
        assert_eq!(rig.counts(), [0; 4], "use {number}");
    }
}

#[test]
fn a_capture_after_the_dry_run_finds_memory() {
    let mut rig = Rig::new(SimOptions::default());
    let [first] = planned(&mut rig);
    let affine = rig.kernels.affine.clone();
    graph(&mut rig, |reply| GraphCall::Prepare { reply });
    graph(&mut rig, |reply| GraphCall::Start { reply });
    rig.launch(STREAM, &affine, &[first], &[1, 2]);
    let sealed = rig.ask(STREAM, |reply| Body::Graph(GraphCall::Stop { reply })).unwrap();
    assert_eq!(sealed.launches, 1);

    rig.write(STREAM, first, &[3; WORDS]);
    graph(&mut rig, |reply| GraphCall::Replay { graph: sealed.graph, reply, budgeted: false });
    assert_eq!(rig.read(STREAM, first).unwrap(), [5; WORDS]);
}

#[test]
fn in_the_dry_run_what_has_an_answer_says_why_there_is_none() {
    let mut rig = Rig::new(SimOptions::default());
    dry_run(&mut rig, true);
    let range = whole(rig.reserve(STREAM, PAGE_BYTES));
    let fill = rig.kernels.fill.clone();
    rig.launch(STREAM, &fill, &[range], &[1]);
    rig.write(STREAM, range, &[2; WORDS]);

    assert!(is_dry(&rig.read(STREAM, range).unwrap_err()));
    assert!(is_dry(&resource(&mut rig, range).unwrap_err()));
    let counters = rig.control.counters();
    assert_eq!((counters.bytes, counters.dispatches), (0, 0));
    dry_run(&mut rig, false);
    rig.write(STREAM, range, &[3; WORDS]);
    assert_eq!(rig.read(STREAM, range).unwrap(), [3; WORDS]);
}

#[test]
fn a_use_that_finds_no_memory_fails_with_the_figures_and_the_next_works() {
    let mut rig = Rig::with_budget(SimOptions::default(), 16 << 20);
    let [range] = planned(&mut rig);
    let fill = rig.kernels.fill.clone();
    let is_out = |error: &ServerError| {
        let ServerError::Io(IoError::OutOfMemory { requested, in_use, budget }) = root(error) else { return false };
        (*requested, *in_use, *budget) == (PAGE_BYTES, 0, 16 << 20)
    };
    rig.control.inject(Fault::AllPages);
    assert!(is_out(&rig.read(STREAM, range).unwrap_err()));
    assert!(is_out(&resource(&mut rig, range).unwrap_err()));
    rig.launch(STREAM, &fill, &[range], &[1]);
    let told = rig.ask(STREAM, |reply| Body::Check { ranges: vec![range], reply }).unwrap_err();
    assert!(is_out(&told), "{told}");

    rig.control.clear_faults();
    rig.launch(STREAM, &fill, &[range], &[4]);
    assert_eq!(rig.read(STREAM, range).unwrap(), [4; WORDS]);
}

#[test]
fn a_launch_that_waits_for_memory_in_flight_stays_in_its_window() {
    let mut rig = Rig::with_budget(SimOptions { auto_run: false, ..SimOptions::default() }, 8 << 20);
    let kernels = rig.kernels.clone();
    let [range] = planned(&mut rig);
    // Takes the memory, until the device is done with it.
    let other = whole(rig.reserve(STREAM, PAGE_BYTES));
    rig.launch(STREAM, &kernels.fill, &[other], &[1]);
    rig.turn();
    graph(&mut rig, |reply| GraphCall::Prepare { reply });
    graph(&mut rig, |reply| GraphCall::Start { reply });
    rig.release(STREAM, other.buffer);
    rig.launch(STREAM, &kernels.fill, &[range], &[6]);
    let stop = rig.begin(STREAM, |reply| Body::Graph(GraphCall::Stop { reply }));
    (0..3).for_each(|_| rig.turn());
    rig.control.run();

    let sealed = rig.wait(stop).unwrap().unwrap();

    assert_eq!(sealed.launches, 1);
}

fn root(error: &ServerError) -> &ServerError {
    match error {
        ServerError::Unwritten { root, .. } => root,
        other => other,
    }
}
