//! Host memory that two devices share.

use super::*;

#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
}

/// Two logical devices: what one read back is copied by the other from where it lies.
#[test]
fn a_device_copies_from_the_host_memory_of_another() {
    let (mut from, mut to) = (Bench::new(&options()), Bench::new(&sets()));
    if !from.device.properties().features.host_import {
        return skip("the device imports no host memory");
    }
    let data: Vec<u32> = (0..1024).map(|i| i * 7 + 1).collect();
    from.upload(at(DATA, 0, 4096), &words(&data));
    from.copy(at(DATA, 4, 4000), at(OUT, 256, 4000));
    from.finish();
    let shown = from.device.pinned(at(OUT, 256, 4000));
    let found = shown.region().unwrap();
    assert!(to.device.adopt(PageId(99), &found.region), "the same driver takes its own memory");
    to.copy(at(PageId(99), found.offset, 4000), at(DATA, 12, 4000));
    to.barrier();
    to.copy(at(DATA, 12, 4000), at(OUT, 0, 4000));
    to.finish();
    assert_eq!(to.device.pinned(at(OUT, 0, 4000)).as_slice(), &words(&data)[4..4004]);
    // The memory stays for the one that took it in, whoever made it.
    drop((shown, from));
    to.copy(at(PageId(99), found.offset + 4, 8), at(DATA, 0, 8));
    to.barrier();
    to.copy(at(DATA, 0, 8), at(OUT, 0, 8));
    to.finish();
    assert_eq!(to.device.pinned(at(OUT, 0, 8)).as_slice(), words(&data[2..4]));
    to.device.free_page(PageId(99));
    check_silence();
}

#[test]
fn without_import_pages_lie_in_memory_of_the_driver() {
    let mut bench = Bench::new(&VulkanOptions { host_import: false, ..options() });
    let features = bench.device.properties().features;
    assert!(!features.host_import && !features.device_transport);
    bench.upload(at(DATA, 0, 8), &words(&[1, 2]));
    bench.copy(at(DATA, 0, 8), at(OUT, 0, 8));
    bench.finish();
    let shown = bench.device.pinned(at(OUT, 0, 8));
    assert_eq!(shown.as_slice(), words(&[1, 2]));
    assert!(shown.region().is_none());
    let other = Bench::new(&options());
    let theirs = other.device.pinned(at(OUT, 0, 8));
    assert!(theirs.region().is_none_or(|found| !bench.device.adopt(PageId(9), &found.region)));
    check_silence();
}
