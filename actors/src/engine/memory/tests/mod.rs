//! Random programs against a model that knows every slice and every page.

mod offsets;
mod rules;

use super::*;
use crate::error::IoError;
use proptest::prelude::*;
use std::collections::HashMap;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

const SMALL: MemoryLimits = MemoryLimits { page_bytes_max: 4 * MIB, alignment: 64, budget: 16 * MIB };
const LARGE: MemoryLimits = MemoryLimits { page_bytes_max: 1 << 30, alignment: 256, budget: 64 << 30 };

/// What a test knows of a manager by what it was told.
struct Model {
    manager: MemoryManager,
    limits: MemoryLimits,
    live: Vec<(StreamId, bool, Slice)>,
    host: Vec<(PageKind, Span)>,
    /// Pages that the device gave and does not have back.
    pages: HashMap<PageId, (u64, PageKind)>,
    leaving: Vec<PageId>,
    persistent: HashMap<StreamId, u32>,
    dry: HashMap<StreamId, u32>,
    peaks: HashMap<StreamId, Vec<u64>>,
    has_been_dry: bool,
    /// Whether the device refuses.
    is_full: bool,
}

impl Model {
    fn new(limits: MemoryLimits) -> Self {
        Self {
            manager: MemoryManager::new(limits),
            limits,
            live: Vec::new(),
            host: Vec::new(),
            pages: HashMap::new(),
            leaving: Vec::new(),
            persistent: HashMap::new(),
            dry: HashMap::new(),
            peaks: HashMap::new(),
            has_been_dry: false,
            is_full: false,
        }
    }

    fn answer(&mut self, shortage: Shortage) -> Result<(), IoError> {
        match shortage {
            Shortage::Failed(error) => return Err(error),
            Shortage::Page { page, .. } if self.is_full => self.manager.page_refused(page),
            Shortage::Page { page, bytes, kind } => {
                assert!(self.pages.insert(page, (bytes, kind)).is_none(), "{page:?} was asked for twice");
                assert!(kind != PageKind::Device || bytes <= self.limits.page_bytes_max, "a page of {bytes} bytes");
                self.manager.page_granted(page);
            }
        }
        Ok(())
    }

    fn reserve(&mut self, stream: StreamId, size: u64) -> Result<Slice, IoError> {
        let is_persistent = self.persistent.get(&stream).is_some_and(|&depth| depth > 0);
        for _ in 0..100 {
            match self.manager.reserve(stream, size) {
                Ok(slice) => {
                    self.live.push((stream, is_persistent, slice));
                    return Ok(slice);
                }
                Err(shortage) => self.answer(shortage)?,
            }
        }
        panic!("a reservation of {size} bytes asks without end");
    }

    fn reserve_host(&mut self, kind: PageKind, size: u64) -> Result<Span, IoError> {
        for _ in 0..100 {
            match self.manager.reserve_host(kind, size) {
                Ok(span) => {
                    self.host.push((kind, span));
                    return Ok(span);
                }
                Err(shortage) => self.answer(shortage)?,
            }
        }
        panic!("a reservation of {size} bytes asks without end");
    }

    fn release(&mut self, at: usize) {
        let (.., slice) = self.live.swap_remove(at);
        self.manager.release(slice.id);
    }

    fn release_all(&mut self) {
        while !self.live.is_empty() {
            self.release(0);
        }
    }

    fn sweep(&mut self, all: bool) {
        let mut freed = Vec::new();
        self.manager.sweep(all, &mut freed);
        for &page in &freed {
            assert!(self.pages.contains_key(&page) && !self.leaving.contains(&page), "{page:?} is not the device's");
            assert!(self.live.iter().all(|(.., slice)| slice.span.page != page), "{page:?} is in use");
            assert!(self.host.iter().all(|(_, span)| span.page != page), "{page:?} is in use");
        }
        self.leaving.extend(freed);
    }

    fn free_swept(&mut self) {
        for page in self.leaving.drain(..) {
            self.pages.remove(&page);
            self.manager.page_freed(page);
        }
    }

    fn settle(&mut self) {
        self.sweep(true);
        self.free_swept();
    }

    fn device_bytes(&self) -> u64 {
        self.pages.values().filter(|(_, kind)| *kind == PageKind::Device).map(|(bytes, _)| bytes).sum()
    }

    fn check(&mut self) {
        self.check_places();
        let live = || self.live.iter().map(|(.., slice)| slice);
        let usage = self.manager.usage();
        assert_eq!(usage.number_allocs, self.live.len() as u64);
        assert_eq!(usage.bytes_in_use, live().map(|slice| slice.span.size).sum::<u64>());
        assert_eq!(usage.bytes_padding + usage.bytes_in_use, live().map(|slice| slice.padded).sum::<u64>());
        assert!(self.manager.ledger.reserved() <= self.limits.budget);
        assert_eq!(self.manager.ledger.reserved(), self.device_bytes());
        if !self.has_been_dry {
            assert_eq!(usage.bytes_reserved, self.device_bytes());
        }
        for stream in (0..STREAMS).map(StreamId) {
            self.check_report(stream);
        }
    }

