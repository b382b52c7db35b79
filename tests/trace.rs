//! Traces of a device: what is in the file, and what a second one or a lost file does.

#[path = "common/trace_file.rs"]
mod trace_file;

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use trace_file::TraceFile;
use vkactor::*;

type Failure = Box<dyn std::error::Error>;

const ADD_ONE: &str = "
    @group(0) @binding(0) var<storage, read_write> values: array<u32>;
    @compute @workgroup_size(64)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if (id.x < arrayLength(&values)) { values[id.x] += 1u; }
    }";

/// A device of host memory, of its own.
fn host() -> Client {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    Client::init(DeviceId::new(0x7ace, NEXT.fetch_add(1, Ordering::Relaxed)), Host::new())
}

fn nothing() -> Box<dyn CubeKernel> {
    Box::new(HostKernel::new("nothing", |_, _: &mut [&mut [u8]], _: &[u8]| {}))
}

/// Runs a little of everything, and checks its trace.
fn check_workload(client: &Client, kernel: &dyn Fn() -> Box<dyn CubeKernel>, name: &str) -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("trace.json");
    let streams = [client.fork(), client.fork()];
    // Compiled, and not in the trace.
    let warm = client.create_from_slice(&[0; 4096]);
    client.launch(kernel(), CubeCount::new_1d(16), KernelArguments::new().with_buffer(&warm));
    client.trace_start(&path)?;
    let buffers = streams.each_ref().map(|stream| stream.create_from_slice(&[0; 4096]));
    for _ in 0..100 {
        for (stream, buffer) in streams.iter().zip(&buffers) {
            stream.launch(kernel(), CubeCount::new_1d(16), KernelArguments::new().with_buffer(buffer));
        }
    }
    for (stream, buffer) in streams.iter().zip(&buffers) {
        assert_eq!(stream.read_one(buffer.clone())?.len(), 4096);
    }
    streams[0].graph_prepare()?;
    streams[0].start_capture()?;
    streams[0].launch(kernel(), CubeCount::new_1d(16), KernelArguments::new().with_buffer(&buffers[0]));
    let graph = streams[0].stop_capture()?;
    graph.replay()?;
    futures::executor::block_on(client.sync())?;
    let summary = client.trace_stop()?;
    client.launch(kernel(), CubeCount::new_1d(16), KernelArguments::new().with_buffer(&warm));
    client.read_one(warm)?;

    let file = TraceFile::read(&path);
    let [a, b] = streams.each_ref().map(|stream| format!("stream {}", stream.stream_id().0));
    assert_eq!(file.tracks(), [a.as_str(), b.as_str()].into());
    let counts = [name, "upload", "read", "replay"].map(|name| file.count(name));
    assert_eq!(counts, [200, 2, 2, 1], "launches, uploads, reads, replays");
    let launch = file.slices.iter().find(|slice| slice.name == name).ok_or("no launch")?;
    assert_eq!(launch.args["groups"], serde_json::json!([16, 1, 1]));
    let upload = file.slices.iter().find(|slice| slice.name == "upload").ok_or("no upload")?;
    assert_eq!(upload.args["bytes"], 4096);
    assert_eq!((summary.path.as_path(), summary.slices, summary.dropped, summary.streams), (&*path, 205, 0, 2));
    // Slices do not overlap on the device, whichever track they are on.
    let first = file.slices.iter().map(|slice| slice.start_ns).min().ok_or("no slices")?;
    let last = file.slices.iter().map(|slice| slice.end_ns).max().ok_or("no slices")?;
    assert!(file.busy_ns() <= last - first, "{} ns of slices", file.busy_ns());
    assert!(summary.busy <= summary.window, "{summary:?}");
    assert!(summary.busy.as_nanos().abs_diff(u128::from(file.busy_ns())) < 1_000, "{summary:?}");
    for counter in ["submissions", "launches", "waiting", "memory"] {
        assert!(file.counters.contains_key(counter), "no counter of {counter}");
    }
    // Counters and slices are on one clock: that nothing is in flight is seen when the last slice has ended.
    let error_ns = file.clock_error_ns.ok_or("the clocks were not read at once")?;
    let idle = file.counters["launches"].last().filter(|level| level.args["in_flight"] == 0).ok_or("no end")?;
    assert!(idle.at_ns + error_ns >= last, "idle at {} ± {error_ns}, and the last slice ends at {last}", idle.at_ns);
    let busy = file.counters["launches"].iter().find(|level| level.args["in_flight"] != 0).ok_or("no beginning")?;
    assert!(busy.at_ns <= last + error_ns, "busy at {} ± {error_ns}, after the last slice at {last}", busy.at_ns);
    let in_use = file.counters["memory"].iter().filter_map(|memory| memory.args["in_use"].as_u64()).max();
    assert!(in_use >= Some(3 * 4096), "{in_use:?} bytes in use");
    Ok(())
}

