//! Capture of a stream's launches, and what a captured graph keeps.

pub(crate) mod tape;

use crate::engine::command::{GraphId, Span};
use crate::engine::memory::Slice;
use crate::error::ServerError;
use crate::id::BufferId;
use crate::message::BufferRange;
use tape::{Score, Tape};

/// Where a stream is in capturing.
///
/// | in | prepare | start | stop | a launch | a write, or a launch that fails |
/// | --- | --- | --- | --- | --- | --- |
/// | Idle | Prepared | refused | refused | runs | as ever |
/// | Prepared | Prepared | Recording | Idle, refused | runs | as ever |
/// | Recording | refused | refused | Idle, a graph | is kept | Poisoned |
/// | Poisoned | refused | refused | Idle, the cause | is dropped | Poisoned |
#[derive(Debug, Default)]
pub(crate) enum Capture {
    /// No window.
    #[default]
    Idle,
    /// The warm-up run.
    Prepared,
    /// The window.
    Recording(Box<Recording>),
    /// The window, which can give no graph any more.
    Poisoned(Box<Recording>, ServerError),
}

/// What a window has so far.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    /// Its launches.
    pub(crate) tape: Tape,
    /// The buffers that they name, each once.
    pub(crate) buffers: Vec<BufferId>,
    /// What the launches read and write, as clients name it: the failures of a replay travel along it.
    pub(crate) reads: Vec<(BufferRange, Span)>,
    /// Ranges that launches write, and whether they read them too.
    pub(crate) writes: Vec<(BufferRange, bool)>,
    /// Slices that were reserved inside the window and that no live buffer has: the graph's own, unless the next
    /// reservation inside the window takes one over.
    pub(crate) owned: Vec<Slice>,
    /// Buffers reserved inside the window.
    pub(crate) reserved: Vec<BufferId>,
}

impl Capture {
    /// Prepares for a window.
    pub(crate) fn prepare(&mut self) -> Result<(), ServerError> {
        match self {
            Self::Idle | Self::Prepared => {
                *self = Self::Prepared;
                Ok(())
            }
            Self::Recording(_) | Self::Poisoned(..) => Err(refused("prepare: a window is open on the stream")),
        }
    }

    /// Opens the window.
    pub(crate) fn start(&mut self) -> Result<(), ServerError> {
        match self {
            Self::Prepared => {
                *self = Self::Recording(Box::default());
                Ok(())
            }
            Self::Idle => Err(refused("start: the stream is not prepared; call graph_prepare first")),
            Self::Recording(_) | Self::Poisoned(..) => Err(refused("start: a window is open on the stream")),
        }
    }

    /// Closes the window: what it has, and why it gives no graph if it does not.
    pub(crate) fn stop(&mut self) -> Result<(Box<Recording>, Option<ServerError>), ServerError> {
        match std::mem::take(self) {
            Self::Recording(recording) => Ok((recording, None)),
            Self::Poisoned(recording, cause) => Ok((recording, Some(cause))),
            Self::Idle | Self::Prepared => Err(refused("stop: no window is open on the stream")),
        }
    }

    /// Dooms the window, where one is open. The first cause stays.
    pub(crate) fn poison(&mut self, cause: impl FnOnce() -> ServerError) {
        *self = match std::mem::take(self) {
            Self::Recording(recording) => Self::Poisoned(recording, cause()),
            other => other,
        };
    }

    /// The open window.
    pub(crate) fn window(&mut self) -> Option<&mut Recording> {
        match self {
            Self::Recording(recording) | Self::Poisoned(recording, _) => Some(recording),
            Self::Idle | Self::Prepared => None,
        }
    }

    /// Refuses what a window does not take.
    pub(crate) fn forbid(&self, what: &str) -> Result<(), ServerError> {
        match self {
            Self::Idle | Self::Prepared => Ok(()),
            Self::Recording(_) | Self::Poisoned(..) => {
                Err(refused(&format!("{what}: a capture window is open on the stream; call stop_capture first")))
            }
        }
    }

    /// Whether a window is open.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Recording(_) | Self::Poisoned(..))
    }

    /// Whether the stream is as if it had never captured.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }
}

/// A refused call, and why.
pub(crate) fn refused(reason: &str) -> ServerError {
    ServerError::Graph { reason: reason.to_owned() }
}

impl Recording {
    /// Notes a buffer that a launch names. True where it is the first to.
    pub(crate) fn touch(&mut self, buffer: BufferId) -> bool {
        let first = !self.buffers.contains(&buffer);
        if first {
            self.buffers.push(buffer);
        }
        first
    }

