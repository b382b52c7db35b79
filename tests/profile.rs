//! Windows over real work. What is claimed of times follows from the order of the queue: timestamps never go back,
//! so a window is as long as what it holds at least, however busy the machine is.

use std::time::Duration;
use vkactor::*;

/// Every step needs the one before.
const SPIN: &str = "
    var<immediate> steps: u32;
    @group(0) @binding(0) var<storage, read_write> d: array<u32>;
    @compute @workgroup_size(1) fn main() {
        var x = d[0];
        for (var i = 0u; i < steps; i += 1u) { x = x * 1664525u + 1013904223u; }
        d[0] = x;
    }";
/// About a millisecond on a CPU, and some on a GPU.
const STEPS: u32 = 200_000;

fn client() -> Client {
    Compute::new().expect("a Vulkan device").default_client().expect("the device starts").fork()
}

fn spin(client: &Client, buffer: &Handle, steps: u32) {
    let arguments = KernelArguments::new().with_buffer(buffer).with_info(steps);
    client.launch(Box::new(WgslKernel::new("spin", SPIN)), CubeCount::new_single(), arguments);
}

fn buffer(client: &Client) -> Handle {
    client.create_from_slice(&[0; 4])
}

fn time(duration: ProfileDuration) -> Duration {
    duration.resolve_blocking().expect("it was measured").duration()
}

/// What one spin takes at least: half of the shortest of a few. Others may be a little faster than those.
fn shortest(client: &Client, buffer: &Handle) -> Duration {
    let measured = (0..5).map(|_| {
        let window = client.profile_start().expect("it opens");
        spin(client, buffer, STEPS);
        time(client.profile_end(window).expect("it closes"))
    });
    measured.min().unwrap_or_default() / 2
}

#[test]
fn an_outer_window_is_as_long_as_all_that_it_holds() {
    let client = client();
    let buffer = buffer(&client);
    let shortest = shortest(&client, &buffer);
    let outer = client.profile_start().unwrap();
    let inner: Vec<ProfileDuration> = (0..3)
        .map(|_| {
            let inner = client.profile_start().unwrap();
            spin(&client, &buffer, STEPS);
            client.profile_end(inner).unwrap()
        })
        .collect();
    spin(&client, &buffer, STEPS);
    let outer = time(client.profile_end(outer).unwrap());
    let inner: Vec<Duration> = inner.into_iter().map(time).collect();
    assert!(inner.iter().all(|inner| *inner >= shortest), "{inner:?}, a spin takes {shortest:?}");
    let held: Duration = inner.iter().sum();
    assert!(outer >= held + shortest, "{outer:?} around {inner:?} and a spin of {shortest:?}");
}

#[test]
fn windows_that_overlap_on_two_streams_share_what_lies_in_both() {
    let (a, b) = (client(), client());
    let buffer = buffer(&a);
    let shortest = shortest(&a, &buffer);
    // One buffer, so the spins run one behind the other. Both windows of `a` begin with the first.
    let whole = a.profile_start().unwrap();
    let first = a.profile_start().unwrap();
    spin(&a, &buffer, STEPS);
    let second = b.profile_start().unwrap();
    spin(&b, &buffer, STEPS);
    let first = a.profile_end(first).unwrap();
    spin(&b, &buffer, STEPS);
    let second = b.profile_end(second).unwrap();
    let whole = time(a.profile_end(whole).unwrap());
    let (first, second) = (time(first), time(second));
    assert!(whole >= first && whole >= second, "{whole:?}, {first:?}, {second:?}");
    assert!(first + second >= whole + shortest, "{first:?} and {second:?} in {whole:?} share {shortest:?}");
    assert!(whole >= 3 * shortest, "{whole:?} for three times {shortest:?}");
}

#[test]
fn windows_are_closed_by_whichever_thread_or_task_has_them() {
    const STREAMS: usize = 16;
    const WINDOWS: usize = 32;
    let opened: Vec<(Client, Handle, Vec<ProfileWindow>)> = (0..STREAMS)
        .map(|_| {
            let client = client();
            let buffer = buffer(&client);
            let open = |_| {
                let window = client.profile_start().unwrap();
                spin(&client, &buffer, 1);
                window
            };
            let windows = (0..WINDOWS).map(open).collect();
            (client, buffer, windows)
        })
        .collect();
    let closer = client();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let times = std::thread::scope(|scope| {
        let threads: Vec<_> = opened
            .iter()
            .enumerate()
            .map(|(index, (_, _, windows))| {
                let (closer, runtime) = (closer.clone(), &runtime);
                scope.spawn(move || {
                    let close = move |window| closer.profile_end(window).unwrap();
                    let windows = windows.clone();
                    let closing = move || windows.into_iter().map(close).collect::<Vec<ProfileDuration>>();
                    if index % 2 == 0 { closing() } else { runtime.block_on(async move { closing() }) }
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(times.len(), STREAMS * WINDOWS);
    assert!(times.into_iter().rev().map(time).all(|time| !time.is_zero()));
    for (client, buffer, windows) in opened {
        let again = windows.into_iter().map(|window| client.profile_end(window));
        assert!(again.into_iter().all(|end| matches!(end, Err(ProfileError::NotRegistered))));
        client.read_one(buffer).unwrap();
    }
}

#[test]
fn a_window_outlives_a_capture_that_refuses_to_close_it() {
    let client = client();
    let buffer = buffer(&client);
    let window = client.profile_start().unwrap();
    spin(&client, &buffer, 1);
    client.graph_prepare().unwrap();
    client.start_capture().unwrap();
    spin(&client, &buffer, 1);
    let refused = client.profile_end(window);
    assert!(matches!(refused, Err(ProfileError::Server(e)) if matches!(*e, ServerError::Graph { .. })));
    // Other streams are not concerned.
    let other = client.fork();
    let beside = other.profile_start().unwrap();
    let theirs = other.create_from_slice(&[0; 4]);
    spin(&other, &theirs, 1);
    assert!(!time(other.profile_end(beside).unwrap()).is_zero());
    client.stop_capture().unwrap();
    assert!(!time(client.profile_end(window).unwrap()).is_zero());
    assert!(matches!(client.profile_end(window), Err(ProfileError::NotRegistered)));
    // The stream is as it was: opening and closing ask nobody again, and are refused by nothing.
    let after = client.profile_start().unwrap();
    spin(&client, &buffer, 1);
    assert!(!time(client.profile_end(after).unwrap()).is_zero());
}

#[test]
fn a_window_around_a_launch_that_fails_tells_the_cause() {
    let client = client();
    let buffer = buffer(&client);
    let (window, other) = (client.profile_start().unwrap(), client.fork());
    let beside = other.profile_start().unwrap();
    spin(&client, &buffer, 1);
    spin(&other, &buffer, 1);
    let broken = WgslKernel::new("broken", "no code");
    client.launch(Box::new(broken), CubeCount::new_single(), KernelArguments::new());
    let failed = client.profile_end(window).unwrap().resolve_blocking();
    let told = |e: &ServerError| e.is_refusal() && e.to_string().contains("broken");
    assert!(matches!(&failed, Err(ProfileError::Server(e)) if told(e)), "{failed:?}");
    assert!(!time(other.profile_end(beside).unwrap()).is_zero(), "another stream's window is not concerned");
}
