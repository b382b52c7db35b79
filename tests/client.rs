//! What the client itself decides, on devices of host memory: no driver is needed.

use std::future::Future;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use vkactor::*;

/// A device of its own.
fn device() -> Client {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    Client::init(DeviceId::new(0xfaca, NEXT.fetch_add(1, Ordering::Relaxed)), Host::new())
}

fn words(client: &Client, handle: &Handle) -> Vec<u32> {
    let bytes = client.read_one(handle.clone()).expect("a good buffer reads");
    bytes.try_into_vec().expect("the buffer is of whole words")
}

/// A kernel that waits for `gate` to be dropped.
fn gate(client: &Client, handle: &Handle) -> mpsc::Sender<()> {
    let (open, waiting) = mpsc::channel::<()>();
    let waiting = std::sync::Mutex::new(waiting);
    let kernel = HostKernel::new("gate", move |_, _: &mut [&mut [u8]], _: &[u8]| {
        let _dropped = waiting.lock().expect("the kernel runs once").recv();
    });
    let arguments = KernelArguments::new().with_buffer(handle);
    client.launch(Box::new(kernel), CubeCount::new_single(), arguments);
    open
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn one_thread_holds_two_devices_and_calls_both() {
    let (a, b) = (device(), device());
    let (of_a, of_b) = (a.create_from_slice(&[1; 4]), b.create_from_slice(&[2; 4]));
    let found = a.exclusive(|| {
        let inner = b.exclusive(|| (a.read_one(of_a.clone()).unwrap()[0], b.read_one(of_b.clone()).unwrap()[0]));
        (inner.unwrap(), a.read_one(of_a.clone()).unwrap()[0])
    });
    assert_eq!(found.unwrap(), ((1, 2), 1));
}

#[test]
fn a_holder_is_ready_however_many_wait_behind_him() {
    let client = device();
    let handle = client.create_from_slice(&[0; 4]);
    client
        .exclusive(|| {
            let ready = client.ready();
            let (other, theirs) = (client.fork(), handle.clone());
            let flood = std::thread::spawn(move || {
                let kernel = HostKernel::new("nothing", |_, _: &mut [&mut [u8]], _: &[u8]| {});
                for _ in 0..10_000 {
                    let arguments = KernelArguments::new().with_buffer(&theirs);
                    other.launch(Box::new(kernel.clone()), CubeCount::new_single(), arguments);
                }
            });
            futures::executor::block_on(ready).unwrap();
            flood
        })
        .unwrap()
        .join()
        .unwrap();
    assert_eq!(words(&client, &handle), [0]);
}

#[test]
fn measuring_under_a_hold_does_not_wait_for_a_prober_who_waits_for_the_hold() {
    let client = device();
    let key = ThroughputKey { mode: ThroughputMode::Launch, dtype: ElemType::F32 };
    let value = |amount| ThroughputValue { amount, duration: std::time::Duration::from_secs(1) };
    let (started, begun) = mpsc::channel();
    let (other, own) = (client.fork(), client.clone());
    let prober = client
        .exclusive(move || {
            let prober = std::thread::spawn(move || {
                other.measure_throughput(key, || {
                    started.send(()).unwrap();
                    other.exclusive(|| ())?;
                    Ok(value(1.0))
                })
            });
            begun.recv().unwrap();
            assert_eq!(own.measure_throughput(key, || Ok(value(2.0))).unwrap(), value(2.0));
            prober
        })
        .unwrap();
    assert_eq!(prober.join().unwrap().unwrap(), value(1.0));
}

#[test]
fn a_measured_future_that_is_dropped_leaves_no_window_open() {
    let client = device();
    for polls in 0..3 {
        let mut measured = Box::pin(client.profile_async(std::future::pending::<()>(), "dropped"));
        for _ in 0..polls {
            assert!(poll_once(measured.as_mut()).is_pending());
            client.flush().unwrap();
        }
        // One that is dropped before its window is open: its call waits behind a held device.
        let unopened = client.fork();
        client
            .exclusive(|| {
                let asked = std::thread::spawn(move || {
                    let mut early = Box::pin(unopened.profile_async(std::future::pending::<()>(), "early"));
                    assert!(poll_once(early.as_mut()).is_pending());
                });
                asked.join().unwrap();
            })
            .unwrap();
    }
    // A window that was left open would still be there: its token is the last but one.
    let window = client.profile_start().unwrap();
    for token in 0..window.token {
        let left = client.profile_end(ProfileWindow { token, ..window });
        assert!(matches!(left, Err(ProfileError::NotRegistered)), "window {token}");
    }
    client.profile_abandon(window);
}

#[test]
fn a_short_write_is_a_prefix_and_a_long_one_spoils_the_part_it_was_for() {
    let client = device();
    let handle = client.create(Bytes::from_elems(vec![1u32; 8]));
    client.write(&handle, Bytes::from_elems(vec![2u32; 2]));
    assert_eq!(words(&client, &handle), [2, 2, 1, 1, 1, 1, 1, 1]);
    let part = handle.clone().offset_start(16);
    client.write(&part, Bytes::from_elems(vec![3u32; 5]));
    let error = client.check([&part]).unwrap_err();
    assert!(error.to_string().contains("20 bytes") && error.to_string().contains("16"), "{error}");
    assert_eq!(words(&client, &handle.offset_end(16)), [2, 2, 1, 1]);
}

#[test]
fn the_refusals_of_an_offset_that_crosses_its_end_are_told_where_they_can_be() {
    let client = device();
    let (handle, out) =
        (client.create(Bytes::from_elems(vec![1u32; 4])), client.create(Bytes::from_elems(vec![1u32; 4])));
    let crossed = handle.clone().offset_start(12).offset_end(12);
    client.write(&crossed, Bytes::from_elems(vec![9u32]));
    let kernel = HostKernel::new("never", |_, _: &mut [&mut [u8]], _: &[u8]| panic!("it was refused"));
    let arguments = KernelArguments::new().with_buffer(&crossed).with_buffer(&out);
    client.launch(Box::new(kernel), CubeCount::new_single(), arguments);
    assert!(client.read_one(crossed).is_err());
    assert!(client.check([&out]).is_err());
    assert_eq!(words(&client, &handle), [1; 4]);
}

#[test]
fn create_async_gives_the_bytes_and_gives_the_memory_back_when_it_is_dropped() {
    let client = device();
    let created = client.create_async(Bytes::from_elems(vec![7u32; 100]));
    let handle = futures::executor::block_on(created).unwrap();
    assert_eq!(words(&client, &handle), [7; 100]);
    let before = client.memory_usage().bytes_in_use;
    drop((client.create_async(Bytes::from(vec![1; 4096])), client.empty_async(4096)));
    assert_eq!(client.memory_usage().bytes_in_use, before);
}

#[test]
fn lazy_bytes_that_are_created_from_are_those_of_the_call() {
    let client = device();
    let handle = client.create(Bytes::from_elems(vec![1u32; 4]));
    let lazy = client.read_lazy(handle.clone().copy_descriptor([4], [1], 4));
    let open = gate(&client, &handle);
    let copy = client.create(lazy.clone());
    client.write(&handle, Bytes::from_elems(vec![2u32; 4]));
    drop(open);
    assert_eq!(words(&client, &copy), [1; 4]);
    assert_eq!(lazy.try_into_vec::<u32>().unwrap(), [2; 4], "the bytes themselves were not looked at before");
}

#[test]
fn clients_say_what_they_are() {
    let client = device();
    let text = format!("{client:?}");
    assert!(text.contains("Client") && text.contains("DeviceId") && text.contains("StreamId"), "{text}");
}

/// A kernel that adds one to each byte.
fn add_one(client: &Client, handle: &Handle) {
    let kernel = HostKernel::new("add_one", |_, buffers: &mut [&mut [u8]], _: &[u8]| {
        buffers[0].iter_mut().for_each(|byte| *byte += 1);
    });
    client.launch(Box::new(kernel), CubeCount::new_single(), KernelArguments::new().with_buffer(handle));
}

#[test]
fn a_window_that_everybody_left_is_closed_and_its_stream_is_good() {
    let client = device();
    let one = client.fork();
    let (stream, other) = (one.stream_id(), one.clone());
    let handle = one.create_from_slice(&[1; 4]);
    one.graph_prepare().unwrap();
    one.start_capture().unwrap();
    add_one(&one, &handle);
    drop(one);
    let back = || {
        let mut back = client.fork();
        #[expect(unsafe_code, reason = "the stream is nobody else's")]
        // SAFETY: no memory safety hangs on it.
        unsafe {
            back.set_stream(stream);
        }
        back
    };
    assert!(back().graph_prepare().is_err(), "somebody is left, and the window is open");
    drop(other);
    let back = back();
    assert!(client.read_one(handle.clone()).is_err(), "what the window was to write was never written");
    back.write(&handle, Bytes::from(vec![5; 4]));
    back.graph_prepare().expect("no window is open");
    back.start_capture().expect("the stream is prepared");
    add_one(&back, &handle);
    back.stop_capture().expect("the window is good").replay().unwrap();
    assert_eq!(client.read_one(handle).unwrap()[..], [6; 4]);
}
