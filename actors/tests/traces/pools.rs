//! The pools under a trace, with a device that gives every page and frees every page at once.

use std::collections::HashMap;

use super::Step;
use vkactor_actors::engine::command::PageId;
use vkactor_actors::engine::memory::{MemoryLimits, MemoryManager, Shortage, SliceId};
use vkactor_actors::error::IoError;
use vkactor_actors::id::StreamId;

/// A memory manager, and what the device gave it.
#[derive(Debug)]
pub(crate) struct Pools {
    pub(crate) manager: MemoryManager,
    slices: Vec<Option<SliceId>>,
    pages: HashMap<PageId, u64>,
    freed: Vec<PageId>,
    /// Bytes of the pages that the device gave and does not have back.
    pub(crate) reserved_bytes: u64,
    /// The most at once.
    pub(crate) reserved_bytes_peak: u64,
    /// Pages that the device gave, those that it has back included.
    pub(crate) allocations: u64,
}

impl Pools {
    pub(crate) fn new(limits: MemoryLimits) -> Self {
        Self {
            manager: MemoryManager::new(limits),
            slices: Vec::new(),
            pages: HashMap::new(),
            freed: Vec::new(),
            reserved_bytes: 0,
            reserved_bytes_peak: 0,
            allocations: 0,
        }
    }

    /// Carries a call out.
    ///
    /// # Errors
    /// There is no room for a reservation.
    ///
    /// # Panics
    /// A name is released that has nothing.
    pub(crate) fn step(&mut self, step: Step) -> Result<(), IoError> {
        match step {
            Step::Release(name) => {
                let slice = self.slices[name as usize].take();
                self.manager.release(slice.expect("released once"));
            }
            Step::Reserve { name, bytes } => {
                let slice = self.reserve(bytes)?;
                self.slices.resize(self.slices.len().max(name as usize + 1), None);
                self.slices[name as usize] = Some(slice);
            }
        }
        Ok(())
    }

    /// Looks for pages that go back, as the engine does from time to time.
    pub(crate) fn sweep(&mut self, all: bool) {
        self.manager.sweep(all, &mut self.freed);
        for page in self.freed.drain(..) {
            self.reserved_bytes -= self.pages.remove(&page).expect("the device gave it");
            self.manager.page_freed(page);
        }
    }

    fn reserve(&mut self, bytes: u64) -> Result<SliceId, IoError> {
        loop {
            let (page, bytes) = match self.manager.reserve(StreamId::DEFAULT, bytes) {
                Ok(slice) => return Ok(slice.id),
                Err(Shortage::Page { page, bytes, .. }) => (page, bytes),
                Err(Shortage::Failed(error)) => return Err(error),
            };
            self.sweep(false);
            self.pages.insert(page, bytes);
            self.allocations += 1;
            self.reserved_bytes += bytes;
            self.reserved_bytes_peak = self.reserved_bytes_peak.max(self.reserved_bytes);
            self.manager.page_granted(page);
        }
    }
}
