//! Reductions over several devices.

use super::model::{OPERATIONS, TYPES, assert_same, elements, reduced};
use super::*;

/// Logical devices with a transport between them, in the order of their ids; none where the driver has no transport.
fn members(count: usize) -> Option<Vec<Client>> {
    let mut members: Vec<Client> = (0..count).map(|_| device()).collect();
    if !members[0].has_device_transport() {
        skip("the device has no transport");
        return None;
    }
    members.sort_by_key(|client| client.service_id().device);
    Some(members)
}

fn ids(members: &[Client]) -> Vec<DeviceId> {
    members.iter().map(|client| client.service_id().device).collect()
}

/// Whether a device computes with a type; all but f64 are put together where it does not.
fn takes(client: &Client, dtype: ElemType) -> bool {
    dtype != ElemType::F64 || client.features().types.contains(&dtype)
}

/// How the buffers of a reduction lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    InPlace,
    Apart,
    /// Inside larger buffers, so many bytes from their starts.
    Within(usize, usize),
}

const MARGIN: usize = 64;

/// Reduces `inputs` and compares with the model, bytes beside the destination too.
fn check(members: &[Client], dtype: ElemType, op: ReduceOperation, count: usize, lie: Lie, random: &mut Random) {
    let what = format!("{op:?} of {count} {dtype:?} over {}, {lie:?}", members.len());
    let inputs: Vec<Vec<u8>> = members.iter().map(|_| elements(random, dtype, count)).collect();
    let ids = ids(members);
    let bytes = count * dtype.size();
    let mut results = Vec::new();
    for (client, input) in members.iter().zip(&inputs) {
        let mut client = client.clone();
        let within = |at: usize, bytes: &[u8]| {
            let mut all = vec![0xaa; at + bytes.len() + MARGIN];
            all[at..][..bytes.len()].copy_from_slice(bytes);
            client.create(Bytes::from(all))
        };
        let part = |whole: &Handle, at: usize| whole.clone().offset_start(at as u64).offset_end(MARGIN as u64);
        let (src, whole, dst) = match lie {
            Lie::InPlace => {
                let both = client.create(Bytes::from(input.clone()));
                (both.clone(), both.clone(), both)
            }
            Lie::Apart => {
                let dst = client.empty(bytes);
                (client.create(Bytes::from(input.clone())), dst.clone(), dst)
            }
            Lie::Within(source, target) => {
                let whole = within(target, &vec![0xaa; bytes]);
                (part(&within(source, input), source), whole.clone(), part(&whole, target))
            }
        };
        client.all_reduce(src, dst.clone(), dtype, ids.clone(), op);
        results.push((whole, dst));
    }
    let expected = reduced(dtype, op, &inputs);
    let mut first = None;
    for (client, (whole, dst)) in members.iter().zip(results) {
        let found = client.read_one(dst).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_same(&what, dtype, op, &found, &expected);
        assert!(first.get_or_insert_with(|| found.clone())[..] == found[..], "{what}: the members differ");
        if let Lie::Within(_, target) = lie {
            let whole = client.read_one(whole).unwrap();
            let beside = whole[..target].iter().chain(&whole[target + bytes..]);
            assert!(beside.copied().all(|byte| byte == 0xaa), "{what}: bytes beside were written");
        }
    }
}

#[test]
fn every_operation_on_every_type_equals_the_host() {
    guarded(|| {
        let Some(members) = members(3) else { return };
        let mut random = Random::new(1);
        for dtype in TYPES.into_iter().filter(|&dtype| takes(&members[0], dtype)) {
            for op in OPERATIONS {
                if (dtype, op) == (ElemType::Bool, ReduceOperation::Mean) {
                    continue;
                }
                for (count, lie) in [(0, Lie::Apart), (1, Lie::InPlace), (203, Lie::InPlace), (1001, Lie::Apart)] {
                    check(&members, dtype, op, count, lie, &mut random);
                }
            }
        }
    });
}

