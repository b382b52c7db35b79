//! A trace of the device's own work, as JSON that Perfetto and `chrome://tracing` open.
//!
//! Each stream is a track, each command of it a slice between two timestamps of the device. Levels (submissions and
//! launches in flight, answers and messages that wait, memory) are counters, which the host's clock places on the
//! device's: both clocks are read at once when the trace begins, and every tenth of a second from then on, since they
//! drift apart. How far the two readings may be apart is written at the end of the file, as `host_clock_error_ns`.
//!
//! Where the host cannot read the device's clock, the moment when the actor sees the first timestamp stands for the
//! moment when it was taken. Counters are then late by the time that seeing takes, some microseconds while the actor
//! polls, and drift as the clocks do; the file has no `host_clock_error_ns`.
//!
//! The actor never waits for the disk: a thread of the trace writes, and what it cannot keep up with is counted and
//! left out.

use crate::engine::command::{Groups, TimelineValue};
use crate::engine::observe::{Levels, Work};
use crate::error::{IoError, ServerError};
use crate::id::StreamId;
use crate::port::Moment;
use crate::reply::{Answer, Reply, reply};
use serde::Serialize;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Batches that may wait for the disk. One is a submission's commands, at most 256 of about 100 bytes: 13 MB in all.
const BATCHES_MAX: usize = 512;
/// How old a common reading of both clocks may become. Quartz clocks drift by some tens of parts in a million, which
/// is a few microseconds in this time: about what a reading costs, and how precise it is.
const RECALIBRATION: Duration = Duration::from_millis(100);
/// Levels that gather before they are sent without a submission.
const RECORDS_PER_BATCH: usize = 256;

/// What a trace holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceSummary {
    /// The file.
    pub path: PathBuf,
    /// Commands in it, each a slice.
    pub slices: u64,
    /// Commands and levels that were left out, because the disk was slower than the device.
    pub dropped: u64,
    /// Streams that worked, each a track.
    pub streams: usize,
    /// The sum of all slices.
    pub busy: Duration,
    /// From the start of the trace to its end.
    pub window: Duration,
}

/// What a trace is told.
#[derive(Debug)]
enum Record {
    /// How far both clocks may be apart.
    ClockError { ns: u64 },
    /// How much of everything there is.
    Level { at_ns: u64, levels: Levels, launches: usize },
    /// A command and its times.
    Slice { submission: TimelineValue, stream: StreamId, work: Work, start_ns: u64, end_ns: u64 },
}

/// A file on its way to be a trace. Dropping it makes the file whole.
#[derive(Debug)]
pub struct TraceSink {
    path: PathBuf,
    send: Option<SyncSender<Vec<Record>>>,
    thread: Option<JoinHandle<io::Result<Written>>>,
}

/// What the writer counts.
#[derive(Debug, Default)]
struct Written {
    slices: u64,
    streams: usize,
    busy_ns: u64,
}

impl TraceSink {
    /// Creates the file, on a thread of its own, and replaces one that is there. `device` names the trace. The answer
    /// comes when the file is there.
    ///
    /// # Errors
    /// No thread could be started. The answer tells why there is no file.
    pub fn open(path: PathBuf, device: String) -> Result<(Self, Answer<Result<(), ServerError>>), ServerError> {
        let (opened, answer) = reply();
        let (send, receive) = sync_channel(BATCHES_MAX);
        let to = path.clone();
        let write = move || write(&to, &device, opened, receive);
        let thread = std::thread::Builder::new().name("vkactor trace".to_owned()).spawn(write);
        let thread = thread.map_err(|error| file_error(&path, &error))?;
        Ok((Self { path, send: Some(send), thread: Some(thread) }, answer))
    }

    /// Waits for the writer.
    fn finish(&mut self) -> io::Result<Written> {
        drop(self.send.take());
        let ended = self.thread.take().map(JoinHandle::join);
        ended.and_then(Result::ok).unwrap_or_else(|| Err(io::Error::other("the writer panicked")))
    }
}

impl Drop for TraceSink {
    fn drop(&mut self) {
        if self.thread.is_some()
            && let Err(error) = self.finish()
        {
            tracing::warn!(path = %self.path.display(), %error, "a trace is not whole");
        }
    }
}

