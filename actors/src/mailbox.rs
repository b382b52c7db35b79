//! How an actor is reached: a queue that takes without blocking, and a budget that holds senders back.

use crate::error::ServerError;
use crate::id::{ActorId, ServiceId, StreamId};
use crate::message::{Body, Envelope, Event, LeaseId};
use crate::presence::Streams;
use crate::profile::Windows;
use crate::wait::block_on;
use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, Semaphore};

/// Bytes that one place of the budget for uploads stands for.
const BUDGET_GRANULE: usize = 1 << 10;
/// Bytes of uploads that may be on their way: ten milliseconds of an H200's bus (50 GB/s), so that it never runs dry.
const UPLOAD_BYTES_MAX: usize = 512 << 20;
/// Launches in flight where the builder sets no other number. A batch is at most 256 commands (see the engine), so
/// the device never starves; at 500 bytes a message the queue stays under 4 MiB.
pub const LAUNCHES_IN_FLIGHT: usize = 8192;

/// The sending end. Cloning is one atomic increment.
#[derive(Clone)]
pub struct Mailbox(Arc<Shared>);

struct Shared {
    actor: ActorId,
    service: ServiceId,
    queue: Mutex<Queue>,
    /// Events in the queue; read without the lock by an actor that spins.
    len: AtomicUsize,
    /// Set by an actor that is about to sleep: the next sender rings.
    asleep: AtomicBool,
    bell: Notify,
    launches: Semaphore,
    launches_max: usize,
    uploads: Semaphore,
    windows: Windows,
    streams: Streams,
}

struct Queue {
    events: Vec<Event>,
    closed: bool,
}

/// The receiving end: one actor's.
#[derive(Debug)]
pub struct Inbox(Mailbox);

thread_local! {
    /// The holds under which this thread calls, innermost last, and the actors that granted them. One thread may
    /// hold several devices.
    static LEASES: RefCell<Vec<(ActorId, LeaseId)>> = const { RefCell::new(Vec::new()) };
}

/// The two ends of a new mailbox. At most `launches_max` launches are in flight.
pub fn mailbox(service: ServiceId, launches_max: usize) -> (Mailbox, Inbox) {
    let launches_max = launches_max.clamp(1, Semaphore::MAX_PERMITS);
    let shared = Shared {
        actor: ActorId::fresh(),
        service,
        queue: Mutex::new(Queue { events: Vec::new(), closed: false }),
        len: AtomicUsize::new(0),
        asleep: AtomicBool::new(false),
        bell: Notify::new(),
        launches: Semaphore::new(launches_max),
        launches_max,
        uploads: Semaphore::new(UPLOAD_BYTES_MAX / BUDGET_GRANULE),
        windows: Windows::default(),
        streams: Streams::default(),
    };
    let mailbox = Mailbox(Arc::new(shared));
    (mailbox.clone(), Inbox(mailbox))
}

impl Mailbox {
    /// The run of the actor behind it.
    pub fn actor(&self) -> ActorId {
        self.0.actor
    }

    /// The service behind it.
    pub fn service(&self) -> ServiceId {
        self.0.service
    }

    /// The streams that somebody is on.
    pub(crate) fn streams(&self) -> &Streams {
        &self.0.streams
    }

    /// Sends what a client asks, under the hold of this thread. False where the actor has stopped: the message is
    /// dropped, and with it its reply, which tells the caller.
    pub fn send(&self, stream: StreamId, body: Body) -> bool {
        let lease = self.lease();
        self.post(Event::Client(Envelope { lease, stream, body }))
    }

    /// Posts an event. Never blocks for longer than a push. False where the actor has stopped.
    pub fn post(&self, event: Event) -> bool {
        let mut queue = self.queue();
        if queue.closed {
            // Dropped behind the lock: a reply in it wakes its caller, who may send at once.
            drop(queue);
            drop(event);
            return false;
        }
        queue.events.push(event);
        self.0.len.store(queue.events.len(), Ordering::SeqCst);
        drop(queue);
        if self.0.asleep.swap(false, Ordering::SeqCst) {
            self.0.bell.notify_one();
        }
        true
    }

    /// Whether the actor has stopped.
    pub fn is_closed(&self) -> bool {
        self.queue().closed
    }

    /// Takes a place for a launch, and parks the thread while there is none. False where no place is needed: under
    /// a hold, whose work must not wait for work that waits for the hold; or where the actor has stopped.
    pub fn admit_launch(&self) -> bool {
        self.admit(&self.0.launches, 1)
    }

    /// As [`Mailbox::admit_launch`], for the bytes of an upload: gives the places that were taken.
    pub fn admit_upload(&self, bytes: usize) -> usize {
        let places = places(bytes);
        if places > 0 && self.admit(&self.0.uploads, places) { bytes } else { 0 }
    }

