//! Traces and metrics over the whole engine, where the order of the work or the device itself is not to be relied on.

use super::rig::Rig;
use crate::error::ServerError;
use crate::id::StreamId;
use crate::message::{Body, BufferRange, TraceCall};
use crate::sim::{Fault, SimOptions};
use crate::trace::{TraceSink, TraceSummary};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use std::path::{Path, PathBuf};

fn begin(rig: &mut Rig, path: &Path) -> Result<(), ServerError> {
    let (sink, opened) = TraceSink::open(path.to_owned(), "sim".to_owned())?;
    rig.wait(opened)??;
    rig.ask(StreamId::DEFAULT, |reply| Body::Trace(TraceCall::Start { sink, reply }))
}

/// The actor answers from another thread: turns would run out.
fn end(rig: &mut Rig) -> Result<TraceSummary, ServerError> {
    let answer = rig.begin(StreamId::DEFAULT, |reply| Body::Trace(TraceCall::Stop { reply }));
    (0..100).for_each(|_| rig.turn());
    crate::wait::block_on(answer.wait())?
}

fn events(path: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    whole["traceEvents"].as_array().cloned().unwrap_or_default()
}

/// A file of this test's own.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("vkactor-{}-{name}.json", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _missing = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_trace_changes_no_bytes_whatever_the_order() {
    for seed in 0..20 {
        let file = Scratch::new(&format!("order-{seed}"));
        let mut rig = Rig::new(SimOptions { seed, ..SimOptions::default() });
        begin(&mut rig, &file.0).unwrap();
        let streams = [StreamId(1), StreamId(2)];
        let buffers = streams.map(|stream| rig.reserve(stream, 64));
        let ranges = buffers.map(|buffer| BufferRange { buffer, offset: 0, size: 64 });
        let (fill, affine) = (rig.kernels.fill.clone(), rig.kernels.affine.clone());
        for (stream, range) in streams.into_iter().zip(ranges) {
            rig.launch(stream, &fill, &[range], &[1]);
        }
        for _ in 0..50 {
            for (stream, range) in streams.into_iter().zip(ranges) {
                rig.launch(stream, &affine, &[range], &[1, 1]);
            }
        }
        for (stream, range) in streams.into_iter().zip(ranges) {
            assert_eq!(rig.read(stream, range).unwrap(), [51; 16]);
        }
        let summary = end(&mut rig).unwrap();
        assert_eq!((summary.slices, summary.streams, summary.dropped), (104, 2, 0));
        let slices = events(&file.0).into_iter().filter(|event| event["ph"] == "X").count();
        assert_eq!(slices, 104);
    }
}

#[test]
fn a_trace_takes_one_time_between_two_commands() {
    let file = Scratch::new("times");
    let mut rig = Rig::new(SimOptions::default());
    let buffer = rig.reserve(StreamId(1), 64);
    let range = BufferRange { buffer, offset: 0, size: 64 };
    let fill = rig.kernels.fill.clone();
    rig.launch(StreamId(1), &fill, &[range], &[1]);
    rig.sync().unwrap();
    begin(&mut rig, &file.0).unwrap();
    let before = rig.control.counters();
    (0..5).for_each(|_| rig.launch(StreamId(1), &fill, &[range], &[1]));
    rig.sync().unwrap();
    let after = rig.control.counters();
    assert_eq!(after.dispatches - before.dispatches, 5);
    assert_eq!(after.commands - before.commands, 5 + 6, "launches and timestamps");
    assert_eq!(end(&mut rig).unwrap().slices, 5);
    assert_eq!(rig.timestamps()[0], 0);
}

#[test]
fn a_trace_of_a_lost_device_ends_well_and_another_is_refused() {
    let (file, other) = (Scratch::new("lost"), Scratch::new("later"));
    let mut rig = Rig::new(SimOptions::default());
    begin(&mut rig, &file.0).unwrap();
    let buffer = rig.reserve(StreamId(1), 64);
    let range = BufferRange { buffer, offset: 0, size: 64 };
    let fill = rig.kernels.fill.clone();
    rig.launch(StreamId(1), &fill, &[range], &[1]);
    rig.sync().unwrap();
    rig.control.inject(Fault::Submission(0));
    rig.launch(StreamId(1), &fill, &[range], &[2]);
    assert!(rig.sync().unwrap_err().is_device_lost());
    assert_eq!(end(&mut rig).unwrap().slices, 1);
    assert!(events(&file.0).iter().any(|event| event["name"] == "fill" && event["args"]["submission"].is_u64()));
    assert!(begin(&mut rig, &other.0).unwrap_err().is_device_lost());
    assert!(end(&mut rig).is_err());
}

#[test]
fn levels_return_to_nothing() {
    let recorder = DebuggingRecorder::new();
    let mut rig = metrics::with_local_recorder(&recorder, || Rig::new(SimOptions::default()));
    let buffer = rig.reserve(StreamId(1), 64);
    let range = BufferRange { buffer, offset: 0, size: 64 };
    let fill = rig.kernels.fill.clone();
    rig.launch(StreamId(1), &fill, &[range], &[1]);
    rig.read(StreamId(1), range).unwrap();
    rig.release(StreamId(1), buffer);
    rig.cleanup();
    rig.turn();
    for (key, _, _, value) in recorder.snapshotter().snapshot().into_vec() {
        match value {
            DebugValue::Gauge(level) => assert_eq!(level.into_inner(), 0.0, "{key:?}"),
            DebugValue::Counter(count) if key.key().name() == "vkactor_launches_total" => assert_eq!(count, 1),
            DebugValue::Counter(_) | DebugValue::Histogram(_) => {}
        }
    }
}
