//! Reads a trace as a viewer would, and refuses what a viewer would not show.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A slice, in nanoseconds from the start of the trace.
pub(crate) struct Slice {
    pub(crate) name: String,
    pub(crate) track: String,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) args: Value,
}

/// A reading of a counter.
pub(crate) struct Level {
    pub(crate) at_ns: u64,
    pub(crate) args: Value,
}

/// A trace that holds together.
pub(crate) struct TraceFile {
    /// In the order of the file.
    pub(crate) slices: Vec<Slice>,
    /// The readings of each counter, in the order of the file.
    pub(crate) counters: BTreeMap<String, Vec<Level>>,
    /// How far the clocks of counters and slices may be apart.
    pub(crate) clock_error_ns: Option<u64>,
}

type TrackId = (u64, u64);

impl TraceFile {
    /// The file at `path`, by the trace event format: JSON of a list of events with the fields that each kind needs,
    /// every begin with its end, every track and process with one name, times that are none before zero, slices of a
    /// track in their order and one behind the other, counters of numbers in their order.
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("a trace was written");
        let whole: Value = serde_json::from_str(&text).expect("the trace is JSON");
        assert!(matches!(whole["displayTimeUnit"].as_str(), Some("ms" | "ns")), "a viewer knows two units");
        let events = whole["traceEvents"].as_array().expect("the trace has events");
        let mut names: BTreeMap<(&str, TrackId), String> = BTreeMap::new();
        let mut open: BTreeMap<TrackId, Vec<(String, u64)>> = BTreeMap::new();
        let mut found: Vec<(TrackId, Slice)> = Vec::new();
        let mut counters: BTreeMap<String, Vec<Level>> = BTreeMap::new();
        for event in events {
            let id = (event["pid"].as_u64().expect("a process"), event["tid"].as_u64().expect("a track"));
            let name = event["name"].as_str().expect("a name").to_owned();
            let at = |key: &str| nanoseconds(&event[key]);
            let args = event["args"].clone();
            let slice = |name, start_ns, end_ns, args| Slice { name, track: String::new(), start_ns, end_ns, args };
            match event["ph"].as_str().expect("a phase") {
                "M" if name == "process_name" => {
                    let named = names.insert(("process", (id.0, 0)), text_of(&args["name"]));
                    assert!(named.is_none(), "a second name in {event}");
                }
                "M" if name == "thread_name" => {
                    let named = names.insert(("track", id), text_of(&args["name"]));
                    assert!(named.is_none(), "a second name in {event}");
                }
                "X" => {
                    assert!(event["cat"].is_string() && args.is_object(), "{event}");
                    found.push((id, slice(name, at("ts"), at("ts") + at("dur"), args)));
                }
                "B" => open.entry(id).or_default().push((name, at("ts"))),
                "E" => {
                    let (name, start) = open.get_mut(&id).and_then(Vec::pop).expect("an end has a beginning");
                    found.push((id, slice(name, start, at("ts"), args)));
                }
                "C" => {
                    let series = args.as_object().expect("a counter has values");
                    assert!(!series.is_empty() && series.values().all(Value::is_number), "{event}");
                    let (levels, at_ns) = (counters.entry(name).or_default(), at("ts"));
                    assert!(levels.last().is_none_or(|last| last.at_ns <= at_ns), "{event} goes back");
                    levels.push(Level { at_ns, args });
                }
                other => panic!("phase {other} in {event}"),
            }
            assert!(names.contains_key(&("process", (id.0, 0))), "no name for the process of {event}");
        }
        assert!(open.values().all(Vec::is_empty), "a beginning has no end");
        let slices = found.into_iter().map(|(id, slice)| {
            let track = names.get(&("track", id)).unwrap_or_else(|| panic!("track {id:?} has no name")).clone();
            Slice { track, ..slice }
        });
        let clock_error_ns = whole["otherData"]["host_clock_error_ns"].as_u64();
        let file = Self { slices: slices.collect(), counters, clock_error_ns };
        file.check_nesting();
        file
    }

    /// Names of the tracks that have slices.
    pub(crate) fn tracks(&self) -> BTreeSet<&str> {
        self.slices.iter().map(|slice| slice.track.as_str()).collect()
    }

    /// Slices of this name.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.slices.iter().filter(|slice| slice.name == name).count()
    }

    /// The sum of all slices.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.slices.iter().map(|slice| slice.end_ns - slice.start_ns).sum()
    }

    /// Slices of a track lie one behind the other.
    fn check_nesting(&self) {
        let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
        for slice in &self.slices {
            let end = ends.entry(&slice.track).or_default();
            assert!(slice.start_ns >= *end, "{} begins at {} before {end}", slice.name, slice.start_ns);
            *end = slice.end_ns;
        }
    }
}

fn text_of(name: &Value) -> String {
    let name = name.as_str().expect("a name");
    assert!(!name.is_empty(), "an empty name");
    name.to_owned()
}

fn nanoseconds(micros: &Value) -> u64 {
    let micros = micros.as_f64().expect("a time");
    assert!(micros >= 0.0, "a time of {micros} µs");
    (micros * 1e3).round() as u64
}
