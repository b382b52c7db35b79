//! Times that must not lie, and recordings that must not reach what is not theirs.

use crate::kernels::{add1, copy, fill, spin};
use crate::{
    Random, assert_all, assert_words, buffer, client, comes_from, failure, own_device, runtime, scenario, words_of,
};
use std::time::{Duration, Instant};
use vkactor::*;

/// tracel-ai/cubecl#1421: every launch is timed, and not the first alone.
#[test]
fn a_profile_grows_with_its_launches_and_stays_below_the_clock_on_the_wall() {
    scenario(|| {
        let client = client();
        let handle = buffer(&client, &[0; 4]);
        spin(&client, &handle, 1);
        runtime().block_on(client.sync()).unwrap();
        let mut last = Duration::ZERO;
        for launches in [1, 16, 256] {
            let wall = Instant::now();
            let work = || (0..launches).for_each(|_| spin(&client, &handle, 1));
            let ((), time) = client.profile(work, "spins").unwrap();
            let measured = time.resolve_blocking().unwrap().duration();
            assert!(measured <= wall.elapsed(), "{measured:?} of {:?}", wall.elapsed());
            assert!(measured > last * 2, "{measured:?} for {launches} launches, {last:?} for a sixteenth");
            last = measured;
        }
    });
}

/// tracel-ai/cubecl#1592, gfx-rs/wgpu#6406: too little to measure is no time, and no huge one.
#[test]
fn a_profile_of_nothing_is_not_measured() {
    scenario(|| {
        let client = client();
        let ((), time) = client.profile(|| (), "nothing").unwrap();
        assert!(matches!(time.resolve_blocking(), Err(ProfileError::NotMeasured)));
        let wall = Instant::now();
        let (handle, time) = client.profile(|| buffer(&client, &[1; 100]), "create").unwrap();
        match time.resolve_blocking() {
            Ok(ticks) => assert!(ticks.duration() <= wall.elapsed(), "{:?}", ticks.duration()),
            Err(error) => assert!(matches!(error, ProfileError::NotMeasured), "{error}"),
        }
        assert_all(&client, &handle, 100, 1);
    });
}

/// tracel-ai/cubecl#674: a profile in a profile.
#[test]
fn profiles_nest() {
    scenario(|| {
        let client = client();
        let handle = buffer(&client, &[0; 4]);
        let nested = || {
            add1(&client, &handle);
            let inner = client.profile(|| add1(&client, &handle), "inner").unwrap().1;
            add1(&client, &handle);
            inner
        };
        let (inner, outer) = client.profile(nested, "outer").unwrap();
        let [inner, outer] = [inner, outer].map(|time| time.resolve_blocking().unwrap().duration());
        assert!(inner <= outer, "{inner:?} in {outer:?}");
        assert_all(&client, &handle, 4, 3);
    });
}

/// tracel-ai/cubecl#693: 500 windows at once, and a fifth of the report's abandoned ones.
#[test]
fn windows_do_not_run_out() {
    const OPEN: usize = 500;
    const ABANDONED: usize = 2000;
    scenario(|| {
        let client = client();
        let handle = buffer(&client, &[0; 4]);
        let mut open = Vec::new();
        for _ in 0..OPEN {
            open.push(client.profile_start().unwrap());
            add1(&client, &handle);
        }
        let mut random = Random::new(42);
        let mut times = Vec::new();
        while !open.is_empty() {
            let window = open.swap_remove(random.below(open.len()));
            times.push(client.profile_end(window).unwrap());
        }
        let wall = Duration::from_secs(60);
        for time in times {
            assert!(time.resolve_blocking().unwrap().duration() < wall);
        }
        for _ in 0..ABANDONED {
            let window = client.profile_start().unwrap();
            add1(&client, &handle);
            client.profile_abandon(window);
        }
        assert_all(&client, &handle, 4, (OPEN + ABANDONED) as u32);
        let ((), time) = client.profile(|| add1(&client, &handle), "after").unwrap();
        time.resolve_blocking().unwrap();
    });
}

/// Records `body`.
fn record(client: &Client, body: impl FnOnce()) -> Result<Graph, ServerError> {
    client.graph_prepare().unwrap();
    client.start_capture().unwrap();
    body();
    client.stop_capture()
}

