//! What goes wrong on a device, and what is left of it.

use super::rig::Rig;
use crate::error::{IoError, ServerError};
use crate::id::{BufferId, StreamId};
use crate::kernel::BufferAccess;
use crate::message::{Body, BufferRange};
use crate::sim::{Fault, SimKernel, SimOptions};
use std::time::Duration;

const STREAM: StreamId = StreamId(1);

fn whole(buffer: BufferId, words: usize) -> BufferRange {
    BufferRange { buffer, offset: 0, size: 4 * words as u64 }
}

fn filled(rig: &mut Rig, words: usize, value: u32) -> BufferRange {
    let range = whole(rig.reserve(STREAM, 4 * words as u64), words);
    rig.write(STREAM, range, &vec![value; words]);
    range
}

fn check(rig: &mut Rig, range: BufferRange) -> Result<(), ServerError> {
    rig.ask(STREAM, |reply| Body::Check { ranges: vec![range], reply })
}

fn root(error: &ServerError) -> &ServerError {
    match error {
        ServerError::Unwritten { root, .. } => root,
        other => other,
    }
}

#[test]
fn a_page_that_is_refused_fails_one_reservation_and_the_next_works() {
    let mut rig = Rig::new(SimOptions::default());
    let good = filled(&mut rig, 16, 3);
    assert_eq!(rig.read(STREAM, good).unwrap(), [3; 16]);
    rig.control.inject(Fault::AllPages);
    let starved = whole(rig.reserve(STREAM, 8 << 20), 2 << 20);
    let error = check(&mut rig, starved).unwrap_err();
    assert!(matches!(root(&error), ServerError::Io(IoError::OutOfMemory { .. })), "{error:?}");
    let kernels = rig.kernels.clone();
    rig.launch(STREAM, &kernels.copy, &[starved, whole(good.buffer, 16)], &[]);
    assert!(check(&mut rig, good).unwrap_err().is_out_of_memory(), "what is computed from it carries the failure");
    rig.control.clear_faults();
    let next = filled(&mut rig, 2 << 20, 5);
    assert!(rig.read(STREAM, next).unwrap().iter().all(|&w| w == 5));
}

#[test]
fn memory_in_flight_is_waited_for_before_a_reservation_fails() {
    let mut rig = Rig::with_budget(SimOptions { auto_run: false, ..SimOptions::default() }, 16 << 20);
    let kernels = rig.kernels.clone();
    // Each needs a page of its own shape, so that a later one fits only once an earlier one is back.
    for (round, mib) in [9u64, 10, 11, 12].into_iter().enumerate() {
        let words = (mib << 18) as usize;
        let range = whole(rig.reserve(STREAM, mib << 20), words);
        rig.launch(STREAM, &kernels.fill, &[range], &[round as u32]);
        let answer = rig.begin(STREAM, |reply| Body::Check { ranges: vec![range], reply });
        rig.turn();
        rig.control.run();
        assert!(matches!(rig.wait(answer), Ok(Ok(()))), "round {round}");
        rig.release(STREAM, range.buffer);
    }
}

#[test]
fn a_lost_device_ends_everything_that_waits_and_refuses_the_rest() {
    for fault in [Fault::Submission(0), Fault::Commands(3)] {
        let mut rig = Rig::new(SimOptions::default());
        let range = filled(&mut rig, 16, 1);
        rig.sync().unwrap();
        rig.control.inject(fault);
        let kernels = rig.kernels.clone();
        let reads: Vec<_> = (0..10)
            .map(|i| {
                rig.launch(STREAM, &kernels.affine, &[range], &[3, i]);
                rig.begin_read(STREAM, range)
            })
            .collect();
        for read in reads {
            let error = rig.finish_read(read).unwrap_err();
            assert!(error.is_device_lost(), "{fault:?}: {error:?}");
        }
        assert!(rig.sync().unwrap_err().is_device_lost());
        let late = filled(&mut rig, 4, 1);
        assert!(check(&mut rig, late).unwrap_err().is_device_lost());
        let flush: Result<(), ServerError> = rig.ask(STREAM, |reply| Body::Flush { reply });
        assert!(flush.unwrap_err().is_device_lost());
        rig.release(STREAM, range.buffer);
        rig.release(STREAM, late.buffer);
        rig.turn();
        assert_eq!(rig.counts()[0], 0);
    }
}

