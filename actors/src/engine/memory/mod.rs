//! Where a reservation lies: pools of device memory, the persistent pool, and host pages for staging.
//!
//! Pure bookkeeping: pages are asked for by a [`Shortage`] and given by [`MemoryManager::page_granted`].
//! The device has one queue, so a slice that is released may be reserved again at once: the hazard tracker orders
//! its next use behind its last. What must wait for the timeline is only the freeing of whole pages, which the
//! engine does.

mod config;
mod host;
mod ledger;
mod offsets;
mod pool;
mod report;
mod shape;
mod streams;
#[cfg(test)]
mod tests;

pub use crate::error::InstallMemoryPoolsError;
pub use config::{MemoryAllocationMode, MemoryPoolConfig, MemoryPoolsConfig, MemoryPoolsPreset};
pub use report::{MemoryPoolKind, MemoryPoolReport, MemoryReport, MemoryUsage};

use crate::engine::command::{PageId, Span};
use crate::error::IoError;
use crate::id::StreamId;
use crate::port::PageKind;
use host::HostPools;
use ledger::{Ledger, Miss, PoolAt};
use offsets::RangeId;
use pool::{Pool, Recent, Swept};
use streams::Streams;

/// What the pools are built on.
#[derive(Debug, Clone, Copy)]
pub struct MemoryLimits {
    /// The largest page.
    pub page_bytes_max: u64,
    /// Where a slice may start: a power of two.
    pub alignment: u64,
    /// Bytes of device pages that may be reserved in all.
    pub budget: u64,
}

/// Names a live slice of device memory: dense, used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SliceId(pub u32);

/// A reservation that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Its name, to release it by.
    pub id: SliceId,
    /// Where it lies; `size` is what was asked for.
    pub span: Span,
    /// Bytes from the start of the slice that are its own: `size` and the padding behind.
    pub padded: u64,
}

/// Why a reservation was not made.
#[derive(Debug, Clone)]
pub enum Shortage {
    /// A page is needed: ask the device, call `page_granted` or `page_refused`, and reserve again.
    Page {
        /// What it is to be called.
        page: PageId,
        /// Its bytes.
        bytes: u64,
        /// Where.
        kind: PageKind,
    },
    /// The pools cannot give it, as they are now.
    Failed(IoError),
}

/// All pools of a device.
///
/// The dynamic pools of a layout are an *arena*, which all streams of that layout share; what each stream has in them
/// is counted apart. The persistent pool and the host pages are one for the device.
#[derive(Debug)]
pub struct MemoryManager {
    limits: MemoryLimits,
    arenas: Vec<Option<Arena>>,
    /// Where streams start that were not seen before.
    default_arena: u32,
    persistent: Pool,
    host: HostPools,
    ledger: Ledger,
    streams: Streams,
    slices: Vec<Option<Live>>,
    unused_slices: Vec<u32>,
    /// All that is live, of all streams.
    live: streams::Account,
    /// Reservations so far: the measure of how long a page has been empty.
    clock: u64,
    /// Whether a page was refused to a request that is still being tried.
    is_refused: bool,
    /// Pages that made way for others, until the next sweep.
    displaced: Vec<PageId>,
    swept: Vec<Swept>,
}

/// The dynamic pools of one installed layout.
#[derive(Debug)]
struct Arena {
    pools: Vec<Pool>,
    streams: u64,
    /// Whether the layout is ours, and not in the user's words: then it fits itself to what lives.
    is_preset: bool,
    recent: Recent,
}

/// A slice that is reserved.
#[derive(Debug, Clone, Copy)]
struct Live {
    at: PoolAt,
    range: RangeId,
    stream: u32,
    size: u64,
    padded: u64,
}

impl MemoryManager {
    /// Pools by the preset `SubSlices`, with no pages. The largest page is rounded down to the alignment, and no larger
    /// than the budget.
    ///
    /// # Panics
    /// When the alignment is no power of two, or larger than the largest page.
    pub fn new(limits: MemoryLimits) -> Self {
        let MemoryLimits { page_bytes_max, alignment, budget } = limits;
        assert!(alignment.is_power_of_two(), "an alignment of {alignment}");
        assert!(page_bytes_max >= alignment, "pages of {page_bytes_max} bytes, aligned to {alignment}");
        // What is larger than all memory never fits.
        let page_bytes_max = page_bytes_max.min(budget.max(alignment)) & !(alignment - 1);
        let limits = MemoryLimits { page_bytes_max, alignment, budget };
        let layout = MemoryPoolsConfig::Preset(MemoryPoolsPreset::SubSlices);
        Self {
            arenas: vec![Some(Arena::new(&layout, &limits))],
            default_arena: 0,
            persistent: Pool::new(shape::persistent(&limits)),
            host: HostPools::new(alignment),
            ledger: Ledger::new(budget),
            streams: Streams::new(),
            slices: Vec::new(),
            unused_slices: Vec::new(),
            live: streams::Account::default(),
            clock: 0,
            is_refused: false,
            displaced: Vec::new(),
            swept: Vec::new(),
            limits,
        }
    }

