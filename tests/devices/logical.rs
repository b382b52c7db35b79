//! One device of the machine as several.

use super::*;

#[test]
fn logical_devices_have_actors_and_memory_of_their_own() {
    guarded(|| {
        let compute = Compute::builder().validation(is_validating()).logical_devices(3).build().unwrap();
        let physical = super::compute().devices().len();
        assert_eq!(compute.devices().len(), 3 * physical);
        let ids: Vec<DeviceId> = [0, physical, 2 * physical].map(|place| compute.devices()[place].id).to_vec();
        let clients: Vec<Client> = ids.iter().map(|&id| compute.client(id).unwrap()).collect();
        for (client, &id) in clients.iter().zip(&ids) {
            assert_eq!(client.service_id().device, id);
            assert_eq!(compute.inventory(id).unwrap().heaps.len(), compute.inventory(ids[0]).unwrap().heaps.len());
        }
        let before = clients[1].memory_usage();
        let handle = clients[2].create(Bytes::from(vec![1; 1 << 20]));
        assert!(clients[2].memory_usage().bytes_in_use >= 1 << 20);
        assert_eq!(clients[1].memory_usage(), before);
        assert!(matches!(clients[1].read_one(handle.clone()), Err(ServerError::ForeignHandle { .. })));
        let mut from = clients[2].clone();
        let there = from.to_client(handle, &clients[1], ElemType::U8);
        assert!(clients[1].read_one(there).unwrap().iter().all(|&byte| byte == 1));
        let unknown = DeviceId::new(ids[0].type_id, (3 * physical) as u16);
        assert!(matches!(compute.client(unknown), Err(ComputeError::UnknownDevice(_))));
        futures::executor::block_on(compute.shutdown()).unwrap();
    });
}

/// A caller that is held back by work which waits for a member that he calls next would wait for ever.
#[test]
fn the_budget_of_launches_does_not_hold_a_caller_of_collectives_back() {
    guarded(|| {
        let builder = Compute::builder().validation(is_validating()).logical_devices(5).max_in_flight(2);
        let compute = builder.build().unwrap();
        let physical = super::compute().devices();
        let place = physical.iter().position(|info| info.id == default_id()).unwrap();
        let copies = [3, 4].map(|copy| compute.devices()[copy * physical.len() + place].id);
        let clients = copies.map(|id| compute.client(id).unwrap());
        if !clients[0].has_device_transport() {
            return skip("the device has no transport");
        }
        let ids: Vec<DeviceId> = clients.iter().map(|client| client.service_id().device).collect();
        let handles: Vec<Handle> = clients.iter().map(|c| c.create(Bytes::from_elems(vec![1u32; 300]))).collect();
        for (client, handle) in clients.iter().zip(&handles) {
            for _ in 0..10 {
                let (mut client, handle) = (client.clone(), handle.clone());
                client.all_reduce(handle.clone(), handle, ElemType::U32, ids.clone(), ReduceOperation::Sum);
            }
        }
        for (client, handle) in clients.iter().zip(handles) {
            let found: Vec<u32> = client.read_one(handle).unwrap().try_into_vec().unwrap();
            assert_eq!(found, [1 << 10; 300]);
        }
        // A member that never calls keeps nobody from stopping.
        let handle = clients[0].create(Bytes::from_elems(vec![1u32; 300]));
        clients[0].clone().all_reduce(handle.clone(), handle.clone(), ElemType::U32, ids, ReduceOperation::Sum);
        let read = clients[0].read_one_async(handle);
        futures::executor::block_on(compute.shutdown()).unwrap();
        assert!(futures::executor::block_on(read).is_err());
    });
}
