//! What cannot be brought about from outside: a device that is lost, and one that does not move.

use super::*;
use crate::{Vulkan, VulkanOptions, list};
use std::any::TypeId;
use std::time::Instant;
use vkactor_actors::id::ServiceId;
use vkactor_actors::mailbox::{Inbox, mailbox};
use vkactor_actors::server::Server;

/// A liveness guard: no test takes a tenth of it.
const PATIENCE: Duration = Duration::from_secs(30);

fn device() -> (VulkanDevice, Inbox) {
    let id = list(false).unwrap()[0].id;
    let options = VulkanOptions { pipeline_cache: None, ..VulkanOptions::default() };
    let mut device = Vulkan::open_with(id, &options).unwrap().into_device();
    let (sender, inbox) = mailbox(ServiceId { device: id, service: TypeId::of::<Vulkan>() }, 1);
    device.start(sender);
    (device, inbox)
}

/// Events until one is `enough`.
fn wait_for(inbox: &Inbox, enough: impl Fn(&Event) -> bool) -> Vec<Event> {
    let started = Instant::now();
    let mut all = Vec::new();
    while !all.iter().any(&enough) {
        assert!(started.elapsed() < PATIENCE, "only {all:?}");
        let mut some = Vec::new();
        inbox.take(&mut some);
        all.append(&mut some);
        std::thread::yield_now();
    }
    all
}

#[test]
fn a_lost_device_says_so_to_everyone() {
    let (mut device, inbox) = device();
    device.allocate_page(PageId(0), 64, PageKind::Upload).unwrap();
    device.watch(TimelineValue(1));
    let lost = device.shared.lose_because("on purpose".into());
    assert_eq!(lost, DeviceError::Lost("on purpose".into()));
    assert_eq!(device.shared.lose_because("again".into()), lost, "the first reason is kept");
    let span = Span { page: PageId(0), offset: 0, size: 64 };
    assert_eq!(device.record(&Commands::default()), Err(lost.clone()));
    assert_eq!(device.submit(TimelineValue(1)), Err(lost.clone()));
    assert_eq!(device.reached(), Err(lost.clone()));
    assert_eq!(device.probe(), Err(lost.clone()));
    assert_eq!(device.allocate_page(PageId(1), 64, PageKind::Device), Err(lost.clone()));
    assert_eq!(device.seal(GraphId(0), &Commands::default(), None), Err(lost));
    wait_for(&inbox, |event| matches!(event, Event::Lost(reason) if reason == "on purpose"));
    // What it has can still be given back.
    drop(device.pinned(span));
    device.free_page(PageId(0));
}

#[test]
fn a_wait_without_progress_is_reported_again_and_again() {
    let (mut device, inbox) = device();
    device.watch(TimelineValue(1));
    let mut stalls = 0;
    let mut last = Duration::ZERO;
    while stalls < 3 {
        for event in wait_for(&inbox, |event| matches!(event, Event::Stalled(_))) {
            let Event::Stalled(total) = event else { panic!("{event:?}") };
            assert!(total > last, "{total:?} after {last:?}");
            last = total;
            stalls += 1;
        }
    }
    device.submit(TimelineValue(1)).unwrap();
    wait_for(&inbox, |event| matches!(event, Event::Progress(TimelineValue(1))));
}

#[test]
fn a_device_that_takes_no_timestamps_is_timed_by_the_host() {
    let (mut device, inbox) = device();
    device.recorder.timestamps.forget_the_device();
    let span = Span { page: PageId(0), offset: 0, size: 32 << 20 };
    device.allocate_page(PageId(0), span.size, PageKind::Device).unwrap();
    let [before, behind, idle] = [0, 1, 2].map(TimestampSlot);
    let mut commands = Commands::default();
    commands.list.push(Command::Timestamp(before));
    for _ in 0..4 {
        commands.list.extend([Command::Zero(span), Command::Barrier]);
    }
    commands.list.extend([Command::Timestamp(behind), Command::Timestamp(idle)]);
    for value in 1..4 {
        let started = Instant::now();
        device.record(&commands).unwrap();
        device.submit(TimelineValue(value)).unwrap();
        let wall = started.elapsed().as_nanos() as u64;
        let [before, behind, idle] = [before, behind, idle].map(|slot| device.timestamp_ns(slot).unwrap());
        assert!(before < behind && behind <= idle && idle - before <= wall, "{before} {behind} {idle} {wall}");
        assert!(behind - before > idle - behind, "the work lies between the first two: {before} {behind} {idle}");
        let moment = device.moment().unwrap();
        assert!(moment.device_ns >= idle && moment.error.is_zero());
    }
    device.watch(TimelineValue(3));
    wait_for(&inbox, |event| matches!(event, Event::Progress(TimelineValue(3))));
}
