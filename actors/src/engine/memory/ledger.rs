//! All pages of a device: whose they are, and what they take of the budget.

use super::offsets::Backing;
use super::pool::{Fit, Place, Pool, Swept};
use crate::engine::command::PageId;
use std::collections::HashMap;

/// Names a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PoolAt {
    /// A dynamic pool.
    Dynamic {
        /// Of this arena.
        arena: u32,
        /// At this place of its order.
        pool: u32,
    },
    /// A pool of host memory.
    Host(usize),
    /// The persistent pool.
    Persistent,
}

/// Where a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    /// On its way back to the device.
    Leaving {
        /// Its bytes.
        bytes: u64,
        /// Whether it is memory of the device.
        is_device: bool,
    },
    /// At a place of a pool.
    Pool(PoolAt, u32),
}

/// Why a pool did not take a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Miss {
    /// It is at the cap of its layout.
    Capped {
        /// The cap.
        limit: u64,
    },
    /// The device must give this page first.
    Page {
        /// Its name.
        page: PageId,
        /// Its bytes.
        bytes: u64,
    },
    /// Neither budget nor device have room for a page.
    Short,
}

/// The pages of a device.
#[derive(Debug)]
pub(super) struct Ledger {
    budget: u64,
    /// Bytes of device memory: in pools, asked for, and leaving.
    reserved: u64,
    leaving: u64,
    homes: HashMap<PageId, Home>,
    next: u32,
}

impl Ledger {
    pub(super) fn new(budget: u64) -> Self {
        Self { budget, reserved: 0, leaving: 0, homes: HashMap::new(), next: 0 }
    }

    /// Reserves `padded` bytes in a pool, and adds the page that it needs: an unmapped one in a dry run, else one that
    /// the device is to be asked for.
    pub(super) fn reserve(
        &mut self,
        pool: &mut Pool,
        at: PoolAt,
        padded: u64,
        dry: bool,
        now: u64,
    ) -> Result<Place, Miss> {
        loop {
            match pool.reserve(padded, dry) {
                Fit::Placed(place) => return Ok(place),
                Fit::Capped { limit } => return Err(Miss::Capped { limit }),
                Fit::Refused => return Err(Miss::Short),
                Fit::Grow { bytes, .. } if dry => {
                    let page = self.name()?;
                    let slot = pool.add_unmapped(page, bytes, now);
                    self.homes.insert(page, Home::Pool(at, slot));
                }
                Fit::Grow { bytes, least } => {
                    let room = if at.is_device() { self.budget.saturating_sub(self.reserved) } else { u64::MAX };
                    let bytes = if bytes <= room { bytes } else { least };
                    if bytes > room {
                        return Err(Miss::Short);
                    }
                    let page = self.name()?;
                    let slot = pool.ask(page, bytes);
                    self.homes.insert(page, Home::Pool(at, slot));
                    self.reserve_bytes(at, bytes);
                    return Err(Miss::Page { page, bytes });
                }
                Fit::Back { slot, bytes } => {
                    let page = self.back(pool, at, slot, bytes).ok_or(Miss::Short)?;
                    return Err(Miss::Page { page, bytes });
                }
            }
        }
    }

    /// Asks for the memory of a page that a dry run made, unless that is over the budget or done already.
    pub(super) fn back(&mut self, pool: &mut Pool, at: PoolAt, slot: u32, bytes: u64) -> Option<PageId> {
        if bytes > self.budget.saturating_sub(self.reserved) {
            return None;
        }
        let page = pool.ask_backing(slot)?;
        self.reserve_bytes(at, bytes);
        Some(page)
    }

    /// Where a page is that a pool has.
    pub(super) fn home(&self, page: PageId) -> (PoolAt, u32) {
        match self.homes.get(&page) {
            Some(Home::Pool(at, slot)) => (*at, *slot),
            Some(Home::Leaving { .. }) | None => unreachable!("{page:?} is in no pool"),
        }
    }

    /// The device refused `bytes`.
    pub(super) fn refused(&mut self, page: PageId, at: PoolAt, bytes: u64, is_gone: bool) {
        if at.is_device() {
            self.reserved -= bytes;
        }
        if is_gone {
            self.homes.remove(&page);
        }
    }

    /// Pages were taken out of a pool: those with memory are put into `freed`.
    pub(super) fn leave(&mut self, at: PoolAt, swept: &[Swept], freed: &mut Vec<PageId>) {
        for &Swept { page, bytes, backing } in swept {
            match backing {
                Backing::Backed => {
                    let is_device = at.is_device();
                    self.homes.insert(page, Home::Leaving { bytes, is_device });
                    self.leaving += if is_device { bytes } else { 0 };
                    freed.push(page);
                }
                Backing::Unmapped => {
                    self.homes.remove(&page);
                }
            }
        }
    }

    /// The device has the memory of a page back.
    pub(super) fn freed(&mut self, page: PageId) {
        let Some(Home::Leaving { bytes, is_device }) = self.homes.remove(&page) else {
            unreachable!("{page:?} was freed and not swept")
        };
        if is_device {
            self.leaving -= bytes;
            self.reserved -= bytes;
        }
    }

    /// Bytes of device memory that are in no pool any more and not free yet.
    pub(super) fn leaving(&self) -> u64 {
        self.leaving
    }

    /// Bytes of device memory that are taken from the budget.
    #[cfg(test)]
    pub(super) fn reserved(&self) -> u64 {
        self.reserved
    }

    fn reserve_bytes(&mut self, at: PoolAt, bytes: u64) {
        if at.is_device() {
            self.reserved += bytes;
        }
    }

    /// A name that no page had. There are as many as a driver can give pages in four days without pause.
    fn name(&mut self) -> Result<PageId, Miss> {
        let next = self.next.checked_add(1).ok_or(Miss::Short)?;
        let page = PageId(self.next);
        self.next = next;
        Ok(page)
    }
}

impl PoolAt {
    fn is_device(self) -> bool {
        match self {
            Self::Dynamic { .. } | Self::Persistent => true,
            Self::Host(_) => false,
        }
    }
}
