//! What each kind of pool does, and what it refuses.

use super::*;

const ONE: StreamId = StreamId(1);
const TWO: StreamId = StreamId(2);

fn sliced(page_size: u64, max_pool_size: Option<u64>) -> MemoryPoolConfig {
    MemoryPoolConfig::Sliced { page_size, max_slice_size: None, max_pool_size, dealloc_period: None }
}

fn with(limits: MemoryLimits, pools: Vec<MemoryPoolConfig>) -> Model {
    let mut model = Model::new(limits);
    let layout = MemoryPoolsConfig::Explicit(pools);
    layout.validate(limits.page_bytes_max).expect("a layout that makes sense");
    model.manager.install(ONE, &layout).expect("nothing is live");
    model
}

fn allocs(model: &mut Model, stream: StreamId) -> Vec<u64> {
    model.manager.report(stream).dynamic.iter().map(|pool| pool.usage.number_allocs).collect()
}

// -------------------------------------------------------------------------------------- refusals

#[test]
fn a_size_above_the_largest_page_is_too_big() {
    let mut model = Model::new(MemoryLimits { page_bytes_max: MIB + 63, alignment: 64, budget: 16 * MIB });

    assert!(model.reserve(ONE, MIB).is_ok());
    let error = model.reserve(ONE, MIB + 1).unwrap_err();

    assert!(matches!(error, IoError::BufferTooBig { size, limit } if size == MIB + 1 && limit == MIB), "{error:?}");
}

#[test]
fn a_size_above_the_budget_is_too_big_and_one_below_is_out_of_memory() {
    let mut model = Model::new(MemoryLimits { budget: 2 * MIB, ..SMALL });
    model.reserve(ONE, MIB).expect("room");

    let never = model.reserve(ONE, 2 * MIB + 1).unwrap_err();
    let later = model.reserve(ONE, 2 * MIB).unwrap_err();

    assert!(matches!(never, IoError::BufferTooBig { limit, .. } if limit == 2 * MIB), "{never:?}");
    assert!(matches!(later, IoError::OutOfMemory { in_use: MIB, .. }), "{later:?}");
    model.release(0);
    model.settle();
    assert!(model.reserve(ONE, 2 * MIB).is_ok());
}

#[test]
fn a_size_that_no_pool_takes_names_the_largest_that_one_takes() {
    let mut model = with(LARGE, vec![sliced(2 * MIB, None), sliced(MIB, None)]);

    let error = model.reserve(ONE, 3 * MIB).unwrap_err();

    assert!(matches!(error, IoError::BufferTooBig { limit, .. } if limit == 2 * MIB), "{error:?}");
    assert!(model.pages.is_empty());
}

#[test]
fn a_full_pool_spills_to_the_next_and_the_last_names_its_cap() {
    let mut model = with(LARGE, vec![sliced(MIB, Some(MIB)), sliced(MIB, Some(2 * MIB + 5))]);

    for _ in 0..3 {
        model.reserve(ONE, MIB).expect("room");
    }
    let error = model.reserve(ONE, MIB).unwrap_err();

    assert_eq!(allocs(&mut model, ONE), [1, 2]);
    assert!(matches!(error, IoError::PoolFull { requested: MIB, limit } if limit == 2 * MIB + 5), "{error:?}");
    model.release(0);
    assert!(model.reserve(ONE, MIB).is_ok());
}

#[test]
fn a_refused_page_sends_the_request_to_the_next_pool_and_then_fails() {
    let mut model = with(LARGE, vec![sliced(MIB, None), sliced(2 * MIB, None)]);
    model.reserve(ONE, MIB).expect("room");
    model.is_full = true;

    let error = model.reserve(ONE, MIB).unwrap_err();

    let IoError::OutOfMemory { requested: MIB, in_use: MIB, budget } = error else { panic!("{error:?}") };
    assert_eq!(budget, LARGE.budget);
    model.is_full = false;
    assert!(model.reserve(ONE, MIB).is_ok(), "the next request asks again");
    assert_eq!(allocs(&mut model, ONE), [2, 0]);
}

#[test]
fn a_refused_page_is_asked_for_as_small_as_can_be() {
    let mut manager = MemoryManager::new(LARGE);
    let Err(Shortage::Page { page, bytes, .. }) = manager.reserve(ONE, 1000) else { panic!("no page is there") };
    assert!(bytes > 1024 && bytes <= MIB);

    manager.page_refused(page);

    let again = manager.reserve(ONE, 1000);
    let Err(Shortage::Page { page, bytes: 1024, .. }) = again else { panic!("{again:?}") };
    manager.page_granted(page);
    assert!(manager.reserve(ONE, 1000).is_ok());
}