    /// Reserves `size` bytes (more than none) for `stream`. In a dry run of the stream no page is asked for.
    ///
    /// # Errors
    /// [`Shortage::Page`] asks for a page, to be answered before the same reservation is tried again;
    /// [`Shortage::Failed`] says that the pools as they are cannot give it, or never could.
    ///
    /// # Panics
    /// When `size` is zero.
    pub fn reserve(&mut self, stream: StreamId, size: u64) -> Result<Slice, Shortage> {
        assert!(size > 0, "a reservation of no bytes");
        let limit = self.limits.page_bytes_max;
        if size > limit {
            return Err(Shortage::Failed(IoError::BufferTooBig { size, limit }));
        }
        // Both are multiples of the alignment, so the padded size is within the limit too.
        let padded = size.next_multiple_of(self.limits.alignment);
        let stream = self.stream(stream);
        let record = self.streams.get(stream);
        let (arena, dry) = (record.arena, record.dry_runs > 0);
        let found = if record.persistent_windows > 0 {
            self.ledger
                .reserve(&mut self.persistent, PoolAt::Persistent, padded, dry, self.clock)
                .map(|place| (PoolAt::Persistent, place))
                .map_err(|miss| self.shortage(miss, size))
        } else {
            self.reserve_dynamic(arena, size, padded, dry)
        };
        if self.is_refused && !matches!(found, Err(Shortage::Page { .. })) {
            self.forget_refusals();
        }
        let (at, place) = found?;
        self.clock += 1;
        self.account(stream, at).add(size, padded);
        self.live.add(size, padded);
        if let PoolAt::Dynamic { arena, .. } = at {
            let now = self.clock;
            self.arena(arena).note(now);
        }
        let id = self.new_slice(Live { at, range: place.range, stream, size, padded });
        Ok(Slice { id, span: Span { page: place.page, offset: place.offset, size }, padded })
    }

    /// Ends a reservation.
    pub fn release(&mut self, slice: SliceId) {
        let live = self.slice(slice);
        self.slices[slice.0 as usize] = None;
        self.unused_slices.push(slice.0);
        self.account(live.stream, live.at).remove(live.size, live.padded);
        self.live.remove(live.size, live.padded);
        let now = self.clock;
        self.pool(live.at).release(live.range, live.padded, now);
    }

    /// Gives memory to a slice that was reserved in a dry run.
    ///
    /// # Errors
    /// As for [`MemoryManager::reserve`]: call it again when the page is granted.
    pub fn back(&mut self, slice: SliceId) -> Result<(), Shortage> {
        let Live { at, range, size, .. } = self.slice(slice);
        let pool = pool_of(&mut self.arenas, &mut self.persistent, at);
        let Some((slot, bytes)) = pool.unbacked(range) else { return Ok(()) };
        let page = if pool.take_refusal() { None } else { self.ledger.back(pool, at, slot, bytes) };
        Err(self.shortage(page.map_or(Miss::Short, |page| Miss::Page { page, bytes }), size))
    }

    /// Reserves host memory. `kind` is `Upload` or `Readback`.
    ///
    /// # Errors
    /// As for [`MemoryManager::reserve`]; the budget of an `OutOfMemory` is what the host pages take already.
    ///
    /// # Panics
    /// When `size` is zero.
    pub fn reserve_host(&mut self, kind: PageKind, size: u64) -> Result<Span, Shortage> {
        assert!(size > 0, "a reservation of no bytes");
        self.host.reserve(&mut self.ledger, kind, size).map_err(|miss| match miss {
            Miss::Page { page, bytes } => Shortage::Page { page, bytes, kind },
            Miss::Capped { .. } | Miss::Short => {
                let MemoryUsage { bytes_in_use, bytes_padding, bytes_reserved, .. } = self.host.usage(kind);
                let in_use = bytes_in_use + bytes_padding;
                Shortage::Failed(IoError::OutOfMemory { requested: size, in_use, budget: bytes_reserved })
            }
        })
    }

    /// Ends a reservation of host memory; the span is the one that was given.
    pub fn release_host(&mut self, span: Span) {
        self.host.release(span);
    }

