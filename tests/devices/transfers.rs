//! Bytes from one device to another.

use super::*;

/// Above a chunk, and not a multiple of anything.
const LARGE: usize = (9 << 20) + 5;

/// Every pair, both ways.
fn pairs() -> Vec<(String, Client, Client)> {
    let (a, b, host) = (device(), device(), host());
    let without = logical(default_id(), false);
    let name = |what: &str| what.to_owned();
    let mut pairs = vec![
        (name("two logical devices"), a.clone(), b),
        (name("to itself"), a.clone(), a.clone()),
        (name("from stream to stream"), a.clone(), a.fork()),
        (name("from one that cannot import"), without.clone(), a.clone()),
        (name("to one that cannot import"), a.clone(), without),
        (name("Vulkan to host"), a.clone(), host.clone()),
        (name("host to Vulkan"), host, a.clone()),
    ];
    for other in other_drivers() {
        pairs.push((name("to a second driver"), a.clone(), other.clone()));
        pairs.push((name("from a second driver"), other, a.clone()));
    }
    pairs
}

/// Host memory that a device has taken for uploads.
fn upload_bytes(client: &Client) -> u64 {
    let report = client.memory_report();
    report.auxiliary.iter().filter(|(name, _)| name == "upload").map(|(_, usage)| usage.bytes_reserved).sum()
}

#[test]
fn bytes_arrive_between_any_two_devices_whatever_their_number() {
    guarded(|| {
        for (what, mut from, to) in pairs() {
            for len in [0, 1, 5, 4 << 20, (4 << 20) + 1, LARGE] {
                let data = Random::new(len as u64).bytes(len);
                let src = from.create(Bytes::from(data.clone()));
                let dst = from.to_client(src.clone(), &to, ElemType::U8);
                from.write(&src, Bytes::from(vec![0; len]));
                drop(src);
                assert!(*to.read_one(dst).unwrap() == data[..], "{what}, {len} bytes");
            }
        }
    });
}

#[test]
fn rows_arrive_dense_between_any_two_devices() {
    guarded(|| {
        for (what, mut from, to) in pairs() {
            for (count, bytes, pitch) in [(3usize, 5usize, 8usize), (700, 10_000, 10_016), (2, 5 << 20, (5 << 20) + 4)]
            {
                let data = Random::new(count as u64).bytes((count - 1) * pitch + bytes);
                let src = from.create(Bytes::from(data.clone()));
                let dst = from.to_client_tensor(src.copy_descriptor([count, bytes], [pitch, 1], 1), &to, ElemType::U8);
                let dense: Vec<u8> = (0..count).flat_map(|row| &data[row * pitch..][..bytes]).copied().collect();
                assert!(*to.read_one(dst).unwrap() == dense[..], "{what}, {count} rows");
            }
        }
    });
}

#[test]
fn a_spoiled_source_spoils_the_destination_once_and_a_write_heals_it() {
    guarded(|| {
        for (what, mut from, to) in pairs() {
            if from.name() != "vulkan" {
                continue;
            }
            for len in [8, LARGE] {
                let dst = from.to_client(spoiled(&from, len), &to, ElemType::U8);
                let error = to.read_one(dst.clone()).unwrap_err();
                let roots = roots(&error);
                assert!(roots.len() == 1 && is_compilation(roots[0]), "{what}, {len} bytes: {error:?}");
                to.write(&dst, Bytes::from(vec![3; len]));
                assert!(to.read_one(dst).unwrap().iter().all(|&byte| byte == 3), "{what}, {len} bytes");
            }
        }
    });
}

#[test]
fn a_source_that_is_spoiled_in_part_spoils_the_destination() {
    guarded(|| {
        let (mut from, to) = (device(), device());
        let src = from.create(Bytes::from(vec![1; LARGE]));
        let tail = src.clone().offset_start((8 << 20) + 256);
        let kernel = WgslKernel::new("spoiler", "this is no program");
        from.launch(Box::new(kernel), CubeCount::new_single(), KernelArguments::new().with_buffer(&tail));
        let dst = from.to_client(src, &to, ElemType::U8);
        let error = to.read_one(dst.clone()).unwrap_err();
        assert!(roots(&error).into_iter().all(is_compilation), "{error:?}");
        assert!(to.check([&dst]).is_err());
    });
}

