//! What memory is used and kept: plain data.

use super::config::{MemoryPoolConfig, MemoryPoolsConfig};
use serde::Serialize;

/// Sums over reservations and pages. All sizes are in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MemoryUsage {
    /// Reservations that live.
    pub number_allocs: u64,
    /// What they asked for.
    pub bytes_in_use: u64,
    /// What alignment added.
    pub bytes_padding: u64,
    /// What the pages take from the device.
    pub bytes_reserved: u64,
}

impl MemoryUsage {
    /// The sum of both.
    #[must_use]
    pub fn combine(&self, other: Self) -> Self {
        Self {
            number_allocs: self.number_allocs + other.number_allocs,
            bytes_in_use: self.bytes_in_use + other.bytes_in_use,
            bytes_padding: self.bytes_padding + other.bytes_padding,
            bytes_reserved: self.bytes_reserved + other.bytes_reserved,
        }
    }
}

/// What kind of pool it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum MemoryPoolKind {
    /// Slices of pages.
    Sliced {
        /// Bytes of a page.
        page_size: u64,
        /// The largest reservation.
        max_slice_size: u64,
    },
    /// A page for each reservation.
    Exclusive {
        /// The largest reservation.
        max_alloc_size: u64,
    },
    /// A device allocation for each reservation.
    Direct,
    /// Exact-fit slices that no sweep takes.
    Persistent,
}

/// One pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryPoolReport {
    /// Its kind and shape.
    pub kind: MemoryPoolKind,
    /// What the stream has in it; `bytes_reserved` is all of its pages.
    pub usage: MemoryUsage,
    /// Pages.
    pub pages: u64,
    /// The most pages at once since the pool was installed.
    pub pages_peak: u64,
    /// Pages that a dry run counts and no device memory backs.
    pub pages_unmapped: u64,
    /// The most bytes in use, padding included, at once since the pool was installed.
    pub bytes_peak: u64,
    /// The largest reservation since the pool was installed.
    pub largest_alloc: u64,
}

/// The pools of a stream, in the order in which a reservation tries them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryReport {
    /// The dynamic pools.
    pub dynamic: Vec<MemoryPoolReport>,
    /// The persistent pool.
    pub persistent: MemoryPoolReport,
    /// Memory beside the pools, such as staging, by name.
    pub auxiliary: Vec<(String, MemoryUsage)>,
}

impl MemoryReport {
    /// The sum of the dynamic pools and the persistent one.
    pub fn usage(&self) -> MemoryUsage {
        self.dynamic.iter().fold(self.persistent.usage.clone(), |sum, pool| sum.combine(pool.usage.clone()))
    }

    /// The smallest layout that holds what was measured: each pool that was used becomes one whose pages are together
    /// as large as the most that lived in it at once, and a twenty-fourth more for the gaps between slices. What these
    /// do not take, since gaps are larger or since it is more work than was measured, has allocations of its own,
    /// which go back when they are not in use.
    ///
    /// A server whose requests have lengths of a few buckets needs no more than the pages. One whose requests overlap
    /// and have any length has gaps of some 15 %: its plan is right by the sum, and asks the device now and then.
    pub fn plan(&self) -> MemoryPoolsConfig {
        let used = self.dynamic.iter().filter(|pool| pool.bytes_peak > 0);
        let mut pools: Vec<MemoryPoolConfig> = used.map(MemoryPoolReport::planned).collect();
        pools.push(MemoryPoolConfig::Direct { reclaim_at: Some(0) });
        MemoryPoolsConfig::Explicit(pools)
    }
}

impl MemoryPoolReport {
    /// Pages for the peak: one, or as few as the largest page of the pool allows. Sizes need not be aligned: a pool
    /// rounds its pages up.
    fn planned(&self) -> MemoryPoolConfig {
        let (page_max, slice_max) = match self.kind {
            MemoryPoolKind::Sliced { page_size, max_slice_size } => (page_size, max_slice_size),
            MemoryPoolKind::Exclusive { max_alloc_size } => (max_alloc_size, max_alloc_size),
            MemoryPoolKind::Direct | MemoryPoolKind::Persistent => (self.largest_alloc.max(PAGE_BYTES_SAFE), u64::MAX),
        };
        let with_gaps = self.bytes_peak + self.bytes_peak / PLAN_GAPS_PART;
        // Where the pages that held the peak are there still, no more than they are can be needed.
        let held = Some(self.usage.bytes_reserved).filter(|bytes| *bytes >= self.bytes_peak);
        let bytes = held.map_or(with_gaps, |held| held.min(with_gaps));
        let page_size = bytes.div_ceil(bytes.div_ceil(page_max)).max(self.largest_alloc);
        // Rounding down leaves less than a page to the pool behind, which takes exactly what is needed.
        let count = bytes / page_size;
        MemoryPoolConfig::Sliced {
            page_size,
            max_slice_size: Some(slice_max.min(page_size)),
            max_pool_size: Some(count * page_size),
            dealloc_period: None,
        }
    }
}

/// A page that every device can have, where a report does not tell the largest.
const PAGE_BYTES_SAFE: u64 = 1 << 20;

/// Of a plan's peak, the part that its pages have for gaps: with what alignment adds, a twentieth.
const PLAN_GAPS_PART: u64 = 24;
