//! Host memory for transfers: pages that small ones share, and pages of their own for large ones.

use super::ledger::{Ledger, Miss, PoolAt};
use super::offsets::RangeId;
use super::pool::{Pool, Swept};
use super::report::MemoryUsage;
use super::shape;
use super::streams::Account;
use crate::engine::command::{PageId, Span};
use crate::port::PageKind;
use std::collections::HashMap;

/// Pools of host memory, two for each direction, and what lives in them.
#[derive(Debug)]
pub(super) struct HostPools {
    pools: Vec<Pool>,
    accounts: [Account; 2],
    live: HashMap<(PageId, u64), Live>,
    alignment: u64,
    clock: u64,
}

#[derive(Debug)]
struct Live {
    pool: usize,
    range: RangeId,
    size: u64,
    padded: u64,
}

impl HostPools {
    pub(super) fn new(alignment: u64) -> Self {
        let alignment = alignment.max(CACHE_LINE_BYTES);
        let both = || shape::host(alignment).map(Pool::new);
        Self {
            pools: both().into_iter().chain(both()).collect(),
            accounts: [Account::default(); 2],
            live: HashMap::new(),
            alignment,
            clock: 0,
        }
    }

    pub(super) fn reserve(&mut self, ledger: &mut Ledger, kind: PageKind, size: u64) -> Result<Span, Miss> {
        let padded = size.checked_next_multiple_of(self.alignment).ok_or(Miss::Short)?;
        let direction = direction(kind);
        let is_shared = size <= self.pools[2 * direction].shape.size_max;
        let at = 2 * direction + usize::from(!is_shared);
        let pool = &mut self.pools[at];
        let found = ledger.reserve(pool, PoolAt::Host(at), padded, false, self.clock);
        if !matches!(found, Err(Miss::Page { .. })) {
            pool.forget_refusal();
        }
        let place = found?;
        self.clock += 1;
        self.accounts[direction].add(size, padded);
        self.live.insert((place.page, place.offset), Live { pool: at, range: place.range, size, padded });
        Ok(Span { page: place.page, offset: place.offset, size })
    }

    pub(super) fn release(&mut self, span: Span) {
        let Some(live) = self.live.remove(&(span.page, span.offset)) else {
            unreachable!("{span:?} was released and not reserved")
        };
        assert!(live.size == span.size, "{span:?} was released, {} bytes were reserved", live.size);
        self.accounts[live.pool / 2].remove(live.size, live.padded);
        self.pools[live.pool].release(live.range, live.padded, self.clock);
    }

    pub(super) fn sweep(&mut self, ledger: &mut Ledger, all: bool, swept: &mut Vec<Swept>, freed: &mut Vec<PageId>) {
        for (at, pool) in self.pools.iter_mut().enumerate() {
            swept.clear();
            pool.sweep(all, self.clock, swept);
            ledger.leave(PoolAt::Host(at), swept, freed);
        }
    }

    pub(super) fn granted(&mut self, pool: usize, slot: u32) {
        self.pools[pool].granted(slot, self.clock);
    }

    /// Returns the bytes, and whether the page is gone.
    pub(super) fn refuse(&mut self, pool: usize, slot: u32) -> (u64, bool) {
        self.pools[pool].refuse(slot)
    }

    pub(super) fn usage(&self, kind: PageKind) -> MemoryUsage {
        let direction = direction(kind);
        let pools = &self.pools[2 * direction..][..2];
        self.accounts[direction].usage(pools.iter().map(|pool| pool.sums().bytes).sum())
    }
}

/// Which half of the pools.
fn direction(kind: PageKind) -> usize {
    match kind {
        PageKind::Device => unreachable!("device memory is not reserved here"),
        PageKind::Readback => 1,
        PageKind::Upload => 0,
    }
}

/// Host slices start on a line of the host's cache, so that the host and the device never write to one line.
const CACHE_LINE_BYTES: u64 = 64;