#[test]
fn groups_of_any_size_and_buffers_that_lie_anyhow_reduce_exactly() {
    guarded(|| {
        let Some(members) = members(8) else { return };
        let mut random = Random::new(2);
        let lies = [Lie::InPlace, Lie::Apart, Lie::Within(256, 256), Lie::Within(8, 24), Lie::Within(3, 5)];
        for count in [1, 2, 5, 8] {
            for lie in lies {
                for dtype in [ElemType::U8, ElemType::I16, ElemType::F32, ElemType::I64] {
                    let op = OPERATIONS[random.below(5)];
                    let elements = random.below(3000);
                    check(&members[..count], dtype, op, elements, lie, &mut random);
                }
            }
        }
    });
}

#[test]
fn every_half_is_widened_and_rounded_as_the_host_does() {
    guarded(|| {
        let Some(members) = members(2) else { return };
        for dtype in [ElemType::F16, ElemType::BF16] {
            let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_ne_bytes).collect();
            let turned: Vec<u8> = (0..=u16::MAX).flat_map(|x| x.wrapping_mul(40_503).to_ne_bytes()).collect();
            // Sums of bf16 near zero are below what an f32 of every device holds.
            let keep = |x: &[u8]| dtype == ElemType::F16 || x[1] & 0x7f > 0x10;
            let kept = all.chunks(2).zip(turned.chunks(2)).filter(|(a, b)| keep(a) && keep(b));
            let (a, b): (Vec<&[u8]>, Vec<&[u8]>) = kept.unzip();
            let inputs = [a.concat(), b.concat()];
            let results: Vec<Handle> = members
                .iter()
                .zip(&inputs)
                .map(|(client, input)| {
                    let handle = client.create(Bytes::from(input.clone()));
                    client.clone().all_reduce(
                        handle.clone(),
                        handle.clone(),
                        dtype,
                        ids(&members),
                        ReduceOperation::Sum,
                    );
                    handle
                })
                .collect();
            let expected = reduced(dtype, ReduceOperation::Sum, &inputs);
            for (client, result) in members.iter().zip(results) {
                let found = client.read_one(result).unwrap();
                assert_same("a half", dtype, ReduceOperation::Sum, &found, &expected);
            }
        }
    });
}

#[test]
fn large_reductions_go_in_pieces() {
    guarded(|| {
        let Some(members) = members(2) else { return };
        let words = (40 << 20) / 4 + 3;
        let handles: Vec<Handle> = members
            .iter()
            .zip([1u32, 10])
            .map(|(client, value)| {
                let values = (0..words).map(|i| value * (i % 1000)).collect();
                let handle = client.create(Bytes::from_elems::<u32>(values));
                client.clone().all_reduce(
                    handle.clone(),
                    handle.clone(),
                    ElemType::U32,
                    ids(&members),
                    ReduceOperation::Sum,
                );
                handle
            })
            .collect();
        for (client, handle) in members.iter().zip(handles) {
            let found: Vec<u32> = client.read_one(handle).unwrap().try_into_vec().unwrap();
            assert!(found.into_iter().zip(0..words).all(|(found, i)| found == 11 * (i % 1000)));
        }
    });
}

