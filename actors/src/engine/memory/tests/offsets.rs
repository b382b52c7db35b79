//! Ranges against a row of marks, one for each granule of each page.

use crate::engine::memory::offsets::{Backing, Offsets, RangeId};
use proptest::prelude::*;

const GRANULE: u64 = 16;

/// Pages as rows of marks. Does the same as the machine, slowly.
struct Marks {
    offsets: Offsets,
    /// Marks, and the range that stands for the page.
    pages: Vec<(Vec<bool>, RangeId)>,
    taken: Vec<(RangeId, u64)>,
}

impl Marks {
    fn new(page_granules: &[u64]) -> Self {
        let mut offsets = Offsets::new();
        let pages = page_granules.iter().enumerate();
        let pages = pages
            .map(|(page, &count)| (vec![false; count as usize], offsets.add_page(page as u32, count * GRANULE)))
            .collect();
        Self { offsets, pages, taken: Vec::new() }
    }

    fn mark(&mut self, range: RangeId, granules: u64, on: bool) {
        let row = &mut self.pages[self.offsets.page(range) as usize].0;
        let start = (self.offsets.offset(range) / GRANULE) as usize;
        for mark in &mut row[start..][..granules as usize] {
            assert!(*mark != on, "a granule has two owners, or none");
            *mark = on;
        }
    }

    fn allocate(&mut self, granules: u64) {
        let peeked = self.offsets.peek(granules * GRANULE, Backing::Backed);
        let found = self.offsets.allocate(granules * GRANULE, Backing::Backed);
        assert_eq!(found.map(|range| self.offsets.page(range)), peeked);
        assert_eq!(found.is_some(), self.has_room_in_a_page_in_use(granules as usize));
        if let Some(range) = found {
            self.own(range, granules);
        }
    }

    fn open(&mut self, granules: u64) {
        let empty = self.pages.iter().find(|(row, _)| row.len() as u64 >= granules && !row.contains(&true));
        if let Some(&(_, whole)) = empty {
            self.offsets.open(whole, granules * GRANULE, Backing::Backed);
            self.own(whole, granules);
        }
    }

    fn own(&mut self, range: RangeId, granules: u64) {
        assert!(self.offsets.offset(range).is_multiple_of(GRANULE));
        self.mark(range, granules, true);
        self.taken.push((range, granules));
    }

    fn free(&mut self, at: usize) {
        let (range, granules) = self.taken.swap_remove(at);
        let page = self.offsets.page(range) as usize;
        self.mark(range, granules, false);
        let whole = self.offsets.free(range, Backing::Backed);
        let (row, first) = &self.pages[page];
        assert_eq!(whole, (!row.contains(&true)).then_some(*first));
    }

    fn has_room_in_a_page_in_use(&self, granules: usize) -> bool {
        let rows = self.pages.iter().map(|(row, _)| row).filter(|row| row.contains(&true));
        rows.into_iter().any(|row| row.split(|&mark| mark).any(|run| run.len() >= granules))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ranges_are_disjoint_and_found_wherever_they_are(
        pages in prop::collection::vec(1u64..60, 1..4),
        steps in prop::collection::vec((0u8..5, 1u64..24, 0usize..40), 1..80),
    ) {
        let mut marks = Marks::new(&pages);
        for (step, granules, at) in steps {
            match step {
                0 | 1 => marks.allocate(granules),
                2 => marks.open(granules),
                _ if at < marks.taken.len() => marks.free(at),
                _ => {}
            }
        }
        while !marks.taken.is_empty() {
            marks.free(0);
        }
    }
}

#[test]
fn a_page_that_gets_memory_serves_what_needs_it() {
    let mut offsets = Offsets::new();
    let whole = offsets.add_page(0, 1024);
    offsets.open(whole, 256, Backing::Unmapped);

    assert_eq!(offsets.allocate(256, Backing::Backed), None);
    offsets.back(whole);
    let found = offsets.allocate(768, Backing::Backed);

    assert_eq!(found.map(|range| offsets.offset(range)), Some(256));
    assert_eq!(offsets.peek(1, Backing::Unmapped), None);
}

#[test]
fn the_tightest_range_is_taken() {
    let mut offsets = Offsets::new();
    let whole = offsets.add_page(0, 4096);
    offsets.open(whole, 512, Backing::Backed);
    let mut taken = Vec::new();
    for size in [16, 256, 16, 128, 16, 512, 16] {
        taken.extend(offsets.allocate(size, Backing::Backed));
    }
    for at in [1, 3, 5] {
        offsets.free(taken[at], Backing::Backed);
    }

    let found = offsets.allocate(112, Backing::Backed);

    assert_eq!(found.map(|range| offsets.offset(range)), Some(512 + 16 + 256 + 16));
}

#[test]
fn a_range_behind_many_that_are_a_little_small_is_found() {
    let mut offsets = Offsets::new();
    let whole = offsets.add_page(0, 64 << 10);
    offsets.open(whole, 16, Backing::Backed);
    let sizes = [1120].into_iter().chain([1024; 40]).flat_map(|size| [size, 16]);
    let taken: Vec<RangeId> = sizes.filter_map(|size| offsets.allocate(size, Backing::Backed)).collect();
    while offsets.allocate(2048, Backing::Backed).is_some() {}
    while offsets.allocate(1104, Backing::Backed).is_some() {}
    for &range in taken.iter().step_by(2) {
        offsets.free(range, Backing::Backed);
    }

    let found = offsets.allocate(1104, Backing::Backed);

    assert_eq!(found.map(|range| offsets.offset(range)), Some(16));
}
