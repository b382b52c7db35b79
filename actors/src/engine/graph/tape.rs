//! The launches of a window, and the order in which a replay runs them.
//!
//! Sealing sorts the launches by their level in the dependency graph: one more than the highest level of what they
//! conflict with before them. Launches of one level are independent, so one barrier between two levels is enough, and
//! no order has fewer: a chain as long as the number of levels runs through the tape.

use crate::engine::command::{Command, Commands, Groups, PipelineId, Span};
use crate::engine::graph::refused;
use crate::engine::hazard::Access;
use crate::error::ServerError;
use crate::kernel::{INLINE_BUFFERS, INLINE_INFO};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// One recorded launch.
#[derive(Debug, Clone)]
struct Step {
    pipeline: PipelineId,
    buffers: SmallVec<[Span; INLINE_BUFFERS]>,
    info: SmallVec<[u8; INLINE_INFO]>,
    groups: Groups,
    /// The buffers and the dynamic count.
    accesses: SmallVec<[Access; INLINE_BUFFERS]>,
}

/// Launches in the order in which they were sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tape {
    steps: Vec<Step>,
}

/// A tape as a replay runs it.
#[derive(Debug, Clone)]
pub(crate) struct Score {
    /// Launches and barriers.
    pub(crate) commands: Commands,
    /// How many of them are barriers.
    pub(crate) barriers: usize,
}

impl Score {
    /// The score with `new` wherever it has bytes of `old`, for a tape that has no byte of `new`: what depends on what
    /// is then as before.
    pub(crate) fn rebound(&self, old: Span, new: Span) -> Self {
        let mut score = self.clone();
        let put = |span: &mut Span| {
            if span.overlaps(old) {
                *span = moved(*span, old, new);
            }
        };
        score.commands.spans.iter_mut().for_each(put);
        for command in &mut score.commands.list {
            if let Command::Dispatch { groups: Groups::Indirect(counts), .. } = command {
                put(counts);
            }
        }
        score
    }
}

/// The bytes of `new` that lie there as `span` does in `old`.
fn moved(span: Span, old: Span, new: Span) -> Span {
    Span { page: new.page, offset: new.offset + (span.offset - old.offset), size: span.size }
}

impl Tape {
    /// Records a launch.
    pub(crate) fn push(
        &mut self,
        pipeline: PipelineId,
        buffers: &[Span],
        info: &[u8],
        groups: Groups,
        accesses: &[Access],
    ) {
        self.steps.push(Step {
            pipeline,
            buffers: buffers.into(),
            info: info.into(),
            groups,
            accesses: accesses.into(),
        });
    }

    /// Launches.
    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    /// The tape with `new` wherever this one has bytes of `old`. Both have the same size.
    pub(crate) fn rebound(&self, old: Span, new: Span) -> Result<Self, ServerError> {
        let mut tape = self.clone();
        let (mut found, mut cut) = (false, false);
        let mut put = |s: &mut Span| {
            if !s.overlaps(old) {
                return;
            }
            if s.offset < old.offset || s.offset + s.size > old.offset + old.size {
                cut = true;
                return;
            }
            found = true;
            *s = moved(*s, old, new);
        };
        for step in &mut tape.steps {
            step.buffers.iter_mut().for_each(&mut put);
            step.accesses.iter_mut().for_each(|a| put(&mut a.span));
            if let Groups::Indirect(counts) = &mut step.groups {
                put(counts);
            }
        }
        match (found, cut) {
            (_, true) => Err(refused("rebind: a launch uses bytes inside and outside of the old buffer")),
            (false, false) => Err(refused("rebind: the graph does not use the old buffer")),
            (true, false) => Ok(tape),
        }
    }

    /// Whether a launch uses any bytes of the span.
    pub(crate) fn uses(&self, span: Span) -> bool {
        self.steps.iter().any(|step| step.accesses.iter().any(|access| access.span.overlaps(span)))
    }

    /// What each launch accesses.
    pub(crate) fn accesses(&self) -> impl Iterator<Item = &[Access]> {
        self.steps.iter().map(|step| &step.accesses[..])
    }

