//! The reservations that live, by the ids that clients gave them.

use crate::engine::command::Span;
use crate::engine::fault::{Claim, Claims, FaultLedger, Found};
use crate::engine::ids::IdMap;
use crate::engine::memory::Slice;
use crate::error::ServerError;
use crate::id::{ActorId, BufferId, Holder, StreamId};
use crate::message::BufferRange;
use std::ops::Range;

/// One reservation.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// Where it lies; nothing for no bytes, and for a reservation that failed.
    pub(crate) slice: Option<Slice>,
    /// Whether device memory is behind it: not where a dry run reserved it, until it is used.
    backed: bool,
    /// Bytes.
    pub(crate) size: u64,
    /// The stream that it counts for.
    pub(crate) stream: StreamId,
    /// Who asked for it.
    holder: Holder,
    /// What spoils it.
    claims: Claims,
    /// Messages that are held up and name it.
    pub(crate) holds: u32,
    /// The client's handles count as one, each graph that touches it as one.
    pub(crate) owners: u32,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    map: IdMap<BufferId, Buffer>,
    /// Buffers that carry a claim: while there are none, nobody looks for any.
    spoiled: usize,
    /// Buffers with a place and no memory: while there are none, nobody looks for any.
    unbacked: usize,
    /// Where failures come from.
    pub(crate) ledger: FaultLedger,
}

impl Buffer {
    fn is_unbacked(&self) -> bool {
        self.slice.is_some() && !self.backed
    }
}

fn bytes(range: &BufferRange) -> Range<u64> {
    range.offset..range.offset + range.size
}

impl Buffers {
    /// No reservations, of this run of an actor.
    pub(crate) fn of(actor: ActorId) -> Self {
        Self { ledger: FaultLedger::of(actor), ..Self::default() }
    }

    /// Adds a reservation, or gives memory to one that waited for it.
    pub(crate) fn place(&mut self, id: BufferId, slice: Option<Slice>, size: u64, stream: StreamId, holder: Holder) {
        let claims = Claims::default();
        let blank = || Buffer { slice: None, backed: false, size, stream, holder, claims, holds: 0, owners: 1 };
        let buffer = self.map.entry(id).or_insert_with(blank);
        assert!(buffer.slice.is_none(), "buffer {id:?} was reserved twice");
        buffer.backed = slice.is_some();
        buffer.slice = slice;
    }

    /// The reservation of this id.
    pub(crate) fn get(&self, id: BufferId) -> Option<&Buffer> {
        self.map.get(&id)
    }

    /// As [`Buffers::get`], to change.
    pub(crate) fn get_mut(&mut self, id: BufferId) -> Option<&mut Buffer> {
        self.map.get_mut(&id)
    }

    /// Notes that a dry run made the reservation.
    pub(crate) fn unback(&mut self, id: BufferId) {
        self.set_backed(id, false);
    }

    /// Notes that there is memory behind it.
    pub(crate) fn back(&mut self, id: BufferId) {
        self.set_backed(id, true);
    }

    fn set_backed(&mut self, id: BufferId, backed: bool) {
        let Some(buffer) = self.map.get_mut(&id) else { return };
        self.unbacked -= usize::from(buffer.is_unbacked());
        buffer.backed = backed;
        self.unbacked += usize::from(buffer.is_unbacked());
    }

    /// Whether any buffer has a place and no memory.
    pub(crate) fn any_unbacked(&self) -> bool {
        self.unbacked > 0
    }

    /// Whether this one has.
    pub(crate) fn is_unbacked(&self, id: BufferId) -> bool {
        self.map.get(&id).is_some_and(Buffer::is_unbacked)
    }

    /// Takes a reservation out.
    pub(crate) fn remove(&mut self, id: BufferId) -> Option<Buffer> {
        let buffer = self.map.remove(&id)?;
        self.spoiled -= usize::from(!buffer.claims.is_empty());
        self.unbacked -= usize::from(buffer.is_unbacked());
        Some(buffer)
    }

    /// Reservations that live.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Those who have memory, each as often as they have a buffer.
    pub(crate) fn holders_of_memory(&self) -> impl Iterator<Item = Holder> {
        self.map.values().filter(|buffer| buffer.slice.is_some()).map(|buffer| buffer.holder)
    }

    /// Where the bytes of a range lie; `None` where it has no memory.
    pub(crate) fn span(&self, range: &BufferRange) -> Option<Span> {
        let buffer = self.map.get(&range.buffer)?;
        assert!(bytes(range).end <= buffer.size, "{range:?} of a buffer of {} bytes", buffer.size);
        let slice = buffer.slice.filter(|_| buffer.backed)?;
        Some(Span { page: slice.span.page, offset: slice.span.offset + range.offset, size: range.size })
    }

    /// Whether any buffer is spoiled.
    pub(crate) fn any_spoiled(&self) -> bool {
        self.spoiled > 0
    }

    /// Spoils a range by a new failure.
    pub(crate) fn fail(&mut self, range: &BufferRange, error: ServerError) {
        for claim in self.ledger.fail_all(error) {
            self.claim(range, claim);
        }
    }

    /// Spoils a range.
    pub(crate) fn claim(&mut self, range: &BufferRange, claim: Claim) {
        if let Some(buffer) = self.map.get_mut(&range.buffer) {
            self.spoiled += usize::from(buffer.claims.is_empty());
            buffer.claims.add(bytes(range), claim);
        }
    }

    /// Makes a range good, where the buffer has memory at all.
    pub(crate) fn heal(&mut self, range: &BufferRange) {
        if self.spoiled == 0 || range.size == 0 {
            return;
        }
        if let Some(buffer) = self.map.get_mut(&range.buffer)
            && !buffer.claims.is_empty()
            && buffer.backed
        {
            buffer.claims.heal(&bytes(range));
            self.spoiled -= usize::from(buffer.claims.is_empty());
        }
    }

    /// Finds what spoils a range.
    pub(crate) fn find(&self, range: &BufferRange, found: &mut Found) {
        if self.spoiled > 0
            && let Some(buffer) = self.map.get(&range.buffer)
        {
            buffer.claims.find(&bytes(range), found);
        }
    }

    /// Finds what spoils ranges as the device told after the fact.
    pub(crate) fn find_late(&self, ranges: &[BufferRange]) -> Found {
        let mut found = Found::default();
        if self.spoiled > 0 {
            for range in ranges {
                if let Some(buffer) = self.map.get(&range.buffer) {
                    buffer.claims.find_late(&bytes(range), &mut found);
                }
            }
        }
        found
    }

    /// Whether ranges can be trusted.
    pub(crate) fn check<'a>(&self, ranges: impl IntoIterator<Item = &'a BufferRange>) -> Result<(), ServerError> {
        let mut found = Found::default();
        ranges.into_iter().for_each(|range| self.find(range, &mut found));
        found.result()
    }
}
