//! Bytes that are staged, on the default Vulkan device.

use vkactor::{AllocationProperty, Bytes, Client, Compute, DeviceId, Handle, Host};

/// Memory that nobody may write to.
static CONSTANT: [u8; 5 << 20] = [9; 5 << 20];

#[test]
fn large_bytes_are_staged_where_they_lie() {
    let compute = Compute::new().unwrap();
    let client = compute.default_client().unwrap();
    let values: Vec<u8> = (0..(9 << 20) + 3).map(|i: u32| (i.wrapping_mul(0x9E37_79B9) >> 13) as u8).collect();
    for original in [Bytes::from(values.clone()), bytes::Bytes::from_static(&CONSTANT).into()] {
        let (place, expected) = (original.as_ptr(), original.to_vec());
        let mut staged = original.clone();
        client.staging(std::iter::once(&mut staged), false);
        assert_eq!(staged.property(), AllocationProperty::Pinned);
        if client.features().host_import && original.len() == values.len() {
            assert_eq!(staged.as_ptr(), place, "nothing was copied");
        }
        assert!(staged[..] == expected[..]);
        let handles: Vec<Handle> = (0..3).map(|_| client.create(staged.clone())).collect();
        // The device may be copying: the memory stays until it is done.
        drop((staged, original));
        for handle in handles {
            assert!(client.read_one(handle).unwrap()[..] == expected[..]);
        }
    }
}

#[test]
fn bytes_that_one_device_staged_are_good_for_another() {
    let client = Compute::new().unwrap().default_client().unwrap();
    let host = Client::init(DeviceId::new(0x57a6, 1), Host::new());
    let mut staged = Bytes::from(vec![5u8; 6 << 20]);
    client.staging(std::iter::once(&mut staged), false);
    let (here, there) = (client.create(staged.clone()), host.create(staged));
    assert!(client.read_one(here).unwrap().iter().all(|&byte| byte == 5));
    assert!(host.read_one(there).unwrap().iter().all(|&byte| byte == 5));
}