#[test]
fn pages_on_their_way_back_count_against_the_budget() {
    let mut model = Model::new(SMALL);
    for _ in 0..4 {
        model.reserve(ONE, 4 * MIB).expect("room");
    }
    model.release_all();
    model.sweep(true);

    let error = model.reserve(ONE, 3 * MIB).unwrap_err();

    assert!(matches!(error, IoError::OutOfMemory { in_use: 0, .. }), "{error:?}");
    assert_eq!(model.manager.usage().bytes_reserved, 16 * MIB);
    model.free_swept();
    assert!(model.reserve(ONE, 3 * MIB).is_ok());
}

#[test]
fn a_page_shrinks_to_what_the_budget_has_left() {
    let mut model = Model::new(MemoryLimits { budget: MIB + 64 * KIB, ..SMALL });
    model.reserve(ONE, MIB).expect("room");

    assert!(model.reserve(ONE, 64 * KIB).is_ok());
    assert!(model.reserve(ONE, 64).is_err());
}

#[test]
fn host_memory_that_is_refused_fails_with_what_is_in_use() {
    let mut model = Model::new(SMALL);
    model.reserve_host(PageKind::Upload, 100).expect("room");
    model.is_full = true;

    let error = model.reserve_host(PageKind::Upload, 5 * MIB).unwrap_err();

    assert!(matches!(error, IoError::OutOfMemory { in_use: 128, .. }), "{error:?}");
    assert!(model.reserve_host(PageKind::Upload, 100).is_ok());
}

#[test]
#[should_panic(expected = "is not reserved")]
fn a_slice_is_released_once() {
    let mut model = Model::new(SMALL);
    let slice = model.reserve(ONE, 1).expect("room");
    model.manager.release(slice.id);
    model.manager.release(slice.id);
}

// ----------------------------------------------------------------------------------- reuse, sweeps

#[test]
fn released_memory_is_used_again_at_once() {
    for size in [1, 1000, 40 * KIB, 2 * MIB, 100 * MIB] {
        let mut model = Model::new(LARGE);
        let first = model.reserve(ONE, size).expect("room");
        model.release(0);
        let second = model.reserve(TWO, size).expect("room");
        assert_eq!(first.span, second.span);
        assert_eq!(first.id, second.id);
    }
}

#[test]
fn one_tiny_buffer_takes_no_more_than_a_mebibyte() {
    for limits in [SMALL, LARGE] {
        let mut model = Model::new(limits);
        model.reserve(ONE, 4).expect("room");
        assert!(model.manager.usage().bytes_reserved <= MIB);
    }
}

#[test]
fn direct_pages_fit_exactly_and_the_oldest_go_first() {
    let mut model = with(LARGE, vec![MemoryPoolConfig::Direct { reclaim_at: Some(3 * KIB) }]);
    let sizes = [KIB, 2 * KIB, 4 * KIB];
    let pages = sizes.map(|size| model.reserve(ONE, size).expect("room").span.page);
    assert_eq!(model.manager.usage().bytes_reserved, 7 * KIB);
    model.release_all();

    model.sweep(false);

    assert_eq!(model.leaving, [pages[0], pages[2]], "released in the order 1 KiB, 4 KiB, 2 KiB");
    model.free_swept();
    assert_eq!(model.reserve(ONE, 2 * KIB - 1).expect("room").span.page, pages[1]);
    assert_ne!(model.reserve(ONE, KIB).expect("room").span.page, pages[1]);
}

#[test]
fn an_exclusive_page_is_for_one_and_wastes_a_quarter_at_most() {
    let mut model = with(LARGE, vec![MemoryPoolConfig::Exclusive { max_alloc_size: 8 * MIB, dealloc_period: None }]);
    let first = model.reserve(ONE, 4 * MIB).expect("room").span.page;
    model.release(0);

    assert_ne!(model.reserve(ONE, 2 * MIB).expect("room").span.page, first);
    assert_eq!(model.reserve(ONE, 4 * MIB - 100 * KIB).expect("room").span.page, first);
}

#[test]
fn an_empty_page_goes_back_when_its_period_is_over() {
    let config = |dealloc_period| {
        vec![
            MemoryPoolConfig::Sliced { page_size: MIB, max_slice_size: Some(KIB), max_pool_size: None, dealloc_period },
            MemoryPoolConfig::Direct { reclaim_at: None },
        ]
    };
    for (period, swept) in [(Some(10), 1), (None, 0)] {
        let mut model = with(LARGE, config(period));
        model.reserve(ONE, KIB).expect("room");
        model.release(0);
        for _ in 0..9 {
            model.reserve(ONE, MIB).expect("room");
            model.sweep(false);
            assert!(model.leaving.is_empty());
        }
        model.reserve(ONE, MIB).expect("room");
        model.sweep(false);
        assert_eq!(model.leaving.len(), swept);
    }
}

