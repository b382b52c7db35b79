//! The numbers of one actor for whoever collects metrics, through the `metrics` facade.
//!
//! The engine counts in plain integers; what was added in a turn is published at its end, so that a launch pays for
//! one addition and a turn for a few atomics. Where no recorder is installed when the actor starts, nothing is summed
//! up and a turn pays for a branch.

use crate::engine::observe::{Levels, Tally};
use crate::id::DeviceId;
use metrics::{Counter, Gauge, Histogram, IntoF64, Label, Unit};
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use std::cell::Cell;

/// What an actor publishes.
#[derive(Clone)]
pub(crate) struct Meter {
    counters: Counters,
    gauges: Gauges,
    compile: Histogram,
    read: Histogram,
    told: Tally,
    shown: Option<Snapshot>,
    /// Whether anybody listens.
    heard: bool,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").field("told", &self.told).finish_non_exhaustive()
    }
}

/// What gauges show, at the end of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// The engine's.
    pub(crate) levels: Levels,
    /// Messages that the turn found waiting.
    pub(crate) messages: usize,
    /// Launches sent and not done.
    pub(crate) launches: usize,
}

#[derive(Clone)]
struct Counters {
    barriers: Counter,
    barriers_avoided: Counter,
    bytes_read: Counter,
    bytes_uploaded: Counter,
    failures: Counter,
    launches: Counter,
    replays: Counter,
    submissions: Counter,
}

#[derive(Clone)]
struct Gauges {
    bytes_in_use: Gauge,
    bytes_reserved: Gauge,
    held: Gauge,
    launches: Gauge,
    messages: Gauge,
    submissions: Gauge,
}

impl Meter {
    /// The handles of the recorder that is installed now.
    pub(crate) fn new(runtime: &'static str, device: DeviceId) -> Self {
        describe();
        let labels = || {
            let id = format!("{}:{}", device.type_id, device.index_id);
            vec![Label::from_static_parts("runtime", runtime), Label::new("device", id)]
        };
        let pool = |state| {
            let mut labels = labels();
            labels.push(Label::from_static_parts("state", state));
            gauge!(POOL_BYTES, labels)
        };
        let held = gauge!(HELD, labels());
        Self {
            heard: has_recorder(&held),
            counters: Counters {
                barriers: counter!(BARRIERS, labels()),
                barriers_avoided: counter!(BARRIERS_AVOIDED, labels()),
                bytes_read: counter!(BYTES_READ, labels()),
                bytes_uploaded: counter!(BYTES_UPLOADED, labels()),
                failures: counter!(FAILURES, labels()),
                launches: counter!(LAUNCHES, labels()),
                replays: counter!(REPLAYS, labels()),
                submissions: counter!(SUBMISSIONS, labels()),
            },
            gauges: Gauges {
                bytes_in_use: pool("in_use"),
                bytes_reserved: pool("reserved"),
                held,
                launches: gauge!(LAUNCHES_IN_FLIGHT, labels()),
                messages: gauge!(QUEUE_DEPTH, labels()),
                submissions: gauge!(SUBMISSIONS_IN_FLIGHT, labels()),
            },
            compile: histogram!(COMPILE, labels()),
            read: histogram!(READ, labels()),
            told: Tally::default(),
            shown: None,
        }
    }

    /// Whether what is published goes anywhere.
    pub(crate) fn is_heard(&self) -> bool {
        self.heard
    }

    /// Publishes what has changed since the last call.
    pub(crate) fn publish(&mut self, tally: Tally, now: Snapshot) {
        self.count(tally);
        if self.shown.as_ref() != Some(&now) {
            self.show(&now);
            self.shown = Some(now);
        }
    }

    /// Seconds that a compilation took.
    pub(crate) fn compile(&self) -> &Histogram {
        &self.compile
    }

    /// Seconds from the call of a read to its bytes.
    pub(crate) fn read(&self) -> &Histogram {
        &self.read
    }

    fn count(&mut self, tally: Tally) {
        if self.told == tally {
            return;
        }
        let (to, before) = (&self.counters, &self.told);
        let add = |counter: &Counter, now: u64, before: u64| {
            if now != before {
                counter.increment(now - before);
            }
        };
        add(&to.barriers, tally.barriers, before.barriers);
        add(&to.barriers_avoided, tally.barriers_avoided, before.barriers_avoided);
        add(&to.bytes_read, tally.bytes_read, before.bytes_read);
        add(&to.bytes_uploaded, tally.bytes_uploaded, before.bytes_uploaded);
        add(&to.failures, tally.failures, before.failures);
        add(&to.launches, tally.launches, before.launches);
        add(&to.replays, tally.replays, before.replays);
        add(&to.submissions, tally.submissions, before.submissions);
        self.told = tally;
    }

