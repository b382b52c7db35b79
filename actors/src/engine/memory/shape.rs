//! What a pool is like: a layout, made concrete for a device.

use super::MemoryLimits;
use super::config::{MemoryPoolConfig, MemoryPoolsConfig, MemoryPoolsPreset};
use super::report::MemoryPoolKind;

/// The rules of one pool.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    /// What a report shows.
    pub(super) kind: MemoryPoolKind,
    /// The largest reservation that the pool takes.
    pub(super) size_max: u64,
    /// How large its pages are.
    pub(super) pages: PageRule,
    /// How large all of them together may be.
    pub(super) cap: Option<Cap>,
    /// When an empty page goes back.
    pub(super) idle: Idle,
}

/// How large a page is, and how many reservations share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageRule {
    /// One reservation; steps of `step` bytes. An empty page of up to twice the size is used again.
    Chunk {
        /// What sizes are rounded up to.
        step: u64,
    },
    /// One reservation of exactly this size.
    Exact,
    /// Many; all pages are of this size.
    Fixed(u64),
    /// Many; a page is an eighth of the pool, within these bounds, or as large as what asks for it.
    Growing {
        /// The smallest.
        first: u64,
        /// The largest, but for larger reservations.
        max: u64,
    },
    /// One reservation; sizes are rounded so that three quarters at least of a page are in use.
    Rounded {
        /// The largest page.
        max: u64,
    },
}

/// The end of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cap {
    /// As it was asked for.
    pub(super) bytes: u64,
    /// What that makes.
    pub(super) pages: u64,
}

/// When empty pages go back without being asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Idle {
    /// After so many reservations.
    pub(super) period: Option<u64>,
    /// When there are more bytes of them, the oldest first.
    pub(super) bytes_max: Option<u64>,
    /// Reservations for which `bytes_max` may be passed, up to [`BURST`] times.
    pub(super) grace: u64,
    /// When the pool holds a quarter more than it lately needed at once.
    pub(super) trim: bool,
}

impl PageRule {
    /// Bytes of a new page for `padded` bytes, in a pool that holds `reserved`, and the least that would do.
    pub(super) fn page_bytes(self, padded: u64, reserved: u64) -> (u64, u64) {
        match self {
            Self::Chunk { step } => {
                let bytes = padded.next_multiple_of(step);
                (bytes, bytes)
            }
            Self::Exact => (padded, padded),
            Self::Fixed(bytes) => (bytes, bytes),
            Self::Growing { first, max } => {
                let part = (reserved / 8).max(1);
                let step = (1 << part.ilog2()).clamp(first, max);
                (step.max(padded), padded)
            }
            Self::Rounded { max } => (rounded(padded).min(max).max(padded), padded),
        }
    }

    /// The largest empty page that may be used for `padded` bytes.
    pub(super) fn reuse_max(self, padded: u64) -> u64 {
        match self {
            Self::Chunk { .. } => padded.saturating_mul(2).max(CHUNK_BYTES),
            Self::Exact => padded,
            Self::Fixed(_) | Self::Growing { .. } => u64::MAX,
            Self::Rounded { .. } => (padded.saturating_add(padded / 4)).max(SMALL_PAGE_BYTES),
        }
    }

    /// Whether a page may be asked for that is larger than needed.
    pub(super) fn can_shrink(self) -> bool {
        match self {
            Self::Growing { .. } | Self::Rounded { .. } => true,
            Self::Chunk { .. } | Self::Exact | Self::Fixed(_) => false,
        }
    }

    /// Whether many reservations lie in one page.
    pub(super) fn is_shared(self) -> bool {
        match self {
            Self::Fixed(_) | Self::Growing { .. } => true,
            Self::Chunk { .. } | Self::Exact | Self::Rounded { .. } => false,
        }
    }
}

/// The pools of a layout, in order.
pub(super) fn shapes(layout: &MemoryPoolsConfig, limits: &MemoryLimits) -> Vec<Shape> {
    match layout {
        MemoryPoolsConfig::Preset(MemoryPoolsPreset::SubSlices) => sub_slices(limits),
        MemoryPoolsConfig::Preset(MemoryPoolsPreset::ExclusivePages) => {
            vec![exclusive(limits.page_bytes_max, Some(IDLE_RESERVATIONS), true, limits)]
        }
        MemoryPoolsConfig::Explicit(pools) => pools.iter().map(|pool| explicit(pool, limits)).collect(),
    }
}

/// The persistent pool: all sizes share pages, so that thousands of small weights are few device allocations.
pub(super) fn persistent(limits: &MemoryLimits) -> Shape {
    let max = page_max(limits, 256 * MIB);
    Shape {
        kind: MemoryPoolKind::Persistent,
        size_max: limits.page_bytes_max,
        pages: PageRule::Growing { first: max.min(SMALL_PAGE_BYTES), max },
        cap: None,
        idle: Idle::default(),
    }
}

