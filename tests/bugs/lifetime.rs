//! Ends: of handles with work in flight, of processes, of launches that fail, and of starts that fail halfway.
//!
//! The loss of a device (gfx-rs/wgpu#10222) cannot be brought about through the public calls. It is tested on the
//! simulated device, in `actors/src/tests/failures.rs`, and on the port of the Vulkan device.

use crate::kernels::{add1, bad, copy, fill, launch_bad, spin, wgsl};
use crate::{
    assert_all, assert_words, buffer, children, client, comes_from, compute, device_id, failure, is_compilation,
    own_device, panic_of, runtime, scenario, words, words_of,
};
use std::time::{Duration, Instant};
use vkactor::*;

/// gfx-rs/wgpu#1689: a fifth of the report's rounds, with shorter launches.
#[test]
fn handles_dropped_with_work_in_flight_do_no_harm() {
    const ROUNDS: u32 = 100;
    const WORDS: usize = 1000;
    scenario(|| {
        let client = own_device();
        for _ in 0..ROUNDS {
            let handle = client.empty(WORDS * 4);
            spin(&client, &handle, 1);
            drop(handle);
            client.memory_cleanup();
        }
        let mut kept = Vec::new();
        for round in 0..ROUNDS {
            let (input, output) = (buffer(&client, &[round; WORDS]), client.empty(WORDS * 4));
            spin(&client, &output, 1);
            copy(&client, &input, &output);
            drop(input);
            client.memory_cleanup();
            kept.push(output);
        }
        for (round, output) in kept.iter().enumerate() {
            assert_all(&client, output, WORDS, round as u32);
        }
        drop(kept);
        runtime().block_on(client.sync()).unwrap();
        client.memory_cleanup();
        assert_eq!(client.memory_usage(), MemoryUsage::default());
    });
}

/// gfx-rs/wgpu#1398.
#[test]
fn a_panic_with_work_in_flight_ends_a_process_as_a_panic() {
    let test = "lifetime::a_panic_with_work_in_flight_ends_a_process_as_a_panic";
    if !children::is_child(test) {
        let ended = children::run(test, &[]);
        assert_eq!(ended.code, Some(101), "{}", ended.said);
        assert!(ended.said.contains("the user's own words"), "{}", ended.said);
        return;
    }
    let compute = Compute::new().unwrap();
    let client = compute.default_client().unwrap();
    let handle = client.empty(4 << 20);
    spin(&client, &handle, 50);
    let _reads: Vec<_> = (0..10).map(|_| client.read_async(vec![handle.clone()])).collect();
    panic!("the user's own words");
}

/// gfx-rs/wgpu#1398: panics that are caught.
#[test]
fn a_panic_in_a_task_gives_back_what_the_task_held() {
    scenario(|| {
        let client = own_device();
        let handle = buffer(&client, &[0; 100]);
        let text = |body: &dyn Fn()| panic_of(body).unwrap_or_default();
        let profiled = || {
            drop(client.profile(
                || {
                    add1(&client, &handle);
                    panic!("in a profile")
                },
                "panics",
            ))
        };
        assert!(text(&profiled).contains("in a profile"));
        let held = || {
            drop(client.exclusive(|| {
                add1(&client, &handle);
                panic!("in a hold")
            }))
        };
        assert!(text(&held).contains("in a hold"));
        let kept = || client.memory_persistent_allocation((), |()| panic!("in a mode"));
        assert!(text(&kept).contains("in a mode"));

        let before = client.memory_report().persistent;
        let next = client.fork();
        std::thread::scope(|scope| scope.spawn(|| add1(&next, &handle)).join()).unwrap();
        let _dynamic = buffer(&client, &[0; 100]);
        assert_eq!(client.memory_report().persistent, before, "the mode is back to what it was");
        assert_all(&client, &handle, 100, 3);
        let ((), time) = client.profile(|| add1(&client, &handle), "works").unwrap();
        time.resolve_blocking().unwrap();
    });
}

/// Tries to start twice, in every way, and expects the same readable refusal each time.
fn assert_no_start(is: impl Fn(&ComputeError) -> bool) {
    for _ in 0..2 {
        let error = Compute::new().expect_err("nothing to start");
        assert!(is(&error) && error.to_string().contains("install"), "{error}");
        let error = Client::try_load::<Vulkan>(DeviceId::new(1, 0)).expect_err("nothing to load");
        assert!(is(&error), "{error}");
        let told =
            panic_of(|| drop(Client::load::<Vulkan>(DeviceId::new(1, 0)))).expect("the panic that is documented");
        assert!(told.contains("does not load"), "{told}");
    }
}

/// Tencent/ncnn#5353, Tencent/ncnn#2666.
#[test]
fn without_a_driver_each_start_is_refused_and_the_process_ends_well() {
    let test = "lifetime::without_a_driver_each_start_is_refused_and_the_process_ends_well";
    if !children::is_child(test) {
        let env = [("VK_DRIVER_FILES", "/nowhere.json"), ("VK_ICD_FILENAMES", "/nowhere.json")];
        return children::run(test, &env).assert_passed();
    }
    assert_no_start(|error| matches!(error, ComputeError::NoDevice(_)));
}

/// Tencent/ncnn#5353: a library in the place of the loader that is none.
#[test]
fn without_a_loader_each_start_is_refused_and_the_process_ends_well() {
    let test = "lifetime::without_a_loader_each_start_is_refused_and_the_process_ends_well";
    if !children::is_child(test) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("libvulkan.so.1"), "no library").unwrap();
        let path = folder.path().to_str().unwrap();
        return children::run(test, &[("LD_LIBRARY_PATH", path)]).assert_passed();
    }
    assert_no_start(|error| matches!(error, ComputeError::NoLoader(_)));
}

