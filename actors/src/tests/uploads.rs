//! Uploads that are copied beside the actor, and what must not overtake them.

use super::rig::Rig;
use crate::bytes::Bytes;
use crate::id::StreamId;
use crate::message::{Body, BufferRange, GraphCall, ProfileCall};
use crate::sim::SimOptions;
use crate::tensor::Rows;

const STREAM: StreamId = StreamId(1);
/// More than the copies that may go on at once.
const WORDS: usize = 4096;

fn buffer(rig: &mut Rig, words: usize) -> BufferRange {
    BufferRange { buffer: rig.reserve(STREAM, 4 * words as u64), offset: 0, size: 4 * words as u64 }
}

fn rising() -> Vec<u32> {
    (0..WORDS as u32).collect()
}

#[test]
fn launches_and_writes_behind_an_upload_find_all_of_it() {
    let mut rig = Rig::new(SimOptions::default());
    let kernels = rig.kernels.clone();
    let target = buffer(&mut rig, WORDS);
    rig.write(STREAM, target, &rising());
    rig.launch(STREAM, &kernels.affine, &[target], &[1, 5]);
    rig.write(STREAM, BufferRange { size: 8, ..target }, &[9, 9]);
    let mut expected: Vec<u32> = rising().iter().map(|x| x + 5).collect();
    expected[..2].fill(9);
    assert_eq!(rig.read(STREAM, target).unwrap(), expected);
}

#[test]
fn rows_with_padding_between_them_leave_the_padding_alone() {
    let mut rig = Rig::new(SimOptions::default());
    let kernels = rig.kernels.clone();
    let (rows, words, pitch) = (40u64, 5u64, 8u64);
    let target = buffer(&mut rig, (rows * pitch) as usize);
    rig.launch(STREAM, &kernels.fill, &[target], &[7]);
    let dense: Vec<u32> = (100..100 + (rows * words) as u32).collect();
    let body = Body::Write {
        to: BufferRange { size: target.size - 4 * (pitch - words), ..target },
        rows: Rows { count: rows, bytes: 4 * words, pitch: 4 * pitch },
        bytes: Bytes::from_elems(dense.clone()),
        budget: 0,
        placed: false,
    };
    rig.mailbox.send(STREAM, body);
    let found = rig.read(STREAM, target).unwrap();
    for (row, dense) in found.chunks(pitch as usize).zip(dense.chunks(words as usize)) {
        assert_eq!((&row[..5], &row[5..]), (dense, &[7; 3][..]));
    }
}

#[test]
fn a_window_that_opens_behind_an_upload_is_not_doomed_by_it() {
    let mut rig = Rig::new(SimOptions::default());
    let kernels = rig.kernels.clone();
    let (target, other) = (buffer(&mut rig, WORDS), buffer(&mut rig, 4));
    rig.write(STREAM, target, &rising());
    rig.write(STREAM, other, &[1; 4]);
    rig.ask(STREAM, |reply| Body::Graph(GraphCall::Prepare { reply })).unwrap();
    rig.ask(STREAM, |reply| Body::Graph(GraphCall::Start { reply })).unwrap();
    rig.launch(STREAM, &kernels.affine, &[other], &[1, 1]);
    rig.ask(STREAM, |reply| Body::Graph(GraphCall::Stop { reply })).expect("the write came before the window");
    assert_eq!(rig.read(STREAM, target).unwrap(), rising());
}

#[test]
fn a_profiling_window_ends_behind_the_uploads_in_it() {
    let mut rig = Rig::new(SimOptions::default());
    let target = buffer(&mut rig, WORDS);
    let window = rig.mailbox.windows().open(STREAM);
    rig.ask(STREAM, |reply| Body::Profile(ProfileCall::Start { window, reply: Some(reply) })).unwrap();
    rig.write(STREAM, target, &rising());
    let (ticks, measured) = crate::reply::reply();
    rig.ask(STREAM, |reply| Body::Profile(ProfileCall::End { window, reply: Some(reply), ticks })).unwrap();
    let measured = rig.wait(measured).expect("the actor runs").expect("the upload was measured");
    assert!(measured.duration().as_nanos() > 0);
}

#[test]
fn a_stop_lets_an_upload_arrive() {
    let mut rig = Rig::new(SimOptions::default());
    let target = buffer(&mut rig, WORDS);
    rig.write(STREAM, target, &rising());
    let read = rig.begin_read(STREAM, target);
    rig.mailbox.send(STREAM, Body::Stop);
    assert_eq!(rig.finish_read(read).unwrap(), rising());
}
