//! The order in which submitted work runs: any that the barriers allow, and rather an unkind one.

use crate::engine::command::TimelineValue;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Works that may have started and not ended at a time. Enough to pass over any small window whole; each holds copies
/// of what it read.
const STARTED_MAX: usize = 64;

/// Numbers that follow from a seed: splitmix64, which is short and good enough to shuffle.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `end`, which is not zero.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// In which spirit the works of a window are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
    /// Whatever was submitted last runs first, and whole.
    Newest,
    /// The first waits for all others.
    OldestLast,
    /// Any.
    Random,
    /// All read before the first one writes: what real devices do to works that they run side by side.
    Together,
}

const PLANS: [Plan; 4] = [Plan::Newest, Plan::OldestLast, Plan::Random, Plan::Together];

/// What is to happen to a work: it starts, or ends, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) id: u64,
    pub(super) start: bool,
    pub(super) end: bool,
}

#[derive(Debug)]
struct Slot<W> {
    work: W,
    /// Runs once all before it are done.
    last: bool,
}

#[derive(Debug)]
enum Entry<W> {
    Barrier,
    End(TimelineValue),
    Work(Slot<W>),
}

/// Works between barriers. Works of one window may run in any order; a window opens when the one before is done.
#[derive(Debug)]
pub(super) struct Scheduler<W> {
    /// The window that is open, by place in the order of submission.
    open: BTreeMap<u64, Slot<W>>,
    /// Works of it that have not started.
    idle: BTreeSet<u64>,
    /// All from the next barrier on.
    later: VecDeque<(u64, Entry<W>)>,
    /// Ends of submissions, up to the next barrier.
    ends: VecDeque<(u64, TimelineValue)>,
    next: u64,
    plan: Plan,
    random: Random,
}

impl<W> Scheduler<W> {
    pub(super) fn new(seed: u64) -> Self {
        let mut scheduler = Self {
            open: BTreeMap::new(),
            idle: BTreeSet::new(),
            later: VecDeque::new(),
            ends: VecDeque::new(),
            next: 0,
            plan: Plan::Random,
            random: Random::new(seed),
        };
        scheduler.draw_plan();
        scheduler
    }

    /// Goes on as this seed says.
    pub(super) fn seed(&mut self, seed: u64) {
        self.random = Random::new(seed);
        self.draw_plan();
    }

    /// One more work; `last` runs once all before it are done.
    pub(super) fn push_work(&mut self, work: W, last: bool) {
        self.push(Entry::Work(Slot { work, last }));
    }

    /// What was pushed before is done before what is pushed after starts.
    pub(super) fn push_barrier(&mut self) {
        self.push(Entry::Barrier);
    }

    /// The timeline is at `value` when all that was pushed before is done.
    pub(super) fn push_end(&mut self, value: TimelineValue) {
        self.push(Entry::End(value));
    }

    /// What is to happen next; nothing where all is done. The caller does it: see [`Scheduler::work`] and
    /// [`Scheduler::finish`].
    pub(super) fn poll_turn(&mut self) -> Option<Turn> {
        let (&first, _) = self.open.first_key_value()?;
        let started = self.open.len() - self.idle.len();
        let mut id = match self.plan {
            Plan::Newest => *self.open.last_key_value()?.0,
            Plan::OldestLast => self.any(first + 1),
            Plan::Random => self.any(first),
            Plan::Together if started < STARTED_MAX => self.idle.first().copied().unwrap_or_else(|| self.any(first)),
            Plan::Together => self.any(first),
        };
        if self.open[&id].last {
            id = first;
        }
        let start = self.idle.remove(&id);
        let end = !start
            || match self.plan {
                Plan::Newest => true,
                Plan::OldestLast | Plan::Random => self.random.below(2) == 0,
                Plan::Together => false,
            };
        Some(Turn { id, start, end })
    }

    /// A work of the open window.
    pub(super) fn work(&mut self, id: u64) -> &mut W {
        let Some(slot) = self.open.get_mut(&id) else { unreachable!("work {id} is not in the window") };
        &mut slot.work
    }

    /// Takes a work that is done.
    pub(super) fn finish(&mut self, id: u64) -> W {
        let Some(slot) = self.open.remove(&id) else { unreachable!("work {id} is not in the window") };
        self.advance();
        slot.work
    }

    /// The newest value that was reached since the last call.
    pub(super) fn take_reached(&mut self) -> Option<TimelineValue> {
        let mut reached = None;
        while let Some(&(place, value)) = self.ends.front()
            && self.open.first_key_value().is_none_or(|(&first, _)| first > place)
        {
            self.ends.pop_front();
            reached = Some(value);
        }
        reached
    }

    /// All that is not done.
    pub(super) fn pending(&self) -> impl Iterator<Item = &W> {
        let later = self.later.iter().filter_map(|(_, entry)| match entry {
            Entry::Work(slot) => Some(&slot.work),
            Entry::Barrier | Entry::End(_) => None,
        });
        self.open.values().map(|slot| &slot.work).chain(later)
    }