#[test]
fn a_preset_keeps_what_a_loop_needs_and_trims_what_it_does_not() {
    let mut model = Model::new(LARGE);
    for size in [30, 21, 14] {
        model.reserve(ONE, size * MIB).expect("room");
        model.release(0);
    }
    for _ in 0..100 {
        for _ in 0..10 {
            model.reserve(ONE, 3 * MIB).expect("room");
        }
        model.release_all();
        model.sweep(false);
        model.free_swept();
    }

    let reserved = model.manager.usage().bytes_reserved;
    assert!((30 * MIB..=38 * MIB).contains(&reserved), "{reserved}");
}

#[test]
fn a_pool_of_a_preset_that_grows_takes_the_place_of_empty_pages_of_the_others() {
    let mut model = Model::new(LARGE);
    for _ in 0..1600 {
        model.reserve(ONE, 64 * KIB).expect("room");
    }
    model.release_all();
    for _ in 0..100 {
        model.reserve(ONE, MIB).expect("room");
        model.sweep(false);
        model.free_swept();
        model.check();
    }

    let reserved = model.manager.usage().bytes_reserved;
    assert!(reserved <= 125 * MIB, "{reserved}");
}

#[test]
fn persistent_memory_goes_by_a_cleanup_alone() {
    let mut model = Model::new(LARGE);
    model.manager.set_mode(ONE, MemoryAllocationMode::Persistent);
    for size in 1..2000 {
        model.persistent.insert(ONE, 1);
        model.reserve(ONE, 1000 + size).expect("room");
    }
    assert!(model.pages.len() < 50, "{} device allocations for 2,000 weights", model.pages.len());
    model.release_all();
    model.manager.set_mode(ONE, MemoryAllocationMode::Auto);
    model.persistent.insert(ONE, 0);
    for _ in 0..20_000 {
        model.reserve(ONE, 1).expect("room");
        model.release(0);
    }
    model.sweep(false);
    assert!(model.manager.report(ONE).persistent.usage.bytes_reserved > MIB);

    model.settle();

    assert_eq!(model.manager.report(ONE).persistent.pages, 0);
}

#[test]
fn host_pages_are_shared_by_small_transfers_and_few_stay_empty() {
    let mut model = Model::new(LARGE);
    for _ in 0..100 {
        model.reserve_host(PageKind::Upload, 10 * KIB).expect("room");
    }
    assert_eq!(model.pages.len(), 1);
    for _ in 0..8 {
        model.reserve_host(PageKind::Readback, 100 * MIB).expect("room");
    }
    let report = model.manager.report(ONE);
    assert_eq!(report.auxiliary[1].0, "readback");
    assert_eq!(report.auxiliary[1].1.bytes_in_use, 800 * MIB);
    for (_, span) in std::mem::take(&mut model.host) {
        model.manager.release_host(span);
    }

    model.sweep(false);
    model.free_swept();
    let kept = model.manager.report(ONE).auxiliary[1].1.bytes_reserved;
    assert!(kept <= 256 * MIB, "{kept}");
    for _ in 0..40 {
        let span = model.reserve_host(PageKind::Readback, 1).expect("room");
        model.manager.release_host(span);
    }
    model.host.clear();
    model.sweep(false);
    model.free_swept();
    let report = model.manager.report(ONE);
    let kept: u64 = report.auxiliary.iter().map(|(_, usage)| usage.bytes_reserved).sum();
    assert!(kept <= 64 * MIB, "{kept}");
}

// ------------------------------------------------------------------------------------- dry runs