/// tracel-ai/cubecl#1469: kernels that never ran, on memory that was never there.
#[test]
fn a_graph_that_reserves_memory_replays_again_and_again() {
    scenario(|| {
        let client = own_device();
        let (input, out) = (buffer(&client, &[5; 100]), buffer(&client, &[0; 100]));
        let graph = record(&client, || {
            let fresh = client.empty(400);
            copy(&client, &input, &fresh);
            add1(&client, &fresh);
            copy(&client, &fresh, &out);
        });
        let graph = graph.unwrap();
        for value in [6, 7, 8] {
            client.write(&input, Bytes::from_elems(vec![value - 1; 100]));
            client.write(&out, Bytes::from(vec![0; 400]));
            graph.replay().unwrap();
            assert_all(&client, &out, 100, value);
        }
    });
}

/// tracel-ai/cubecl#1469: what a window refuses.
#[test]
fn what_a_window_refuses_does_the_stream_no_harm() {
    scenario(|| {
        let client = client();
        let handle = buffer(&client, &[1; 4]);
        let is_graph = |error: &ServerError| matches!(error, ServerError::Graph { .. });
        let good = |refused: &dyn Fn()| {
            let graph = record(&client, || {
                add1(&client, &handle);
                refused();
            });
            assert_eq!(graph.unwrap().stats().launches, 1);
        };
        good(&|| assert!(is_graph(&client.read_one(handle.clone()).unwrap_err())));
        good(&|| assert!(is_graph(&runtime().block_on(client.sync()).unwrap_err())));
        good(&|| {
            let Err(ProfileError::Server(error)) = client.profile(|| (), "refused").map(drop) else {
                panic!("a profile inside a window");
            };
            assert!(is_graph(&error), "{error}");
        });
        let error = record(&client, || client.write(&handle, Bytes::from(vec![9; 16]))).expect_err("a write");
        assert!(is_graph(&error), "{error}");
        // What was to be written was not, and so the buffer says until it is.
        assert!(comes_from(&failure(&client, &handle), is_graph));
        client.write(&handle, Bytes::from_elems(vec![1u32; 4]));
        add1(&client, &handle);
        assert_all(&client, &handle, 4, 2);
    });
}

/// ROCm/aiter#5393.
#[test]
fn memory_of_a_recording_goes_to_nobody_else_while_the_graph_lives() {
    const WORDS: usize = 1000;
    scenario(|| {
        let client = own_device();
        let out = client.empty(WORDS * 4);
        fill(&client, &out, 0);
        let graph = record(&client, || {
            let temporary = client.empty(WORDS * 4);
            fill(&client, &temporary, 1);
            copy(&client, &temporary, &out);
        });
        let graph = graph.unwrap();
        let others: Vec<Handle> = (0..50).map(|value| buffer(&client, &[100 + value; WORDS])).collect();
        for _ in 0..10 {
            fill(&client, &out, 0);
            graph.replay().unwrap();
            assert_all(&client, &out, WORDS, 1);
            for (bytes, value) in client.read(others.clone()).iter().zip(100..) {
                assert_words(&words_of(bytes), WORDS, value);
            }
        }
        drop((graph, others, out));
        runtime().block_on(client.sync()).unwrap();
        client.memory_cleanup();
        assert_eq!(client.memory_usage(), MemoryUsage::default());
    });
}

/// pytorch/pytorch#114844.
#[test]
fn a_graph_keeps_the_buffers_that_it_was_recorded_with() {
    scenario(|| {
        let client = client();
        let (input, out) = (buffer(&client, &[1; 100]), client.empty(400));
        let graph = record(&client, || {
            copy(&client, &input, &out);
            add1(&client, &out);
        });
        let graph = graph.unwrap();
        client.write(&input, Bytes::from_elems(vec![2u32; 100]));
        graph.replay().unwrap();
        assert_all(&client, &out, 100, 3);
        let input_again = buffer(&client, &[50; 100]);
        graph.replay().unwrap();
        assert_all(&client, &out, 100, 3);
        drop(input);
        let others: Vec<Handle> = (0..20).map(|_| buffer(&client, &[60; 100])).collect();
        fill(&client, &out, 0);
        graph.replay().unwrap();
        assert_all(&client, &out, 100, 3);
        drop((others, input_again));
    });
}