    /// The tape by levels, with a barrier between each two.
    pub(crate) fn score(&self) -> Score {
        let mut map = LevelMap::default();
        let mut order: Vec<(u32, &Step)> = self.steps.iter().map(|step| (map.place(&step.accesses), step)).collect();
        order.sort_by_key(|(level, _)| *level);
        let mut commands = Commands::default();
        let (mut at, mut barriers) = (0, 0);
        for (level, step) in order {
            if level != at {
                commands.list.push(Command::Barrier);
                (at, barriers) = (level, barriers + 1);
            }
            commands.dispatch(step.pipeline, &step.buffers, &step.info, step.groups);
        }
        Score { commands, barriers }
    }

    /// What a replay reads of what was there before it, in the order of the tape.
    pub(crate) fn inputs(&self) -> Vec<Span> {
        let mut written = Covered::default();
        let mut inputs = Vec::new();
        for step in &self.steps {
            inputs.extend(step.accesses.iter().filter(|a| a.read && !written.covers(a.span)).map(|a| a.span));
            step.accesses.iter().filter(|a| a.write).for_each(|a| written.add(a.span));
        }
        inputs
    }
}

/// For each byte, the levels of its last write and of the reads since.
#[derive(Debug, Default)]
struct LevelMap {
    /// By page and start; disjoint.
    ranges: BTreeMap<(u32, u64), Levels>,
}

#[derive(Debug, Clone, Copy)]
struct Levels {
    end: u64,
    /// One more than the level of the last write.
    write: u32,
    /// One more than the highest level of a read since.
    read: u32,
}

impl LevelMap {
    /// The level of a launch with these accesses behind those placed before.
    fn place(&mut self, accesses: &[Access]) -> u32 {
        let mut level = 0;
        for access in accesses {
            self.split(access.span);
            for (_, levels) in self.ranges.range(keys(access.span)) {
                level = level.max(levels.write);
                if access.write {
                    level = level.max(levels.read);
                }
            }
        }
        for access in accesses {
            // Once more: the fill of an access before this one may reach over its ends.
            self.split(access.span);
            self.fill(access.span);
            for (_, levels) in self.ranges.range_mut(keys(access.span)) {
                if access.write {
                    (levels.write, levels.read) = (level + 1, levels.read.max(level + 1));
                } else {
                    levels.read = levels.read.max(level + 1);
                }
            }
        }
        level
    }

    /// Makes no range reach over an end of the span.
    fn split(&mut self, span: Span) {
        let page = span.page.0;
        for at in [span.offset, span.offset + span.size] {
            if let Some((&(p, start), levels)) = self.ranges.range_mut(..(page, at)).next_back()
                && p == page
                && levels.end > at
            {
                let tail = *levels;
                levels.end = at;
                debug_assert!(start < at, "a range starts before where it is cut");
                self.ranges.insert((page, at), tail);
            }
        }
    }

    /// Adds blank ranges where the span has none. It must have been split.
    fn fill(&mut self, span: Span) {
        let mut gaps = Vec::new();
        let mut at = span.offset;
        for (&(_, start), levels) in self.ranges.range(keys(span)) {
            if start > at {
                gaps.push((at, start));
            }
            at = levels.end;
        }
        let end = span.offset + span.size;
        if at < end {
            gaps.push((at, end));
        }
        for (start, end) in gaps {
            self.ranges.insert((span.page.0, start), Levels { end, write: 0, read: 0 });
        }
    }
}

fn keys(span: Span) -> std::ops::Range<(u32, u64)> {
    (span.page.0, span.offset)..(span.page.0, span.offset + span.size)
}

/// A set of bytes.
#[derive(Debug, Default)]
struct Covered(BTreeMap<(u32, u64), u64>);

impl Covered {
    fn covers(&self, span: Span) -> bool {
        let end = span.offset + span.size;
        match self.0.range(..=(span.page.0, span.offset)).next_back() {
            Some((&(page, _), &to)) => page == span.page.0 && to >= end,
            None => span.size == 0,
        }
    }

