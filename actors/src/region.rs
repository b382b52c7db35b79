//! Host memory that devices share: one makes it, others take it in and copy from it by themselves.

use crate::bytes::{Bytes, Pinned};
use crate::engine::command::{PageId, Span};
use crate::id::ActorId;
use crate::mailbox::Mailbox;
use crate::message::Event;
use crate::port::Device;
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Names a region. No two of a process are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionId(u64);

/// Host memory of one device that others can reach. What it is made of is known to the devices alone.
pub struct Region {
    id: RegionId,
    memory: Box<dyn Any + Send + Sync>,
    /// Actors that are told when the region is given up.
    guests: Mutex<Vec<Mailbox>>,
}

impl Region {
    /// What the region is made of, where that is an `M`.
    pub fn memory<M: Any>(&self) -> Option<&M> {
        self.memory.downcast_ref()
    }

    fn add_guest(&self, mailbox: &Mailbox) {
        let mut guests = self.guests.lock().unwrap_or_else(PoisonError::into_inner);
        guests.retain(|guest| !guest.is_closed());
        guests.push(mailbox.clone());
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The maker's hold of a region. When it is dropped, every device that took the region in is told to let it go; its
/// memory stays until the last has.
#[derive(Debug)]
pub struct RegionOwner(Arc<Region>);

impl RegionOwner {
    /// A region of its own over `memory`.
    pub fn new(memory: impl Any + Send + Sync) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = RegionId(NEXT.fetch_add(1, Ordering::Relaxed));
        Self(Arc::new(Region { id, memory: Box::new(memory), guests: Mutex::default() }))
    }

    /// The region.
    pub fn region(&self) -> &Arc<Region> {
        &self.0
    }
}

impl Drop for RegionOwner {
    fn drop(&mut self) {
        let guests = std::mem::take(&mut *self.0.guests.lock().unwrap_or_else(PoisonError::into_inner));
        for guest in guests {
            // An actor that has stopped let go of everything.
            guest.post(Event::RegionGivenUp(self.0.id));
        }
    }
}

/// A run of bytes in a region.
#[derive(Debug, Clone)]
pub struct RegionSpan {
    /// The region.
    pub region: Arc<Region>,
    /// Where the bytes start in it.
    pub offset: u64,
}

/// The regions of other devices that one device has taken in as pages of its own.
///
/// Their ids count down from the largest, where the engine's, which count up, never get. The engine sees bytes that lie
/// in one as pinned bytes of its own device, and keeps them until the copy is done. They keep the maker's hold of the
/// region, so a region is not given up while a pending submission names it.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    /// By region: its page, or nothing where the device cannot reach it.
    pages: HashMap<RegionId, Option<PageId>>,
    made: u32,
}

impl Guests {
    /// The same bytes as the device of `mailbox` may copy them; `None` where it cannot reach them, or made them.
    pub(crate) fn take_in<D: Device>(&mut self, device: &mut D, mailbox: &Mailbox, bytes: &Bytes) -> Option<Bytes> {
        let pinned = bytes.pinned()?;
        if pinned.place(mailbox.actor()).is_some() {
            return None;
        }
        let RegionSpan { region, offset } = pinned.region()?;
        let page = *self.pages.entry(region.id).or_insert_with(|| {
            region.add_guest(mailbox);
            let page = PageId(u32::MAX - self.made);
            self.made += 1;
            let taken = device.adopt(page, &region);
            tracing::debug!(?region, page = page.0, taken, "region of another device");
            taken.then_some(page)
        });
        let at = Span { page: page?, offset, size: pinned.as_slice().len() as u64 };
        let guest = Guest { pinned: pinned.clone(), at, actor: mailbox.actor() };
        Some(Bytes::from_pinned(Arc::new(guest)))
    }

    /// The maker of a region gave it up: the page to free.
    pub(crate) fn let_go(&mut self, region: RegionId) -> Option<PageId> {
        self.pages.remove(&region).flatten()
    }
}

/// Pinned bytes of another device, with their place in a page of this one.
struct Guest {
    pinned: Arc<dyn Pinned>,
    at: Span,
    actor: ActorId,
}

impl Pinned for Guest {
    fn as_slice(&self) -> &[u8] {
        self.pinned.as_slice()
    }

    fn place(&self, actor: ActorId) -> Option<Span> {
        if actor == self.actor { Some(self.at) } else { self.pinned.place(actor) }
    }

    fn region(&self) -> Option<RegionSpan> {
        self.pinned.region()
    }
}
