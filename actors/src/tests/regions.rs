//! Bytes that lie in the memory of one device and are copied from there by another.

use super::rig::Rig;
use crate::bytes::Bytes;
use crate::id::StreamId;
use crate::message::{Body, BufferRange, Incoming};
use crate::sim::SimOptions;
use crate::tensor::Rows;
use proptest::prelude::*;

const STREAM: StreamId = StreamId(1);
/// So few that writes are done in the turn that takes them.
const WORDS: usize = 12;

fn rig(seed: u64, host_import: bool) -> Rig {
    let mut options = SimOptions { auto_run: false, seed, ..SimOptions::default() };
    options.properties.features.host_import = host_import;
    Rig::new(options)
}

fn filled(rig: &mut Rig, value: u32) -> BufferRange {
    let range = BufferRange { buffer: rig.reserve(STREAM, 4 * WORDS as u64), offset: 0, size: 4 * WORDS as u64 };
    rig.write(STREAM, range, &[value; WORDS]);
    settle(rig);
    range
}

/// Runs all that was sent. Otherwise the device stands still.
fn settle(rig: &mut Rig) {
    rig.control.auto_run(true);
    rig.sync().unwrap();
    rig.control.auto_run(false);
}

/// The bytes of a range, pinned by the device that has them.
fn fetch(rig: &mut Rig, range: BufferRange) -> Bytes {
    let answer = rig.begin_read(STREAM, range);
    rig.control.auto_run(true);
    let bytes = rig.wait(answer).unwrap().unwrap().remove(0);
    rig.control.auto_run(false);
    bytes
}

fn put(rig: &mut Rig, to: BufferRange, bytes: Bytes) {
    let rows = Rows::contiguous(bytes.len() as u64);
    rig.mailbox.send(
        STREAM,
        Body::Write { to: BufferRange { size: rows.bytes, ..to }, rows, bytes, budget: 0, placed: false },
    );
}

fn words(rig: &mut Rig, range: BufferRange) -> Vec<u32> {
    bytemuck::pod_collect_to_vec(&fetch(rig, range))
}

#[test]
fn bytes_of_another_device_are_copied_from_where_they_lie() {
    for (host_import, pages) in [(true, 1), (false, 0)] {
        let (mut from, mut to) = (rig(1, true), rig(2, host_import));
        let (source, target) = (filled(&mut from, 7), filled(&mut to, 0));
        let before = to.control.counters();
        for _ in 0..3 {
            let bytes = fetch(&mut from, source);
            put(&mut to, target, bytes);
            settle(&mut to);
        }
        let after = to.control.counters();
        assert_eq!((after.pages - before.pages, after.bytes), (pages, before.bytes), "import: {host_import}");
        assert_eq!(words(&mut to, target), [7; WORDS]);
    }
}

#[test]
fn memory_is_used_again_only_when_the_other_device_has_copied_from_it() {
    let (mut from, mut to) = (rig(1, true), rig(2, true));
    let (source, other) = (filled(&mut from, 7), filled(&mut from, 8));
    let target = filled(&mut to, 0);
    let bytes = fetch(&mut from, source);
    put(&mut to, target, bytes);
    to.turn();
    // The other device has not run yet, and these would take the place of the bytes if it were free.
    let later: Vec<Bytes> = (0..4).map(|_| fetch(&mut from, other)).collect();
    settle(&mut to);
    assert_eq!(words(&mut to, target), [7; WORDS]);
    drop(later);
    from.turn();
    assert_eq!(from.counts()[1], 2 * 4 * WORDS as u64, "no host memory is kept");
}

#[test]
fn a_device_that_stops_is_let_go_by_the_others_when_their_copies_are_done() {
    let (mut from, mut to) = (rig(1, true), rig(2, true));
    let source = filled(&mut from, 7);
    let (target, again) = (filled(&mut to, 0), filled(&mut to, 0));
    let before = to.control.counters().pages;
    let bytes = fetch(&mut from, source);
    put(&mut to, target, bytes.clone());
    to.turn();
    drop(from);
    assert_eq!(to.control.counters().pages, before + 1);
    put(&mut to, again, bytes);
    settle(&mut to);
    (0..3).for_each(|_| to.turn());
    assert_eq!(to.control.counters().pages, before, "the page is freed when nobody needs it");
    assert_eq!(words(&mut to, target), [7; WORDS]);
    assert_eq!(words(&mut to, again), [7; WORDS]);
}

#[test]
fn a_copy_on_the_device_takes_rows_and_what_spoils_them() {
    let mut rig = Rig::new(SimOptions::default());
    let (source, target) = (filled(&mut rig, 7), filled(&mut rig, 0));
    rig.control.auto_run(true);
    rig.write(STREAM, BufferRange { offset: 4, size: 4, ..source }, &[9]);
    let rows = Rows { count: 3, bytes: 4, pitch: 8 };
    let from = BufferRange { offset: 4, size: 20, ..source };
    rig.mailbox.send(STREAM, Body::Copy { from, rows, to: BufferRange { offset: 8, size: 16, ..target } });
    assert_eq!(rig.read(STREAM, target).unwrap()[..6], [0, 0, 9, 7, 7, 0]);

    let error = Box::new(crate::error::ServerError::Closed);
    rig.mailbox.send(STREAM, Body::Spoil { range: BufferRange { size: 4, ..source }, error });
    rig.mailbox.send(STREAM, Body::Copy { from: source, rows: Rows::contiguous(8), to: target });
    assert_eq!(rig.read(STREAM, target).unwrap_err().to_string(), rig.read(STREAM, source).unwrap_err().to_string());
    rig.mailbox.send(STREAM, Body::Copy { from, rows: Rows::contiguous(20), to: target });
    assert!(rig.read(STREAM, target).is_err(), "the rest was not written");
    let rest = BufferRange { size: 20, ..target };
    assert_eq!(rig.read(STREAM, rest).unwrap(), [9, 7, 7, 7, 7]);
}

