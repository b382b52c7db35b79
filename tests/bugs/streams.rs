//! Several users of one device: threads, streams, and locks between them.

use crate::kernels::{add1, copy, fill, spin, wgsl};
use crate::{Random, assert_all, assert_words, buffer, client, compute, scenario, words, words_of};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use vkactor::*;

/// ggml-org/ggml#1087, ggml-org/llama.cpp#7575, ggml-org/whisper.cpp#2415: a tenth of the report's rounds.
#[test]
fn threads_with_clients_of_their_own_do_not_meet() {
    const THREADS: u64 = 16;
    const ROUNDS: u32 = 50;
    scenario(|| {
        let device = client().service_id().device;
        let _running = compute().client(device);
        let done = AtomicBool::new(false);
        let user = |thread: u64| {
            let client = Client::load::<Vulkan>(device).fork();
            let mut random = Random::new(thread);
            for round in 0..ROUNDS {
                let len = 1 + random.below(64 << 10);
                let value = (thread as u32) << 24 | round;
                let handle = buffer(&client, &vec![value; len]);
                add1(&client, &handle);
                assert_all(&client, &handle, len, value + 1);
            }
        };
        let cleaner = || {
            let client = Client::load::<Vulkan>(device).fork();
            while !done.load(Ordering::Relaxed) {
                client.memory_cleanup();
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let compiler = || {
            let client = Client::load::<Vulkan>(device).fork();
            let handle = buffer(&client, &[0; 4]);
            let mut expected = 0u32;
            while !done.load(Ordering::Relaxed) {
                expected += 1;
                let code = format!(
                    "@group(0) @binding(0) var<storage, read_write> d: array<u32>;
                    @compute @workgroup_size(4)
                    fn main(@builtin(local_invocation_index) i: u32) {{ d[i] = {expected}u; }}"
                );
                let arguments = KernelArguments::new().with_buffer(&handle);
                client.launch(wgsl("ever new", code), CubeCount::new_single(), arguments);
                assert_all(&client, &handle, 4, expected);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(cleaner);
            scope.spawn(compiler);
            let users: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || user(thread))).collect();
            let ends: Vec<_> = users.into_iter().map(|user| user.join()).collect();
            done.store(true, Ordering::Relaxed);
            assert!(ends.iter().all(Result::is_ok), "a thread saw what is not its own");
        });
    });
}

/// pytorch/pytorch#23729: a tenth of the report's rounds, on a sixteenth of its memory.
#[test]
fn memory_dropped_on_its_own_stream_is_not_used_again_under_another_stream() {
    const WORDS: usize = 1 << 20;
    scenario(|| {
        let (home, other) = (client(), client());
        for _ in 0..20 {
            let a = home.create(Bytes::from_elems(vec![5u32; WORDS]));
            let (b, busy) = (other.empty(WORDS * 4), other.empty(4));
            spin(&other, &busy, 5);
            copy(&other, &a, &b);
            drop(a);
            let next = home.empty(WORDS * 4);
            fill(&home, &next, 9);
            assert_all(&other, &b, WORDS, 5);
            assert_all(&home, &next, WORDS, 9);
        }
    });
}

/// pytorch/pytorch#173729, pytorch/pytorch#9646: a fifth of the report's streams.
#[test]
fn streams_cost_nothing_once_they_are_done_with() {
    const STREAMS: u64 = 2000;
    let open = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).unwrap().count() as u64;
    scenario(move || {
        let mut client = crate::own_device();
        let (threads, files) = (open("task"), open("fd"));
        let mut reserved = 0;
        for stream in 0..STREAMS {
            set_stream(&mut client, StreamId(1_000_000 + stream));
            let handle = buffer(&client, &[stream as u32; 16]);
            add1(&client, &handle);
            assert_all(&client, &handle, 16, stream as u32 + 1);
            drop(handle);
            if stream == 10 {
                reserved = client.memory_usage().bytes_reserved;
            }
        }
        assert_eq!(client.memory_usage().bytes_reserved, reserved, "bytes reserved");
        // Other tests start devices meanwhile.
        assert!(open("task") < threads + STREAMS / 10, "{} threads, {threads} before", open("task"));
        assert!(open("fd") < files + STREAMS / 10, "{} files, {files} before", open("fd"));
    });
}

#[expect(unsafe_code, reason = "the stream is used by one client only")]
fn set_stream(client: &mut Client, stream: StreamId) {
    // SAFETY: no memory safety hangs on it.
    unsafe { client.set_stream(stream) };
}

/// pytorch/pytorch#173729, pytorch/pytorch#9646: the form with a capture.
#[test]
fn a_capture_takes_no_launch_of_other_streams() {
    const STREAMS: u32 = 256;
    scenario(|| {
        let client = client();
        let captured = buffer(&client, &[0; 8]);
        add1(&client, &captured);
        client.graph_prepare().unwrap();
        client.start_capture().unwrap();
        add1(&client, &captured);
        for stream in 0..STREAMS {
            let other = client.fork();
            let handle = buffer(&other, &[stream; 8]);
            add1(&other, &handle);
            assert_all(&other, &handle, 8, stream + 1);
        }
        let graph = client.stop_capture().unwrap();
        assert_eq!(graph.stats().launches, 1);
        graph.replay().unwrap();
        assert_all(&client, &captured, 8, 2);
    });
}

/// tracel-ai/cubecl#1668: for three seconds of the report's sixty.
#[test]
fn threads_that_tune_clean_up_and_profile_all_advance() {
    const THREADS: u32 = 8;
    const LASTS: Duration = Duration::from_secs(3);
    scenario(|| {
        let client = client();
        let counters: Vec<AtomicU32> = (0..THREADS).map(|_| AtomicU32::new(0)).collect();
        let (start, counters) = (Instant::now(), &counters[..]);
        let work = |thread: u32| {
            let client = client.fork();
            let handle = buffer(&client, &[0; 64]);
            let mut round = 0;
            while start.elapsed() < LASTS {
                let key = ThroughputKey {
                    mode: ThroughputMode::Matrix { m: 0x0b06, n: thread, k: round },
                    dtype: ElemType::U32,
                };
                let probe = || {
                    add1(&client, &handle);
                    futures::executor::block_on(client.sync())?;
                    Ok(ThroughputValue { amount: f64::from(round), duration: Duration::from_secs(1) })
                };
                assert_eq!(client.measure_throughput(key, probe).unwrap().amount, f64::from(round));
                client.memory_cleanup();
                let ((), time) = client.profile(|| add1(&client, &handle), "tuning").unwrap();
                time.resolve_blocking().unwrap();
                assert!(client.memory_usage().bytes_in_use > 0);
                round += 1;
                counters[thread as usize].store(round, Ordering::Relaxed);
            }
            assert_words(&words(&client, &handle), 64, 2 * round);
        };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || work(thread));
            }
            for second in 1..=2u64 {
                std::thread::sleep((start + Duration::from_secs(second)).saturating_duration_since(Instant::now()));
                let rounds: Vec<u32> = counters.iter().map(|c| c.load(Ordering::Relaxed)).collect();
                assert!(rounds.iter().all(|&r| r > 0), "after {second} s: {rounds:?}");
            }
        });
        let bytes = client.read(vec![buffer(&client, &[3])]);
        assert_words(&words_of(&bytes[0]), 1, 3);
    });
}