/// Host pages that small transfers share, and those that large ones have for themselves.
pub(super) fn host(alignment: u64) -> [Shape; 2] {
    let shape = |size_max, pages| Shape {
        kind: MemoryPoolKind::Sliced { page_size: CHUNK_BYTES, max_slice_size: HOST_SHARED_BYTES_MAX },
        size_max,
        pages,
        cap: None,
        idle: Idle { bytes_max: Some(HOST_IDLE_BYTES_MAX), grace: HOST_GRACE_RESERVATIONS, ..Idle::default() },
    };
    [
        shape(HOST_SHARED_BYTES_MAX, PageRule::Fixed(CHUNK_BYTES.next_multiple_of(alignment))),
        shape(u64::MAX, PageRule::Chunk { step: CHUNK_BYTES.next_multiple_of(alignment) }),
    ]
}

/// Two classes of sizes, so that small slices that stay do not keep large ranges apart. On the traces of
/// `actors/tests/pools.rs` a boundary at 1 MiB, or a class more, holds up to a sixteenth more. What matters is that
/// large slices share large pages: with pages of their own from 64 MiB on, a growing cache asked the device 29,000
/// times instead of 90, and a server of 140 GiB held 1.3 times its live bytes instead of 1.2.
fn sub_slices(limits: &MemoryLimits) -> Vec<Shape> {
    let class = |size_max: u64, first: u64, max: u64| {
        let size_max = size_max.min(limits.page_bytes_max);
        let max = page_max(limits, max);
        Shape {
            kind: MemoryPoolKind::Sliced { page_size: max.max(size_max), max_slice_size: size_max },
            size_max,
            pages: PageRule::Growing { first: first.min(max), max },
            cap: None,
            idle: Idle { period: Some(IDLE_RESERVATIONS), trim: true, ..Idle::default() },
        }
    };
    let small = class(SMALL_SLICE_BYTES_MAX, 256 * KIB, 128 * MIB);
    // On a device of small pages the first takes all.
    if small.size_max == limits.page_bytes_max { vec![small] } else { vec![small, class(u64::MAX, MIB, 2048 * MIB)] }
}

fn explicit(pool: &MemoryPoolConfig, limits: &MemoryLimits) -> Shape {
    match *pool {
        MemoryPoolConfig::Exclusive { max_alloc_size, dealloc_period } => {
            exclusive(max_alloc_size, dealloc_period, false, limits)
        }
        MemoryPoolConfig::Direct { reclaim_at } => Shape {
            kind: MemoryPoolKind::Direct,
            size_max: limits.page_bytes_max,
            pages: PageRule::Exact,
            cap: None,
            idle: Idle { bytes_max: reclaim_at, ..Idle::default() },
        },
        MemoryPoolConfig::Sliced { page_size, max_slice_size, max_pool_size, dealloc_period } => {
            let size_max = max_slice_size.unwrap_or(page_size);
            Shape {
                kind: MemoryPoolKind::Sliced { page_size, max_slice_size: size_max },
                size_max,
                pages: PageRule::Fixed(page_size.next_multiple_of(limits.alignment)),
                cap: max_pool_size.map(|bytes| Cap { bytes, pages: bytes / page_size }),
                idle: Idle { period: dealloc_period, ..Idle::default() },
            }
        }
    }
}

fn exclusive(size_max: u64, period: Option<u64>, trim: bool, limits: &MemoryLimits) -> Shape {
    Shape {
        kind: MemoryPoolKind::Exclusive { max_alloc_size: size_max },
        size_max: size_max.min(limits.page_bytes_max),
        pages: PageRule::Rounded { max: size_max.min(limits.page_bytes_max).next_multiple_of(limits.alignment) },
        cap: None,
        idle: Idle { period, trim, ..Idle::default() },
    }
}

/// Pages that a layout of ours takes: a sixteenth of the memory at most, so that one that is half empty is no loss.
fn page_max(limits: &MemoryLimits, wish: u64) -> u64 {
    let part = (limits.budget / 16).min(limits.page_bytes_max).min(wish);
    (part / limits.alignment * limits.alignment).max(limits.alignment)
}

/// Rounds up to one of sixteen steps to the power of two, from 64 KiB on to whole pages of that size.
fn rounded(bytes: u64) -> u64 {
    if bytes <= SMALL_PAGE_BYTES {
        return bytes.next_power_of_two();
    }
    bytes.next_multiple_of((1 << bytes.ilog2()) / 16)
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Up to here a slice of the preset lies among small ones.
const SMALL_SLICE_BYTES_MAX: u64 = 64 * KIB;

/// Reservations after which a preset gives an empty page back: some fifty runs of a model of a hundred buffers.
pub(super) const IDLE_RESERVATIONS: u64 = 20_000;

/// Host pages come in steps of this size: pinning costs some 20 us for each, so it is not done for a few bytes.
const CHUNK_BYTES: u64 = 4 * MIB;

/// Up to here a transfer shares a host page with others.
const HOST_SHARED_BYTES_MAX: u64 = MIB;

/// Below this size the waste in a page is not looked at: drivers round to it themselves.
const SMALL_PAGE_BYTES: u64 = 64 * KIB;

/// Empty host pages that each of the four host pools keeps: 64 MiB in all.
const HOST_IDLE_BYTES_MAX: u64 = 16 * MIB;

/// Host reservations for which larger empty pages stay, so that large reads in a loop do not pin memory anew each
/// time: that takes longer than the transfer.
const HOST_GRACE_RESERVATIONS: u64 = 32;

/// How far a grace goes: 256 MiB for each host pool.
pub(super) const BURST: u64 = 16;
