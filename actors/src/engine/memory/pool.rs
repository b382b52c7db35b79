//! One pool: pages of like size, and what of them is free.
//!
//! A pool never asks the device. It says what it lacks by a [`Fit`], and its owner adds pages.

use super::offsets::{Backing, Offsets, RangeId};
use super::shape::{BURST, Shape};
use crate::engine::command::PageId;

/// Where a reservation lies. Whoever holds it owes the pool a `release`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) page: PageId,
    pub(super) offset: u64,
    pub(super) range: RangeId,
}

/// What a pool says to a request.
#[derive(Debug)]
pub(super) enum Fit {
    /// This page, which a dry run made, needs memory: call `ask_backing`, and reserve again when it is granted.
    Back {
        /// The page.
        slot: u32,
        /// How large it is.
        bytes: u64,
    },
    /// All pages that the layout allows are there.
    Capped {
        /// The cap of the layout.
        limit: u64,
    },
    /// It needs one more page.
    Grow {
        /// How large it should be.
        bytes: u64,
        /// How large it must be.
        least: u64,
    },
    /// Here it lies.
    Placed(Place),
    /// The device refused a page for this request.
    Refused,
}

/// A page that a sweep took out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Swept {
    pub(super) page: PageId,
    pub(super) bytes: u64,
    pub(super) backing: Backing,
}

/// Pages of one kind and what is reserved in them.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) shape: Shape,
    pages: Vec<Page>,
    unused: Vec<u32>,
    offsets: Offsets,
    /// Empty pages with memory, by size, then by when they became empty.
    empty: Vec<Empty>,
    /// Empty pages without.
    empty_unmapped: Vec<Empty>,
    empty_bytes: u64,
    next_rank: u64,
    /// When the first empty page has been so for the period of the layout.
    due: u64,
    refused: Refused,
    recent: Recent,
    sums: Sums,
    asked: u64,
}

/// What a pool holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// Pages, without those that the device was asked for and did not give yet.
    pub(super) pages: u64,
    /// The most there ever were.
    pub(super) pages_peak: u64,
    /// Those without memory.
    pub(super) pages_unmapped: u64,
    /// Bytes of all pages.
    pub(super) bytes: u64,
    /// Bytes of pages without memory.
    pub(super) bytes_unmapped: u64,
}

#[derive(Debug)]
struct Page {
    id: PageId,
    bytes: u64,
    /// Bytes of live reservations, padding included.
    live: u64,
    /// The range at its start. Means nothing while the page is asked for.
    first: RangeId,
    state: PageState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageState {
    /// The device was asked for it.
    Asked,
    /// It has memory.
    Backed,
    /// It is in use by dry runs, and the device was asked for its memory.
    Backing,
    /// A dry run made it.
    Unmapped,
    /// The slot has no page.
    Unused,
}

#[derive(Debug, Clone, Copy)]
struct Empty {
    bytes: u64,
    slot: u32,
    /// The reservations so far when it became empty.
    since: u64,
    /// The pages of the pool that became empty before.
    rank: u64,
}

/// How far the device went along with the request that is being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    /// Not asked, or it gave.
    No,
    /// It refused a page larger than needed: the next is asked for as small as can be.
    Large,
    /// It refused the smallest.
    All,
}

/// The most bytes live at once in this window of reservations and the one before.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Recent {
    live: u64,
    peak: u64,
    peak_before: u64,
    since: u64,
}

impl Pool {
    pub(super) fn new(shape: Shape) -> Self {
        Self {
            shape,
            pages: Vec::new(),
            unused: Vec::new(),
            offsets: Offsets::new(),
            empty: Vec::new(),
            empty_unmapped: Vec::new(),
            empty_bytes: 0,
            next_rank: 0,
            due: u64::MAX,
            refused: Refused::No,
            recent: Recent::default(),
            sums: Sums::default(),
            asked: 0,
        }
    }

    /// Finds room for `padded` bytes: in the pages that are there, or says what it takes.
    pub(super) fn reserve(&mut self, padded: u64, dry: bool) -> Fit {
        if let Some(range) = self.take(padded, Backing::Backed) {
            return Fit::Placed(self.place(range, padded));
        }
        if dry {
            if let Some(range) = self.take(padded, Backing::Unmapped) {
                return Fit::Placed(self.place(range, padded));
            }
        } else if self.refused != Refused::All
            && let Some(slot) = self.unmapped_page(padded)
        {
            return Fit::Back { slot, bytes: self.pages[slot as usize].bytes };
        }
        self.lack(padded, dry)
    }

