//! What the pools hold beside what lives, on traces of whole programs.

mod traces;

use traces::pools::Pools;
use traces::server::{Lengths, Server};
use traces::{Device, Trace};
use vkactor_actors::engine::memory::MemoryLimits;
use vkactor_actors::id::StreamId;

fn limits(device: Device, alignment: u64) -> MemoryLimits {
    let budget = device.memory_bytes();
    // What lavapipe and NVIDIA's driver allow.
    MemoryLimits { page_bytes_max: budget.min(64 << 30), alignment, budget }
}

/// The bound.
fn assert_within_a_quarter(device: Device, alignment: u64) {
    for trace in Trace::all(device) {
        let mut pools = Pools::new(limits(device, alignment));
        for &step in &trace.steps {
            pools.step(step).expect("the device is large enough");
        }
        let (reserved, peak) = (pools.reserved_bytes_peak, trace.peak_bytes(alignment));
        assert!(reserved <= peak + peak / 4, "{}: {reserved} reserved for {peak} on {device:?}", trace.name);
        assert!(peak > device.memory_bytes() / 3 || trace.name.contains("tiny"), "{}: {peak} bytes", trace.name);
        // Drivers promise 4,096 allocations at once.
        assert!(pools.allocations < 1000, "{}: {} pages", trace.name, pools.allocations);
    }
}

#[test]
fn sub_slices_reserve_a_quarter_more_than_lives_at_most_on_a_small_device() {
    assert_within_a_quarter(Device::Small, 16);
    assert_within_a_quarter(Device::Small, 256);
}

#[test]
fn sub_slices_reserve_a_quarter_more_than_lives_at_most_on_a_large_device() {
    assert_within_a_quarter(Device::Large, 16);
    assert_within_a_quarter(Device::Large, 256);
}

/// Requests of the pattern that repeats.
const DAY: u64 = 1_000;

fn serve(pools: &mut Pools, server: &mut Server, days: u64) {
    for _ in 0..days {
        server.day(DAY);
        for (number, step) in server.take_steps().into_iter().enumerate() {
            pools.step(step).expect("the device is large enough");
            if number % 1024 == 0 {
                pools.sweep(false);
            }
        }
    }
}

#[test]
fn a_server_of_two_hundred_thousand_requests_holds_what_it_held_after_two_thousand() {
    let mut pools = Pools::new(limits(Device::Small, 16));
    let mut server = Server::light(Lengths::Any);
    serve(&mut pools, &mut server, 2);
    let early = pools.reserved_bytes;

    serve(&mut pools, &mut server, 198);

    assert_eq!(pools.reserved_bytes, early);
}

#[test]
fn a_measured_plan_serves_a_hundred_thousand_requests_with_the_pages_of_the_first_thousand() {
    let stream = StreamId::DEFAULT;
    let mut pools = Pools::new(limits(Device::Small, 16));
    pools.manager.dry_run(stream, true);
    serve(&mut pools, &mut Server::light(Lengths::Buckets), 1);
    pools.manager.dry_run(stream, false);
    assert_eq!(pools.allocations, 0, "a dry run asks the device for nothing");
    let report = pools.manager.report(stream);

    let mut pools = Pools::new(limits(Device::Small, 16));
    pools.manager.install(stream, &report.plan()).expect("nothing is live");
    let mut server = Server::light(Lengths::Buckets);
    serve(&mut pools, &mut server, 1);
    let first = pools.allocations;
    serve(&mut pools, &mut server, 99);

    assert_eq!(pools.allocations, first, "no page is asked for while it serves");
    assert_eq!(first, report.dynamic.len() as u64, "a page for each pool that was used");
    let peak: u64 = report.dynamic.iter().map(|pool| pool.bytes_peak).sum();
    assert!(pools.reserved_bytes_peak <= peak + peak / 20, "{} for {peak}", pools.reserved_bytes_peak);
}