#[test]
fn a_trace_of_the_host_has_what_ran_in_it() {
    let kernel = HostKernel::new("add one", |_, buffers: &mut [&mut [u8]], _: &[u8]| {
        buffers[0].iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
    });
    check_workload(&host(), &|| Box::new(kernel.clone()), "add one").unwrap();
}

#[test]
fn a_trace_of_a_vulkan_device_has_what_ran_in_it() {
    let client = Compute::new().expect("a Vulkan device").default_client().expect("the device starts");
    let kernel = WgslKernel::new("add \"one\"", ADD_ONE);
    check_workload(&client, &|| Box::new(kernel.clone()), "add \"one\"").unwrap();
}

#[test]
fn one_trace_at_a_time_and_none_to_stop_is_told() {
    let (client, dir) = (host(), tempfile::tempdir().unwrap());
    assert!(client.trace_stop().is_err());
    client.trace_start(dir.path().join("first.json")).unwrap();
    let second = client.fork().trace_start(dir.path().join("second.json"));
    assert!(matches!(second, Err(ServerError::Busy { .. })), "{second:?}");
    let empty = client.trace_stop().unwrap();
    assert_eq!((empty.slices, empty.streams, empty.busy), (0, 0, Duration::ZERO));
    client.trace_start(dir.path().join("third.json")).unwrap();
    client.trace_stop().unwrap();
    for name in ["first.json", "second.json", "third.json"] {
        assert_eq!(TraceFile::read(&dir.path().join(name)).slices.len(), 0);
    }
}

#[test]
fn a_trace_without_a_file_is_refused_and_does_no_harm() {
    let (client, dir) = (host(), tempfile::tempdir().unwrap());
    let refused = client.trace_start(dir.path().join("no such folder").join("trace.json"));
    assert!(matches!(refused, Err(ServerError::Io(IoError::File(_)))), "{refused:?}");
    let handle = client.create_from_slice(&[1; 4]);
    client.launch(nothing(), CubeCount::new_single(), KernelArguments::new().with_buffer(&handle));
    assert_eq!(&client.read_one(handle).unwrap()[..], [1; 4]);
    assert!(client.trace_stop().is_err());
}

#[test]
fn a_trace_whose_device_stops_is_whole() {
    let (client, dir) = (host(), tempfile::tempdir().unwrap());
    let path = dir.path().join("trace.json");
    client.trace_start(&path).unwrap();
    let handle = client.create_from_slice(&[1; 4]);
    client.launch(nothing(), CubeCount::new_single(), KernelArguments::new().with_buffer(&handle));
    client.read_one(handle).unwrap();
    drop(client);
    // Nobody waits for a device whose last client is gone.
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !std::fs::read_to_string(&path).is_ok_and(|text| text.ends_with("}\n") && text.contains("\n]")) {
        assert!(std::time::Instant::now() < deadline, "the trace is not made whole");
        std::thread::yield_now();
    }
    assert_eq!(TraceFile::read(&path).count("nothing"), 1);
}

#[tokio::test]
async fn futures_trace_from_inside_a_runtime() {
    let (client, dir) = (host(), tempfile::tempdir().unwrap());
    let path = dir.path().join("trace.json");
    client.trace_start_async(path.as_path()).await.unwrap();
    let handle = client.create_from_slice(&[1; 4]);
    client.launch(nothing(), CubeCount::new_single(), KernelArguments::new().with_buffer(&handle));
    let summary = client.trace_stop_async().await.unwrap();
    assert_eq!(summary.slices, 2);
    assert_eq!(TraceFile::read(&path).count("nothing"), 1);
}
