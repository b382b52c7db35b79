//! What is submitted, what is done, and what is owed when it is.

use crate::bytes::Bytes;
use crate::engine::command::{GraphId, PageId, Span, TimelineValue, TimestampSlot};
use crate::engine::observe::Noted;
use crate::error::{ProfileError, ServerError};
use crate::message::BufferRange;
use crate::profile::ProfileTicks;
use crate::reply::Reply;
use crate::trace::{TraceSink, TraceSummary};
use std::collections::VecDeque;

/// One submission, open or in flight: what is owed when the timeline reaches it. Used again with its memory.
#[derive(Debug, Default)]
pub(crate) struct Submission {
    /// What the timeline reaches.
    pub(crate) value: TimelineValue,
    /// Commands recorded.
    pub(crate) commands: usize,
    /// Places for launches to give back.
    pub(crate) launches: usize,
    /// Places for uploads to give back, in bytes.
    pub(crate) uploads: Vec<usize>,
    /// Upload ranges that are copied from.
    pub(crate) staged: Vec<Span>,
    /// Host bytes that are copied from.
    pub(crate) kept: Vec<Bytes>,
    /// Answers.
    pub(crate) waiters: Vec<Waiter>,
    /// Recordings that are gone, and may be named here.
    pub(crate) graphs: Vec<GraphId>,
    /// Pages that are gone, and may be named here.
    pub(crate) pages: Vec<PageId>,
    /// Timestamp places to use again.
    pub(crate) slots: Vec<TimestampSlot>,
    /// What each dispatch writes, where the device can tell a failure after the fact.
    pub(crate) outputs: Vec<Vec<BufferRange>>,
    /// What each replay writes, likewise.
    pub(crate) replays: Vec<(GraphId, Vec<BufferRange>)>,
    /// Commands with timestamps around them, while there is a trace.
    pub(crate) noted: Vec<Noted>,
}

/// An answer that waits for the timeline.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// A read.
    Read {
        /// Host ranges, one a part.
        parts: Vec<Option<Span>>,
        /// What was copied, to look for failures told late.
        sources: Vec<BufferRange>,
        /// Who asks.
        reply: Reply<Result<Vec<Bytes>, ServerError>>,
    },
    /// A sync.
    Sync {
        /// Ranges to check behind the barrier.
        ranges: Vec<BufferRange>,
        /// Who asks.
        reply: Reply<Result<(), ServerError>>,
    },
    /// The end of a window.
    Ticks {
        /// Its start.
        start: TimestampSlot,
        /// Its end.
        end: TimestampSlot,
        /// Who asks.
        reply: Reply<Result<ProfileTicks, ProfileError>>,
    },
    /// The start of a trace.
    TraceStart {
        /// The moment from which it counts.
        at: TimestampSlot,
        /// Where it goes.
        sink: TraceSink,
        /// Who asks.
        reply: Reply<Result<(), ServerError>>,
    },
    /// The end of a trace.
    TraceStop {
        /// Who asks.
        reply: Reply<Result<TraceSummary, ServerError>>,
    },
}

impl Submission {
    fn is_blank(&self) -> bool {
        self.commands == 0
            && self.launches == 0
            && self.uploads.is_empty()
            && self.staged.is_empty()
            && self.kept.is_empty()
            && self.waiters.is_empty()
            && self.graphs.is_empty()
            && self.pages.is_empty()
            && self.slots.is_empty()
    }
}

/// The device's one timeline.
#[derive(Debug)]
pub(crate) struct Timeline {
    /// What is recorded and not submitted.
    pub(crate) open: Submission,
    in_flight: VecDeque<Submission>,
    spare: Vec<Submission>,
    submitted: TimelineValue,
    reached: TimelineValue,
}

/// Submissions whose memory is kept: more are rarely in flight.
const SPARE_MAX: usize = 8;

impl Timeline {
    /// Nothing submitted.
    pub(crate) fn new() -> Self {
        let open = Submission { value: TimelineValue(1), ..Submission::default() };
        Self {
            open,
            in_flight: VecDeque::new(),
            spare: Vec::new(),
            submitted: TimelineValue(0),
            reached: TimelineValue(0),
        }
    }

    /// Closes the open submission; what it signals. `None` where there is nothing to submit.
    pub(crate) fn submit(&mut self) -> Option<TimelineValue> {
        if self.open.is_blank() {
            return None;
        }
        let value = self.open.value;
        let mut next = self.spare.pop().unwrap_or_default();
        next.value = TimelineValue(value.0 + 1);
        self.in_flight.push_back(std::mem::replace(&mut self.open, next));
        self.submitted = value;
        Some(value)
    }

    /// The timeline is at `value`: takes the next submission that is done, until there is none.
    pub(crate) fn reach(&mut self, value: TimelineValue) -> Option<Submission> {
        assert!(value <= self.submitted, "reached {value:?}, submitted {:?}", self.submitted);
        let done = self.in_flight.pop_front_if(|s| s.value <= value)?;
        self.reached = done.value;
        Some(done)
    }

    /// Keeps the memory of a submission that was taken.
    pub(crate) fn recycle(&mut self, mut done: Submission) {
        done.commands = 0;
        done.launches = 0;
        done.uploads.clear();
        done.staged.clear();
        done.kept.clear();
        done.waiters.clear();
        done.graphs.clear();
        done.pages.clear();
        done.slots.clear();
        done.outputs.clear();
        done.replays.clear();
        done.noted.clear();
        if self.spare.len() < SPARE_MAX {
            self.spare.push(done);
        }
    }

    /// The last submission that has anything to wait for: the open one, or else the last in flight.
    pub(crate) fn last(&mut self) -> Option<&mut Submission> {
        if self.open.is_blank() { self.in_flight.back_mut() } else { Some(&mut self.open) }
    }

    /// How far the device is.
    pub(crate) fn reached(&self) -> TimelineValue {
        self.reached
    }

    /// What was submitted last.
    pub(crate) fn submitted(&self) -> TimelineValue {
        self.submitted
    }

    /// Submissions in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The submission in flight of this value.
    pub(crate) fn submission(&self, value: TimelineValue) -> Option<&Submission> {
        self.in_flight.iter().find(|s| s.value == value)
    }

    /// Whether nothing is recorded and nothing in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_blank() && self.in_flight.is_empty()
    }
}