    /// The device gave the page of a [`Shortage::Page`].
    pub fn page_granted(&mut self, page: PageId) {
        match self.ledger.home(page) {
            (PoolAt::Host(pool), slot) => self.host.granted(pool, slot),
            (at, slot) => {
                let now = self.clock;
                self.pool(at).granted(slot, now);
            }
        }
    }

    /// The device did not give it. The next `reserve` tries the pools behind, or fails with `OutOfMemory`; the one
    /// after that asks again.
    pub fn page_refused(&mut self, page: PageId) {
        let (at, slot) = self.ledger.home(page);
        let (bytes, is_gone) = match at {
            PoolAt::Host(pool) => self.host.refuse(pool, slot),
            PoolAt::Dynamic { .. } | PoolAt::Persistent => {
                self.is_refused = true;
                self.pool(at).refuse(slot)
            }
        };
        self.ledger.refused(page, at, bytes, is_gone);
    }

    /// Takes empty pages out of the pools, to be freed: those whose period is over, or with `all` every one.
    /// They count as reserved until `page_freed`, in [`MemoryManager::usage`] and for the budget, but are in no
    /// report. Pages that only a dry run counted are forgotten. Cheap when there is nothing to do.
    pub fn sweep(&mut self, all: bool, freed: &mut Vec<PageId>) {
        let Self { arenas, default_arena, persistent, host, ledger, swept, clock, displaced, .. } = self;
        freed.append(displaced);
        for (index, entry) in arenas.iter_mut().enumerate() {
            let Some(arena) = entry else { continue };
            let is_left = arena.streams == 0 && *default_arena != index as u32;
            for (at, pool) in arena.pools.iter_mut().enumerate() {
                swept.clear();
                pool.sweep(all || is_left, *clock, swept);
                ledger.leave(PoolAt::Dynamic { arena: index as u32, pool: at as u32 }, swept, freed);
            }
            if is_left && arena.is_bare() {
                *entry = None;
            }
        }
        if all {
            swept.clear();
            persistent.sweep(true, *clock, swept);
            ledger.leave(PoolAt::Persistent, swept, freed);
        }
        host.sweep(ledger, all, swept, freed);
    }

    /// The device has a page back that `sweep` gave.
    pub fn page_freed(&mut self, page: PageId) {
        self.ledger.freed(page);
    }

    /// Changes where the stream's reservations go. Persistent windows nest by counting.
    pub fn set_mode(&mut self, stream: StreamId, mode: MemoryAllocationMode) {
        let stream = self.stream(stream);
        let windows = &mut self.streams.get_mut(stream).persistent_windows;
        *windows = match mode {
            MemoryAllocationMode::Auto => windows.saturating_sub(1),
            MemoryAllocationMode::Persistent => *windows + 1,
        };
    }

    /// Starts or ends a dry run of the stream; they nest by counting.
    pub fn dry_run(&mut self, stream: StreamId, on: bool) {
        let stream = self.stream(stream);
        let runs = &mut self.streams.get_mut(stream).dry_runs;
        *runs = if on { *runs + 1 } else { runs.saturating_sub(1) };
    }

    /// Whether the stream is in a dry run.
    pub fn is_dry(&self, stream: StreamId) -> bool {
        self.streams.known(stream).is_some_and(|at| self.streams.get(at).dry_runs > 0)
    }

    /// Installs a layout that makes sense (see [`MemoryPoolsConfig::validate`]): every stream that is seen first
    /// after this has it. The stream itself moves to it, with peaks that start over, if it can.
    ///
    /// # Errors
    /// `PoolsInUse` when something of the stream lives in dynamic pools: it keeps those it has.
    pub fn install(&mut self, stream: StreamId, layout: &MemoryPoolsConfig) -> Result<(), InstallMemoryPoolsError> {
        let stream = self.stream(stream);
        let arena = Arena::new(layout, &self.limits);
        let pools = arena.pools.len();
        let at = self.new_arena(arena);
        let left = self.default_arena;
        self.default_arena = at;
        self.drop_bare(left);

        let record = self.streams.get_mut(stream);
        if record.dynamic.iter().any(|account| account.number > 0) {
            let bytes_in_use = record.dynamic.iter().map(|account| account.size).sum();
            return Err(InstallMemoryPoolsError::PoolsInUse { bytes_in_use });
        }
        let left = record.arena;
        record.arena = at;
        record.dynamic.clear();
        record.dynamic.resize(pools, streams::Account::default());
        self.arena(left).streams -= 1;
        self.arena(at).streams += 1;
        self.drop_bare(left);
        Ok(())
    }