#[test]
fn a_thousand_random_transfers_and_reductions_between_three_devices_equal_the_host() {
    const STEPS: usize = 1000;
    const BUFFERS: usize = 3;
    guarded(|| {
        let Some(mut members) = members(3) else { return };
        let mut random = Random::new(4);
        let ids = ids(&members);
        let mut model: Vec<Vec<Vec<u8>>> =
            (0..3).map(|_| (0..BUFFERS).map(|_| elements(&mut random, ElemType::U32, 300)).collect()).collect();
        let mut handles: Vec<Vec<Handle>> = members
            .iter()
            .zip(&model)
            .map(|(client, model)| model.iter().map(|bytes| client.create(Bytes::from(bytes.clone()))).collect())
            .collect();
        for _ in 0..STEPS {
            let (from, to) = (random.below(3), random.below(3));
            let (a, b) = (random.below(BUFFERS), random.below(BUFFERS));
            match random.below(4) {
                0 => {
                    let (dtype, op) = (TYPES[4 + random.below(8)], OPERATIONS[random.below(5)]);
                    let result = reduced(dtype, op, &model.iter().map(|device| device[a].clone()).collect::<Vec<_>>());
                    for (place, client) in members.iter_mut().enumerate() {
                        let (src, dst) = (handles[place][a].clone(), handles[place][b].clone());
                        client.all_reduce(src, dst, dtype, ids.clone(), op);
                        model[place][b] = result.clone();
                    }
                }
                1 => {
                    let bytes = elements(&mut random, ElemType::U32, 300);
                    members[to].write(&handles[to][b], Bytes::from(bytes.clone()));
                    model[to][b] = bytes;
                }
                _ => {
                    let there = members[to].clone();
                    handles[to][b] = members[from].to_client(handles[from][a].clone(), &there, ElemType::U32);
                    model[to][b] = model[from][a].clone();
                }
            }
        }
        for (place, client) in members.iter().enumerate() {
            client.sync_collective();
            for (handle, expected) in handles[place].iter().zip(&model[place]) {
                assert!(*client.read_one(handle.clone()).unwrap() == expected[..], "device {place}");
            }
        }
    });
}

#[test]
fn a_spoiled_source_spoils_every_destination_once() {
    guarded(|| {
        let Some(members) = members(3) else { return };
        for bytes in [4, 4096] {
            let destinations: Vec<Handle> = members
                .iter()
                .enumerate()
                .map(|(place, client)| {
                    let src =
                        if place == 1 { spoiled(client, bytes) } else { client.create(Bytes::from(vec![1; bytes])) };
                    let dst = client.create(Bytes::from(vec![0; bytes]));
                    client.clone().all_reduce(src, dst.clone(), ElemType::U32, ids(&members), ReduceOperation::Max);
                    dst
                })
                .collect();
            for (client, dst) in members.iter().zip(destinations) {
                client.sync_collective();
                let error = client.read_one(dst.clone()).unwrap_err();
                let roots = roots(&error);
                assert!(roots.len() == 1 && is_compilation(roots[0]), "{error:?}");
                client.write(&dst, Bytes::from(vec![5; bytes]));
                assert!(client.read_one(dst).unwrap().iter().all(|&byte| byte == 5));
            }
        }
    });
}

/// What each member asks for, by its place.
fn ask(members: &[Client], call: impl Fn(usize, &mut Client, Vec<DeviceId>) -> Handle) -> Vec<ServerError> {
    let destinations: Vec<Handle> =
        members.iter().enumerate().map(|(place, client)| call(place, &mut client.clone(), ids(members))).collect();
    members.iter().zip(destinations).map(|(client, dst)| client.read_one(dst).unwrap_err()).collect()
}

#[test]
fn members_that_disagree_all_fail_and_agree_the_next_time() {
    guarded(|| {
        let Some(members) = members(3) else { return };
        type Terms = (usize, ElemType, ReduceOperation);
        let disagreements: [fn(usize) -> Terms; 3] = [
            |place| (if place == 2 { 8 } else { 4096 }, ElemType::U32, ReduceOperation::Sum),
            |place| (4096, if place == 1 { ElemType::F32 } else { ElemType::U32 }, ReduceOperation::Sum),
            |place| (8, ElemType::U32, if place == 0 { ReduceOperation::Min } else { ReduceOperation::Max }),
        ];
        for terms in disagreements {
            let errors = ask(&members, |place, client, ids| {
                let (bytes, dtype, op) = terms(place);
                let handle = client.create(Bytes::from(vec![1; bytes]));
                client.all_reduce(handle.clone(), handle.clone(), dtype, ids, op);
                handle
            });
            for error in errors {
                assert!(error.to_string().contains("all_reduce with"), "{error}");
            }
            check(&members, ElemType::U32, ReduceOperation::Sum, 100, Lie::Apart, &mut Random::new(5));
        }
    });
}

