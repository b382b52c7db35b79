//! What one actor learns of the end of another.

use crate::error::ServerError;
use crate::id::{DeviceId, Holder, ServiceId, StreamId};
use crate::message::Body;
use crate::registry::{ActorOptions, peer, runs, start};
use crate::reply::reply;
use crate::sim::{Fault, SimControl, SimDevice, SimOptions};
use crate::wait::block_on;
use std::any::TypeId;
use std::sync::Arc;

/// A running actor of this index, and its device.
fn running(index: u16) -> (Arc<crate::registry::ActorRef>, SimControl, ServiceId) {
    let device = SimDevice::new(SimOptions::default());
    let control = device.control();
    let id = DeviceId::new(0x9ee5, index);
    let actor = start(id, device, &ActorOptions::default()).unwrap();
    (actor, control, ServiceId { device: id, service: TypeId::of::<SimDevice>() })
}

#[test]
fn a_lost_device_ends_the_wait_of_its_peers_and_is_a_peer_no_more() {
    let (actor, control, service) = running(1);
    let seen = peer(service).unwrap();
    assert!(seen.actor() == actor.mailbox().actor() && !seen.has_ended() && runs(service.device));
    control.inject(Fault::Commands(0));
    let (send, answer) = reply();
    actor.mailbox().send(StreamId::DEFAULT, Body::Flush { reply: send });
    let buffer = crate::id::BufferId::fresh();
    actor.mailbox().send(StreamId::DEFAULT, Body::Reserve { buffer, size: 4, wait: None, holder: Holder::current() });
    let range = crate::message::BufferRange { buffer, offset: 0, size: 4 };
    let rows = crate::tensor::Rows::contiguous(4);
    let write = Body::Write { to: range, rows, bytes: vec![1; 4].into(), budget: 0, placed: false };
    actor.mailbox().send(StreamId::DEFAULT, write);
    block_on(seen.ended());
    assert!(seen.has_ended() && peer(service).is_none() && !runs(service.device));
    // The first flush came before the loss was known, or behind it.
    assert!(matches!(block_on(answer.wait()), Ok(Ok(()) | Err(ServerError::DeviceLost { .. }))));
}

#[test]
fn an_actor_whose_clients_are_gone_ends_the_wait_of_its_peers() {
    let (actor, _control, service) = running(2);
    let seen = peer(service).unwrap();
    let waiting = std::thread::spawn({
        let seen = seen.clone();
        move || block_on(seen.ended())
    });
    drop(actor);
    waiting.join().unwrap();
    block_on(seen.ended());
    assert!(peer(service).is_none());
    let (again, _control, _) = running(2);
    assert_ne!(peer(service).unwrap().actor(), seen.actor(), "a new run is another peer");
    drop(again);
}

#[test]
fn an_actor_that_is_told_to_stop_is_a_peer_no_more() {
    let (actor, _control, service) = running(3);
    let seen = peer(service).unwrap();
    block_on(actor.stop());
    assert!(seen.has_ended() && peer(service).is_none());
}