/// A trace that is going on.
#[derive(Debug)]
pub(crate) struct Trace {
    sink: TraceSink,
    began: Instant,
    /// When it began on the device's clock.
    zero_ns: u64,
    clocks: Clocks,
    /// The time of the last level.
    level_ns: u64,
    batch: Vec<Record>,
    shown: Option<(Levels, usize)>,
    dropped: u64,
}

impl Trace {
    /// Begins at the moment when the device's clock showed `zero_ns`.
    pub(crate) fn begin(sink: TraceSink, zero_ns: u64, moment: Option<Moment>) -> Self {
        tracing::info!(path = %sink.path.display(), calibrated = moment.is_some(), "trace begun");
        let began = Instant::now();
        let mut trace = Self {
            sink,
            began,
            zero_ns,
            clocks: Clocks { host: began, device_ns: zero_ns },
            level_ns: 0,
            batch: Vec::new(),
            shown: None,
            dropped: 0,
        };
        if let Some(moment) = moment {
            trace.calibrate(moment);
        }
        trace
    }

    /// Whether both clocks should be read again.
    pub(crate) fn wants_moment(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.clocks.host) >= RECALIBRATION
    }

    /// Both clocks were read at once.
    pub(crate) fn calibrate(&mut self, Moment { device_ns, host, error }: Moment) {
        self.clocks = Clocks { host, device_ns };
        self.batch.push(Record::ClockError { ns: nanoseconds(error) });
    }

    /// Notes levels where they have changed.
    pub(crate) fn level(&mut self, levels: Levels, launches: usize) {
        let same = self.shown.as_ref().is_some_and(|(l, n)| *l == levels && *n == launches);
        if same {
            return;
        }
        self.shown = Some((levels.clone(), launches));
        let at_ns = self.clocks.device_ns(Instant::now()).saturating_sub(self.zero_ns);
        // A new reading may be a little behind what the old one gave.
        self.level_ns = self.level_ns.max(at_ns);
        self.batch.push(Record::Level { at_ns: self.level_ns, levels, launches });
        if self.batch.len() >= RECORDS_PER_BATCH {
            self.flush();
        }
    }

    /// Notes a command between two readings of the device's clock.
    pub(crate) fn slice(
        &mut self,
        submission: TimelineValue,
        stream: StreamId,
        work: Work,
        start_ns: u64,
        end_ns: u64,
    ) {
        let [start_ns, end_ns] = [start_ns, end_ns].map(|ns| ns.saturating_sub(self.zero_ns));
        self.batch.push(Record::Slice { submission, stream, work, start_ns, end_ns });
    }

    /// A command's times could not be read.
    pub(crate) fn drop_one(&mut self) {
        self.dropped += 1;
    }

    /// Sends off what was noted.
    pub(crate) fn flush(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let count = batch.len() as u64;
        let sent = self.sink.send.as_ref().is_some_and(|send| send.try_send(batch).is_ok());
        if !sent {
            self.dropped += count;
        }
    }

    /// Ends now. Waits for the disk.
    pub(crate) fn end(mut self, window: Duration) -> Result<TraceSummary, ServerError> {
        // The last batch may wait for its place: nothing else does.
        if let Some(send) = &self.sink.send {
            let count = self.batch.len() as u64;
            self.dropped += if send.send(std::mem::take(&mut self.batch)).is_ok() { 0 } else { count };
        }
        let path = self.sink.path.clone();
        let Written { slices, streams, busy_ns } = self.sink.finish().map_err(|error| file_error(&path, &error))?;
        let busy = Duration::from_nanos(busy_ns);
        tracing::info!(path = %path.display(), slices, dropped = self.dropped, "trace ended");
        Ok(TraceSummary { path, slices, dropped: self.dropped, streams, busy, window })
    }

    /// How long it has been going on.
    pub(crate) fn age(&self) -> Duration {
        self.began.elapsed()
    }
}

/// The last moment that is known on both clocks.
#[derive(Debug, Clone, Copy)]
struct Clocks {
    host: Instant,
    device_ns: u64,
}

