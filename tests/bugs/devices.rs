//! Which devices there are, and bytes that move between them.

use crate::kernels::{add1, fill, spin};
use crate::{
    assert_all, buffer, children, client, compute, device_id, own_device, scenario, scenario_alone, unused_id,
};
use std::collections::HashSet;
use std::path::PathBuf;
use vkactor::*;

/// ggml-org/llama.cpp#8022: two devices of one name.
#[test]
fn devices_of_one_name_have_ids_and_memory_of_their_own() {
    scenario_alone(|| {
        let [a, b] = [own_device(), own_device()];
        assert_eq!(a.name(), b.name());
        assert_ne!(a.service_id(), b.service_id());
        let MemoryDeviceProperties { max_page_size, total, .. } = a.properties().memory;
        let before = b.memory_usage();
        let large = a.empty((total / 10 * 7).min(max_page_size) as usize);
        a.check([&large]).unwrap();
        assert_eq!(b.memory_usage(), before);
        let handle = buffer(&b, &[1; 100]);
        add1(&b, &handle);
        assert_all(&b, &handle, 100, 2);
    });
}

/// The manifest of the software driver, where the system has one.
fn software_manifest() -> Option<PathBuf> {
    let mut files = std::fs::read_dir("/usr/share/vulkan/icd.d").ok()?.flatten().map(|entry| entry.path());
    files.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("lvp")))
}

/// ggml-org/llama.cpp#8022: one driver, installed twice, lists one device twice.
#[test]
fn a_driver_that_is_installed_twice_gives_two_devices() {
    let test = "devices::a_driver_that_is_installed_twice_gives_two_devices";
    if !children::is_child(test) {
        let Some(manifest) = software_manifest() else { return };
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("again.json");
        std::fs::copy(&manifest, &copy).unwrap();
        let files = format!("{}:{}", manifest.display(), copy.display());
        return children::run(test, &[("VK_DRIVER_FILES", &files), ("VK_ICD_FILENAMES", &files)]).assert_passed();
    }
    let devices = compute().devices();
    assert_eq!(devices.len(), 2, "{devices:?}");
    assert_eq!((&devices[0].name, devices[0].uuid), (&devices[1].name, devices[1].uuid));
    let clients: Vec<Client> = devices.iter().map(|device| compute().client(device.id).unwrap()).collect();
    assert_ne!(clients[0].service_id(), clients[1].service_id());
    let handles: Vec<Handle> =
        clients.iter().zip([10, 20]).map(|(client, value)| buffer(client, &[value; 10])).collect();
    for ((client, handle), value) in clients.iter().zip(&handles).zip([11, 21]) {
        add1(client, handle);
        assert_all(client, handle, 10, value);
    }
}

/// ggml-org/llama.cpp#14099.
#[test]
fn software_devices_come_last_and_serve_where_there_is_nothing_else() {
    scenario(|| {
        let devices = compute().devices();
        let software: Vec<bool> = devices.iter().map(|device| device.kind == DeviceKind::Cpu).collect();
        assert!(software.is_sorted(), "{devices:?}");
        let ids: HashSet<DeviceId> = devices.iter().map(|device| device.id).collect();
        assert_eq!(ids.len(), devices.len());
        if std::env::var_os("VKACTOR_DEVICE").is_none() {
            assert_eq!(device_id(), devices[0].id);
        }
    });
}

/// ash-rs/ash#345.
#[test]
fn validation_without_its_layer_starts_all_the_same() {
    let test = "devices::validation_without_its_layer_starts_all_the_same";
    if !children::is_child(test) {
        return children::run(test, &[("VK_LAYER_PATH", "/nowhere")]).assert_passed();
    }
    let compute = Compute::builder().validation(true).build().unwrap();
    let client = compute.default_client().unwrap();
    let handle = buffer(&client, &[1; 4]);
    add1(&client, &handle);
    assert_all(&client, &handle, 4, 2);
}

/// jax-ml/jax#3802.
#[test]
fn bytes_move_between_devices_behind_the_work_that_makes_them() {
    scenario(|| {
        let (mut a, mut b) = (client(), own_device());
        for words in [1usize, 1000, 4 << 20] {
            let handle = a.empty(words * 4);
            spin(&a, &handle, 50);
            fill(&a, &handle, 3);
            let there = a.to_client(handle, &b, ElemType::U32);
            add1(&b, &there);
            let back = b.to_client(there.clone(), &a, ElemType::U32);
            add1(&a, &back);
            assert_all(&b, &there, words, 4);
            assert_all(&a, &back, words, 5);
        }
        for bytes in [0usize, 1, 5] {
            let handle = a.create_from_slice(&vec![7; bytes]);
            let there = a.to_client(handle, &b, ElemType::U8);
            assert_eq!(b.read_one(there).unwrap()[..], vec![7; bytes]);
        }
    });
}

/// jax-ml/jax#3802, tracel-ai/cubecl#1290: a fifth of the report's rounds.
#[test]
fn devices_that_send_to_each_other_at_once_do_not_wait_in_a_circle() {
    const ROUNDS: u32 = 200;
    scenario(|| {
        let [a, b] = [client(), own_device()];
        let send = |from: &Client, to: &Client| {
            let (mut from, to) = (from.fork(), to.fork());
            for round in 0..ROUNDS {
                let handle = buffer(&from, &[round; 1000]);
                let there = from.to_client(handle, &to, ElemType::U32);
                add1(&to, &there);
                assert_all(&to, &there, 1000, round + 1);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| send(&a, &b));
            scope.spawn(|| send(&b, &a));
        });
    });
}

/// tracel-ai/cubecl#1290.
#[test]
fn collectives_over_two_runtimes_are_refused_and_block_nobody() {
    scenario(|| {
        let mut client = client();
        let host = Client::init(unused_id(), Host::new());
        let group = vec![client.service_id().device, host.service_id().device];
        client.ensure_init_collective(group.clone());
        let (from, to) = (buffer(&client, &[1; 4]), buffer(&client, &[2; 4]));
        client.all_reduce(from.clone(), to.clone(), ElemType::U32, group, ReduceOperation::Sum);
        client.sync_collective();
        let error = client.read_one(to).expect_err("there is no transport");
        assert!(crate::comes_from(&error, |e| matches!(e, ServerError::NoDeviceTransport { .. })), "{error}");
        assert_all(&client, &from, 4, 1);
    });
}