    /// Ends a reservation of `padded` bytes.
    pub(super) fn release(&mut self, range: RangeId, padded: u64, now: u64) {
        let slot = self.offsets.page(range);
        let page = &mut self.pages[slot as usize];
        page.live -= padded;
        self.recent.reach(self.recent.live - padded);
        let backing = page.backing();
        if self.offsets.free(range, backing).is_some() {
            self.keep_empty(slot, now);
        }
    }

    /// Adds a page without memory, for a dry run.
    pub(super) fn add_unmapped(&mut self, id: PageId, bytes: u64, now: u64) -> u32 {
        let slot = self.new_slot(Page { id, bytes, live: 0, first: RangeId::NONE, state: PageState::Unmapped });
        self.admit(slot, now);
        slot
    }

    /// Adds a page that the device is asked for.
    pub(super) fn ask(&mut self, id: PageId, bytes: u64) -> u32 {
        self.asked += 1;
        self.new_slot(Page { id, bytes, live: 0, first: RangeId::NONE, state: PageState::Asked })
    }

    /// The device is asked for the memory of a page. Returns its name, unless that was done already.
    pub(super) fn ask_backing(&mut self, slot: u32) -> Option<PageId> {
        let page = &mut self.pages[slot as usize];
        if page.state != PageState::Unmapped {
            return None;
        }
        page.state = PageState::Backing;
        Some(page.id)
    }

    /// The device gave what it was asked for.
    pub(super) fn granted(&mut self, slot: u32, now: u64) {
        let page = &mut self.pages[slot as usize];
        match page.state {
            PageState::Asked => {
                page.state = PageState::Backed;
                self.asked -= 1;
                self.admit(slot, now);
            }
            PageState::Backing => self.back(slot, now),
            PageState::Backed | PageState::Unmapped | PageState::Unused => {
                unreachable!("{:?} was granted and not asked for", page.id)
            }
        }
    }

    /// The device did not give it. Returns the bytes, and whether the page is gone.
    pub(super) fn refuse(&mut self, slot: u32) -> (u64, bool) {
        let page = &mut self.pages[slot as usize];
        let bytes = page.bytes;
        let gone = match page.state {
            PageState::Asked => true,
            PageState::Backing => false,
            PageState::Backed | PageState::Unmapped | PageState::Unused => {
                unreachable!("{:?} was refused and not asked for", page.id)
            }
        };
        self.refused = match self.refused {
            Refused::No if gone && self.shape.pages.can_shrink() => Refused::Large,
            Refused::No | Refused::Large | Refused::All => Refused::All,
        };
        if gone {
            page.state = PageState::Unused;
            self.unused.push(slot);
            self.asked -= 1;
        } else {
            page.state = PageState::Unmapped;
        }
        (bytes, gone)
    }

    /// The request is over: the next may ask the device again.
    pub(super) fn forget_refusal(&mut self) {
        self.refused = Refused::No;
    }

    /// Whether the device refused all that this request can do with; the next may ask again.
    pub(super) fn take_refusal(&mut self) -> bool {
        std::mem::replace(&mut self.refused, Refused::No) == Refused::All
    }

    /// Takes out the empty pages whose time is over, or with `all` every one.
    pub(super) fn sweep(&mut self, all: bool, now: u64, swept: &mut Vec<Swept>) {
        if all {
            self.remove_older(u64::MAX, swept);
            return;
        }
        if now >= self.due
            && let Some(period) = self.shape.idle.period
        {
            self.remove_older(now.saturating_sub(period), swept);
        }
        self.reclaim(now, swept);
        self.trim(now, swept);
    }

    /// When the page with memory that has been empty for longest became so.
    pub(super) fn empty_since(&self) -> Option<u64> {
        self.empty.iter().map(|empty| empty.since).min()
    }

    /// Takes out the page with memory that has been empty for longest.
    pub(super) fn remove_oldest(&mut self, swept: &mut Vec<Swept>) {
        if let Some(at) = self.oldest_empty() {
            self.remove_page(at, Backing::Backed, swept);
        }
    }

    /// Whether nothing is left of it: no page, and none asked for.
    pub(super) fn is_bare(&self) -> bool {
        self.sums.pages == 0 && self.asked == 0
    }

    pub(super) fn sums(&self) -> Sums {
        self.sums
    }

    /// Bytes that live, padding included.
    pub(super) fn live(&self) -> u64 {
        self.recent.live
    }

    /// Bytes that live in memory of the device, padding included.
    pub(super) fn backed_live(&self) -> u64 {
        self.pages.iter().filter(|page| page.backing() == Backing::Backed).map(|page| page.live).sum()
    }

    /// Whether the page of a range has memory, and else its slot and size.
    pub(super) fn unbacked(&self, range: RangeId) -> Option<(u32, u64)> {
        let slot = self.offsets.page(range);
        let page = &self.pages[slot as usize];
        (page.backing() == Backing::Unmapped).then_some((slot, page.bytes))
    }