impl Clocks {
    /// What the device's clock showed at a moment of the host's.
    fn device_ns(&self, at: Instant) -> u64 {
        let (after, before) = (at.saturating_duration_since(self.host), self.host.saturating_duration_since(at));
        self.device_ns.saturating_add(nanoseconds(after)).saturating_sub(nanoseconds(before))
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn file_error(path: &Path, error: &io::Error) -> ServerError {
    IoError::File(format!("{}: {error}", path.display())).into()
}

// ---------------------------------------------------------------------------------- the file

/// The body of the writer's thread.
fn write(
    path: &Path,
    device: &str,
    opened: Reply<Result<(), ServerError>>,
    batches: Receiver<Vec<Record>>,
) -> io::Result<Written> {
    let file = match File::create(path) {
        Ok(file) => file,
        Err(error) => {
            opened.send(Err(file_error(path, &error)));
            return Err(error);
        }
    };
    opened.send(Ok(()));
    let mut writer = Writer::begin(BufWriter::new(file), device)?;
    for record in batches.into_iter().flatten() {
        writer.record(record)?;
    }
    writer.end()
}

/// One event of the format. Times are in microseconds.
#[derive(Serialize)]
struct Event<'a> {
    ph: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    pid: u32,
    tid: u64,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    args: Args<'a>,
}

/// What an event says beside its times.
#[derive(Serialize)]
#[serde(untagged)]
enum Args<'a> {
    Bytes { bytes: u64, submission: u64 },
    Indirect { groups: &'static str, submission: u64 },
    InFlight { in_flight: usize },
    Launch { groups: [u32; 3], submission: u64 },
    Memory { in_use: u64, reserved: u64 },
    Name { name: &'a str },
    Replay { launches: usize, submission: u64 },
    Waiting { answers: usize, held: usize },
}

/// A track, and where its last slice ends.
struct Track {
    id: u64,
    end_ns: u64,
}

struct Writer<W: Write> {
    to: W,
    empty: bool,
    tracks: HashMap<StreamId, Track>,
    written: Written,
    /// The largest, where both clocks were read at once.
    clock_error_ns: Option<u64>,
}

impl<W: Write> Writer<W> {
    fn begin(mut to: W, device: &str) -> io::Result<Self> {
        to.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        let mut writer =
            Self { to, empty: true, tracks: HashMap::new(), written: Written::default(), clock_error_ns: None };
        writer.name("process_name", 0, device)?;
        Ok(writer)
    }

    fn record(&mut self, record: Record) -> io::Result<()> {
        match record {
            Record::ClockError { ns } => {
                self.clock_error_ns = self.clock_error_ns.max(Some(ns));
                Ok(())
            }
            Record::Level { at_ns, levels, launches } => self.level(at_ns, &levels, launches),
            Record::Slice { submission, stream, work, start_ns, end_ns } => {
                self.slice(submission.0, stream, &work, start_ns, end_ns)
            }
        }
    }

    fn slice(&mut self, submission: u64, stream: StreamId, work: &Work, start_ns: u64, end_ns: u64) -> io::Result<()> {
        let (tid, last_ns) = match self.tracks.get(&stream) {
            Some(track) => (track.id, track.end_ns),
            None => (self.add_track(stream)?, 0),
        };
        // Slices of a track that overlapped by an unsteady tick would not nest.
        let start_ns = start_ns.max(last_ns);
        let end_ns = end_ns.max(start_ns);
        self.tracks.insert(stream, Track { id: tid, end_ns });
        self.written.slices += 1;
        self.written.busy_ns += end_ns - start_ns;
        let (name, cat, args) = match work {
            Work::Copy { bytes } => ("copy", "transfer", Args::Bytes { bytes: *bytes, submission }),
            Work::Launch { kernel, groups: Groups::Direct(groups) } => {
                (&**kernel, "launch", Args::Launch { groups: *groups, submission })
            }
            Work::Launch { kernel, groups: Groups::Indirect(_) } => {
                (&**kernel, "launch", Args::Indirect { groups: "on the device", submission })
            }
            Work::Read { bytes } => ("read", "transfer", Args::Bytes { bytes: *bytes, submission }),
            Work::Replay { launches } => ("replay", "graph", Args::Replay { launches: *launches, submission }),
            Work::Upload { bytes } => ("upload", "transfer", Args::Bytes { bytes: *bytes, submission }),
            Work::Zero { bytes } => ("zero", "memory", Args::Bytes { bytes: *bytes, submission }),
        };
        let (ts, dur) = (micros(start_ns), Some(micros(end_ns - start_ns)));
        self.event(&Event { ph: "X", name, cat: Some(cat), pid: PROCESS, tid, ts, dur, args })
    }

    fn add_track(&mut self, stream: StreamId) -> io::Result<u64> {
        // The process itself is track 0.
        let tid = self.tracks.len() as u64 + 1;
        self.written.streams += 1;
        self.name("thread_name", tid, &format!("stream {}", stream.0))?;
        Ok(tid)
    }

    fn level(&mut self, at_ns: u64, levels: &Levels, launches: usize) -> io::Result<()> {
        let Levels { submissions, answers, held, memory } = levels;
        let counters = [
            ("submissions", Args::InFlight { in_flight: *submissions }),
            ("launches", Args::InFlight { in_flight: launches }),
            ("waiting", Args::Waiting { answers: *answers, held: *held }),
            ("memory", Args::Memory { in_use: memory.bytes_in_use, reserved: memory.bytes_reserved }),
        ];
        for (name, args) in counters {
            self.event(&Event { ph: "C", name, cat: None, pid: PROCESS, tid: 0, ts: micros(at_ns), dur: None, args })?;
        }
        Ok(())
    }

    fn name(&mut self, what: &str, tid: u64, name: &str) -> io::Result<()> {
        let args = Args::Name { name };
        self.event(&Event { ph: "M", name: what, cat: None, pid: PROCESS, tid, ts: 0.0, dur: None, args })
    }

    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.to.write_all(if self.empty { b"\n" } else { b",\n" })?;
        self.empty = false;
        Ok(serde_json::to_writer(&mut self.to, event)?)
    }

    fn end(mut self) -> io::Result<Written> {
        self.to.write_all(b"\n]")?;
        if let Some(ns) = self.clock_error_ns {
            write!(self.to, ",\"otherData\":{{\"host_clock_error_ns\":{ns}}}")?;
        }
        self.to.write_all(b"}\n")?;
        self.to.flush()?;
        Ok(self.written)
    }
}

/// One device is one process of the trace.
const PROCESS: u32 = 1;

fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_times_are_placed_by_the_last_common_moment() {
        let host = Instant::now();
        let clocks = Clocks { host, device_ns: 1_000_000 };
        assert_eq!(clocks.device_ns(host), 1_000_000);
        assert_eq!(clocks.device_ns(host + Duration::from_micros(250)), 1_250_000);
        assert_eq!(clocks.device_ns(host - Duration::from_micros(250)), 750_000);
        assert_eq!(clocks.device_ns(host - Duration::from_secs(1)), 0);
    }

