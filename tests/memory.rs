//! Memory as tasks and servers use it: on the default device and on one of host memory.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use vkactor::*;
use vkactor_actors::registry::{ActorOptions, start};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// How long a test may take before it counts as hung, on a machine that does other things too.
const LIMIT: Duration = Duration::from_secs(60);

/// A device with an actor and memory of its own.
fn open<S: ServerStorage>(server: S, options: &ActorOptions) -> Client {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let id = DeviceId::new(0x3e3e, NEXT.fetch_add(1, Ordering::Relaxed));
    let _running = start(id, server, options).expect("the device starts");
    Client::load::<S>(id)
}

/// A client of the default device, which has this little memory in all tests.
fn limited() -> Client {
    static COMPUTE: OnceLock<Compute> = OnceLock::new();
    let build = || Compute::builder().memory_limit(64 << 20).build().expect("a Vulkan device");
    COMPUTE.get_or_init(build).default_client().expect("the default device starts").fork()
}

/// The default device, opened once more.
fn vulkan(options: &ActorOptions) -> Client {
    let id = limited().service_id().device;
    open(Vulkan::open_with(id, &VulkanOptions::default()).expect("it opens once more"), options)
}

/// Both kinds of device, with this much memory.
fn devices(memory_limit: usize) -> [Client; 2] {
    let options = ActorOptions { memory_limit: Some(memory_limit as u64), ..ActorOptions::default() };
    [vulkan(&options), open(Host::new(), &options)]
}

fn run<F: Future>(body: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(LIMIT, body).await }).expect("no end in time")
}

// --------------------------------------------------------------------------- tasks that wait for memory

/// Holds two small buffers and a large one at once. All small ones together leave room for large ones, so that some
/// task can always go on.
async fn work(client: Client, number: u8) -> Result<(), ServerError> {
    let first = client.create_async(Bytes::from(vec![number; 256 * KIB])).await?;
    let second = client.empty_async(256 * KIB).await?;
    let large = client.empty_async(3 * MIB + 512 * KIB).await?;
    assert!(client.memory_usage().bytes_reserved <= 64 << 20);
    client.write(&second, Bytes::from(vec![number; 256 * KIB]));
    let end = large.clone().offset_end((3 * MIB + 511 * KIB) as u64);
    client.write(&end, Bytes::from(vec![number; KIB]));
    for part in client.read_async(vec![first, second, end]).await? {
        assert!(part.iter().all(|&byte| byte == number), "task {number} sees the bytes of another");
    }
    Ok(())
}

#[test]
fn sixty_four_tasks_that_need_four_times_the_memory_all_finish() {
    for client in devices(64 * MIB) {
        run(async {
            let mut tasks = JoinSet::new();
            for number in 0..64 {
                // Half of them share a stream.
                let client = if number % 2 == 0 { client.fork() } else { client.clone() };
                tasks.spawn(work(client, number));
            }
            while let Some(ended) = tasks.join_next().await {
                ended.expect("no task panics").expect("no task fails");
            }
        });
        assert_eq!(client.memory_usage().number_allocs, 0);
    }
}

#[test]
fn in_a_circle_of_tasks_exactly_the_youngest_fails() {
    const TASKS: usize = 8;
    for client in devices(64 * MIB) {
        let ends = run(async {
            let mut turn = None;
            let mut tasks = Vec::new();
            let (hold, mut holds) = tokio::sync::mpsc::channel(TASKS);
            for _ in 0..TASKS {
                let (client, hold) = (client.clone(), hold.clone());
                let (mine, my_turn) = oneshot::channel::<()>();
                let next = turn.replace(mine);
                tasks.push(tokio::spawn(async move {
                    let held = client.empty_async(8 * MIB).await?;
                    hold.send(()).await.expect("somebody counts");
                    // From the last to the first: it ends where nobody is before.
                    let _ = my_turn.await;
                    let more = client.empty_async(8 * MIB);
                    next.map(|next| next.send(()));
                    let more = more.await?;
                    drop(held);
                    client.check([&more])
                }));
            }
            for _ in 0..TASKS {
                holds.recv().await;
            }
            drop(turn);
            let mut ends = Vec::new();
            for task in tasks {
                ends.push(task.await.expect("no task panics"));
            }
            ends
        });
        for (number, end) in ends.iter().enumerate() {
            match end {
                // The first asks last.
                Err(error) => assert!(number == 0 && error.is_out_of_memory(), "task {number}: {error}"),
                Ok(()) => assert!(number > 0, "task {number} does not fail"),
            }
        }
        assert_eq!(client.memory_usage().number_allocs, 0);
    }
}