    fn show(&self, now: &Snapshot) {
        let Snapshot { levels, messages, launches } = now;
        let to = &self.gauges;
        to.bytes_in_use.set(levels.memory.bytes_in_use as f64);
        to.bytes_reserved.set(levels.memory.bytes_reserved as f64);
        to.held.set(levels.held as f64);
        to.launches.set(*launches as f64);
        to.messages.set(*messages as f64);
        to.submissions.set(levels.submissions as f64);
    }
}

/// Whether there is a recorder behind a gauge. The facade does not tell, but one without never asks for the number.
fn has_recorder(gauge: &Gauge) -> bool {
    struct Asked<'a>(&'a Cell<bool>);
    impl IntoF64 for Asked<'_> {
        fn into_f64(self) -> f64 {
            self.0.set(true);
            0.0
        }
    }
    let asked = Cell::new(false);
    gauge.set(Asked(&asked));
    asked.get()
}

/// Tells the recorder what the names mean. Telling it again changes nothing.
fn describe() {
    describe_counter!(BARRIERS, Unit::Count, "Barriers put before commands and replays");
    describe_counter!(BARRIERS_AVOIDED, Unit::Count, "Commands and replays that needed no barrier before them");
    describe_counter!(BYTES_READ, Unit::Bytes, "Bytes copied from the device to the host");
    describe_counter!(BYTES_UPLOADED, Unit::Bytes, "Bytes copied from the host to the device");
    describe_counter!(FAILURES, Unit::Count, "Failures, each once however many buffers carry it");
    describe_counter!(LAUNCHES, Unit::Count, "Launches sent to the queue, without those of replays");
    describe_counter!(REPLAYS, Unit::Count, "Replays of graphs sent to the queue");
    describe_counter!(SUBMISSIONS, Unit::Count, "Submissions to the queue");
    describe_gauge!(HELD, Unit::Count, "Messages that wait for a kernel, for bytes or for memory");
    describe_gauge!(LAUNCHES_IN_FLIGHT, Unit::Count, "Launches and replays sent by clients and not done");
    describe_gauge!(POOL_BYTES, Unit::Bytes, "Device memory of the pools, by state");
    describe_gauge!(QUEUE_DEPTH, Unit::Count, "Messages that the actor's last turn found waiting");
    describe_gauge!(SUBMISSIONS_IN_FLIGHT, Unit::Count, "Submissions that the device has not finished");
    describe_histogram!(COMPILE, Unit::Seconds, "Time to compile a kernel, failures included");
    describe_histogram!(READ, Unit::Seconds, "Time from the call of a read to its bytes");
}

const BARRIERS: &str = "vkactor_barriers_total";
const BARRIERS_AVOIDED: &str = "vkactor_barriers_avoided_total";
const BYTES_READ: &str = "vkactor_read_bytes_total";
const BYTES_UPLOADED: &str = "vkactor_uploaded_bytes_total";
const COMPILE: &str = "vkactor_compile_seconds";
const FAILURES: &str = "vkactor_failures_total";
const HELD: &str = "vkactor_held_messages";
const LAUNCHES: &str = "vkactor_launches_total";
const LAUNCHES_IN_FLIGHT: &str = "vkactor_launches_in_flight";
const POOL_BYTES: &str = "vkactor_pool_bytes";
const QUEUE_DEPTH: &str = "vkactor_queue_depth";
const READ: &str = "vkactor_read_latency_seconds";
const REPLAYS: &str = "vkactor_replays_total";
const SUBMISSIONS: &str = "vkactor_submissions_total";
const SUBMISSIONS_IN_FLIGHT: &str = "vkactor_submissions_in_flight";

#[cfg(test)]
mod tests {
    use super::*;
    use metrics::NoopRecorder;
    use metrics_util::debugging::DebuggingRecorder;

    #[test]
    fn a_meter_knows_whether_it_is_heard() {
        let meter = || Meter::new("test", DeviceId::new(1, 1));
        assert!(!metrics::with_local_recorder(&NoopRecorder, meter).is_heard());
        assert!(metrics::with_local_recorder(&DebuggingRecorder::new(), meter).is_heard());
    }
}
