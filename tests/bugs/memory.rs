//! Memory: what can be had at all, what running out does to others, and what is left after a while.

use crate::kernels::{add1, affine, fill, wgsl};
use crate::{
    Random, assert_all, buffer, children, client, comes_from, failure, own_device, resident_bytes, runtime, scenario,
    scenario_alone,
};
use std::time::{Duration, Instant};
use vkactor::*;

const MIB: usize = 1 << 20;

/// The first words of a buffer, as a buffer.
fn head(handle: &Handle) -> Handle {
    handle.clone().offset_end(handle.size() - 4096)
}

/// gfx-rs/wgpu#9206: two thirds of the device in one buffer, or in as few as it takes.
#[test]
fn a_buffer_may_be_larger_than_the_memory_that_the_host_sees() {
    scenario_alone(|| {
        let client = own_device();
        let MemoryDeviceProperties { max_page_size, total, .. } = client.properties().memory;
        let handle = client.empty(max_page_size.min(total / 3 * 2) as usize);
        client.check([&handle]).unwrap();
        let head = head(&handle);
        fill(&client, &head, 6);
        assert_all(&client, &head, 1024, 6);
    });
}

/// gfx-rs/wgpu#9745: a twentieth of the report's uploads.
#[test]
fn many_uploads_that_are_all_kept_succeed() {
    const UPLOADS: u32 = 100;
    const WORDS: usize = MIB;
    scenario(|| {
        let client = own_device();
        let handles: Vec<Handle> =
            (0..UPLOADS).map(|value| client.create(Bytes::from_elems(vec![value; WORDS]))).collect();
        let mut random = Random::new(23);
        for _ in 0..20 {
            let at = random.below(UPLOADS as usize);
            assert_all(&client, &handles[at], WORDS, at as u32);
        }
    });
}

/// Runs `rounds` twice to warm up, and fails if the process grows by more than `bytes` when they run once more.
#[track_caller]
fn assert_growth(bytes: u64, mut rounds: impl FnMut()) {
    (0..2).for_each(|_| rounds());
    let before = resident_bytes();
    rounds();
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < bytes, "{grown} bytes more than the {before} of the rounds before");
}

/// Bytes that an allocator may keep for itself after it was as busy before.
const SLACK: u64 = 1 << 20;

/// tracel-ai/burn#2042: a twentieth of the report's rounds.
#[test]
fn a_loop_of_create_launch_read_and_drop_does_not_grow() {
    const ROUNDS: u32 = 5000;
    let test = "memory::a_loop_of_create_launch_read_and_drop_does_not_grow";
    if !children::is_child(test) {
        return children::run(test, &[]).assert_passed();
    }
    let client = client();
    let mut usage = None;
    assert_growth(SLACK, || {
        for round in 0..ROUNDS {
            let handle = buffer(&client, &[round; 1024]);
            add1(&client, &handle);
            assert_all(&client, &handle, 1024, round + 1);
        }
        let now = client.memory_usage();
        assert_eq!(*usage.get_or_insert_with(|| now.clone()), now);
    });
}

/// tracel-ai/cubecl#1191: a fifth of the report's rounds, on a hundredth of its memory.
#[test]
fn persistent_memory_of_odd_sizes_is_used_again_across_cleanups() {
    const ROUNDS: usize = 100;
    scenario(|| {
        let client = own_device();
        let mut reserved = Vec::new();
        for _ in 0..ROUNDS {
            let round = || -> Vec<Handle> { (0..100).map(|at| client.empty(10_003 + 17 * at)).collect() };
            drop(client.memory_persistent_allocation((), |()| round()));
            let handles = client.memory_persistent_allocation((), |()| round());
            reserved.push(client.memory_usage().bytes_reserved);
            drop(handles);
            client.memory_cleanup();
        }
        assert!(reserved.iter().all(|&bytes| bytes == reserved[1]), "{reserved:?}");
        client.memory_cleanup();
        assert_eq!(client.memory_usage().bytes_in_use, 0);
    });
}

/// Traverse-Research/gpu-allocator#127, zakarumych/gpu-alloc#48: a tenth of the report's pairs.
#[test]
fn memory_that_comes_and_goes_in_any_order_is_all_given_back() {
    const PAIRS: usize = 5000;
    scenario(|| {
        let client = own_device();
        let mut random = Random::new(26);
        let mut live = Vec::new();
        for _ in 0..PAIRS {
            if live.len() == 64 {
                drop(live.swap_remove(random.below(64)));
            }
            live.push(client.empty(1 + random.below(8 * MIB)));
        }
        client.check(&live).unwrap();
        drop(live);
        runtime().block_on(client.sync()).unwrap();
        client.memory_cleanup();
        assert_eq!(client.memory_usage(), MemoryUsage::default());
        let report = client.memory_report();
        assert_eq!(report.usage(), MemoryUsage::default());
        assert!(report.dynamic.iter().all(|pool| pool.pages == 0), "{report:?}");
    });
}

