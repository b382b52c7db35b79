//! What a recorder gets to see. Handles belong to the recorder of the thread that starts the device.

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use std::collections::BTreeMap;
use vkactor::*;

/// Values by name and, where there is one, state.
fn values(recorder: &Snapshotter) -> BTreeMap<String, f64> {
    let metrics = recorder.snapshot().into_vec().into_iter();
    let value = metrics.map(|(key, _, description, value)| {
        let key = key.key();
        assert!(description.is_some(), "{} is not described", key.name());
        let label = |name: &str| key.labels().find(|label| label.key() == name).map(|label| label.value().to_owned());
        assert_eq!((label("runtime").as_deref(), label("device").as_deref()), (Some("host"), Some("64206:1")));
        let name = label("state").map_or_else(|| key.name().to_owned(), |state| format!("{}/{state}", key.name()));
        let value = match value {
            DebugValue::Counter(count) => count as f64,
            DebugValue::Gauge(level) => level.into_inner(),
            DebugValue::Histogram(samples) => samples.len() as f64,
        };
        (name, value)
    });
    value.collect()
}

#[test]
fn a_recorder_sees_what_the_device_did() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let client = metrics::with_local_recorder(&recorder, || Client::init(DeviceId::new(0xface, 1), Host::new()));
    let kernel = HostKernel::new("first", |_, buffers: &mut [&mut [u8]], _: &[u8]| buffers[0][0] += 1);
    let handle = client.create_from_slice(&[0; 1024]);
    for _ in 0..100 {
        client.launch(Box::new(kernel.clone()), CubeCount::new_single(), KernelArguments::new().with_buffer(&handle));
    }
    assert_eq!(client.read_one(handle.clone()).unwrap()[0], 100);
    let broken = HostKernel::new("broken", |_, _: &mut [&mut [u8]], _: &[u8]| panic!("on purpose"));
    client.launch(Box::new(broken), CubeCount::new_single(), KernelArguments::new().with_buffer(&handle));
    client.read_one(handle.clone()).unwrap_err();
    // A turn publishes at its end, which may be behind the answer to a read in it; the next question is behind that.
    client.flush().unwrap();
    client.flush().unwrap();

    let found = values(&snapshots);
    let of = |name: &str| *found.get(name).unwrap_or_else(|| panic!("no {name} among {found:?}"));
    assert_eq!(of("vkactor_launches_total"), 101.0);
    assert_eq!(of("vkactor_uploaded_bytes_total"), 1024.0);
    assert_eq!(of("vkactor_failures_total"), 1.0);
    assert_eq!(of("vkactor_replays_total"), 0.0);
    // Each command but the first depends on the one before.
    let (barriers, avoided) = (of("vkactor_barriers_total"), of("vkactor_barriers_avoided_total"));
    assert!(barriers >= 101.0 && barriers + avoided >= 103.0, "{barriers} and {avoided}");
    assert!((2.0..=120.0).contains(&of("vkactor_submissions_total")), "{found:?}");
    assert!(of("vkactor_read_bytes_total") >= 1024.0);
    assert_eq!(of("vkactor_compile_seconds"), 2.0, "compilations");
    assert_eq!(of("vkactor_read_latency_seconds"), 1.0, "reads that gave bytes");
    assert!(of("vkactor_pool_bytes/in_use") >= 1024.0);
    assert!(of("vkactor_pool_bytes/reserved") >= of("vkactor_pool_bytes/in_use"));
    for level in ["vkactor_submissions_in_flight", "vkactor_launches_in_flight", "vkactor_held_messages"] {
        assert_eq!(of(level), 0.0, "{level}");
    }
    assert!(of("vkactor_queue_depth") >= 0.0);
}
