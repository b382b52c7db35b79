//! Where the members of a collective meet, whichever comes first.
//!
//! The n-th call of each member for one group belongs together. All that the members owe each other in a call is a set
//! of one-shot channels, made by the first that calls; each takes its ends and waits for nobody.

use crate::client::shipment::Shipment;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::task::Poll;
use vkactor_actors::error::{IoError, ServerError};
use vkactor_actors::id::{ActorId, DeviceId};
use vkactor_actors::properties::ElemType;
use vkactor_actors::registry::Peer;
use vkactor_actors::reply::{Answer, Reply, reply};

use super::ReduceOperation;

/// What a member asks for, which all have to agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) bytes: u64,
    pub(super) dtype: ElemType,
    pub(super) op: ReduceOperation,
}

/// What one member gives another.
pub(super) struct Parcel {
    pub(super) terms: Terms,
    pub(super) shipment: Result<Shipment, ServerError>,
}

/// The devices of a collective in the order of their ids, and which of them this one is.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) peers: Vec<Peer>,
    pub(super) own: usize,
}

/// What one member sends to and gets from another.
pub(super) struct Link {
    /// Its part of the source, and later this member's part of the result, to the other.
    pub(super) source: Reply<Parcel>,
    pub(super) result: Reply<Parcel>,
    /// The same from the other.
    pub(super) their_source: Answer<Parcel>,
    pub(super) their_result: Answer<Parcel>,
}

/// Links of one member by the place of the other; none to itself.
pub(super) type Links = Vec<Option<Link>>;

impl Members {
    /// This member's links for its next call. Waits for nobody.
    pub(super) fn join(&self) -> Links {
        let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
        // What its members still owe will not come; those who wait are told by the end of the member itself.
        groups.retain(|_, group| !group.peers.iter().any(Peer::has_ended));
        let key: Vec<ActorId> = self.peers.iter().map(Peer::actor).collect();
        let count = self.peers.len();
        let blank = || Group { peers: self.peers.clone(), calls: vec![0; count], open: HashMap::new() };
        let group = groups.entry(key).or_insert_with(blank);
        let call = group.calls[self.own];
        group.calls[self.own] += 1;
        let waiting = group.open.entry(call).or_insert_with(|| links(count).into_iter().map(Some).collect());
        let Some(links) = waiting[self.own].take() else { unreachable!("a member comes once to each call") };
        if waiting.iter().all(Option::is_none) {
            group.open.remove(&call);
        }
        links
    }

    /// What the peer at this place ships, once it has come. The end of any member ends the wait: a call that it had not
    /// come to is refused by those who come later, and this one's own device finishes what was sent before it stops.
    pub(super) fn receive(
        &self,
        from: usize,
        parcel: Answer<Parcel>,
        terms: Terms,
    ) -> impl Future<Output = Result<Shipment, ServerError>> + Send + use<> {
        let (peers, own) = (self.peers.clone(), self.own);
        async move {
            let Parcel { terms: theirs, shipment } = first_of(parcel.wait(), &peers).await?;
            if theirs != terms {
                let [here, there] = [own, from].map(|place| peers[place].service().device);
                let reason = format!("all_reduce with {terms:?} on {here:?} and with {theirs:?} on {there:?}");
                return Err(IoError::Unsupported(reason).into());
            }
            shipment
        }
    }
}

/// The value, unless a member ends before there is one.
async fn first_of<T>(value: impl Future<Output = Result<T, ServerError>>, peers: &[Peer]) -> Result<T, ServerError> {
    let mut value = pin!(value);
    let mut ends: Vec<_> = peers.iter().map(|peer| Box::pin(peer.ended())).collect();
    let found = poll_fn(|context| {
        // What was sent counts, even if its sender is gone by now.
        if let Poll::Ready(value) = value.as_mut().poll(context) {
            return Poll::Ready(value.ok());
        }
        let ended = ends.iter_mut().any(|end| end.as_mut().poll(context).is_ready());
        if ended { Poll::Ready(None) } else { Poll::Pending }
    });
    found.await.ok_or_else(|| match peers.iter().find(|peer| peer.has_ended()) {
        Some(peer) => left_out(peer.service().device),
        None => ServerError::Closed,
    })
}

fn left_out(device: DeviceId) -> ServerError {
    let DeviceId { type_id, index_id } = device;
    ServerError::DeviceLost { reason: format!("device {type_id}:{index_id} ended before a collective was through") }
}

/// All links of one call, by member.
fn links(count: usize) -> Vec<Links> {
    let mut all: Vec<Links> = (0..count).map(|_| (0..count).map(|_| None).collect()).collect();
    for (a, b) in (0..count).flat_map(|a| (0..a).map(move |b| (a, b))) {
        let (of_a, of_b) = pair();
        (all[a][b], all[b][a]) = (Some(of_a), Some(of_b));
    }
    all
}

/// The two ends of what two members owe each other.
fn pair() -> (Link, Link) {
    let ((source, their_source), (result, their_result)) = (reply(), reply());
    let ((back_source, our_source), (back_result, our_result)) = (reply(), reply());
    let there = Link { source: back_source, result: back_result, their_source, their_result };
    (Link { source, result, their_source: our_source, their_result: our_result }, there)
}

/// Calls of one set of devices that not all members have come to.
struct Group {
    peers: Vec<Peer>,
    /// Calls of each member so far.
    calls: Vec<u64>,
    /// By the number of the call: the links of members that have not come.
    open: HashMap<u64, Vec<Option<Links>>>,
}

/// By the runs of the members, so that a device that was started afresh is another member.
static GROUPS: LazyLock<Mutex<HashMap<Vec<ActorId>, Group>>> = LazyLock::new(Mutex::default);