    fn take(&mut self, padded: u64, backing: Backing) -> Option<RangeId> {
        let shared = self.shape.pages.is_shared();
        if shared && let Some(range) = self.offsets.allocate(padded, backing) {
            return Some(range);
        }
        let at = self.best_empty(padded, backing)?;
        let empty = self.remove_empty(at, backing);
        let whole = self.pages[empty.slot as usize].first;
        self.offsets.open(whole, if shared { padded } else { empty.bytes }, backing);
        Some(whole)
    }

    fn place(&mut self, range: RangeId, padded: u64) -> Place {
        let page = &mut self.pages[self.offsets.page(range) as usize];
        page.live += padded;
        self.recent.reach(self.recent.live + padded);
        Place { page: page.id, offset: self.offsets.offset(range), range }
    }

    /// A page of a dry run that would take the request, if it had memory.
    fn unmapped_page(&self, padded: u64) -> Option<u32> {
        if self.sums.pages_unmapped == 0 {
            return None;
        }
        let partly = self.shape.pages.is_shared().then(|| self.offsets.peek(padded, Backing::Unmapped)).flatten();
        let slot = match partly {
            Some(slot) => slot,
            None => self.empty_unmapped[self.best_empty(padded, Backing::Unmapped)?].slot,
        };
        (self.pages[slot as usize].state == PageState::Unmapped).then_some(slot)
    }

    /// What the pool needs to take the request.
    fn lack(&self, padded: u64, dry: bool) -> Fit {
        if let Some(cap) = self.shape.cap
            && self.sums.pages + self.asked >= cap.pages
        {
            return Fit::Capped { limit: cap.bytes };
        }
        let (bytes, least) = self.shape.pages.page_bytes(padded, self.sums.bytes);
        match self.refused {
            Refused::No => Fit::Grow { bytes, least },
            Refused::Large | Refused::All if dry => Fit::Grow { bytes, least },
            Refused::Large if least < bytes => Fit::Grow { bytes: least, least },
            Refused::Large | Refused::All => Fit::Refused,
        }
    }

    /// The smallest empty page that may be used, and of those the one used last: its bytes may be in a cache.
    fn best_empty(&self, padded: u64, backing: Backing) -> Option<usize> {
        let list = self.empties(backing);
        let first = list.partition_point(|empty| empty.bytes < padded);
        let bytes = list.get(first)?.bytes;
        let behind = first + list[first..].partition_point(|empty| empty.bytes == bytes);
        (bytes <= self.shape.pages.reuse_max(padded)).then_some(behind - 1)
    }

    /// A page is there: counts it.
    fn admit(&mut self, slot: u32, now: u64) {
        let page = &mut self.pages[slot as usize];
        page.first = self.offsets.add_page(slot, page.bytes);
        let (bytes, backing) = (page.bytes, page.backing());
        self.sums.pages += 1;
        self.sums.pages_peak = self.sums.pages_peak.max(self.sums.pages);
        self.sums.bytes += bytes;
        if backing == Backing::Unmapped {
            self.sums.pages_unmapped += 1;
            self.sums.bytes_unmapped += bytes;
        }
        self.keep_empty(slot, now);
    }

    /// A page of a dry run has memory.
    fn back(&mut self, slot: u32, now: u64) {
        let was_empty = self.empty_unmapped.iter().position(|empty| empty.slot == slot);
        if let Some(at) = was_empty {
            self.remove_empty(at, Backing::Unmapped);
        }
        let page = &mut self.pages[slot as usize];
        page.state = PageState::Backed;
        self.offsets.back(page.first);
        self.sums.pages_unmapped -= 1;
        self.sums.bytes_unmapped -= page.bytes;
        if was_empty.is_some() {
            self.keep_empty(slot, now);
        }
    }

    fn keep_empty(&mut self, slot: u32, now: u64) {
        let page = &self.pages[slot as usize];
        let empty = Empty { bytes: page.bytes, slot, since: now, rank: self.next_rank };
        let backing = page.backing();
        self.next_rank += 1;
        if backing == Backing::Backed {
            self.empty_bytes += empty.bytes;
        }
        if let Some(period) = self.shape.idle.period {
            self.due = self.due.min(now.saturating_add(period));
        }
        let list = self.empties_mut(backing);
        let at = list.partition_point(|other| other.bytes <= empty.bytes);
        list.insert(at, empty);
    }

    fn remove_empty(&mut self, at: usize, backing: Backing) -> Empty {
        let empty = self.empties_mut(backing).remove(at);
        if backing == Backing::Backed {
            self.empty_bytes -= empty.bytes;
        }
        empty
    }

