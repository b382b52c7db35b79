//! What an operator sees of the engine: counts of what it did, levels of what is going on, and notes for a trace.

use crate::engine::Engine;
use crate::engine::command::{Action, Command, Groups, Outbox, TimestampSlot};
use crate::engine::memory::MemoryUsage;
use crate::engine::timeline::{Submission, Waiter};
use crate::id::StreamId;
use crate::message::TraceCall;
use std::sync::Arc;

/// What the engine has done since it began. Plain numbers: the shell publishes what was added, once a turn.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Launches that went to the queue, without those of replays.
    pub launches: u64,
    /// Replays of graphs that went to the queue.
    pub replays: u64,
    /// Submissions.
    pub submissions: u64,
    /// Barriers that were put before commands and replays.
    pub barriers: u64,
    /// Commands and replays that conflicted with nothing since the last barrier, and went without one.
    pub barriers_avoided: u64,
    /// Bytes copied from the host.
    pub bytes_uploaded: u64,
    /// Bytes copied to the host.
    pub bytes_read: u64,
    /// Failures, each counted once however many buffers carry it.
    pub failures: u64,
}

/// What is going on at one moment.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Levels {
    /// Submissions that the device has not finished.
    pub submissions: usize,
    /// Answers that wait for the device.
    pub answers: usize,
    /// Messages that wait for a kernel, for bytes, for memory, or behind such a message.
    pub held: usize,
    /// Memory over all streams.
    pub memory: MemoryUsage,
}

/// What a command of a trace is.
#[derive(Debug, Clone)]
pub enum Work {
    /// A copy on the device.
    Copy {
        /// How many bytes.
        bytes: u64,
    },
    /// A launch.
    Launch {
        /// Its kernel.
        kernel: Arc<str>,
        /// Its workgroups.
        groups: Groups,
    },
    /// A copy to the host.
    Read {
        /// How many bytes.
        bytes: u64,
    },
    /// A replay, as one.
    Replay {
        /// Launches of the graph.
        launches: usize,
    },
    /// A copy from the host.
    Upload {
        /// How many bytes.
        bytes: u64,
    },
    /// Zeroing a reservation.
    Zero {
        /// How many bytes.
        bytes: u64,
    },
}

/// A command, and the two timestamps around it.
#[derive(Debug, Clone)]
pub struct Noted {
    /// Whose it is.
    pub stream: StreamId,
    /// What it is.
    pub work: Work,
    /// Taken when all before it was done.
    pub start: TimestampSlot,
    /// Taken when it was done too.
    pub end: TimestampSlot,
}

impl Engine {
    /// What was done so far.
    pub fn tally(&self) -> Tally {
        Tally { failures: self.buffers.ledger.count(), ..self.tally }
    }

    /// What is going on.
    pub fn levels(&self) -> Levels {
        Levels {
            submissions: self.timeline.in_flight(),
            answers: self.waiters,
            held: self.held.len() + self.parked.len() + self.hungry.len(),
            memory: self.memory.usage(),
        }
    }

    /// Whether commands get timestamps around them from now on. The shell turns it on once it knows how to read them.
    pub fn set_tracing(&mut self, on: bool) {
        self.tracing = on;
    }

    /// Carries a call about the trace out.
    pub(super) fn trace_call(&mut self, call: TraceCall, out: &mut Outbox) {
        match call {
            TraceCall::Start { sink, reply } => {
                if let Err(error) = self.alive() {
                    return reply.send(Err(error));
                }
                let at = self.windows.take(1);
                out.commands.list.push(Command::Timestamp(at));
                self.timeline.open.commands += 1;
                self.when_done(Waiter::TraceStart { at, sink, reply }, out);
            }
            TraceCall::Stop { reply } => {
                self.tracing = false;
                self.when_done(Waiter::TraceStop { reply }, out);
            }
        }
    }

    /// Takes the time before a command, while there is a trace.
    pub(super) fn begin_note(&mut self, out: &mut Outbox) -> Option<TimestampSlot> {
        self.tracing.then(|| self.take_time(1, out))
    }

    /// Takes the time behind a command, and notes it.
    #[cold]
    pub(super) fn end_note(&mut self, stream: StreamId, work: Work, start: TimestampSlot, out: &mut Outbox) {
        let end = self.take_time(1, out);
        self.timeline.open.noted.push(Noted { stream, work, start, end });
    }

    /// The commands of a submission are done: the shell reads their times before anything else uses the places.
    pub(super) fn hand_over_notes(&mut self, done: &mut Submission, out: &mut Outbox) {
        if done.noted.is_empty() {
            return;
        }
        let noted = std::mem::take(&mut done.noted);
        for note in &noted {
            self.windows.give_back(note.start);
            self.windows.give_back(note.end);
        }
        if self.lost.is_none() {
            out.actions.push(Action::Trace { value: done.value, noted });
        }
    }
}
