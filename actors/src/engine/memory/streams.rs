//! What each stream has reserved, and how it reserves.

use super::report::{MemoryPoolReport, MemoryUsage};
use super::shape::Shape;
use crate::engine::memory::pool::Sums;
use crate::id::StreamId;
use std::collections::HashMap;

/// What one stream has in one pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) number: u64,
    /// What was asked for.
    pub(super) size: u64,
    /// The same with padding.
    pub(super) padded: u64,
    padded_peak: u64,
    largest: u64,
}

/// One stream.
#[derive(Debug)]
pub(super) struct Stream {
    id: StreamId,
    /// Whose dynamic pools it uses.
    pub(super) arena: u32,
    /// Open persistent windows.
    pub(super) persistent_windows: u32,
    /// Open dry runs.
    pub(super) dry_runs: u32,
    /// By dynamic pool.
    pub(super) dynamic: Vec<Account>,
    pub(super) persistent: Account,
}

/// All streams that are known. One that has nothing may be forgotten: it starts over when it comes back.
#[derive(Debug)]
pub(super) struct Streams {
    by_id: HashMap<StreamId, u32>,
    records: Vec<Option<Stream>>,
    unused: Vec<u32>,
    /// The stream that was asked for last: most often the next is the same.
    last: Option<(StreamId, u32)>,
    prune_at: usize,
}

impl Account {
    pub(super) fn add(&mut self, size: u64, padded: u64) {
        self.number += 1;
        self.size += size;
        self.padded += padded;
        self.padded_peak = self.padded_peak.max(self.padded);
        self.largest = self.largest.max(size);
    }

    pub(super) fn remove(&mut self, size: u64, padded: u64) {
        self.number -= 1;
        self.size -= size;
        self.padded -= padded;
    }

    pub(super) fn usage(&self, bytes_reserved: u64) -> MemoryUsage {
        MemoryUsage {
            number_allocs: self.number,
            bytes_in_use: self.size,
            bytes_padding: self.padded - self.size,
            bytes_reserved,
        }
    }

    pub(super) fn report(&self, shape: &Shape, pages: Sums) -> MemoryPoolReport {
        MemoryPoolReport {
            kind: shape.kind,
            usage: self.usage(pages.bytes),
            pages: pages.pages,
            pages_peak: pages.pages_peak,
            pages_unmapped: pages.pages_unmapped,
            bytes_peak: self.padded_peak,
            largest_alloc: self.largest,
        }
    }
}

impl Stream {
    fn is_idle(&self) -> bool {
        self.persistent_windows == 0
            && self.dry_runs == 0
            && self.persistent.number == 0
            && self.dynamic.iter().all(|account| account.number == 0)
    }
}

impl Streams {
    pub(super) fn new() -> Self {
        Self { by_id: HashMap::new(), records: Vec::new(), unused: Vec::new(), last: None, prune_at: STREAMS_KEPT }
    }

    /// The place of a stream that is known.
    pub(super) fn find(&mut self, id: StreamId) -> Option<u32> {
        let at = self.known(id)?;
        self.last = Some((id, at));
        Some(at)
    }

    /// The same, without remembering the question.
    pub(super) fn known(&self, id: StreamId) -> Option<u32> {
        match self.last {
            Some((last, at)) if last == id => Some(at),
            Some(_) | None => self.by_id.get(&id).copied(),
        }
    }

    /// Makes a stream known.
    pub(super) fn add(&mut self, id: StreamId, arena: u32, pools: usize) -> u32 {
        let record = Stream {
            id,
            arena,
            persistent_windows: 0,
            dry_runs: 0,
            dynamic: vec![Account::default(); pools],
            persistent: Account::default(),
        };
        let at = self.unused.pop().unwrap_or(self.records.len() as u32);
        if at as usize == self.records.len() {
            self.records.push(Some(record));
        } else {
            self.records[at as usize] = Some(record);
        }
        self.by_id.insert(id, at);
        at
    }

    /// Forgets the streams that have nothing, once there are many. Calls `left` with the arena of each.
    pub(super) fn prune(&mut self, mut left: impl FnMut(u32)) {
        if self.by_id.len() < self.prune_at {
            return;
        }
        for (at, entry) in self.records.iter_mut().enumerate() {
            if entry.as_ref().is_some_and(Stream::is_idle)
                && let Some(stream) = entry.take()
            {
                self.by_id.remove(&stream.id);
                self.unused.push(at as u32);
                left(stream.arena);
            }
        }
        self.last = None;
        // Where most are busy a walk over all is worth its while only when there are as many again.
        self.prune_at = (self.by_id.len() * 2).max(STREAMS_KEPT);
    }

    pub(super) fn get(&self, at: u32) -> &Stream {
        let Some(stream) = &self.records[at as usize] else { unreachable!("stream {at} was forgotten") };
        stream
    }

    pub(super) fn get_mut(&mut self, at: u32) -> &mut Stream {
        let Some(stream) = &mut self.records[at as usize] else { unreachable!("stream {at} was forgotten") };
        stream
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }
}

/// Up to so many streams are remembered when they have nothing: some 300 bytes each.
const STREAMS_KEPT: usize = 4_096;
