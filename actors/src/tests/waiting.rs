//! Reservations that wait for memory.

use super::rig::Rig;
use crate::engine::memory::{MemoryPoolConfig, MemoryPoolsConfig};
use crate::error::ServerError;
use crate::id::{BufferId, Holder, StreamId};
use crate::message::{Body, BufferRange};
use crate::reply::Answer;
use crate::sim::SimOptions;
use futures::FutureExt;

const STREAM: StreamId = StreamId(1);
const MIB: u64 = 1 << 20;

type Waiting = Answer<Result<(), ServerError>>;

fn rig() -> Rig {
    Rig::with_budget(SimOptions::default(), 16 * MIB)
}

/// As many that are not the same.
fn holders<const N: usize>() -> [Holder; N] {
    [(); N].map(|()| std::thread::spawn(Holder::current).join().unwrap())
}

fn ask(rig: &mut Rig, holder: Holder, mib: u64) -> (BufferId, Waiting) {
    let buffer = BufferId::fresh();
    let answer = rig.begin(STREAM, |reply| Body::Reserve { buffer, size: mib * MIB, holder, wait: Some(reply) });
    rig.turn();
    (buffer, answer)
}

fn get(rig: &mut Rig, holder: Holder, mib: u64) -> BufferId {
    let (buffer, answer) = ask(rig, holder, mib);
    assert!(matches!(rig.wait(answer), Ok(Ok(()))), "{mib} MiB");
    buffer
}

fn assert_served(rig: &mut Rig, answer: Waiting) {
    assert!(matches!(rig.wait(answer), Ok(Ok(()))));
}

fn assert_out_of_memory(rig: &mut Rig, answer: Waiting) {
    let error = rig.wait(answer).unwrap().unwrap_err();
    assert!(error.is_out_of_memory(), "{error:?}");
}

fn is_waiting(rig: &mut Rig, mut answer: Waiting) -> Waiting {
    (0..3).for_each(|_| rig.turn());
    assert!(answer.answered().now_or_never().is_none(), "it has an answer");
    answer
}

#[test]
fn they_are_served_in_the_order_in_which_they_came() {
    let (mut rig, [a, b, c]) = (rig(), holders());
    let first = get(&mut rig, a, 14);
    let (second, waits) = ask(&mut rig, b, 12);
    let (third, last) = ask(&mut rig, c, 1);
    let last = is_waiting(&mut rig, last);
    rig.release(STREAM, first);
    assert_served(&mut rig, waits);
    assert_served(&mut rig, last);
    rig.release(STREAM, second);
    rig.release(STREAM, third);
    rig.turn();
    assert_eq!(rig.counts()[0], 0);
}

#[test]
fn one_that_needs_a_page_keeps_its_place_and_those_behind_follow() {
    let (mut rig, [a, b, c, d]) = (rig(), holders());
    let first = get(&mut rig, a, 14);
    // None of them fits the page of the first together with the others, so pages are asked for on the way.
    let waiting = [ask(&mut rig, b, 15), ask(&mut rig, c, 7), ask(&mut rig, d, 7)];
    rig.release(STREAM, first);
    for (buffer, answer) in waiting {
        assert_served(&mut rig, answer);
        rig.release(STREAM, buffer);
    }
}

#[test]
fn tasks_of_one_stream_wait_for_each_other() {
    let (mut rig, [a, b]) = (rig(), holders());
    let first = get(&mut rig, a, 10);
    let (_, waits) = ask(&mut rig, b, 10);
    let waits = is_waiting(&mut rig, waits);
    rig.release(STREAM, first);
    assert_served(&mut rig, waits);
}

#[test]
fn where_every_holder_waits_the_youngest_fails_and_the_others_go_on() {
    let (mut rig, [a, b]) = (rig(), holders());
    let held = [get(&mut rig, a, 7), get(&mut rig, b, 7)];
    let (_, old) = ask(&mut rig, a, 7);
    let (_, young) = ask(&mut rig, b, 7);
    assert_out_of_memory(&mut rig, young);
    rig.release(STREAM, held[1]);
    assert_served(&mut rig, old);
}

#[test]
fn a_circle_that_closes_when_the_last_who_does_not_wait_is_gone_is_broken() {
    let (mut rig, [a, b, c]) = (rig(), holders());
    let [_, held, small] = [(a, 7), (b, 7), (c, 1)].map(|(holder, mib)| get(&mut rig, holder, mib));
    let (_, old) = ask(&mut rig, a, 7);
    let (_, young) = ask(&mut rig, b, 7);
    let old = is_waiting(&mut rig, old);
    rig.release(STREAM, small);
    assert_out_of_memory(&mut rig, young);
    rig.release(STREAM, held);
    assert_served(&mut rig, old);
}

#[test]
fn who_gave_up_waiting_is_in_no_circle() {
    let (mut rig, [a, b]) = (rig(), holders());
    let held = [get(&mut rig, a, 7), get(&mut rig, b, 7)];
    let (given_up, answer) = ask(&mut rig, a, 7);
    drop(answer);
    rig.release(STREAM, given_up);
    let (_, young) = ask(&mut rig, b, 7);
    let young = is_waiting(&mut rig, young);
    rig.release(STREAM, held[0]);
    assert_served(&mut rig, young);
}

#[test]
fn empty_pages_of_the_wrong_size_give_way() {
    let (mut rig, [a, b]) = (rig(), holders());
    let layout = MemoryPoolsConfig::Explicit(vec![MemoryPoolConfig::Exclusive {
        max_alloc_size: 16 * MIB,
        dealloc_period: None,
    }]);
    rig.ask(STREAM, |reply| Body::Install { layout, reply }).unwrap();
    let first = get(&mut rig, a, 12);
    let (_, waits) = ask(&mut rig, b, 5);
    rig.release(STREAM, first);
    assert_served(&mut rig, waits);
}

#[test]
fn what_is_on_its_way_back_is_no_reason_to_fail() {
    let options = SimOptions { auto_run: false, ..SimOptions::default() };
    let (mut rig, [a, b, c]) = (Rig::with_budget(options, 16 * MIB), holders());
    let kernels = rig.kernels.clone();
    let (first, answer) = ask(&mut rig, a, 12);
    assert_served(&mut rig, answer);
    rig.launch(STREAM, &kernels.fill, &[BufferRange { buffer: first, offset: 0, size: 64 }], &[1]);
    while rig.control.counters().submissions == 0 {
        // The kernel is compiled on a thread of the pool.
        rig.turn();
    }
    rig.release(STREAM, first);
    // Its page is larger than what is left beside it, and the device works on it still.
    let waiting = [ask(&mut rig, b, 13), ask(&mut rig, c, 14)];
    let waiting = waiting.map(|(buffer, answer)| (buffer, is_waiting(&mut rig, answer)));
    rig.control.run();
    for (buffer, answer) in waiting {
        assert_served(&mut rig, answer);
        rig.release(STREAM, buffer);
    }
}