    /// The pools of one stream: reservations and peaks are its own, pages those of all streams that share its pools.
    /// A stream that is not known gets the layout that was installed last; one that has nothing may be forgotten,
    /// its peaks too, when there are thousands.
    pub fn report(&mut self, stream: StreamId) -> MemoryReport {
        let stream = self.stream(stream);
        let record = self.streams.get(stream);
        let arena = record.arena;
        let accounts = record.dynamic.iter();
        let Some(Some(arena)) = self.arenas.get(arena as usize) else { unreachable!("a stream without pools") };
        let host = |name: &str, kind| (name.to_owned(), self.host.usage(kind));
        MemoryReport {
            dynamic: accounts
                .zip(&arena.pools)
                .map(|(account, pool)| account.report(&pool.shape, pool.sums()))
                .collect(),
            persistent: record.persistent.report(&self.persistent.shape, self.persistent.sums()),
            auxiliary: vec![host("upload", PageKind::Upload), host("readback", PageKind::Readback)],
        }
    }

    /// All pools of device memory, over all streams, and the pages on their way back to the device.
    pub fn usage(&self) -> MemoryUsage {
        let dynamic: u64 = self.arenas.iter().flatten().flat_map(|arena| &arena.pools).map(|p| p.sums().bytes).sum();
        self.live.usage(dynamic + self.persistent.sums().bytes + self.ledger.leaving())
    }

    /// Whether device memory is on its way back: swept, and not yet free.
    pub fn is_leaving(&self) -> bool {
        self.ledger.leaving() > 0
    }

    /// The pools of an arena in order: the first that can.
    fn reserve_dynamic(
        &mut self,
        arena: u32,
        size: u64,
        padded: u64,
        dry: bool,
    ) -> Result<(PoolAt, pool::Place), Shortage> {
        let Some(Some(Arena { pools, .. })) = self.arenas.get_mut(arena as usize) else {
            unreachable!("a stream without pools")
        };
        let mut last = None;
        for (at, pool) in pools.iter_mut().enumerate() {
            if size > pool.shape.size_max {
                continue;
            }
            let at = PoolAt::Dynamic { arena, pool: at as u32 };
            match self.ledger.reserve(pool, at, padded, dry, self.clock) {
                Ok(place) => return Ok((at, place)),
                Err(miss @ Miss::Page { bytes, .. }) => {
                    self.make_way(arena, bytes, padded);
                    return Err(self.shortage(miss, size));
                }
                Err(miss) => last = Some(miss),
            }
        }
        let Some(miss) = last else {
            let limit = pools.iter().map(|pool| pool.shape.size_max).max().unwrap_or(0);
            return Err(Shortage::Failed(IoError::BufferTooBig { size, limit }));
        };
        Err(self.shortage(miss, size))
    }

    /// A page of `bytes` is asked for. Where a preset then holds too much beside what lives and lately lived, its empty
    /// pages go, the oldest first: each pool alone may be within bounds while all of them are not.
    fn make_way(&mut self, at: u32, bytes: u64, padded: u64) {
        let Self { arenas, ledger, swept, displaced, .. } = self;
        let Some(arena) = &mut arenas[at as usize] else { unreachable!("arena {at} is gone") };
        if !arena.is_preset {
            return;
        }
        let needed = arena.recent.peak().max(arena.live() + padded);
        let most = needed + needed / SPARE_PART;
        while arena.backed() + bytes > most {
            let pools = arena.pools.iter_mut().enumerate();
            let oldest = pools.filter_map(|(at, pool)| Some((pool.empty_since()?, at, pool)));
            let Some((_, pool_at, pool)) = oldest.min_by_key(|(since, ..)| *since) else { return };
            swept.clear();
            pool.remove_oldest(swept);
            ledger.leave(PoolAt::Dynamic { arena: at, pool: pool_at as u32 }, swept, displaced);
        }
    }

    fn shortage(&self, miss: Miss, requested: u64) -> Shortage {
        match miss {
            Miss::Capped { limit } => Shortage::Failed(IoError::PoolFull { requested, limit }),
            Miss::Page { page, bytes } => Shortage::Page { page, bytes, kind: PageKind::Device },
            Miss::Short => {
                let dynamic: u64 =
                    self.arenas.iter().flatten().flat_map(|arena| &arena.pools).map(Pool::backed_live).sum();
                let in_use = dynamic + self.persistent.backed_live();
                Shortage::Failed(IoError::OutOfMemory { requested, in_use, budget: self.limits.budget })
            }
        }
    }