#[test]
fn a_source_that_stops_spoils_what_did_not_arrive() {
    guarded(|| {
        let (mut from, to) = (device(), device());
        let src = from.create(Bytes::from(vec![1; LARGE]));
        let dst = from.to_client(src.clone(), &to, ElemType::U8);
        drop((src, from));
        // What was sent is finished before a device stops.
        assert!(to.read_one(dst).unwrap().iter().all(|&byte| byte == 1));
    });
}

#[test]
fn devices_with_a_transport_copy_from_each_other_and_the_host_copies_nothing() {
    guarded(|| {
        let (mut from, to) = (device(), device());
        if !from.has_device_transport() {
            return skip("the device imports no host memory");
        }
        let data = Random::new(7).bytes(LARGE);
        let dst = from.to_client(from.create(Bytes::from(data.clone())), &to, ElemType::U8);
        assert!(*to.read_one(dst).unwrap() == data[..]);
        assert_eq!(upload_bytes(&to), 0, "bytes were staged by the host");
        // A device that cannot import has them staged.
        let without = logical(default_id(), false);
        let dst = from.to_client(from.create(Bytes::from(data.clone())), &without, ElemType::U8);
        assert!(*without.read_one(dst).unwrap() == data[..]);
        assert!(upload_bytes(&without) > 0);
        assert!(!without.has_device_transport() && !without.features().host_import);
    });
}

#[test]
fn a_destination_that_goes_away_leaves_the_source_working() {
    guarded(|| {
        let mut from = device();
        let src = from.create(Bytes::from(vec![9; LARGE]));
        for _ in 0..5 {
            let to = device();
            drop(from.to_client(src.clone(), &to, ElemType::U8));
            drop(to);
        }
        assert!(from.read_one(src).unwrap().iter().all(|&byte| byte == 9));
    });
}

#[test]
fn pinned_bytes_of_one_device_are_written_to_another() {
    guarded(|| {
        let (from, to) = (device(), device());
        let data = Random::new(3).bytes(LARGE);
        let mut bytes = Bytes::from(data.clone());
        from.staging(std::iter::once(&mut bytes), false);
        assert_eq!(bytes.property(), AllocationProperty::Pinned);
        let handles: Vec<Handle> = (0..3).map(|_| to.create(bytes.clone())).collect();
        drop((bytes, from));
        for handle in handles {
            assert!(*to.read_one(handle).unwrap() == data[..]);
        }
    });
}

#[test]
fn a_transfer_out_of_a_capture_window_is_refused_and_does_the_window_no_harm() {
    guarded(|| {
        let client = device();
        for to in [client.fork(), device()] {
            let mut recording = client.fork();
            let src = recording.create(Bytes::from(vec![1; 64]));
            recording.graph_prepare().unwrap();
            recording.start_capture().unwrap();
            let dst = recording.to_client(src.clone(), &to, ElemType::U8);
            recording.stop_capture().unwrap();
            let error = to.read_one(dst.clone()).unwrap_err();
            assert!(roots(&error).iter().all(|e| matches!(e, ServerError::Graph { .. })), "{error}");
            let again = recording.to_client(src, &to, ElemType::U8);
            assert_eq!(to.read_one(again).unwrap()[..], [1; 64]);
        }
    });
}

#[test]
fn a_transfer_into_a_capture_window_dooms_it() {
    guarded(|| {
        let client = device();
        for mut from in [client.fork(), device()] {
            let recording = client.fork();
            let src = from.create(Bytes::from(vec![1; 64]));
            recording.graph_prepare().unwrap();
            recording.start_capture().unwrap();
            let dst = from.to_client(src, &recording, ElemType::U8);
            assert!(recording.stop_capture().is_err());
            assert!(recording.read_one(dst).is_err());
        }
    });
}