#[test]
fn what_one_member_is_refused_is_told_to_all() {
    guarded(|| {
        let Some(members) = members(2) else { return };
        let foreign = host().create(Bytes::from(vec![1; 8]));
        type Call<'a> = &'a dyn Fn(&Client) -> (Handle, ElemType, ReduceOperation);
        let calls: [Call<'_>; 4] = [
            &|_| (foreign.clone(), ElemType::U32, ReduceOperation::Sum),
            &|client| (client.empty(4), ElemType::U32, ReduceOperation::Sum),
            &|client| (client.empty(8).offset_start(16), ElemType::U32, ReduceOperation::Sum),
            &|client| (client.empty(8), ElemType::Bool, ReduceOperation::Mean),
        ];
        for call in calls {
            let errors = ask(&members, |place, client, ids| {
                let dst = client.create(Bytes::from(vec![0; 8]));
                let (src, dtype, op) = match place {
                    0 => call(client),
                    _ => (client.create(Bytes::from(vec![0; 8])), ElemType::U32, ReduceOperation::Sum),
                };
                client.all_reduce(src, dst.clone(), dtype, ids, op);
                dst
            });
            assert_eq!(errors.len(), 2);
        }
        // Sizes that are no multiple of an element.
        let errors = ask(&members, |_, client, ids| {
            let handle = client.create(Bytes::from(vec![0; 6]));
            client.all_reduce(handle.clone(), handle.clone(), ElemType::F32, ids, ReduceOperation::Sum);
            handle
        });
        assert!(errors.iter().all(|error| error.to_string().contains("6 bytes")), "{errors:?}");
        check(&members, ElemType::U32, ReduceOperation::Sum, 100, Lie::Apart, &mut Random::new(5));
    });
}

#[test]
fn groups_that_make_no_sense_are_refused_at_once() {
    guarded(|| {
        let (mut client, host) = (device(), host());
        let (own, other) = (client.service_id().device, host.service_id().device);
        let stopped = unused_id();
        for (group, no_transport) in [
            (vec![], false),
            (vec![own, own], false),
            (vec![stopped], false),
            (vec![own, stopped], !client.has_device_transport()),
            (vec![own, other], true),
        ] {
            let dst = client.create(Bytes::from(vec![2; 4]));
            let src = client.create(Bytes::from(vec![1; 4]));
            client.all_reduce(src.clone(), dst.clone(), ElemType::U32, group.clone(), ReduceOperation::Sum);
            let error = client.check([&dst]).unwrap_err();
            let found = roots(&error).iter().all(|e| matches!(e, ServerError::NoDeviceTransport { .. }));
            assert_eq!(found, no_transport, "{group:?}: {error}");
            assert_eq!(client.read_one(src).unwrap()[..], [1; 4]);
            client.sync_collective();
        }
        for other in other_drivers().into_iter().filter(|other| !other.has_device_transport()) {
            let dst = client.create(Bytes::from(vec![2; 4]));
            let group = vec![own, other.service_id().device];
            client.all_reduce(dst.clone(), dst.clone(), ElemType::U32, group, ReduceOperation::Sum);
            let error = client.check([&dst]).unwrap_err();
            assert!(matches!(roots(&error)[..], [ServerError::NoDeviceTransport { .. }]), "{error}");
        }
    });
}

#[test]
fn a_member_that_stops_before_it_has_called_ends_the_collective_everywhere() {
    guarded(|| {
        let Some(mut members) = members(3) else { return };
        let all = ids(&members);
        let gone = members.remove(1);
        let id = gone.service_id().device;
        let destinations: Vec<Handle> = members
            .iter_mut()
            .map(|client| {
                let handle = client.create(Bytes::from(vec![1; 4096]));
                client.all_reduce(handle.clone(), handle.clone(), ElemType::U32, all.clone(), ReduceOperation::Sum);
                handle
            })
            .collect();
        drop(gone);
        for (client, dst) in members.iter().zip(destinations) {
            client.sync_collective();
            let error = client.read_one(dst).unwrap_err().to_string();
            assert!(error.contains(&format!("{}:{}", id.type_id, id.index_id)), "{error}");
        }
        check(&members, ElemType::U32, ReduceOperation::Sum, 100, Lie::Apart, &mut Random::new(6));
    });
}