/// gfx-rs/wgpu#5969.
#[test]
fn calls_after_a_launch_that_failed_do_not_wait_for_it() {
    // A liveness guard: each call takes microseconds.
    const SOON: Duration = Duration::from_secs(10);
    scenario(|| {
        let client = client();
        let start = Instant::now();
        let handle = buffer(&client, &[0; 4]);
        launch_bad(&client, &handle);
        runtime().block_on(client.sync()).unwrap();
        client.flush().unwrap();
        let error = client.read_one(handle.clone()).expect_err("never written");
        assert!(comes_from(&error, is_compilation), "{error}");
        let ((), time) = client.profile(|| (), "nothing").unwrap();
        assert!(matches!(time.resolve_blocking(), Err(ProfileError::NotMeasured)));
        fill(&client, &handle, 3);
        let good = buffer(&client, &[1; 4]);
        add1(&client, &good);
        assert_all(&client, &good, 4, 2);
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    });
}

/// ggml-org/llama.cpp#21724, ggml-org/llama.cpp#26813: a twentieth of the report's time.
#[test]
fn a_long_queue_of_long_launches_ends_right_or_as_an_error() {
    const LAUNCHES: u32 = 100;
    scenario(|| {
        let client = client();
        let handle = buffer(&client, &[0; 64]);
        for _ in 0..LAUNCHES {
            spin(&client, &handle, 10);
        }
        add1(&client, &handle);
        match client.read_one(handle) {
            Ok(bytes) => {
                let found = words_of(&bytes);
                assert_words(&found[..63], 63, 1);
                assert_eq!(found[63], 2);
            }
            Err(error) => assert!(error.is_device_lost(), "{error}"),
        }
    });
}

/// tracel-ai/burn#5025, tracel-ai/cubecl#1376.
#[test]
fn a_failed_launch_is_told_alike_to_every_reader_with_its_kernel_and_its_reason() {
    scenario(|| {
        let client = client();
        let (a, b, good) = (buffer(&client, &[0; 4]), buffer(&client, &[0; 4]), buffer(&client, &[5; 4]));
        client.launch(bad("crooked"), CubeCount::new_single(), KernelArguments::new().with_buffer(&a));
        client.launch(wgsl("pair", PAIR), CubeCount::new_single(), KernelArguments::new().with_buffer(&b));
        for (handle, kernel, reason) in [(&a, "crooked", "nowhere_declared"), (&b, "pair", "1 buffers given")] {
            let told = |client: Client| client.read_one(handle.clone()).expect_err("never written").to_string();
            let readers: Vec<String> = std::thread::scope(|scope| {
                let readers: Vec<_> = (0..3).map(|_| scope.spawn(|| told(client.clone()))).collect();
                readers.into_iter().map(|reader| reader.join().unwrap()).collect()
            });
            assert!(readers.iter().all(|text| *text == readers[0]), "{readers:?}");
            assert!(readers[0].contains(kernel) && readers[0].contains(reason), "{}", readers[0]);
        }
        assert_all(&client, &good, 4, 5);
        add1(&client, &good);
        assert_all(&client, &good, 4, 6);
    });
}

const PAIR: &str = "
    @group(0) @binding(0) var<storage, read_write> d: array<u32>;
    @group(0) @binding(1) var<storage, read_write> e: array<u32>;
    @compute @workgroup_size(1) fn main() { d[0] = e[0]; e[1] = d[1]; }";

/// tracel-ai/cubecl#1641.
#[test]
fn a_failed_launch_spoils_its_output_and_no_neighbour() {
    const WORDS: usize = 1000;
    scenario(|| {
        let client = client();
        let [a, b, c] = [0; 3].map(|_| buffer(&client, &[u32::MAX; WORDS]));
        fill(&client, &a, 111);
        launch_bad(&client, &b);
        fill(&client, &c, 222);
        let good = client.read(vec![a.clone(), c.clone()]);
        assert_words(&words_of(&good[0]), WORDS, 111);
        assert_words(&words_of(&good[1]), WORDS, 222);
        assert!(comes_from(&failure(&client, &b), is_compilation));
        for read in [vec![b.clone()], vec![a, b.clone(), c]] {
            let error = client.try_read(read).expect_err("one of them was never written");
            assert!(comes_from(&error, is_compilation), "{error}");
        }
        drop(b);
        let next = buffer(&client, &[4; WORDS]);
        assert_words(&words(&client, &next), WORDS, 4);
    });
}

/// gfx-rs/wgpu#10222: what can be reached of it in public, clients that are left behind by a device.
#[test]
fn every_future_of_a_device_that_stops_ends() {
    let test = "lifetime::every_future_of_a_device_that_stops_ends";
    if !children::is_child(test) {
        return children::run(test, &[]).assert_passed();
    }
    let client = client();
    let handles: Vec<Handle> = (0..100).map(|value| buffer(&client, &[value; 100])).collect();
    spin(&client, &handles[0], 50);
    let before: Vec<_> = (0..10).map(|_| client.read_async(handles.clone())).collect();
    runtime().block_on(async {
        compute().shutdown().await.unwrap();
        let after = client.read_async(handles.clone());
        for read in futures::future::join_all(before).await {
            assert_words(&words_of(&read.unwrap()[99]), 100, 99);
        }
        assert!(matches!(after.await, Err(ServerError::Closed)));
    });
    drop((handles, client));
    let fresh = compute().client(device_id()).unwrap();
    let handle = buffer(&fresh, &[1; 4]);
    add1(&fresh, &handle);
    assert_all(&fresh, &handle, 4, 2);
}