    fn add(&mut self, span: Span) {
        let page = span.page.0;
        let (mut start, mut end) = (span.offset, span.offset + span.size);
        if let Some((&(p, from), &to)) = self.0.range(..=(page, start)).next_back()
            && p == page
            && to >= start
        {
            (start, end) = (from, end.max(to));
        }
        while let Some((&key, &to)) = self.0.range((page, start)..=(page, end)).next() {
            end = end.max(to);
            self.0.remove(&key);
        }
        self.0.insert((page, start), end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::command::PageId;
    use proptest::prelude::*;

    fn tape(program: &[Vec<(u64, u64, bool)>]) -> Tape {
        let mut tape = Tape::default();
        for (i, step) in program.iter().enumerate() {
            let accesses: Vec<Access> = step
                .iter()
                .map(|&(offset, size, write)| Access {
                    span: Span { page: PageId(0), offset, size },
                    write,
                    read: !write,
                })
                .collect();
            let spans: Vec<Span> = accesses.iter().map(|access| access.span).collect();
            tape.push(PipelineId(i as u32), &spans, &[], Groups::Direct([1; 3]), &accesses);
        }
        tape
    }

    fn conflict(a: &[(u64, u64, bool)], b: &[(u64, u64, bool)]) -> bool {
        a.iter().any(|x| b.iter().any(|y| (x.2 || y.2) && x.0 < y.0 + y.1 && y.0 < x.0 + x.1))
    }

    #[test]
    fn independent_chains_share_their_barriers() {
        let program: Vec<Vec<(u64, u64, bool)>> =
            (0..8).flat_map(|chain| (0..125).map(move |_| vec![(chain * 64, 64, true)])).collect();
        let score = tape(&program).score();
        assert_eq!(score.barriers, 124);
        assert_eq!(score.commands.list.len(), 1000 + 124);
    }

    #[test]
    fn a_tape_reads_what_it_did_not_write_before() {
        let program = [vec![(0, 8, false), (8, 8, true)], vec![(8, 8, false), (16, 8, true)], vec![(12, 8, false)]];
        let inputs = tape(&program).inputs();
        assert_eq!(inputs.iter().map(|s| s.offset).collect::<Vec<_>>(), [0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]
        /// What takes the place of a buffer, and lies where nothing on the tape does, changes nothing in the score but
        /// the places.
        #[test]
        fn a_score_is_rebound_as_its_tape_is_scored(
            program in proptest::collection::vec(proptest::collection::vec((0u64..6, any::<bool>()), 1..4), 1..30)
        ) {
            let program: Vec<Vec<(u64, u64, bool)>> = program
                .into_iter()
                .map(|step| step.into_iter().map(|(slice, write)| (8 * slice, 8, write)).collect())
                .collect();
            let tape = tape(&program);
            let (old, new) = (Span { page: PageId(0), offset: 16, size: 16 }, Span { page: PageId(3), offset: 64, size: 16 });
            if let Ok(rebound) = tape.rebound(old, new) {
                let (score, expected) = (tape.score().rebound(old, new), rebound.score());
                prop_assert_eq!(score.commands, expected.commands);
                prop_assert_eq!(score.barriers, expected.barriers);
            }
        }

        /// Each two launches that conflict keep their order and have a barrier between them, and there are as many
        /// levels as the longest chain of conflicts.
        #[test]
        fn the_score_keeps_the_order_of_what_conflicts_with_the_fewest_barriers(
            program in proptest::collection::vec(
                proptest::collection::vec((0u64..24, 1u64..8, any::<bool>()), 1..4), 1..30)
        ) {
            let score = tape(&program).score();
            let mut level = 0;
            let mut levels = vec![0; program.len()];
            for command in &score.commands.list {
                match command {
                    Command::Barrier => level += 1,
                    Command::Dispatch { pipeline, .. } => levels[pipeline.0 as usize] = level,
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            let mut longest = vec![0; program.len()];
            for (i, a) in program.iter().enumerate() {
                for (j, b) in program.iter().enumerate().take(i) {
                    if conflict(a, b) {
                        prop_assert!(levels[j] < levels[i], "{} and {} are not ordered", j, i);
                        longest[i] = longest[i].max(longest[j] + 1);
                    }
                }
            }
            prop_assert_eq!(score.barriers, longest.iter().max().copied().unwrap_or(0));
        }
    }
}