#[test]
fn what_never_fits_and_what_does_not_fit_now_are_told_apart() {
    let client = limited();
    let kept = client.create_from_slice(&[7; 40 * MIB]);
    let root = |handle: &Handle| match client.check([handle]) {
        Err(ServerError::Unwritten { root, .. }) => match &*root {
            ServerError::Io(error) => error.clone(),
            other => panic!("{other}"),
        },
        other => panic!("{other:?}"),
    };

    let never = root(&client.empty(65 * MIB));
    let later = root(&client.empty(40 * MIB));

    assert!(matches!(never, IoError::BufferTooBig { limit, .. } if limit == 64 << 20), "{never:?}");
    let figures = (40 << 20, 40 << 20, 64 << 20);
    assert!(
        matches!(later, IoError::OutOfMemory { requested, in_use, budget } if (requested, in_use, budget) == figures),
        "{later:?}"
    );
    let never = run(client.empty_async(65 * MIB)).expect_err("waiting is of no use");
    assert!(matches!(never, ServerError::Io(IoError::BufferTooBig { .. })), "{never}");
    let next = client.create_from_slice(&[8; 20 * MIB]);
    assert!(client.read_one(next).expect("the next request works").iter().all(|&byte| byte == 8));
    assert!(client.read_one(kept).expect("others are not disturbed").iter().all(|&byte| byte == 7));
}

// ------------------------------------------------------------------------------------ servers

/// One request: a cache that stays, and activations of some layers. Lengths are those of a few buckets.
fn request(client: &Client, number: usize, caches: &mut Vec<Handle>) {
    let tokens = 16 << (number * 7 % 5);
    if caches.len() == 8 {
        caches.remove(number % 8);
    }
    caches.push(client.empty(tokens * 512));
    let mut before = client.empty(tokens * 256);
    for wide in [1024, 256, 1024, 256] {
        before = client.empty(tokens * wide);
    }
    drop(before);
}

fn weights(client: &Client) -> Vec<Handle> {
    (1..20).map(|at| client.empty(at * 10_000)).collect()
}

fn requests(client: &Client, numbers: std::ops::Range<usize>) {
    let _weights = weights(client);
    let mut caches = Vec::new();
    numbers.for_each(|number| request(client, number, &mut caches));
}

#[test]
fn three_thousand_requests_leave_no_more_than_the_first_five_hundred() {
    for client in devices(1 << 30) {
        let _weights = weights(&client);
        let mut caches = Vec::new();
        (0..500).for_each(|number| request(&client, number, &mut caches));
        let early = client.memory_usage();
        (500..3_000).for_each(|number| request(&client, number, &mut caches));
        let late = client.memory_usage();
        assert_eq!(late.bytes_reserved, early.bytes_reserved, "{}", client.name());
        assert_eq!(late.number_allocs, early.number_allocs);
    }
}

