//! Pool layouts: what a user installs.

/// Which pool takes a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryAllocationMode {
    /// The dynamic pools, in their order.
    Auto,
    /// The persistent pool.
    Persistent,
}

/// A layout of the dynamic pools.
#[derive(Debug, Clone, PartialEq)]
pub enum MemoryPoolsConfig {
    /// One that fits itself to the device.
    Preset(MemoryPoolsPreset),
    /// These pools; a reservation tries them in this order.
    Explicit(Vec<MemoryPoolConfig>),
}

/// Layouts that fit themselves to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryPoolsPreset {
    /// Slices of large pages, by a ladder of sizes.
    SubSlices,
    /// A page for each reservation.
    ExclusivePages,
}

/// One pool of a layout. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq)]
pub enum MemoryPoolConfig {
    /// A page for each reservation of up to `max_alloc_size`, kept for the next that fits.
    Exclusive {
        /// The largest reservation that the pool takes.
        max_alloc_size: u64,
        /// Reservations after which an empty page goes back to the device; `None` keeps it until a cleanup.
        dealloc_period: Option<u64>,
    },
    /// A device allocation for each reservation, of any size, kept for the next of exactly that size.
    Direct {
        /// Bytes kept empty before the oldest go back to the device; `None` keeps all until a cleanup.
        reclaim_at: Option<u64>,
    },
    /// Slices of pages of `page_size`.
    Sliced {
        /// Bytes of a page.
        page_size: u64,
        /// The largest reservation that the pool takes; `None` is a whole page.
        max_slice_size: Option<u64>,
        /// The most that all pages together may be; `None` is no limit.
        max_pool_size: Option<u64>,
        /// Reservations after which an empty page goes back to the device; `None` keeps it until a cleanup.
        dealloc_period: Option<u64>,
    },
}