    /// The times of the levels and the clock error in a trace that is calibrated by `moments` of the device's clock,
    /// in nanoseconds after its start.
    fn levels(moments: &[i64]) -> (Vec<f64>, Option<u64>) {
        const ZERO_NS: u64 = 1 << 40;
        let path = std::env::temp_dir().join(format!("vkactor-{}-clocks-{}.json", std::process::id(), moments.len()));
        let (sink, _opened) = TraceSink::open(path.clone(), "test".to_owned()).unwrap();
        let mut trace = Trace::begin(sink, ZERO_NS, None);
        for (index, moment) in moments.iter().enumerate() {
            let device_ns = ZERO_NS.saturating_add_signed(*moment);
            trace.calibrate(Moment { device_ns, host: Instant::now(), error: Duration::from_nanos(index as u64 + 7) });
            trace.level(Levels { answers: index, ..Levels::default() }, 0);
        }
        trace.end(Duration::ZERO).unwrap();
        let whole: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let events = whole["traceEvents"].as_array().unwrap().iter();
        let times = events.filter(|event| event["name"] == "waiting").filter_map(|event| event["ts"].as_f64());
        (times.collect(), whole["otherData"]["host_clock_error_ns"].as_u64())
    }

    #[test]
    fn levels_follow_the_clock_of_the_device_and_never_go_back() {
        let hour = 3_600_000_000_000;
        let (times, error) = levels(&[hour, hour - 1_000_000, 3 * hour]);
        let [first, second, third] = times[..] else { panic!("{times:?}") };
        // Less than a minute passes in the test itself.
        let minute = 60e6;
        assert!((3600e6..3600e6 + minute).contains(&first), "{times:?}");
        assert!(second >= first && second < first + minute, "{times:?}");
        assert!((3.0 * 3600e6..3.0 * 3600e6 + minute).contains(&third), "{times:?}");
        assert_eq!(error, Some(9), "the largest");
    }

    #[test]
    fn a_trace_without_a_common_moment_tells_no_clock_error() {
        assert_eq!(levels(&[]).1, None);
    }
}
