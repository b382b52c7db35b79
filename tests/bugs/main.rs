//! Public bug reports against GPU runtimes, retold as tests of this one. Each test names the report that it is drawn
//! from; where the report's numbers are scaled down for a software device, a constant says by how much.
//!
//! `VKACTOR_TEST_VALIDATION=1` runs everything under the validation layer, and fails a test during which the layer
//! finds an error.

#![expect(clippy::unwrap_used, reason = "in a test a failure is a panic")]

mod children;
mod devices;
mod futures;
mod kernels;
mod lifetime;
mod limits;
mod memory;
mod ordering;
mod profiling_graphs;
mod shaders;
mod streams;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock, mpsc};
use std::time::Duration;
use vkactor::*;

/// How long a scenario may take before it counts as hung, on a machine that does other things too.
const LIMIT: Duration = Duration::from_secs(60);

// --------------------------------------------------------------------------------------- devices

fn is_validating() -> bool {
    std::env::var_os("VKACTOR_TEST_VALIDATION").is_some_and(|value| value == "1")
}

/// The devices of this process.
fn compute() -> &'static Compute {
    static COMPUTE: OnceLock<Compute> = OnceLock::new();
    COMPUTE.get_or_init(|| Compute::builder().validation(is_validating()).build().expect("a Vulkan device"))
}

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
    run(body);
}

/// As [`scenario`], while no other runs in this process: it takes most of the device's memory.
fn scenario_alone(body: impl FnOnce() + Send + 'static) {
    let _alone = MEMORY.write().unwrap_or_else(PoisonError::into_inner);
    run(body);
}

fn run(body: impl FnOnce() + Send + 'static) {
    let errors = vkactor_vulkan::validation_error_count();
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || {
        // Nobody listens any more where the time is up.
        let _ = done.send(catch_unwind(AssertUnwindSafe(body)));
    });
    match result.recv_timeout(LIMIT) {
        Ok(Ok(())) => {}
        Ok(Err(panic)) => resume_unwind(panic),
        Err(_) => panic!("hung: no end after {LIMIT:?}"),
    }
    let found = vkactor_vulkan::validation_error_count() - errors;
    assert_eq!(found, 0, "the validation layer: {:?}", vkactor_vulkan::validation_errors());
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

/// Numbers from a seed, so that a failure comes again (xorshift64*).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

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

/// The first causes that an error names.
fn roots(error: &ServerError) -> Vec<&ServerError> {
    match error {
        ServerError::Several { errors } => errors.iter().flat_map(roots).collect(),
        ServerError::Unwritten { root, .. } => roots(root),
        first => vec![first],
    }
}

/// Whether every cause of `error` is one that `is`.
fn comes_from(error: &ServerError, is: impl Fn(&ServerError) -> bool) -> bool {
    roots(error).into_iter().all(is)
}

fn is_compilation(error: &ServerError) -> bool {
    matches!(error, ServerError::Launch(LaunchError::Compilation(_)))
}

/// What `check` says about one handle, which has to be bad.
#[track_caller]
fn failure(client: &Client, handle: &Handle) -> ServerError {
    client.check([handle]).expect_err("the buffer carries a failure")
}