    fn forget_refusals(&mut self) {
        self.is_refused = false;
        self.persistent.forget_refusal();
        self.arenas.iter_mut().flatten().flat_map(|arena| &mut arena.pools).for_each(Pool::forget_refusal);
    }

    /// The place of a stream; one that was not seen before starts with the layout that was installed last.
    fn stream(&mut self, id: StreamId) -> u32 {
        if let Some(at) = self.streams.find(id) {
            return at;
        }
        let arenas = &mut self.arenas;
        self.streams.prune(|arena| {
            if let Some(arena) = &mut arenas[arena as usize] {
                arena.streams -= 1;
            }
        });
        let at = self.default_arena;
        let arena = self.arena(at);
        arena.streams += 1;
        let pools = arena.pools.len();
        self.streams.add(id, at, pools)
    }

    fn account(&mut self, stream: u32, at: PoolAt) -> &mut streams::Account {
        let record = self.streams.get_mut(stream);
        match at {
            PoolAt::Dynamic { pool, .. } => &mut record.dynamic[pool as usize],
            PoolAt::Persistent => &mut record.persistent,
            PoolAt::Host(_) => unreachable!("host memory is of no stream"),
        }
    }

    fn pool(&mut self, at: PoolAt) -> &mut Pool {
        pool_of(&mut self.arenas, &mut self.persistent, at)
    }

    fn arena(&mut self, at: u32) -> &mut Arena {
        let Some(arena) = &mut self.arenas[at as usize] else { unreachable!("arena {at} is gone") };
        arena
    }

    fn new_arena(&mut self, arena: Arena) -> u32 {
        if let Some(at) = self.arenas.iter().position(Option::is_none) {
            self.arenas[at] = Some(arena);
            return at as u32;
        }
        self.arenas.push(Some(arena));
        (self.arenas.len() - 1) as u32
    }

    /// Forgets an arena that nobody uses and that has no pages; one with pages goes by `sweep`.
    fn drop_bare(&mut self, at: u32) {
        let entry = &mut self.arenas[at as usize];
        if at != self.default_arena && entry.as_ref().is_some_and(|arena| arena.streams == 0 && arena.is_bare()) {
            *entry = None;
        }
    }

    fn slice(&self, id: SliceId) -> Live {
        let Some(Some(live)) = self.slices.get(id.0 as usize) else { unreachable!("{id:?} is not reserved") };
        *live
    }

    fn new_slice(&mut self, live: Live) -> SliceId {
        if let Some(at) = self.unused_slices.pop() {
            self.slices[at as usize] = Some(live);
            return SliceId(at);
        }
        let at = u32::try_from(self.slices.len()).unwrap_or(u32::MAX);
        assert!(at < u32::MAX, "more slices than can be counted");
        self.slices.push(Some(live));
        SliceId(at)
    }
}

impl Arena {
    fn new(layout: &MemoryPoolsConfig, limits: &MemoryLimits) -> Self {
        Self {
            pools: shape::shapes(layout, limits).into_iter().map(Pool::new).collect(),
            streams: 0,
            is_preset: matches!(layout, MemoryPoolsConfig::Preset(_)),
            recent: Recent::default(),
        }
    }

    /// A reservation was made in it.
    fn note(&mut self, now: u64) {
        if self.is_preset {
            self.recent.turn(now, shape::IDLE_RESERVATIONS);
            self.recent.reach(self.live());
        }
    }

    /// Bytes that live, padding included.
    fn live(&self) -> u64 {
        self.pools.iter().map(Pool::live).sum()
    }

    /// Bytes of pages with memory.
    fn backed(&self) -> u64 {
        self.pools.iter().map(|pool| pool.sums().bytes - pool.sums().bytes_unmapped).sum()
    }

    fn is_bare(&self) -> bool {
        self.pools.iter().all(Pool::is_bare)
    }
}

/// Of what lives and lately lived, the part that a preset may hold beside it when it asks for a page. What else it
/// holds lies in pages that are in use.
const SPARE_PART: u64 = 5;

fn pool_of<'a>(arenas: &'a mut [Option<Arena>], persistent: &'a mut Pool, at: PoolAt) -> &'a mut Pool {
    match at {
        PoolAt::Dynamic { arena, pool } => {
            let Some(arena) = &mut arenas[arena as usize] else { unreachable!("arena {arena} is gone") };
            &mut arena.pools[pool as usize]
        }
        PoolAt::Host(_) => unreachable!("host pools are apart"),
        PoolAt::Persistent => persistent,
    }
}