#[test]
fn a_dry_run_asks_for_nothing_and_what_it_made_is_backed_when_it_is_needed() {
    let mut model = Model::new(SMALL);
    model.has_been_dry = true;
    model.manager.dry_run(ONE, true);
    for _ in 0..10 {
        model.reserve(ONE, 4 * MIB).expect("a dry run has no budget");
    }
    assert!(model.pages.is_empty());
    assert_eq!(model.manager.usage().bytes_reserved, 40 * MIB);
    assert_eq!(model.manager.report(ONE).dynamic.iter().map(|pool| pool.pages_unmapped).sum::<u64>(), 10);
    model.manager.dry_run(ONE, false);
    let kept = model.live[0].2;
    while model.live.len() > 1 {
        model.release(1);
    }

    let real = model.reserve(ONE, 4 * MIB).expect("room");

    assert!(model.pages.contains_key(&real.span.page), "a page of the dry run has memory");
    assert_eq!(model.pages.len(), 1);
    assert_eq!(model.manager.usage().bytes_reserved, 40 * MIB);
    model.settle();
    assert_eq!(model.manager.usage().bytes_reserved, 8 * MIB);

    let Err(Shortage::Page { page, .. }) = model.manager.back(kept.id) else { panic!("it has no memory") };
    assert_eq!(page, kept.span.page);
    model.manager.page_granted(page);
    assert!(model.manager.back(kept.id).is_ok());
}

#[test]
fn a_page_of_a_dry_run_that_is_refused_stays_without_memory() {
    let mut model = Model::new(SMALL);
    model.has_been_dry = true;
    model.manager.dry_run(ONE, true);
    model.reserve(ONE, MIB).expect("a dry run asks for nothing");
    model.manager.dry_run(ONE, false);
    model.release(0);
    model.is_full = true;

    assert!(model.reserve(ONE, MIB).is_err());
    model.is_full = false;
    assert!(model.reserve(ONE, MIB).is_ok());

    assert_eq!(model.manager.ledger.reserved(), MIB);
}

#[test]
fn a_page_whose_memory_is_asked_for_is_not_asked_for_twice_and_not_swept() {
    let mut manager = MemoryManager::new(SMALL);
    manager.dry_run(ONE, true);
    let slice = manager.reserve(ONE, 2 * MIB).expect("a dry run asks for nothing");
    manager.dry_run(ONE, false);
    manager.release(slice.id);
    let Err(Shortage::Page { page, .. }) = manager.reserve(ONE, 2 * MIB) else { panic!("it has no memory") };

    let Err(Shortage::Page { page: other, .. }) = manager.reserve(ONE, 2 * MIB) else { panic!("it has no memory") };
    manager.sweep(true, &mut Vec::new());
    manager.page_granted(page);

    assert!(page == slice.span.page && other != page);
    assert_eq!(manager.reserve(ONE, 2 * MIB).expect("room").span.page, page);
}

// ------------------------------------------------------------------------- layouts, streams, plans

#[test]
fn a_layout_is_for_the_stream_that_installs_it_and_for_those_seen_later() {
    let mut model = Model::new(LARGE);
    model.reserve(ONE, MIB).expect("room");
    model.manager.report(TWO);
    let layout = MemoryPoolsConfig::Explicit(vec![MemoryPoolConfig::Direct { reclaim_at: None }]);

    let refused = model.manager.install(ONE, &layout);

    assert_eq!(refused, Err(InstallMemoryPoolsError::PoolsInUse { bytes_in_use: MIB }));
    let pools = |model: &mut Model, stream| model.manager.report(StreamId(stream)).dynamic.len();
    assert_eq!([pools(&mut model, 1), pools(&mut model, 2), pools(&mut model, 3)], [2, 2, 1]);
    model.release(0);
    assert_eq!(model.manager.install(ONE, &layout), Ok(()));
    assert_eq!(pools(&mut model, 1), 1);
}

#[test]
fn the_pages_of_a_layout_that_nobody_has_go_back() {
    let mut model = Model::new(LARGE);
    let layout = MemoryPoolsConfig::Explicit(vec![MemoryPoolConfig::Direct { reclaim_at: None }]);
    for _ in 0..1000 {
        model.reserve(ONE, MIB).expect("room");
        model.release(0);
        model.manager.install(ONE, &layout).expect("nothing is live");
        model.sweep(false);
        model.free_swept();
    }

    assert!(model.pages.is_empty());
    assert!(model.manager.arenas.len() <= 3, "{} layouts are kept", model.manager.arenas.len());
}

#[test]
fn streams_that_have_nothing_are_forgotten() {
    let mut model = Model::new(LARGE);
    model.reserve(StreamId(0), 1).expect("room");
    for stream in 1..50_000 {
        model.reserve(StreamId(stream), 1).expect("room");
        model.release(1);
    }

    assert!(model.manager.streams.len() <= 4_096);
    assert_eq!(model.manager.report(StreamId(0)).usage().number_allocs, 1);
    assert!(model.manager.usage().bytes_reserved <= MIB);
}