/// Traverse-Research/gpu-allocator#125, vulkano-rs/vulkano#588, kpet/clvk#172: a tenth of the report's handles.
#[test]
fn small_buffers_share_the_allocations_of_the_driver() {
    const HANDLES: u32 = 20_000;
    // What the Vulkan specification promises at least.
    const ALLOCATIONS_MAX: u64 = 4096;
    scenario(|| {
        let client = own_device();
        let handles: Vec<Handle> = (0..HANDLES).map(|value| buffer(&client, &[value; 16])).collect();
        let mut random = Random::new(27);
        for _ in 0..200 {
            let at = random.below(handles.len());
            assert_all(&client, &handles[at], 16, at as u32);
        }
        let pages: u64 = client.memory_report().dynamic.iter().map(|pool| pool.pages).sum();
        assert!(pages < ALLOCATIONS_MAX / 8, "{pages} pages");
    });
}

/// kpet/clvk#172: exact sizes, of which each may be an allocation of its own.
#[test]
fn persistent_buffers_of_many_sizes_are_exact_or_out_of_memory() {
    const HANDLES: usize = 5000;
    scenario(|| {
        let client = own_device();
        let of = |at: usize| vec![at as u8; at + 1];
        let handles: Vec<Handle> = client
            .memory_persistent_allocation((), |()| (0..HANDLES).map(|at| client.create_from_slice(&of(at))).collect());
        let mut random = Random::new(127);
        for _ in 0..200 {
            let at = random.below(HANDLES);
            match client.read_one(handles[at].clone()) {
                Ok(bytes) => assert_eq!(bytes[..], of(at)),
                Err(error) => assert!(error.is_out_of_memory(), "{error}"),
            }
        }
    });
}

/// tinygrad/tinygrad#2175.
#[test]
fn memory_that_is_only_kept_gives_way_to_a_large_buffer() {
    scenario_alone(|| {
        let client = own_device();
        let MemoryDeviceProperties { max_page_size, total, .. } = client.properties().memory;
        let part = (total / 10).min(max_page_size) as usize;
        let parts: Vec<Handle> = (0..8).map(|_| client.empty(part)).collect();
        client.check(&parts).unwrap();
        drop(parts);
        let large = client.empty((total / 10 * 6).min(max_page_size) as usize);
        client.check([&large]).unwrap();
        let head = head(&large);
        fill(&client, &head, 2);
        assert_all(&client, &head, 1024, 2);
    });
}

/// tracel-ai/burn#3510: a cap of 64 MiB.
#[test]
fn a_request_past_the_cap_of_the_pools_fails_alone() {
    scenario(|| {
        let client = own_device();
        let pool = MemoryPoolConfig::Sliced {
            page_size: 16 * MIB as u64,
            max_slice_size: None,
            max_pool_size: Some(64 * MIB as u64),
            dealloc_period: None,
        };
        client.install_memory_pools(&MemoryPoolsConfig::Explicit(vec![pool])).unwrap();
        let large = client.empty(512 * MIB);
        add1(&client, &large);
        let told = failure(&client, &large).to_string();
        assert!(told.contains(&(512 * MIB).to_string()), "{told}");
        assert!(client.read_one(large).is_err());

        // One by one the cap is reached, too, and only the one past it fails.
        let pages: Vec<Handle> = (0..5).map(|_| client.empty(16 * MIB)).collect();
        client.check(&pages[..4]).unwrap();
        let full =
            |e: &ServerError| matches!(e, ServerError::Io(IoError::PoolFull { limit, .. }) if *limit == 64 << 20);
        let error = failure(&client, &pages[4]);
        assert!(comes_from(&error, full), "{error}");
        drop(pages);
        let small = || {
            let handle = buffer(&client, &[1; 1000]);
            add1(&client, &handle);
            assert_all(&client, &handle, 1000, 2);
        };
        small();
        std::thread::scope(|scope| scope.spawn(small).join()).unwrap();
    });
}

/// pytorch/pytorch#13751.
#[test]
fn a_failed_reservation_is_not_told_to_innocent_work() {
    scenario(|| {
        let client = client();
        let impossible = client.empty(1 << 46);
        failure(&client, &impossible);
        let handle = buffer(&client, &[1; 100]);
        add1(&client, &handle);
        client.flush().unwrap();
        runtime().block_on(client.sync()).unwrap();
        assert_all(&client, &handle, 100, 2);
        failure(&client, &impossible);
    });
}