#[test]
fn bytes_on_their_way_hold_up_their_buffer_and_not_their_stream() {
    let mut rig = Rig::new(SimOptions::default());
    let (late, other) = (filled(&mut rig, 1), filled(&mut rig, 2));
    rig.control.auto_run(true);
    for chunk in 0..3 {
        let from = Incoming::Future(Box::pin(std::future::pending()));
        let to = BufferRange { offset: 4 * chunk, size: 4, ..late };
        rig.mailbox.send(STREAM, Body::Receive { to, rows: None, from, budget: 0 });
    }
    let kernels = rig.kernels.clone();
    rig.launch(STREAM, &kernels.affine, &[other], &[3, 1]);
    assert_eq!(rig.read(STREAM, other).unwrap(), [7; WORDS]);
    let held = rig.begin_read(STREAM, late);
    (0..10).for_each(|_| rig.turn());
    assert_eq!(rig.counts()[3], 4, "three chunks, and the read behind them");
    drop(held);
}

/// One thing that happens.
#[derive(Debug, Clone)]
enum Step {
    /// A buffer of a device is computed from itself.
    Compute { device: usize, buffer: usize, factor: u32 },
    /// A device goes on a little.
    Run { device: usize, steps: usize },
    /// A part of a buffer goes to another place.
    Send { from: (usize, usize), to: (usize, usize), at: usize, len: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..3usize, 0..2usize);
    prop_oneof![
        (place(), 1..9u32).prop_map(|((device, buffer), factor)| Step::Compute { device, buffer, factor }),
        (0..3usize, 1..6usize).prop_map(|(device, steps)| Step::Run { device, steps }),
        (place(), place(), 0..WORDS, 1..WORDS)
            .prop_map(|(from, to, at, len)| { Step::Send { from, to, at, len: len.min(WORDS - at) } }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Against plain arrays, in any order that the barriers of each device allow.
    #[test]
    fn transfers_between_three_devices_equal_copies_on_the_host(
        program in proptest::collection::vec(step(), 1..40), seed in any::<u64>()
    ) {
        let mut rigs: Vec<Rig> = (0..3).map(|n| rig(seed.wrapping_add(n), true)).collect();
        let mut model: Vec<Vec<Vec<u32>>> =
            (0..3u32).map(|d| (0..2).map(|b| vec![10 * d + b + 1; WORDS]).collect()).collect();
        let buffers: Vec<Vec<BufferRange>> = rigs
            .iter_mut()
            .zip(&model)
            .map(|(rig, model)| model.iter().map(|words| filled(rig, words[0])).collect())
            .collect();
        for step in program {
            match step {
                Step::Compute { device, buffer, factor } => {
                    let kernel = rigs[device].kernels.affine.clone();
                    rigs[device].launch(STREAM, &kernel, &[buffers[device][buffer]], &[factor, 1]);
                    model[device][buffer].iter_mut().for_each(|w| *w = w.wrapping_mul(factor).wrapping_add(1));
                }
                Step::Run { device, steps } => {
                    rigs[device].turn();
                    (0..steps).for_each(|_| { rigs[device].control.step(); });
                }
                Step::Send { from, to, at, len } => {
                    let part = |range: BufferRange| BufferRange {
                        offset: range.offset + 4 * at as u64, size: 4 * len as u64, ..range
                    };
                    if from.0 == to.0 {
                        let (source, target) = (part(buffers[from.0][from.1]), part(buffers[to.0][to.1]));
                        if from.1 == to.1 {
                            continue;
                        }
                        let rows = Rows::contiguous(source.size);
                        rigs[from.0].mailbox.send(STREAM, Body::Copy { from: source, rows, to: target });
                        let moved = model[from.0][from.1][at..at + len].to_vec();
                        model[to.0][to.1][at..at + len].copy_from_slice(&moved);
                        continue;
                    }
                    let bytes = fetch(&mut rigs[from.0], part(buffers[from.0][from.1]));
                    put(&mut rigs[to.0], part(buffers[to.0][to.1]), bytes);
                    let moved = model[from.0][from.1][at..at + len].to_vec();
                    model[to.0][to.1][at..at + len].copy_from_slice(&moved);
                }
            }
        }
        for (device, rig) in rigs.iter_mut().enumerate() {
            rig.control.auto_run(true);
            for (buffer, expected) in model[device].iter().enumerate() {
                prop_assert_eq!(&rig.read(STREAM, buffers[device][buffer]).unwrap(), expected);
            }
            prop_assert!(rig.control.conflicts().is_empty());
        }
    }
}