#[test]
fn a_plan_that_was_measured_in_a_dry_run_serves_without_the_driver() {
    for client in devices(1 << 30) {
        let dry = DryRun::new(&client);
        requests(&client, 0..1_000);
        drop(dry);
        let report = client.memory_report();
        assert!(report.dynamic.iter().all(|pool| pool.pages == pool.pages_unmapped), "{report:?}");
        client.memory_cleanup();
        client.install_memory_pools(&report.plan()).expect("nothing is live");

        requests(&client, 0..100);
        let early = client.memory_report();
        requests(&client, 100..10_000);

        let peak: u64 = report.dynamic.iter().map(|pool| pool.bytes_peak).sum();
        let late = client.memory_report();
        let pages = |report: &MemoryReport| -> Vec<(u64, u64)> {
            report.dynamic.iter().map(|pool| (pool.pages, pool.pages_peak)).collect()
        };
        assert_eq!(pages(&late), pages(&early), "{}", client.name());
        let reserved = late.usage().bytes_reserved;
        assert!(reserved <= peak + peak / 20, "{}: {reserved} for {peak}", client.name());
    }
}

#[test]
fn a_buffer_of_a_dry_run_is_used_when_the_run_is_over() {
    let options = ActorOptions { zero_memory: true, ..ActorOptions::default() };
    for client in [vulkan(&options), open(Host::new(), &options)] {
        let dry = DryRun::new(&client);
        let planned = client.empty(3 * MIB);
        let error = client.read_one(planned.clone()).expect_err("there is no memory behind it");
        assert!(error.to_string().contains("dry run"), "{error}");
        drop(dry);
        assert!(client.read_one(planned.clone()).expect("it reads").iter().all(|&byte| byte == 0));
        client.write(&planned.clone().offset_end((3 * MIB - KIB) as u64), Bytes::from(vec![5; KIB]));
        let bytes = client.read_one(planned).expect("it reads");
        assert!(bytes[..KIB].iter().all(|&byte| byte == 5) && bytes[KIB..].iter().all(|&byte| byte == 0));
    }
}

// ---------------------------------------------------------------------------------- isolation

/// Writes a thousand words from the start of a buffer on, wherever that ends.
const FLOOD: &str = "
    @group(0) @binding(0) var<storage, read_write> d: array<u32>;
    @compute @workgroup_size(64)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) { d[id.x] = 0xffffffffu; }";

#[test]
fn writes_past_the_end_of_a_buffer_reach_neither_its_neighbours_nor_the_next_owner() {
    let client = vulkan(&ActorOptions { zero_memory: true, ..ActorOptions::default() });
    let of = |len: usize| vec![len as u8; len];
    let mut handles: Vec<Handle> = (1..=300).map(|len| client.create_from_slice(&of(len))).collect();
    for handle in handles.iter().skip(1).step_by(2) {
        let kernel = WgslKernel::new("flood", FLOOD);
        let arguments = KernelArguments::new().with_buffer(handle);
        client.launch(Box::new(kernel), CubeCount::new_1d(16), arguments);
    }
    for (at, handle) in handles.iter().enumerate().step_by(2) {
        let bytes = client.read_one(handle.clone()).expect("a good buffer reads");
        assert_eq!(bytes[..], of(at + 1), "{} bytes", at + 1);
    }
    let flooded = client.read_one(handles[299].clone()).expect("a good buffer reads");
    assert!(flooded.iter().all(|&byte| byte == 0xff), "the kernel runs");

    // What comes next has what was padding: sizes end elsewhere.
    let mut even = 0;
    handles.retain(|_| {
        even += 1;
        even % 2 == 1
    });
    for len in (1..=600).rev() {
        let next = client.empty(len);
        assert!(client.read_one(next.clone()).expect("it reads").iter().all(|&byte| byte == 0), "{len} bytes");
        handles.push(next);
    }
}

/// The Vulkan specification promises 4,096 allocations.
#[test]
fn thousands_of_tiny_buffers_are_few_allocations() {
    for client in devices(1 << 30) {
        let handles: Vec<Handle> = (1..=20_000).map(|at| client.empty(1 + at % 64)).collect();
        client.check(&handles).expect("there is room");
        let pages: u64 = client.memory_report().dynamic.iter().map(|pool| pool.pages).sum();
        assert!(pages <= 16, "{pages} pages");
    }
}