    fn check_places(&self) {
        let mut spans: Vec<(PageId, u64, u64)> = Vec::new();
        for (stream, _, slice) in &self.live {
            let Slice { span, padded, .. } = *slice;
            assert!(span.offset.is_multiple_of(self.limits.alignment) && padded.is_multiple_of(self.limits.alignment));
            assert!(span.size <= padded && padded < span.size + self.limits.alignment);
            match self.pages.get(&span.page) {
                Some((bytes, kind)) => assert!(span.offset + padded <= *bytes && *kind == PageKind::Device),
                None => assert!(self.has_been_dry, "{stream:?} has a slice in no page"),
            }
            spans.push((span.page, span.offset, padded));
        }
        for (kind, span) in &self.host {
            let (bytes, of) = self.pages[&span.page];
            assert!(span.offset + span.size <= bytes && of == *kind);
            spans.push((span.page, span.offset, span.size));
        }
        spans.sort();
        for pair in spans.windows(2) {
            assert!(pair[0].0 != pair[1].0 || pair[0].1 + pair[0].2 <= pair[1].1, "{pair:?} overlap");
        }
    }

    fn check_report(&mut self, stream: StreamId) {
        let report = self.manager.report(stream);
        let of = |persistent: bool| {
            let mine = self.live.iter().filter(move |(owner, kind, _)| *owner == stream && *kind == persistent);
            mine.fold((0, 0, 0), |(number, size, padding), (.., slice)| {
                (number + 1, size + slice.span.size, padding + slice.padded - slice.span.size)
            })
        };
        let sums = |usage: MemoryUsage| (usage.number_allocs, usage.bytes_in_use, usage.bytes_padding);
        let dynamic = report.dynamic.iter().fold(MemoryUsage::default(), |sum, pool| sum.combine(pool.usage.clone()));
        assert_eq!(sums(dynamic), of(false));
        assert_eq!(sums(report.persistent.usage.clone()), of(true));
        for pool in report.dynamic.iter().chain([&report.persistent]) {
            assert!(pool.bytes_peak >= pool.usage.bytes_in_use + pool.usage.bytes_padding);
            assert!(pool.pages_peak >= pool.pages && pool.pages >= pool.pages_unmapped);
            assert!(pool.usage.bytes_reserved >= pool.usage.bytes_in_use + pool.usage.bytes_padding);
        }
        let peaks: Vec<u64> = report.dynamic.iter().map(|pool| pool.bytes_peak).collect();
        if let Some(before) = self.peaks.insert(stream, peaks.clone()) {
            assert!(before.iter().zip(&peaks).all(|(before, peak)| before <= peak), "a peak fell");
        }
    }