    /// Takes a slice that nothing in the window uses any more: the tightest that fits.
    pub(crate) fn share(&mut self, size: u64) -> Option<Slice> {
        let fits = self.owned.iter().enumerate().filter(|(_, slice)| slice.padded >= size);
        let (at, _) = fits.min_by_key(|(_, slice)| slice.padded)?;
        let mut slice = self.owned.swap_remove(at);
        slice.span.size = size;
        Some(slice)
    }
}

/// A sealed window.
#[derive(Debug)]
pub(crate) struct Graph {
    /// What the device calls its recording: another after each rebinding.
    pub(crate) recording: GraphId,
    /// Its launches in the order in which they were sent, to be scored again by a rebinding.
    pub(crate) tape: Tape,
    /// As a replay runs them.
    pub(crate) score: Score,
    /// Buffers that live as long as it does.
    pub(crate) buffers: Vec<BufferId>,
    /// Slices of its own.
    pub(crate) owned: Vec<Slice>,
    /// What was there before a replay and is read by it.
    pub(crate) inputs: Vec<BufferRange>,
    /// What a replay writes, and whether it reads it too.
    pub(crate) outputs: Vec<(BufferRange, bool)>,
    /// What it was before a rebinding that the device has not answered yet.
    pub(crate) before: Option<Box<Self>>,
}

impl Graph {
    /// The graph with `new`, at `to`, wherever it has bytes of `old`, at `from`. Who owns what is not changed yet.
    pub(crate) fn rebound(
        &self,
        (old, from): (&BufferRange, Span),
        (new, to): (&BufferRange, Span),
    ) -> Result<Self, ServerError> {
        let tape = self.tape.rebound(from, to)?;
        let score = if self.tape.uses(to) { tape.score() } else { self.score.rebound(from, to) };
        let put = |range: &BufferRange| {
            let inside = range.buffer == old.buffer
                && range.offset >= old.offset
                && range.offset + range.size <= old.offset + old.size;
            if !inside {
                return *range;
            }
            BufferRange { buffer: new.buffer, offset: new.offset + (range.offset - old.offset), size: range.size }
        };
        let inputs = self.inputs.iter().map(put).collect();
        let outputs = self.outputs.iter().map(|(range, read)| (put(range), *read)).collect();
        let mut buffers = self.buffers.clone();
        if !buffers.contains(&new.buffer) {
            buffers.push(new.buffer);
        }
        let Self { recording, owned, .. } = self;
        Ok(Self { recording: *recording, tape, score, buffers, owned: owned.clone(), inputs, outputs, before: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(state: u8) -> Capture {
        match state {
            0 => Capture::Idle,
            1 => Capture::Prepared,
            2 => Capture::Recording(Box::default()),
            _ => Capture::Poisoned(Box::default(), ServerError::Closed),
        }
    }

    fn state(capture: &Capture) -> u8 {
        match capture {
            Capture::Idle => 0,
            Capture::Prepared => 1,
            Capture::Recording(_) => 2,
            Capture::Poisoned(..) => 3,
        }
    }

    /// Each call in each state: whether it is taken, and the state after it.
    #[test]
    fn the_transition_table() {
        type Call = fn(&mut Capture) -> bool;
        let calls: [(Call, [(bool, u8); 4]); 5] = [
            (|c| c.prepare().is_ok(), [(true, 1), (true, 1), (false, 2), (false, 3)]),
            (|c| c.start().is_ok(), [(false, 0), (true, 2), (false, 2), (false, 3)]),
            (|c| matches!(c.stop(), Ok((_, None))), [(false, 0), (false, 0), (true, 0), (false, 0)]),
            (
                |c| {
                    c.poison(|| ServerError::Closed);
                    true
                },
                [(true, 0), (true, 1), (true, 3), (true, 3)],
            ),
            (|c| c.forbid("read").is_ok(), [(true, 0), (true, 1), (false, 2), (false, 3)]),
        ];
        for (number, (call, table)) in calls.into_iter().enumerate() {
            for (before, expected) in table.into_iter().enumerate() {
                let mut capture = at(before as u8);
                assert_eq!((call(&mut capture), state(&capture)), expected, "call {number} in state {before}");
            }
        }
    }

    #[test]
    fn the_first_cause_of_a_doomed_window_is_told() {
        let mut capture = at(2);
        capture.poison(|| refused("first"));
        capture.poison(|| refused("second"));
        let (_, cause) = capture.stop().unwrap();
        assert!(cause.unwrap().to_string().contains("first"));
    }
}