    fn admit(&self, budget: &Semaphore, places: usize) -> bool {
        if self.lease().is_some() {
            return false;
        }
        let permit = match budget.try_acquire_many(places as u32) {
            Ok(permit) => permit,
            Err(tokio::sync::TryAcquireError::Closed) => return false,
            Err(tokio::sync::TryAcquireError::NoPermits) => match block_on(budget.acquire_many(places as u32)) {
                Ok(permit) => permit,
                Err(_closed) => return false,
            },
        };
        permit.forget();
        true
    }

    /// As [`Mailbox::admit_upload`], as a future. Dropping it takes no places.
    pub async fn admit_upload_async(&self, bytes: usize) -> usize {
        let places = places(bytes);
        if places == 0 || self.lease().is_some() {
            return 0;
        }
        match self.0.uploads.acquire_many(places as u32).await {
            Ok(permit) => {
                permit.forget();
                bytes
            }
            Err(_closed) => 0,
        }
    }

    /// Resolves when a launch would be taken without waiting; first come, first served.
    ///
    /// # Errors
    /// [`ServerError::Closed`] where the actor has stopped.
    pub async fn ready(self) -> Result<(), ServerError> {
        self.0.launches.acquire().await.map(drop).map_err(|_closed| ServerError::Closed)
    }

    /// Launches that are in flight now.
    pub fn in_flight(&self) -> usize {
        self.0.launches_max.saturating_sub(self.0.launches.available_permits())
    }

    /// The profiling windows of the device.
    pub fn windows(&self) -> &Windows {
        &self.0.windows
    }

    /// The hold under which this thread calls this actor.
    pub fn lease(&self) -> Option<LeaseId> {
        let find = |leases: &RefCell<Vec<(ActorId, LeaseId)>>| {
            let leases = leases.borrow();
            leases.iter().rev().find(|(actor, _)| *actor == self.0.actor).map(|(_, lease)| *lease)
        };
        // A handle dropped while its thread ends may call when the list is gone already.
        LEASES.try_with(find).unwrap_or(None)
    }

    /// Runs `task` with this thread's calls under `lease`, and puts back what was before, also after a panic.
    pub fn under<R>(&self, lease: LeaseId, task: impl FnOnce() -> R) -> R {
        struct Restore;
        impl Drop for Restore {
            fn drop(&mut self) {
                LEASES.with_borrow_mut(Vec::pop);
            }
        }
        LEASES.with_borrow_mut(|leases| leases.push((self.0.actor, lease)));
        let _restore = Restore;
        task()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Places in the budget that `bytes` of an upload take: never more than there are.
fn places(bytes: usize) -> usize {
    bytes.div_ceil(BUDGET_GRANULE).min(UPLOAD_BYTES_MAX / BUDGET_GRANULE)
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("actor", &self.0.actor).finish_non_exhaustive()
    }
}

impl Inbox {
    /// The sending end.
    pub fn mailbox(&self) -> &Mailbox {
        &self.0
    }

    /// Takes all events in their order. `into` must be empty; its memory becomes the queue's.
    pub fn take(&self, into: &mut Vec<Event>) {
        debug_assert!(into.is_empty(), "events would change their order");
        let mut queue = self.0.queue();
        std::mem::swap(&mut queue.events, into);
        self.0.0.len.store(0, Ordering::SeqCst);
    }

    /// Whether nothing is waiting. One load: an actor may spin on it.
    pub fn is_empty(&self) -> bool {
        self.0.0.len.load(Ordering::SeqCst) == 0
    }

    /// Sleeps until something is waiting.
    pub async fn wait(&self) {
        let shared = &self.0.0;
        loop {
            shared.asleep.store(true, Ordering::SeqCst);
            if !self.is_empty() {
                shared.asleep.store(false, Ordering::SeqCst);
                return;
            }
            shared.bell.notified().await;
        }
    }

    /// Gives back places for launches.
    pub fn finish_launches(&self, count: usize) {
        self.0.0.launches.add_permits(count);
    }

    /// Gives back places for the bytes of one upload.
    pub fn finish_upload(&self, bytes: usize) {
        self.0.0.uploads.add_permits(places(bytes));
    }

    /// Refuses all that comes from now on, and wakes everyone who waits for a place. What was in the queue is
    /// dropped, and with it the replies.
    pub fn close(&self) {
        let dropped = {
            let mut queue = self.0.queue();
            queue.closed = true;
            self.0.0.len.store(0, Ordering::SeqCst);
            std::mem::take(&mut queue.events)
        };
        self.0.0.launches.close();
        self.0.0.uploads.close();
        drop(dropped);
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.close();
    }
}