#[test]
fn a_member_that_stops_ends_the_wait_for_others_that_are_refused_then() {
    guarded(|| {
        let Some(mut members) = members(3) else { return };
        let all = ids(&members);
        let handles: Vec<Handle> = members.iter().map(|client| client.create(Bytes::from(vec![1; 4096]))).collect();
        let call = |client: &Client, handle: &Handle| {
            let (mut client, handle) = (client.clone(), handle.clone());
            client.all_reduce(handle.clone(), handle, ElemType::U32, all.clone(), ReduceOperation::Sum);
        };
        call(&members[0], &handles[0]);
        drop(members.pop());
        let found = members[0].read_one(handles[0].clone()).unwrap_err();
        assert!(roots(&found).iter().all(|e| matches!(e, ServerError::DeviceLost { .. })), "{found:?}");
        call(&members[1], &handles[1]);
        let error = members[1].read_one(handles[1].clone()).unwrap_err();
        assert!(error.to_string().contains("does not run"), "{error}");
    });
}

#[test]
fn a_member_that_stops_after_its_call_is_done_with_it_first() {
    guarded(|| {
        let Some(mut members) = members(2) else { return };
        let all = ids(&members);
        let second = members.remove(1);
        for client in [&second, &members[0]] {
            let handle = client.create(Bytes::from(vec![1; 4096]));
            client.clone().all_reduce(handle.clone(), handle.clone(), ElemType::U8, all.clone(), ReduceOperation::Sum);
        }
        // A pending call of a member that goes ends by itself, so that the device can stop.
        let lonely = second.create(Bytes::from(vec![1; 64]));
        second.clone().all_reduce(lonely.clone(), lonely.clone(), ElemType::U8, all, ReduceOperation::Sum);
        drop((lonely, second));
        assert!(members[0].read_one(members[0].create(Bytes::from(vec![3; 4]))).is_ok());
    });
}

#[test]
fn many_calls_of_one_member_wait_for_the_other_without_holding_its_caller() {
    const CALLS: usize = 400;
    guarded(|| {
        let Some(members) = members(2) else { return };
        let handles: Vec<Handle> = members
            .iter()
            .map(|client| {
                let handle = client.create(Bytes::from_elems(vec![1u64; 40]));
                for _ in 0..CALLS {
                    client.clone().all_reduce(
                        handle.clone(),
                        handle.clone(),
                        ElemType::U64,
                        ids(&members),
                        ReduceOperation::Sum,
                    );
                }
                handle
            })
            .collect();
        for (client, handle) in members.iter().zip(handles) {
            let found: Vec<u64> = client.read_one(handle).unwrap().try_into_vec().unwrap();
            // Each doubles; 2⁴⁰⁰ is a multiple of 2⁶⁴.
            assert!(found.into_iter().all(|word| word == 0));
        }
    });
}

#[test]
fn members_may_be_driven_by_threads_of_their_own() {
    guarded(|| {
        let Some(members) = members(3) else { return };
        let ids = ids(&members);
        std::thread::scope(|scope| {
            for client in &members {
                scope.spawn(|| {
                    let mut client = client.fork();
                    for round in 0..50u32 {
                        let handle = client.create(Bytes::from_elems(vec![round; 500]));
                        client.all_reduce(
                            handle.clone(),
                            handle.clone(),
                            ElemType::U32,
                            ids.clone(),
                            ReduceOperation::Sum,
                        );
                        client.sync_collective();
                        let found: Vec<u32> = client.read_one(handle).unwrap().try_into_vec().unwrap();
                        assert_eq!(found, [3 * round; 500]);
                    }
                });
            }
        });
    });
}