    fn push(&mut self, entry: Entry<W>) {
        self.later.push_back((self.next, entry));
        self.next += 1;
        self.advance();
    }

    /// Opens what the barriers allow.
    fn advance(&mut self) {
        while let Some((place, entry)) = self.later.pop_front() {
            match entry {
                Entry::Barrier if !self.open.is_empty() => {
                    self.later.push_front((place, entry));
                    return;
                }
                Entry::Barrier => self.draw_plan(),
                Entry::End(value) => self.ends.push_back((place, value)),
                Entry::Work(slot) => {
                    self.open.insert(place, slot);
                    self.idle.insert(place);
                }
            }
        }
    }

    fn draw_plan(&mut self) {
        self.plan = PLANS[self.random.below(PLANS.len() as u64) as usize];
    }

    /// A work of the window, from the place `start` on where there is one. The first of a gap is likelier than
    /// others, which is of no matter here.
    fn any(&mut self, start: u64) -> u64 {
        let Some((&last, _)) = self.open.last_key_value() else { unreachable!("the window is empty") };
        if last < start {
            return last;
        }
        let place = start + self.random.below(last - start + 1);
        self.open.range(place..).next().map_or(last, |(&id, _)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Runs all, and gives the works in the order in which they ended.
    fn order(scheduler: &mut Scheduler<u32>) -> Vec<u32> {
        let mut done = Vec::new();
        while let Some(turn) = scheduler.poll_turn() {
            if turn.end {
                done.push(scheduler.finish(turn.id));
            }
        }
        done
    }

    #[test]
    fn a_window_runs_in_many_orders() {
        let orders: HashSet<Vec<u32>> = (0..200)
            .map(|seed| {
                let mut scheduler = Scheduler::new(seed);
                (0..4).for_each(|work| scheduler.push_work(work, false));
                order(&mut scheduler)
            })
            .collect();
        assert_eq!(orders.len(), 24, "all orders of four works");
    }

    #[test]
    fn one_seed_is_one_order() {
        let run = || {
            let mut scheduler = Scheduler::new(1);
            scheduler.seed(42);
            (0..20).for_each(|work| scheduler.push_work(work, false));
            order(&mut scheduler)
        };
        assert_eq!(run(), run());
    }

    #[test]
    fn a_barrier_is_passed_when_all_before_it_are_done() {
        for seed in 0..100 {
            let mut scheduler = Scheduler::new(seed);
            for window in 0..4 {
                (0..5).for_each(|work| scheduler.push_work(window * 5 + work, false));
                scheduler.push_barrier();
                scheduler.push_barrier();
            }
            let windows: Vec<u32> = order(&mut scheduler).into_iter().map(|work| work / 5).collect();
            assert!(windows.is_sorted(), "seed {seed}: {windows:?}");
        }
    }

    #[test]
    fn submissions_end_in_order_and_do_not_hold_up_what_follows() {
        let mut later_first = false;
        for seed in 0..50 {
            let mut scheduler = Scheduler::new(seed);
            scheduler.push_end(TimelineValue(1));
            assert_eq!(scheduler.take_reached(), Some(TimelineValue(1)), "nothing is before it");
            scheduler.push_work(0, false);
            scheduler.push_end(TimelineValue(2));
            scheduler.push_work(1, false);
            scheduler.push_end(TimelineValue(3));
            let mut done = Vec::new();
            while let Some(turn) = scheduler.poll_turn() {
                if turn.end {
                    done.push(scheduler.finish(turn.id));
                }
                let expected = match done[..] {
                    [0] => Some(TimelineValue(2)),
                    [0, 1] | [1, 0] => Some(TimelineValue(3)),
                    _ => None,
                };
                assert_eq!(if turn.end { scheduler.take_reached() } else { expected }, expected);
            }
            later_first |= done == [1, 0];
        }
        assert!(later_first);
    }

    #[test]
    fn a_last_work_runs_after_all_before_it_and_holds_up_none_behind() {
        let mut overtaken = false;
        for seed in 0..50 {
            let mut scheduler = Scheduler::new(seed);
            (0..6).for_each(|work| scheduler.push_work(work, work == 3));
            let done = order(&mut scheduler);
            let place = |work| done.iter().position(|&w| w == work);
            assert!((0..3).all(|before| place(before) < place(3)), "seed {seed}: {done:?}");
            overtaken |= place(5) < place(3);
        }
        assert!(overtaken);
    }

    #[test]
    fn works_overlap_in_time() {
        let overlaps = (0..50).any(|seed| {
            let mut scheduler = Scheduler::new(seed);
            (0..3).for_each(|work| scheduler.push_work(work, false));
            let turns: Vec<Turn> = (0..3).filter_map(|_| scheduler.poll_turn()).collect();
            turns.iter().all(|turn| turn.start && !turn.end)
        });
        assert!(overlaps);
    }
}