    /// Takes out what has been empty since `since` or longer.
    fn remove_older(&mut self, since: u64, swept: &mut Vec<Swept>) {
        for backing in [Backing::Backed, Backing::Unmapped] {
            let mut at = 0;
            while let Some(empty) = self.empties(backing).get(at) {
                // A page that the device is asked for must be there when it answers.
                let is_awaited = self.pages[empty.slot as usize].state == PageState::Backing;
                if empty.since <= since && !is_awaited {
                    self.remove_page(at, backing, swept);
                } else {
                    at += 1;
                }
            }
        }
        let oldest = self.empty.iter().chain(&self.empty_unmapped).map(|empty| empty.since).min();
        self.due = match (oldest, self.shape.idle.period) {
            (Some(oldest), Some(period)) => oldest.saturating_add(period),
            (Some(_) | None, None) | (None, Some(_)) => u64::MAX,
        };
    }

    /// Keeps no more empty bytes than the layout says.
    fn reclaim(&mut self, now: u64, swept: &mut Vec<Swept>) {
        let Some(bytes_max) = self.shape.idle.bytes_max else { return };
        while self.empty_bytes > bytes_max
            && let Some(at) = self.oldest_empty()
        {
            let is_recent = now < self.empty[at].since.saturating_add(self.shape.idle.grace);
            if is_recent && self.empty_bytes <= bytes_max.saturating_mul(BURST) {
                return;
            }
            self.remove_page(at, Backing::Backed, swept);
        }
    }

    /// Keeps no more than a quarter above what was lately needed at once.
    fn trim(&mut self, now: u64, swept: &mut Vec<Swept>) {
        let (true, Some(window)) = (self.shape.idle.trim, self.shape.idle.period) else { return };
        self.recent.turn(now, window);
        let needed = self.recent.peak();
        let spare = |pool: &Self| (pool.sums.bytes - pool.sums.bytes_unmapped).saturating_sub(needed);
        while spare(self) > needed / 4
            && let Some(at) = self.oldest_empty_within(spare(self))
        {
            self.remove_page(at, Backing::Backed, swept);
        }
    }

    fn oldest_empty(&self) -> Option<usize> {
        self.oldest_empty_within(u64::MAX)
    }

    /// The empty page that has been so for longest, of those with `bytes_max` at most.
    fn oldest_empty_within(&self, bytes_max: u64) -> Option<usize> {
        let small = self.empty.iter().enumerate().filter(|(_, empty)| empty.bytes <= bytes_max);
        small.min_by_key(|(_, empty)| empty.rank).map(|(at, _)| at)
    }

    /// Takes an empty page out of the pool.
    fn remove_page(&mut self, at: usize, backing: Backing, swept: &mut Vec<Swept>) {
        let Empty { bytes, slot, .. } = self.remove_empty(at, backing);
        let page = &mut self.pages[slot as usize];
        assert!(page.live == 0, "{:?} was swept with {} live bytes", page.id, page.live);
        self.offsets.remove_page(page.first);
        page.state = PageState::Unused;
        self.unused.push(slot);
        self.sums.pages -= 1;
        self.sums.bytes -= bytes;
        if backing == Backing::Unmapped {
            self.sums.pages_unmapped -= 1;
            self.sums.bytes_unmapped -= bytes;
        }
        swept.push(Swept { page: page.id, bytes, backing });
    }

    fn new_slot(&mut self, page: Page) -> u32 {
        if let Some(slot) = self.unused.pop() {
            self.pages[slot as usize] = page;
            return slot;
        }
        self.pages.push(page);
        (self.pages.len() - 1) as u32
    }

    fn empties(&self, backing: Backing) -> &Vec<Empty> {
        match backing {
            Backing::Backed => &self.empty,
            Backing::Unmapped => &self.empty_unmapped,
        }
    }

    fn empties_mut(&mut self, backing: Backing) -> &mut Vec<Empty> {
        match backing {
            Backing::Backed => &mut self.empty,
            Backing::Unmapped => &mut self.empty_unmapped,
        }
    }
}

impl Page {
    fn backing(&self) -> Backing {
        match self.state {
            PageState::Backed => Backing::Backed,
            PageState::Asked | PageState::Backing | PageState::Unmapped | PageState::Unused => Backing::Unmapped,
        }
    }
}

impl Recent {
    pub(super) fn peak(&self) -> u64 {
        self.peak.max(self.peak_before)
    }

    /// So much lives.
    pub(super) fn reach(&mut self, live: u64) {
        self.live = live;
        self.peak = self.peak.max(live);
    }

    /// Starts the next window when this one is over.
    pub(super) fn turn(&mut self, now: u64, window: u64) {
        if now.saturating_sub(self.since) >= window {
            *self = Self { live: self.live, peak: self.live, peak_before: self.peak, since: now };
        }
    }
}
