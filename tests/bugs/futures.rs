//! Futures: who drives them, what they hold meanwhile, and what is left of those that are dropped.

use crate::kernels::{add1, spin};
use crate::{assert_all, assert_words, async_scenario, buffer, client, own_device, runtime, scenario, words_of};
use futures::future::join_all;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;
use vkactor::*;

/// tracel-ai/cubecl#657.
#[test]
fn calls_return_while_a_read_on_the_same_thread_is_pending() {
    async_scenario(|| async {
        let client = client();
        let (slow, handle) = (buffer(&client, &[0; 4]), buffer(&client, &[1; 64]));
        spin(&client, &slow, 100);
        let mut first = pin!(client.read_async(vec![slow.clone()]));
        let _pending = futures::poll!(first.as_mut());
        add1(&client, &handle);
        let other = client.create_from_slice(&[5; 100]);
        client.write(&other, Bytes::from(vec![6; 100]));
        client.check([&handle, &other]).unwrap();
        client.flush().unwrap();
        assert!(client.memory_usage().bytes_in_use > 0);
        let nine: Vec<_> = (0..9).map(|_| client.read_async(vec![handle.clone(), other.clone()])).collect();
        let (first, nine) = futures::join!(first, join_all(nine));
        assert_eq!(words_of(&first.unwrap()[0]), [0, 0, 0, 1]);
        for read in nine {
            let bytes = read.unwrap();
            assert_words(&words_of(&bytes[0]), 64, 2);
            assert_eq!(bytes[1][..], [6; 100]);
        }
    });
}

/// A buffer of 1,000 words that are all 3 once a launch is done.
fn threes(client: &Client) -> Handle {
    let handle = buffer(client, &[2; 1000]);
    add1(client, &handle);
    handle
}

/// gfx-rs/wgpu-rs#237, gfx-rs/wgpu#1871: on tokio, alone and in a `LocalSet`.
#[test]
fn a_read_that_is_the_only_task_of_a_runtime_resolves() {
    scenario(|| {
        let client = client();
        let bytes = runtime().block_on(client.read_async(vec![threes(&client)])).unwrap();
        assert_words(&words_of(&bytes[0]), 1000, 3);
        let local = tokio::task::LocalSet::new();
        let read = client.read_async(vec![threes(&client)]);
        let bytes = local.block_on(&runtime(), async { tokio::task::spawn_local(read).await.unwrap() }).unwrap();
        assert_words(&words_of(&bytes[0]), 1000, 3);
    });
}

/// gfx-rs/wgpu-rs#237, gfx-rs/wgpu#1871: without tokio.
#[test]
fn a_read_resolves_without_a_runtime() {
    scenario(|| {
        let client = client();
        let bytes = futures::executor::block_on(client.read_async(vec![threes(&client)])).unwrap();
        assert_words(&words_of(&bytes[0]), 1000, 3);
    });
}

/// Wakes a thread.
struct Unpark(Thread, AtomicU32);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.unpark();
    }
}

/// Polls only when woken, and counts the polls.
fn drive<F: Future>(future: F) -> (F::Output, u32) {
    let unpark = Arc::new(Unpark(std::thread::current(), AtomicU32::new(1)));
    let waker = Waker::from(unpark.clone());
    let mut future = pin!(future);
    for polls in 1.. {
        while unpark.1.swap(0, Ordering::SeqCst) == 0 {
            std::thread::park();
        }
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return (value, polls);
        }
    }
    unreachable!("a counter of polls does not end")
}

/// gfx-rs/wgpu-rs#237, gfx-rs/wgpu#1871: on an executor that does nothing until it is woken.
#[test]
fn a_read_is_polled_when_it_is_ready_and_not_in_between() {
    scenario(|| {
        let client = client();
        let slow = buffer(&client, &[0; 4]);
        spin(&client, &slow, 100);
        let (read, polls) = drive(client.read_async(vec![slow]));
        assert_eq!(words_of(&read.unwrap()[0]), [0, 0, 0, 1]);
        assert!(polls <= 3, "{polls} polls");
        let (bytes, polls) = drive(client.sync_buffers([&threes(&client)]));
        bytes.unwrap();
        assert!(polls <= 3, "{polls} polls");
    });
}

/// gfx-rs/wgpu-rs#237: nothing was sent before.
#[test]
fn a_sync_that_is_the_first_and_only_call_resolves() {
    scenario(|| {
        let (synced, polls) = drive(own_device().sync());
        synced.unwrap();
        assert!(polls <= 3, "{polls} polls");
    });
}

/// gfx-rs/wgpu#1238: a tenth of the report's rounds.
#[test]
fn reads_that_are_given_up_leave_nothing() {
    const ROUNDS: u32 = 500;
    async_scenario(|| async {
        let client = own_device();
        let small = buffer(&client, &[0; 256]);
        let descriptor = || small.clone().copy_descriptor([256], [1], 4);
        client.sync().await.unwrap();
        client.memory_cleanup();
        let before = client.memory_usage();
        {
            let (large, slow) = (client.empty(16 << 20), client.empty(4));
            spin(&client, &slow, 50);
            let mut read = pin!(client.read_async(vec![large, slow]));
            let _pending = futures::poll!(read.as_mut());
        }
        for round in 0..ROUNDS {
            add1(&client, &small);
            let mut read = pin!(client.read_async(vec![small.clone()]));
            match round % 3 {
                0 => drop(futures::poll!(read.as_mut())),
                1 => drop(tokio::time::timeout(Duration::from_micros(100), read).await),
                _ => {}
            }
            drop(client.sync());
            drop(client.sync_buffers([&small]));
            drop(client.read_tensor_async(vec![descriptor()]));
        }
        assert_all(&client, &small, 256, ROUNDS);
        client.sync().await.unwrap();
        client.memory_cleanup();
        assert_eq!(client.memory_usage(), before);
        let report = client.memory_report();
        assert!(report.auxiliary.iter().all(|(_, usage)| usage.bytes_in_use == 0), "{report:?}");
    });
}
