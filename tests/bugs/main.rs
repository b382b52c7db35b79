//! Public bug reports against GPU runtimes, retold as tests of this one. Each test names the report that it is drawn
//! from; where the report's numbers are scaled down for a software device, a constant says by how much.
//!
//! `VKACTOR_TEST_VALIDATION=1` runs everything under the validation layer, and fails a test during which the layer
//! finds an error.

#![expect(clippy::unwrap_used, reason = "in a test a failure is a panic")]

mod children;
mod devices;
mod futures;
#[path = "../common/harness.rs"]
mod harness;
mod kernels;
mod lifetime;
mod limits;
mod memory;
mod ordering;
mod profiling_graphs;
mod shaders;
mod streams;

use harness::{Random, compute, is_compilation, is_validating, roots, run_within};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;
use vkactor::*;

/// How long a scenario may take before it counts as hung, on a machine that does other things too.
const LIMIT: Duration = Duration::from_secs(60);

// --------------------------------------------------------------------------------------- devices

/// The default device, through a stream that no other test uses.
fn client() -> Client {
    compute().default_client().expect("the default device starts").fork()
}

/// The id of the default device.
fn device_id() -> DeviceId {
    client().service_id().device
}

/// A device id under which nothing runs.
fn unused_id() -> DeviceId {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    DeviceId::new(0x0b06, NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The default device opened once more, with an actor and memory of its own.
fn own_device() -> Client {
    let options = VulkanOptions { validation: is_validating(), ..VulkanOptions::default() };
    let server = Vulkan::open_with(device_id(), &options).expect("the device opens once more");
    Client::init(unused_id(), server)
}

// ---------------------------------------------------------------------------------------- guards

/// Held for writing by scenarios that take most of the device's memory, and for reading by all others.
static MEMORY: RwLock<()> = RwLock::new(());

/// Runs a scenario on a thread of its own. Fails when it takes longer than [`LIMIT`], or when the validation layer
/// finds an error meanwhile.
fn scenario(body: impl FnOnce() + Send + 'static) {
    let _shared = MEMORY.read().unwrap_or_else(PoisonError::into_inner);
    run_within(LIMIT, body);
}

/// As [`scenario`], while no other runs in this process: it takes most of the device's memory.
fn scenario_alone(body: impl FnOnce() + Send + 'static) {
    let _alone = MEMORY.write().unwrap_or_else(PoisonError::into_inner);
    run_within(LIMIT, body);
}

/// As [`scenario`], on a runtime with one thread.
fn async_scenario<F: Future<Output = ()>>(body: impl FnOnce() -> F + Send + 'static) {
    scenario(|| runtime().block_on(body()));
}

/// A tokio runtime with one thread.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

/// What `body` panics with, or `None` where it does not.
fn panic_of(body: impl FnOnce()) -> Option<String> {
    let payload = catch_unwind(AssertUnwindSafe(body)).err()?;
    let text = payload.downcast_ref::<String>().cloned();
    Some(text.or_else(|| payload.downcast_ref::<&str>().map(|&s| s.to_owned())).unwrap_or_default())
}

// ------------------------------------------------------------------------------------------ data

/// A buffer of these words.
fn buffer(client: &Client, words: &[u32]) -> Handle {
    client.create_from_slice(bytemuck::cast_slice(words))
}

/// The words of a buffer.
fn words(client: &Client, handle: &Handle) -> Vec<u32> {
    words_of(&client.read_one(handle.clone()).unwrap_or_else(|error| panic!("a good buffer reads: {error}")))
}

fn words_of(bytes: &[u8]) -> Vec<u32> {
    bytemuck::pod_collect_to_vec(bytes)
}

/// Fails unless there are `len` words that are all `value`.
#[track_caller]
fn assert_words(found: &[u32], len: usize, value: u32) {
    assert_eq!(found.len(), len, "number of words");
    if let Some(at) = found.iter().position(|&word| word != value) {
        panic!("word {at} of {len} is {}, not {value}", found[at]);
    }
}

/// Fails unless `handle` holds `len` words that are all `value`.
#[track_caller]
fn assert_all(client: &Client, handle: &Handle, len: usize, value: u32) {
    assert_words(&words(client, handle), len, value);
}

/// Bytes of this process in memory.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux tells what a process holds");
    let pages = text.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
    pages.expect("the second number is the resident pages") * 4096
}

// ---------------------------------------------------------------------------------------- errors

/// Whether every cause of `error` is one that `is`.
fn comes_from(error: &ServerError, is: impl Fn(&ServerError) -> bool) -> bool {
    roots(error).into_iter().all(is)
}

/// What `check` says about one handle, which has to be bad.
#[track_caller]
fn failure(client: &Client, handle: &Handle) -> ServerError {
    client.check([handle]).expect_err("the buffer carries a failure")
}
