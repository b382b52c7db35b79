//! Several devices: bytes between them, and what they reduce together.
//!
//! Pairs are two logical devices on the default driver, each with every other driver that is installed, and Vulkan with
//! host memory. Where there is one driver only, a test that wants two says so and passes.
#![expect(clippy::unwrap_used, reason = "in a test a failure is a panic")]

mod collectives;
#[path = "../common/harness.rs"]
mod harness;
mod logical;
mod model;
mod transfers;

use harness::{Random, compute, is_compilation, is_validating, roots, run_within};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use vkactor::*;

/// How long a test may take before it counts as hung, on a machine that does other things too.
const LIMIT: Duration = Duration::from_secs(120);

fn default_id() -> DeviceId {
    compute().default_client().expect("the default device starts").service_id().device
}

/// A device id under which nothing runs.
fn unused_id() -> DeviceId {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    DeviceId::new(0x0de7, NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A device of the list, opened once more.
fn logical(id: DeviceId, host_import: bool) -> Client {
    let options = VulkanOptions { validation: is_validating(), host_import, ..VulkanOptions::default() };
    Client::init(unused_id(), Vulkan::open_with(id, &options).expect("the device opens once more"))
}

/// The default device, opened once more.
fn device() -> Client {
    logical(default_id(), true)
}

fn host() -> Client {
    Client::init(unused_id(), Host::new())
}

/// A device of each other driver.
fn other_drivers() -> Vec<Client> {
    let devices = compute().devices();
    let own = devices.iter().find(|info| info.id == default_id()).expect("the default device is listed");
    let others = devices.iter().filter(|info| info.driver != own.driver);
    let others: Vec<Client> = others.map(|info| logical(info.id, true)).collect();
    if others.is_empty() {
        skip(&format!("with a second driver: {:?} is the only one that is installed", own.driver));
    }
    others
}

/// Says why a test, or a part of it, passes without having been run.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
}

/// Runs a test on a thread of its own; fails when it takes longer than [`LIMIT`], or when the validation layer finds
/// an error meanwhile.
fn guarded(body: impl FnOnce() + Send + 'static) {
    run_within(LIMIT, body);
}

/// A buffer that a launch which does not compile was to write.
fn spoiled(client: &Client, bytes: usize) -> Handle {
    let handle = client.create(Bytes::from(vec![0; bytes]));
    let kernel = WgslKernel::new("spoiler", "this is no program");
    client.launch(Box::new(kernel), CubeCount::new_single(), KernelArguments::new().with_buffer(&handle));
    handle
}
