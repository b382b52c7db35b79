//! What a warm launch costs its caller in allocations: the box that the caller makes, and nothing else.

#[path = "common/counting.rs"]
mod counting;

use counting::allocations;
use futures::executor::block_on;
use vkactor::{Client, CubeCount, DeviceId, Host, HostKernel, KernelArguments};

/// Launches of a round. The warm rounds are larger, so that the queue has the memory for any that is measured.
const LAUNCHES: usize = 500;

#[test]
fn a_warm_launch_allocates_the_callers_box_only() {
    let client = Client::init(DeviceId::new(0x5a5b, 1), Host::new());
    let kernel = HostKernel::new("nothing", |_, _: &mut [&mut [u8]], _: &[u8]| {});
    let (a, b) = (client.empty(256), client.empty(256));
    let round = |launches: usize| {
        let before = allocations();
        for _ in 0..launches {
            let arguments = KernelArguments::new().with_buffer(&a).with_buffer(&b).with_info([1u32, 2, 3]);
            client.launch(Box::new(kernel.clone()), CubeCount::new_1d(3), arguments);
        }
        let made = allocations() - before;
        block_on(client.sync()).unwrap();
        made
    };
    for _ in 0..4 {
        round(8 * LAUNCHES);
    }
    assert_eq!(round(LAUNCHES), LAUNCHES);
}
