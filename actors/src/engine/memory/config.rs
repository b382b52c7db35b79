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

impl MemoryPoolsConfig {
    /// Whether the layout makes sense on a device whose largest page has `page_bytes_max`.
    ///
    /// # Errors
    /// What is wrong with the first pool that is, in words.
    pub fn validate(&self, page_bytes_max: u64) -> Result<(), String> {
        let pools = match self {
            Self::Explicit(pools) => pools,
            Self::Preset(_) => return Ok(()),
        };
        if pools.is_empty() {
            return Err("a layout without pools".to_owned());
        }
        if pools.len() > POOLS_MAX {
            return Err(format!("{} pools, {POOLS_MAX} at most", pools.len()));
        }
        for (at, pool) in pools.iter().enumerate() {
            pool.validate(page_bytes_max).map_err(|reason| format!("pool {at}: {reason}"))?;
        }
        Ok(())
    }
}

impl MemoryPoolConfig {
    fn validate(&self, page_bytes_max: u64) -> Result<(), String> {
        let (page_size, max_slice_size, max_pool_size) = match *self {
            Self::Direct { .. } => return Ok(()),
            Self::Exclusive { max_alloc_size: 0, .. } => return Err("a largest reservation of 0 bytes".to_owned()),
            Self::Exclusive { .. } => return Ok(()),
            Self::Sliced { page_size, max_slice_size, max_pool_size, .. } => (page_size, max_slice_size, max_pool_size),
        };
        if page_size == 0 {
            return Err("pages of 0 bytes".to_owned());
        }
        if page_size > page_bytes_max {
            return Err(format!("pages of {page_size} bytes, the device has {page_bytes_max} at most"));
        }
        match max_slice_size {
            Some(0) => return Err("slices of 0 bytes".to_owned()),
            Some(slice) if slice > page_size => {
                return Err(format!("slices of {slice} bytes in pages of {page_size}"));
            }
            Some(_) | None => {}
        }
        match max_pool_size {
            Some(cap) if cap < page_size => Err(format!("a cap of {cap} bytes for pages of {page_size}")),
            Some(_) | None => Ok(()),
        }
    }
}

/// A reservation asks the pools one by one: more than these would be a mistake.
const POOLS_MAX: usize = 64;