#[test]
fn layouts_that_make_no_sense_are_told() {
    let max = 4 * MIB;
    let slice = |page_size, slice, cap| MemoryPoolConfig::Sliced {
        page_size,
        max_slice_size: slice,
        max_pool_size: cap,
        dealloc_period: None,
    };
    for (pools, part) in [
        (vec![], "without pools"),
        (vec![sliced(MIB, None); 65], "65 pools"),
        (vec![slice(0, None, None)], "pages of 0"),
        (vec![slice(8 * MIB, None, None)], "the device has"),
        (vec![slice(MIB, Some(0), None)], "slices of 0"),
        (vec![slice(MIB, Some(2 * MIB), None)], "slices of 2097152 bytes in pages of 1048576"),
        (vec![sliced(KIB, None), slice(MIB, None, Some(KIB))], "pool 1: a cap of 1024"),
        (vec![MemoryPoolConfig::Exclusive { max_alloc_size: 0, dealloc_period: None }], "reservation of 0"),
    ] {
        let error = MemoryPoolsConfig::Explicit(pools).validate(max).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    for layout in layouts() {
        assert_eq!(layout.validate(max), Ok(()));
    }
}

#[test]
fn a_plan_takes_what_lived_at_once_and_no_more() {
    let work = |model: &mut Model| {
        for _ in 0..5 {
            for size in [10_000, 300_000, MIB, 2_000_000, 90 * MIB, 77 * MIB + 1] {
                model.reserve(ONE, size).expect("room");
            }
            model.release_all();
        }
    };
    let mut model = Model::new(LARGE);
    work(&mut model);
    let report = model.manager.report(ONE);
    let peak: u64 = report.dynamic.iter().map(|pool| pool.bytes_peak).sum();

    let plan = report.plan();

    plan.validate(LARGE.page_bytes_max).expect("a plan makes sense");
    model.manager.install(ONE, &plan).expect("nothing is live");
    work(&mut model);
    let planned = model.manager.report(ONE).usage().bytes_reserved;
    assert!(planned <= peak + peak / 20 && planned <= report.usage().bytes_reserved, "{planned} for a peak of {peak}");
    assert!(model.reserve(ONE, 500 * MIB).is_ok(), "more than was measured is not refused");
}

#[test]
fn a_plan_of_nothing_and_a_plan_of_every_kind_can_be_installed() {
    for layout in layouts() {
        let mut model = Model::new(SMALL);
        model.manager.install(ONE, &layout).expect("nothing is live");
        let empty = model.manager.report(ONE).plan();
        for size in [1, 5000, 70_001, 600_000, 1, 1_000_001] {
            model.reserve(ONE, size).expect("room");
        }
        model.release_all();
        let plan = model.manager.report(ONE).plan();
        for plan in [empty, plan] {
            plan.validate(SMALL.page_bytes_max).expect("a plan makes sense");
            model.manager.install(ONE, &plan).expect("nothing is live");
            model.settle();
            model.check();
        }
    }
}

/// Weights that stay, caches that live for some requests, and activations of one request, for 1,000 requests of
/// random length.
#[test]
fn a_server_takes_a_quarter_more_than_it_uses_at_most() {
    let mut model = Model::new(LARGE);
    let (mut seed, mut peak, mut reserved) = (1u64, 0, 0);
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    let mut caches: Vec<(u64, Vec<SliceId>)> = Vec::new();
    let get = |model: &mut Model, size: u64| model.reserve(ONE, size).expect("room").id;
    for _ in 0..24 {
        for size in [MIB, 768 * KIB, 256 * KIB, 3 * KIB] {
            get(&mut model, size);
        }
    }
    model.live.clear();
    for request in 0..1000 {
        let tokens = 1 << (4 + random(6));
        let tokens = tokens + random(tokens);
        let cache = (0..12).map(|_| get(&mut model, tokens * 256)).collect();
        caches.push((request + random(30), cache));
        let mut before = Vec::new();
        for _ in 0..12 {
            let layer = [512, 1536, 64, 2048].map(|wide| get(&mut model, tokens * wide));
            let usage = model.manager.usage();
            (peak, reserved) = (usage.bytes_in_use.max(peak), usage.bytes_reserved.max(reserved));
            before.drain(..).for_each(|slice| model.manager.release(slice));
            before.extend(layer);
        }
        before.drain(..).for_each(|slice| model.manager.release(slice));
        for (_, cache) in caches.extract_if(.., |(end, _)| *end <= request) {
            cache.into_iter().for_each(|slice| model.manager.release(slice));
        }
        model.live.clear();
        model.sweep(false);
        model.free_swept();
    }
    assert!(reserved <= peak + peak / 4, "{reserved} for {peak}");
}
