//! What a warm launch costs its caller in allocations: the box that the caller makes, and nothing else.

#![expect(unsafe_code, reason = "an allocator that counts is unsafe to write")]

use futures::executor::block_on;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use vkactor::{Client, CubeCount, DeviceId, Host, HostKernel, KernelArguments};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's duties are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above; `at` came from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Launches of a round. The warm rounds are larger, so that the queue has the memory for any that is measured.
const LAUNCHES: usize = 500;

#[test]
fn a_warm_launch_allocates_the_callers_box_only() {
    let client = Client::init(DeviceId::new(0x5a5b, 1), Host::new());
    let kernel = HostKernel::new("nothing", |_, _: &mut [&mut [u8]], _: &[u8]| {});
    let (a, b) = (client.empty(256), client.empty(256));
    let round = |launches: usize| {
        let before = ALLOCATIONS.get();
        for _ in 0..launches {
            let arguments = KernelArguments::new().with_buffer(&a).with_buffer(&b).with_info([1u32, 2, 3]);
            client.launch(Box::new(kernel.clone()), CubeCount::new_1d(3), arguments);
        }
        let made = ALLOCATIONS.get() - before;
        block_on(client.sync()).unwrap();
        made
    };
    for _ in 0..4 {
        round(8 * LAUNCHES);
    }
    assert_eq!(round(LAUNCHES), LAUNCHES);
}
