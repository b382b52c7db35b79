//! Sealed recordings: command buffers in pieces, so that what a rebinding leaves alone is not recorded again.

use crate::binding::SetPools;
use crate::stages::{StageOrder, Stages};
use ash::vk;
use std::ops::Range;
use std::sync::Arc;
use vkactor_actors::engine::command::{Command, Commands};

/// Pieces of one recording: each is a command buffer more in its submissions.
const PIECES_MAX: usize = 16;
/// Commands between two changes that are recorded again with them rather than kept as a piece of their own: encoding
/// them takes about as long as a piece costs later submissions.
const GAP_COMMANDS: usize = 16;

/// A sealed recording.
#[derive(Debug)]
pub(crate) struct Graph {
    /// What it runs.
    pub(crate) tape: Commands,
    /// Its pieces, in order. Recordings that a rebinding made of each other share some.
    pub(crate) pieces: Vec<Arc<Piece>>,
}

/// A part of a recording. Its sets go with it.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Which of the commands it has.
    pub(crate) commands: Range<usize>,
    pub(crate) buffer: vk::CommandBuffer,
    /// How far the commands before it are ordered.
    pub(crate) entry: StageOrder,
    /// How far its own are, besides.
    pub(crate) order: StageOrder,
    /// The stages that wrote what the host reads.
    pub(crate) reads_back: Stages,
    pub(crate) _sets: SetPools,
}

impl Graph {
    /// How far all commands are ordered.
    pub(crate) fn order(&self) -> StageOrder {
        self.pieces.last().map(|piece| piece.order).unwrap_or_default()
    }

    /// The stages that wrote what the host reads.
    pub(crate) fn reads_back(&self) -> Stages {
        self.pieces.iter().fold(Stages::empty(), |all, piece| all | piece.reads_back)
    }

    /// The piece with just these commands.
    pub(crate) fn piece(&self, commands: &Range<usize>) -> Option<&Arc<Piece>> {
        self.pieces.iter().find(|piece| piece.commands == *commands)
    }
}

/// A piece as it is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) commands: Range<usize>,
    /// Whether the recording before has it with just these commands.
    pub(crate) is_kept: bool,
}

/// Cuts `tape` so that what it shares with `before`, whose pieces end at `ends`, is kept.
pub(crate) fn cut(tape: &Commands, before: &Commands, ends: &[usize]) -> Vec<Cut> {
    let count = tape.list.len();
    if before.list.len() != count {
        return vec![Cut { commands: 0..count, is_kept: false }];
    }
    let changes = changes(tape, before);
    let mut edges: Vec<usize> = changes.iter().flat_map(|run| [run.start, run.end]).chain(ends.to_vec()).collect();
    edges.sort_unstable();
    edges.dedup();
    edges.retain(|edge| *edge > 0 && *edge <= count);
    let edges = if edges.len() > PIECES_MAX { ends } else { &edges };
    let mut start = 0;
    let pieces = edges.iter().map(|&end| {
        let commands = std::mem::replace(&mut start, end)..end;
        let is_changed = changes.iter().any(|run| run.start < commands.end && commands.start < run.end);
        let is_piece = ends.contains(&commands.end) && (commands.start == 0 || ends.contains(&commands.start));
        Cut { commands, is_kept: is_piece && !is_changed }
    });
    pieces.collect()
}

/// The runs of commands that differ, with small gaps closed.
fn changes(tape: &Commands, before: &Commands) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for at in 0..tape.list.len() {
        if is_same(tape, before, at) {
            continue;
        }
        match runs.last_mut() {
            Some(run) if at <= run.end + GAP_COMMANDS => run.end = at + 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

fn is_same(tape: &Commands, before: &Commands, at: usize) -> bool {
    match (tape.list[at], before.list[at]) {
        (
            Command::Dispatch { pipeline, buffers, info, groups },
            Command::Dispatch {
                pipeline: pipeline_before,
                buffers: buffers_before,
                info: info_before,
                groups: groups_before,
            },
        ) => {
            pipeline == pipeline_before
                && groups == groups_before
                && tape.buffers(buffers) == before.buffers(buffers_before)
                && tape.parameters(info) == before.parameters(info_before)
        }
        (now, then) => now == then,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vkactor_actors::engine::command::{Groups, PageId, PipelineId, Span};

    /// One dispatch for each number, of a buffer at that offset.
    fn tape(offsets: &[u64]) -> Commands {
        let mut tape = Commands::default();
        for &offset in offsets {
            let span = Span { page: PageId(1), offset, size: 4 };
            tape.dispatch(PipelineId(0), &[span], &[1, 2], Groups::Direct([1; 3]));
        }
        tape
    }

    fn kept(cuts: &[Cut]) -> Vec<(Range<usize>, bool)> {
        cuts.iter().map(|cut| (cut.commands.clone(), cut.is_kept)).collect()
    }

    #[test]
    fn a_change_in_the_middle_becomes_a_piece_and_is_the_only_one_recorded_the_next_time() {
        let before = tape(&[0; 100]);
        let mut offsets = [0; 100];
        offsets[40..43].fill(4);
        let now = tape(&offsets);
        let first = cut(&now, &before, &[100]);
        assert_eq!(kept(&first), [(0..40, false), (40..43, false), (43..100, false)]);
        let second = cut(&before, &now, &[40, 43, 100]);
        assert_eq!(kept(&second), [(0..40, true), (40..43, false), (43..100, true)]);
    }

    #[test]
    fn changes_close_to_each_other_are_one_piece() {
        let before = tape(&[0; 100]);
        let mut offsets = [0; 100];
        (offsets[10], offsets[20], offsets[90]) = (4, 4, 4);
        let cuts = cut(&tape(&offsets), &before, &[100]);
        assert_eq!(
            cuts.iter().map(|c| c.commands.clone()).collect::<Vec<_>>(),
            [0..10, 10..21, 21..90, 90..91, 91..100]
        );
    }

    #[test]
    fn a_tape_of_another_length_is_recorded_whole() {
        assert_eq!(kept(&cut(&tape(&[0; 3]), &tape(&[0; 2]), &[2])), [(0..3, false)]);
    }

    proptest! {
        #[test]
        fn pieces_are_all_commands_once_and_kept_ones_are_unchanged(
            before in proptest::collection::vec(0u64..2, 1..300),
            flips in proptest::collection::vec(any::<proptest::sample::Index>(), 0..12),
            ends in proptest::collection::vec(any::<proptest::sample::Index>(), 0..20),
        ) {
            let mut now = before.clone();
            for flip in flips {
                now[flip.index(before.len())] ^= 1;
            }
            let mut ends: Vec<usize> = ends.iter().map(|end| end.index(before.len()) + 1).collect();
            ends.push(before.len());
            ends.sort_unstable();
            ends.dedup();
            let cuts = cut(&tape(&now), &tape(&before), &ends);
            let mut at = 0;
            for Cut { commands, is_kept } in &cuts {
                prop_assert_eq!(commands.start, at);
                at = commands.end;
                let starts = commands.start == 0 || ends.contains(&commands.start);
                let is_piece = starts && ends.iter().find(|end| **end > commands.start) == Some(&commands.end);
                prop_assert!(!is_kept || is_piece);
                prop_assert!(!is_kept || now[commands.clone()] == before[commands.clone()]);
            }
            prop_assert_eq!(at, before.len());
            prop_assert!(cuts.len() <= PIECES_MAX.max(ends.len()));
        }
    }
}
