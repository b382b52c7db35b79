//! Windows on streams, and the timestamps that they share.

use crate::engine::command::TimestampSlot;
use crate::engine::ids::IdMap;
use crate::error::ServerError;
use crate::id::StreamId;
use crate::profile::ProfileWindow;

/// An open window. Its start is taken with the first work on its stream, so that waiting before is not timed.
#[derive(Debug)]
pub(crate) struct Window {
    /// Where it is open.
    pub(crate) stream: StreamId,
    /// When work began.
    pub(crate) start: Option<TimestampSlot>,
    /// The first launch in it that failed.
    pub(crate) failed: Option<ServerError>,
}

/// All open windows, and the places for timestamps.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    open: IdMap<u64, Window>,
    /// Windows whose stream has not worked since they were opened: while there are none, work looks for none.
    unstarted: usize,
    next: u64,
    /// Windows that use each place; a free place has none.
    users: Vec<u32>,
    free: Vec<TimestampSlot>,
}

impl Windows {
    /// Opens a window.
    pub(crate) fn open(&mut self, stream: StreamId) -> ProfileWindow {
        self.next += 1;
        self.unstarted += 1;
        self.open.insert(self.next, Window { stream, start: None, failed: None });
        ProfileWindow { stream_id: stream, token: self.next }
    }

    /// Closes a window. Its start stays taken until `give_back`.
    pub(crate) fn close(&mut self, window: ProfileWindow) -> Option<Window> {
        let closed = self.open.remove(&window.token)?;
        self.unstarted -= usize::from(closed.start.is_none());
        Some(closed)
    }

    /// Work begins on a stream: windows that wait for it start at one timestamp, to be taken now.
    pub(crate) fn begin(&mut self, stream: StreamId) -> Option<TimestampSlot> {
        if self.unstarted == 0 {
            return None;
        }
        let waiting = |w: &&mut Window| w.stream == stream && w.start.is_none();
        let count = self.open.values_mut().filter(waiting).count() as u32;
        if count == 0 {
            return None;
        }
        self.unstarted -= count as usize;
        let slot = self.take(count);
        self.open.values_mut().filter(waiting).for_each(|w| w.start = Some(slot));
        Some(slot)
    }

    /// A launch failed on a stream: the windows open there give no time.
    pub(crate) fn fail(&mut self, stream: StreamId, error: &ServerError) {
        for window in self.open.values_mut().filter(|w| w.stream == stream) {
            window.failed.get_or_insert_with(|| error.clone());
        }
    }

    /// A place for a timestamp that so many windows use.
    pub(crate) fn take(&mut self, users: u32) -> TimestampSlot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.users.push(0);
            TimestampSlot(self.users.len() as u32 - 1)
        });
        self.users[slot.0 as usize] = users;
        slot
    }

    /// One window has done with a place.
    pub(crate) fn give_back(&mut self, slot: TimestampSlot) {
        let users = &mut self.users[slot.0 as usize];
        *users -= 1;
        if *users == 0 {
            self.free.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_share_a_start_and_places_are_used_again() {
        let mut windows = Windows::default();
        let stream = StreamId(3);
        for _ in 0..1_000 {
            let open: Vec<ProfileWindow> = (0..10).map(|_| windows.open(stream)).collect();
            assert!(windows.begin(StreamId(4)).is_none());
            let start = windows.begin(stream).unwrap();
            assert!(windows.begin(stream).is_none());
            for window in open {
                let closed = windows.close(window).unwrap();
                assert_eq!(closed.start, Some(start));
                assert!(windows.close(window).is_none());
                let end = windows.take(1);
                windows.give_back(start);
                windows.give_back(end);
            }
        }
        assert!(windows.open.is_empty() && windows.users.len() <= 2);
    }
}
