//! Where a reservation lies: pools of device memory, the persistent pool, and host pages for staging.
//!
//! Pure bookkeeping: pages are asked for by a [`Shortage`] and given by [`MemoryManager::page_granted`].
//! The device has one queue, so a slice that is released may be reserved again at once: the hazard tracker orders
//! its next use behind its last. What must wait for the timeline is only the freeing of whole pages, which the
//! engine does.

mod config;
mod report;

pub use crate::error::InstallMemoryPoolsError;
pub use config::{MemoryAllocationMode, MemoryPoolConfig, MemoryPoolsConfig, MemoryPoolsPreset};
pub use report::{MemoryPoolKind, MemoryPoolReport, MemoryReport, MemoryUsage};

use crate::engine::command::{PageId, Span};
use crate::error::IoError;
use crate::id::StreamId;
use crate::port::PageKind;

/// What the pools are built on.
#[derive(Debug, Clone, Copy)]
pub struct MemoryLimits {
    /// The largest page.
    pub page_bytes_max: u64,
    /// Where a slice may start: a power of two.
    pub alignment: u64,
    /// Bytes of device pages that may be reserved in all.
    pub budget: u64,
}

/// Names a live slice of device memory: dense, used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SliceId(pub u32);

/// A reservation that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Its name, to release it by.
    pub id: SliceId,
    /// Where it lies; `size` is what was asked for.
    pub span: Span,
    /// Bytes from the start of the slice that are its own: `size` and the padding behind.
    pub padded: u64,
}

/// Why a reservation was not made.
#[derive(Debug, Clone)]
pub enum Shortage {
    /// A page is needed: ask the device, call `page_granted` or `page_refused`, and reserve again.
    Page {
        /// What it is to be called.
        page: PageId,
        /// Its bytes.
        bytes: u64,
        /// Where.
        kind: PageKind,
    },
    /// The pools cannot give it, as they are now.
    Failed(IoError),
}

/// All pools of a device.
#[derive(Debug)]
pub struct MemoryManager {}

impl MemoryManager {
    /// Pools by the preset `SubSlices`, with no pages.
    pub fn new(limits: MemoryLimits) -> Self {
        todo!()
    }

    /// Reserves `size` bytes (more than none) for `stream`. In a dry run of the stream no page is asked for.
    pub fn reserve(&mut self, stream: StreamId, size: u64) -> Result<Slice, Shortage> {
        todo!()
    }

    /// Ends a reservation.
    pub fn release(&mut self, slice: SliceId) {
        todo!()
    }

    /// Reserves host memory. `kind` is `Upload` or `Readback`.
    pub fn reserve_host(&mut self, kind: PageKind, size: u64) -> Result<Span, Shortage> {
        todo!()
    }

    /// Ends a reservation of host memory; the span is the one that was given.
    pub fn release_host(&mut self, span: Span) {
        todo!()
    }

    /// The device gave the page of a [`Shortage::Page`].
    pub fn page_granted(&mut self, page: PageId) {
        todo!()
    }

    /// The device did not give it. The next `reserve` tries the pools behind, or fails with `OutOfMemory`.
    pub fn page_refused(&mut self, page: PageId) {
        todo!()
    }

    /// Takes empty pages out of the pools, to be freed: those whose period is over, or with `all` every one.
    /// They count as reserved until `page_freed`.
    pub fn sweep(&mut self, all: bool, freed: &mut Vec<PageId>) {
        todo!()
    }

    /// The device has a page back that `sweep` gave.
    pub fn page_freed(&mut self, page: PageId) {
        todo!()
    }

    /// Changes where the stream's reservations go. Persistent windows nest by counting.
    pub fn set_mode(&mut self, stream: StreamId, mode: MemoryAllocationMode) {
        todo!()
    }

    /// Starts or ends a dry run of the stream; they nest by counting.
    pub fn dry_run(&mut self, stream: StreamId, on: bool) {
        todo!()
    }

    /// Whether the stream is in a dry run.
    pub fn is_dry(&self, stream: StreamId) -> bool {
        todo!()
    }

    /// Installs a layout that makes sense (see [`MemoryPoolsConfig::validate`]).
    pub fn install(&mut self, stream: StreamId, layout: &MemoryPoolsConfig) -> Result<(), InstallMemoryPoolsError> {
        todo!()
    }

    /// The pools of one stream.
    pub fn report(&self, stream: StreamId) -> MemoryReport {
        todo!()
    }

    /// All pools of device memory, over all streams.
    pub fn usage(&self) -> MemoryUsage {
        todo!()
    }
}