/// iree-org/iree#12122, iree-org/iree#13261 (scenario 48j).
#[test]
fn running_out_under_pending_launches_is_told_as_memory() {
    scenario_alone(|| {
        let client = own_device();
        let handle = buffer(&client, &[0; 1000]);
        (0..1000).for_each(|_| add1(&client, &handle));
        let impossible = client.empty(1 << 46);
        let part = client.properties().memory.max_page_size as usize;
        let count = client.properties().memory.total as usize / part + 2;
        let parts: Vec<Handle> = (0..count).map(|_| client.empty(part)).collect();
        (0..1000).for_each(|_| add1(&client, &handle));
        for bad in [&impossible, &parts[count - 1]] {
            let error = client.read_one(bad.clone()).expect_err("more than the device has");
            assert!(comes_from(&error, |e| matches!(e, ServerError::Io(_))), "{error}");
            let told = error.to_string();
            assert!(told.contains("memory") || told.contains("more than the device can hold"), "{told}");
            assert!(!told.contains("timeline") && !told.contains("semaphore"), "{told}");
        }
        assert_all(&client, &handle, 1000, 2000);
    });
}

/// The most bytes that this process ever had in memory.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap() << 10
}

/// gfx-rs/wgpu#9354, gfx-rs/wgpu#5940, ooolabdev/ooosplat#40: a fortieth of the report's bytes.
#[test]
fn writes_in_a_row_do_not_pile_up() {
    const LARGE: usize = 16 * MIB;
    const WRITES: u32 = 100;
    const SMALL_WRITES: u32 = 20_000;
    // Uploads on their way, their copies in pinned memory, and one on each side that is being made.
    const PEAK_MAX: u64 = 1300 << 20;
    let test = "memory::writes_in_a_row_do_not_pile_up";
    if !children::is_child(test) {
        return children::run(test, &[]).assert_passed();
    }
    let client = client();
    let handle = client.empty(LARGE);
    let before = resident_bytes();
    for value in 0..WRITES {
        client.write(&handle, Bytes::from_elems(vec![value; LARGE / 4]));
    }
    assert_all(&client, &handle, LARGE / 4, WRITES - 1);
    let small = handle.clone().offset_end((LARGE - 16) as u64);
    for value in 0..SMALL_WRITES {
        client.write(&small, Bytes::from_elems(vec![value; 4]));
    }
    assert_all(&client, &small, 4, SMALL_WRITES - 1);
    let peak = peak_bytes() - before;
    assert!(peak < PEAK_MAX, "{} MiB at the most", peak >> 20);
    drop((handle, small));
    runtime().block_on(client.sync()).unwrap();
    client.memory_cleanup();
    assert_eq!(client.memory_usage().bytes_reserved, 0);
}

/// Traverse-Research/gpu-allocator#311: a quarter of the report's bytes.
#[test]
fn a_readback_is_not_slower_than_ten_copies_on_the_host() {
    const BYTES: usize = 64 * MIB;
    fn timed<R>(work: impl FnOnce() -> R) -> Duration {
        let start = Instant::now();
        std::hint::black_box(work());
        start.elapsed()
    }
    scenario(|| {
        let client = client();
        let source = vec![1u8; BYTES];
        let handle = client.create_from_slice(&source);
        // In turn, so that what else the machine does meets both.
        let [mut read, mut copied] = [Duration::MAX; 2];
        for _ in 0..5 {
            // Looking at the bytes is part of it: slow memory is slow where it is looked at.
            read = read.min(timed(|| client.read_one(handle.clone()).unwrap().to_vec()));
            copied = copied.min(timed(|| source.clone()));
        }
        assert!(read < copied * 10, "{read:?} for a read, {copied:?} for a copy");
    });
}

/// KomputeProject/kompute#365: a fifth of the report's launches, and a tenth of its kernels.
#[test]
fn launches_with_ever_new_constants_do_not_grow_and_kernels_are_kept_once() {
    const LAUNCHES: u32 = 10_000;
    const KERNELS: u32 = 200;
    let test = "memory::launches_with_ever_new_constants_do_not_grow_and_kernels_are_kept_once";
    if !children::is_child(test) {
        return children::run(test, &[]).assert_passed();
    }
    let client = client();
    let handle = buffer(&client, &[0; 64]);
    assert_growth(SLACK, || {
        for shift in 0..LAUNCHES {
            affine(&client, &handle, 3, shift);
            // So that what is queued, which takes memory too, is as much each time.
            if shift % 256 == 0 {
                runtime().block_on(client.sync()).unwrap();
            }
        }
        runtime().block_on(client.sync()).unwrap();
    });
    assert_growth(SLACK, || {
        for number in 0..KERNELS {
            let code = format!(
                "@group(0) @binding(0) var<storage, read_write> d: array<u32>;
                @compute @workgroup_size(1) fn main() {{ d[0] = {number}u; }}"
            );
            let arguments = KernelArguments::new().with_buffer(&handle);
            client.launch(wgsl("numbered", code), CubeCount::new_single(), arguments);
        }
        runtime().block_on(client.sync()).unwrap();
    });
}