#[test]
fn a_device_that_never_signals_ends_every_future_within_the_bound() {
    let mut rig = Rig::new(SimOptions { auto_run: false, ..SimOptions::default() });
    let range = filled(&mut rig, 16, 1);
    rig.control.inject(Fault::Silence);
    let read = rig.begin_read(STREAM, range);
    let sync = rig.begin(STREAM, |reply| Body::Sync { ranges: vec![], reply });
    rig.turn();
    for seconds in [5, 10, 60] {
        rig.control.stall(Duration::from_secs(seconds));
        rig.turn();
    }
    assert!(!rig.ending.is_lost());
    rig.control.stall(Duration::from_secs(120));
    assert!(rig.finish_read(read).unwrap_err().is_device_lost());
    assert!(matches!(rig.wait(sync), Ok(Err(ServerError::DeviceLost { .. }))));
    assert!(rig.ending.is_lost(), "the registry loads the device afresh");
}

#[test]
fn a_probe_finds_a_device_that_is_gone() {
    let mut rig = Rig::new(SimOptions { auto_run: false, ..SimOptions::default() });
    let range = filled(&mut rig, 16, 1);
    let read = rig.begin_read(STREAM, range);
    rig.turn();
    rig.control.inject(Fault::Probe);
    rig.control.stall(Duration::from_secs(5));
    assert!(rig.finish_read(read).unwrap_err().is_device_lost());
}

#[test]
fn a_kernel_that_panics_when_it_runs_spoils_what_it_was_to_write_and_no_more() {
    let mut rig = Rig::new(SimOptions::default());
    let kernels = rig.kernels.clone();
    let (input, output, other) = (filled(&mut rig, 16, 1), filled(&mut rig, 16, 2), filled(&mut rig, 16, 3));
    let accesses = vec![BufferAccess::Read, BufferAccess::Write];
    let broken = SimKernel::new("broken", accesses, |_, _: &mut [&mut [u8]], _: &[u8]| panic!("half-way"));
    rig.launch(STREAM, &kernels.affine, &[other], &[1, 1]);
    rig.launch(STREAM, &broken, &[input, output], &[]);
    rig.launch(STREAM, &kernels.affine, &[other], &[1, 1]);
    let error = rig.read(STREAM, output).unwrap_err();
    assert!(error.to_string().contains("half-way"), "{error}");
    assert_eq!(rig.read(STREAM, input).unwrap(), [1; 16]);
    assert_eq!(rig.read(STREAM, other).unwrap(), [5; 16]);
    rig.launch(STREAM, &kernels.fill, &[output], &[9]);
    assert_eq!(rig.read(STREAM, output).unwrap(), [9; 16], "a launch that only writes heals it");
}

#[test]
fn an_abandoned_read_leaves_nothing() {
    let mut rig = Rig::new(SimOptions::default());
    let range = filled(&mut rig, 16, 1);
    for _ in 0..100 {
        drop(rig.begin_read(STREAM, range));
        let late = rig.begin_read(STREAM, range);
        rig.turn();
        drop(late);
    }
    rig.release(STREAM, range.buffer);
    rig.sync().unwrap();
    rig.turn();
    assert_eq!(rig.counts(), [0; 4]);
}

#[test]
fn what_the_validation_layer_says_is_told_once_by_a_sync() {
    let mut rig = Rig::new(SimOptions::default());
    rig.mailbox.post(crate::message::Event::Validation("a wrong call".into()));
    let error = rig.sync().unwrap_err();
    assert!(matches!(&error, ServerError::Validation { message } if message == "a wrong call"), "{error:?}");
    rig.sync().unwrap();
}

#[test]
fn an_asker_that_waits_behind_a_page_is_heard_before_the_next() {
    let mut rig = Rig::new(SimOptions::default());
    let lease = |n| crate::message::LeaseId(n);
    rig.ask(STREAM, |reply| Body::LeaseAsk { lease: lease(1), reply });
    // All of this waits for the holder: the reservation asks for the device's first page, the askers come behind.
    let range = filled(&mut rig, 16, 1);
    let second = rig.begin(STREAM, |reply| Body::LeaseAsk { lease: lease(2), reply });
    let third = rig.begin(STREAM, |reply| Body::LeaseAsk { lease: lease(3), reply });
    rig.turn();
    rig.mailbox.send(STREAM, Body::LeaseEnd { lease: lease(1) });
    assert!(rig.wait(second).is_ok());
    rig.mailbox.send(STREAM, Body::LeaseEnd { lease: lease(2) });
    assert!(rig.wait(third).is_ok());
    rig.mailbox.send(STREAM, Body::LeaseEnd { lease: lease(3) });
    assert_eq!(rig.read(STREAM, range).unwrap(), [1; 16]);
}
