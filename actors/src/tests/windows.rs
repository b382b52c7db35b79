//! Profiling windows over the whole engine.

use super::rig::Rig;
use crate::error::{ProfileError, ServerError};
use crate::id::StreamId;
use crate::message::{Body, BufferRange, GraphCall, ProfileCall, Sealed};
use crate::profile::{ProfileTicks, ProfileWindow};
use crate::reply::{Answer, Reply, reply};
use crate::sim::{Fault, SimOptions};
use std::time::Duration;

type Ticks = Answer<Result<ProfileTicks, ProfileError>>;

const STREAM: StreamId = StreamId(7);

fn rig() -> Rig {
    Rig::new(SimOptions::default())
}

fn open(rig: &mut Rig, stream: StreamId) -> ProfileWindow {
    let window = rig.mailbox.windows().open(stream);
    rig.mailbox.send(stream, Body::Profile(ProfileCall::Start { window, reply: None }));
    window
}

fn close(rig: &mut Rig, window: ProfileWindow) -> Ticks {
    assert!(rig.mailbox.windows().close(window));
    let (ticks, time) = reply();
    rig.mailbox.send(window.stream_id, Body::Profile(ProfileCall::End { window, reply: None, ticks }));
    time
}

fn abandon(rig: &mut Rig, window: ProfileWindow) {
    assert!(rig.mailbox.windows().close(window));
    rig.mailbox.send(window.stream_id, Body::Profile(ProfileCall::Abandon { window }));
}

fn time(rig: &mut Rig, ticks: Ticks) -> Result<Duration, ProfileError> {
    rig.wait(ticks).unwrap().map(|ticks| ticks.duration())
}

/// A buffer, and launches over it that each depend on the last.
fn work(rig: &mut Rig, stream: StreamId) -> impl Fn(&mut Rig) + use<> {
    let range = BufferRange { buffer: rig.reserve(stream, 64), offset: 0, size: 64 };
    let fill = rig.kernels.fill.clone();
    move |rig| rig.launch(stream, &fill, &[range], &[1])
}

/// Compiles the kernel, so that launches are not held.
fn warm(rig: &mut Rig, launch: &impl Fn(&mut Rig)) {
    launch(rig);
    rig.sync().unwrap();
}

#[test]
fn a_window_begins_where_the_one_before_it_ends() {
    let mut rig = rig();
    let launch = work(&mut rig, STREAM);
    warm(&mut rig, &launch);
    let before = rig.control.counters();
    let mut times = Vec::new();
    for _ in 0..5 {
        let window = open(&mut rig, STREAM);
        launch(&mut rig);
        times.push(close(&mut rig, window));
    }
    let times: Vec<Duration> = times.into_iter().map(|ticks| time(&mut rig, ticks).unwrap()).collect();
    assert!(times.iter().all(|time| !time.is_zero()), "{times:?}");
    let counters = rig.control.counters();
    assert_eq!(counters.dispatches - before.dispatches, 5);
    assert_eq!(counters.commands - before.commands, 5 + 6, "launches and timestamps");
}

#[test]
fn places_of_timestamps_are_as_many_as_windows_at_once() {
    let mut rig = rig();
    let launch = work(&mut rig, STREAM);
    warm(&mut rig, &launch);
    for round in 0..200 {
        let open: Vec<ProfileWindow> = (0..10)
            .map(|_| {
                let window = open(&mut rig, STREAM);
                launch(&mut rig);
                window
            })
            .collect();
        let mut times = Vec::new();
        for (n, window) in open.into_iter().enumerate() {
            match (round + n) % 3 {
                0 => abandon(&mut rig, window),
                1 => drop(close(&mut rig, window)),
                _ => times.push(close(&mut rig, window)),
            }
        }
        for ticks in times {
            time(&mut rig, ticks).unwrap();
        }
        rig.sync().unwrap();
        assert_eq!(rig.timestamps()[0], 0, "round {round}");
    }
    // Ten windows have at most so many starts and ends.
    assert!(rig.timestamps()[1] <= 20, "{:?}", rig.timestamps());
}

#[test]
fn a_window_around_a_failed_launch_gives_the_cause_and_others_do_not() {
    let mut rig = rig();
    let launch = work(&mut rig, STREAM);
    warm(&mut rig, &launch);
    let other = StreamId(8);
    let good = work(&mut rig, other);
    let (outer, beside) = (open(&mut rig, STREAM), open(&mut rig, other));
    launch(&mut rig);
    good(&mut rig);
    let inner = open(&mut rig, STREAM);
    // Two buffers for a kernel of one.
    let range = |rig: &mut Rig| BufferRange { buffer: rig.reserve(STREAM, 64), offset: 0, size: 64 };
    let (a, b) = (range(&mut rig), range(&mut rig));
    let fill = rig.kernels.fill.clone();
    rig.launch(STREAM, &fill, &[a, b], &[1]);
    let [inner, outer, beside] = [inner, outer, beside].map(|window| close(&mut rig, window));
    for failed in [inner, outer] {
        let result = time(&mut rig, failed);
        assert!(matches!(&result, Err(ProfileError::Server(e)) if e.is_refusal()), "{result:?}");
    }
    assert!(!time(&mut rig, beside).unwrap().is_zero());
    let after = open(&mut rig, STREAM);
    launch(&mut rig);
    let after = close(&mut rig, after);
    assert!(!time(&mut rig, after).unwrap().is_zero());
}

#[test]
fn a_window_with_nothing_in_it_is_not_measured() {
    let mut rig = rig();
    let launch = work(&mut rig, StreamId(8));
    let window = open(&mut rig, STREAM);
    launch(&mut rig);
    let ticks = close(&mut rig, window);
    assert!(matches!(time(&mut rig, ticks), Err(ProfileError::NotMeasured)));
}

#[test]
fn what_refuses_a_window_that_did_not_ask_is_told_by_its_time() {
    let mut rig = rig();
    let launch = work(&mut rig, STREAM);
    warm(&mut rig, &launch);
    let call = |rig: &mut Rig, call: fn(Reply<Result<(), ServerError>>) -> GraphCall| {
        rig.ask(STREAM, |reply| Body::Graph(call(reply))).unwrap();
    };
    let before = open(&mut rig, STREAM);
    launch(&mut rig);
    call(&mut rig, |reply| GraphCall::Prepare { reply });
    call(&mut rig, |reply| GraphCall::Start { reply });
    let inside = open(&mut rig, STREAM);
    for window in [before, inside] {
        let ticks = close(&mut rig, window);
        let result = time(&mut rig, ticks);
        assert!(
            matches!(&result, Err(ProfileError::Server(e)) if matches!(**e, ServerError::Graph { .. })),
            "{result:?}"
        );
    }
    rig.ask(STREAM, |reply: Reply<Result<Sealed, ServerError>>| Body::Graph(GraphCall::Stop { reply })).unwrap();
    rig.sync().unwrap();
    assert_eq!(rig.timestamps()[0], 0);
}

#[test]
fn a_window_on_a_lost_device_tells_so() {
    let mut rig = rig();
    let launch = work(&mut rig, STREAM);
    warm(&mut rig, &launch);
    let window = open(&mut rig, STREAM);
    rig.control.inject(Fault::Submission(0));
    launch(&mut rig);
    let during = close(&mut rig, window);
    let lost =
        |result: Result<Duration, ProfileError>| matches!(&result, Err(ProfileError::Server(e)) if e.is_device_lost());
    assert!(lost(time(&mut rig, during)));
    let window = open(&mut rig, STREAM);
    let after = close(&mut rig, window);
    assert!(lost(time(&mut rig, after)));
}