    fn install(&mut self, stream: StreamId, layout: &MemoryPoolsConfig) {
        let kinds = |manager: &mut MemoryManager, stream| -> Vec<MemoryPoolKind> {
            manager.report(stream).dynamic.iter().map(|pool| pool.kind).collect()
        };
        let before = kinds(&mut self.manager, stream);
        let used: u64 =
            self.live.iter().filter(|(owner, kind, _)| *owner == stream && !kind).map(|l| l.2.span.size).sum();
        match self.manager.install(stream, layout) {
            Ok(()) => {
                assert_eq!(used, 0);
                self.peaks.remove(&stream);
                let report = self.manager.report(stream);
                assert!(report.dynamic.iter().all(|pool| pool.pages_peak == 0 && pool.bytes_peak == 0));
            }
            Err(InstallMemoryPoolsError::PoolsInUse { bytes_in_use }) => {
                assert!(used > 0 && bytes_in_use == used);
                assert_eq!(kinds(&mut self.manager, stream), before);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

const STREAMS: u64 = 3;

#[derive(Debug, Clone)]
enum Step {
    DeviceFull(bool),
    Dry(u64, bool),
    Free,
    Install(u64, usize),
    Mode(u64, MemoryAllocationMode),
    Release(usize),
    ReleaseHost(usize),
    Reserve(u64, u64),
    ReserveHost(PageKind, u64),
    Sweep(bool),
}

fn size() -> impl Strategy<Value = u64> {
    (0u32..23, 1u64..=1 << 10).prop_map(|(power, part)| (((1 << power) * part) >> 10).max(1))
}

fn step(dry: bool) -> impl Strategy<Value = Step> {
    let mode = prop_oneof![Just(MemoryAllocationMode::Auto), Just(MemoryAllocationMode::Persistent)];
    prop_oneof![
        1 => any::<bool>().prop_map(Step::DeviceFull),
        u32::from(dry) => (0..STREAMS, any::<bool>()).prop_map(|(stream, on)| Step::Dry(stream, on)),
        2 => Just(Step::Free),
        1 => (0..STREAMS, 0..layouts().len()).prop_map(|(stream, layout)| Step::Install(stream, layout)),
        2 => (0..STREAMS, mode).prop_map(|(stream, mode)| Step::Mode(stream, mode)),
        10 => (0usize..64).prop_map(Step::Release),
        3 => (0usize..64).prop_map(Step::ReleaseHost),
        16 => (0..STREAMS, size()).prop_map(|(stream, size)| Step::Reserve(stream, size)),
        3 => (any::<bool>(), size()).prop_map(|(up, size)| {
            Step::ReserveHost(if up { PageKind::Upload } else { PageKind::Readback }, size)
        }),
        3 => any::<bool>().prop_map(Step::Sweep),
    ]
}

fn layouts() -> Vec<MemoryPoolsConfig> {
    let sliced = |page_size, max_slice_size, max_pool_size, dealloc_period| MemoryPoolConfig::Sliced {
        page_size,
        max_slice_size,
        max_pool_size,
        dealloc_period,
    };
    vec![
        MemoryPoolsConfig::Preset(MemoryPoolsPreset::SubSlices),
        MemoryPoolsConfig::Preset(MemoryPoolsPreset::ExclusivePages),
        MemoryPoolsConfig::Explicit(vec![
            sliced(64 * KIB, Some(16 * KIB), Some(200 * KIB), Some(3)),
            MemoryPoolConfig::Exclusive { max_alloc_size: MIB, dealloc_period: Some(2) },
            MemoryPoolConfig::Direct { reclaim_at: Some(MIB) },
        ]),
        MemoryPoolsConfig::Explicit(vec![sliced(MIB + 1, None, Some(3 * MIB), None)]),
    ]
}

fn run(limits: MemoryLimits, steps: &[Step]) {
    let mut model = Model::new(limits);
    let layouts = layouts();
    for step in steps {
        match *step {
            Step::DeviceFull(is_full) => model.is_full = is_full,
            Step::Dry(stream, on) => {
                model.has_been_dry = true;
                let depth = model.dry.entry(StreamId(stream)).or_default();
                *depth = if on { *depth + 1 } else { depth.saturating_sub(1) };
                model.manager.dry_run(StreamId(stream), on);
                assert_eq!(model.manager.is_dry(StreamId(stream)), model.dry[&StreamId(stream)] > 0);
            }
            Step::Free => model.free_swept(),
            Step::Install(stream, layout) => model.install(StreamId(stream), &layouts[layout]),
            Step::Mode(stream, mode) => {
                let depth = model.persistent.entry(StreamId(stream)).or_default();
                *depth = if mode == MemoryAllocationMode::Auto { depth.saturating_sub(1) } else { *depth + 1 };
                model.manager.set_mode(StreamId(stream), mode);
            }
            Step::Release(at) if at < model.live.len() => model.release(at),
            Step::ReleaseHost(at) if at < model.host.len() => {
                let (_, span) = model.host.swap_remove(at);
                model.manager.release_host(span);
            }
            Step::Release(_) | Step::ReleaseHost(_) => {}
            Step::Reserve(stream, size) => {
                let is_dry = model.manager.is_dry(StreamId(stream));
                match model.reserve(StreamId(stream), size) {
                    Ok(slice) => assert!(is_dry || model.pages.contains_key(&slice.span.page)),
                    Err(IoError::OutOfMemory { requested, budget, .. }) => {
                        assert!(!is_dry && requested == size && budget == limits.budget);
                    }
                    Err(IoError::BufferTooBig { limit, .. } | IoError::PoolFull { limit, .. }) => assert!(limit > 0),
                    Err(error) => panic!("{error}"),
                }
            }
            Step::ReserveHost(kind, size) => {
                let found = model.reserve_host(kind, size);
                assert!(found.is_ok() || model.is_full, "{found:?}");
            }
            Step::Sweep(all) => model.sweep(all),
        }
        model.check();
    }
    for (_, span) in std::mem::take(&mut model.host) {
        model.manager.release_host(span);
    }
    model.release_all();
    model.settle();
    model.check();
    assert!(model.pages.is_empty());
    assert_eq!(model.manager.usage(), MemoryUsage::default());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn programs_on_a_small_device_keep_the_rules(steps in prop::collection::vec(step(false), 1..60)) {
        run(SMALL, &steps);
    }

    #[test]
    fn programs_with_dry_runs_keep_the_rules(steps in prop::collection::vec(step(true), 1..60)) {
        run(SMALL, &steps);
    }
}
