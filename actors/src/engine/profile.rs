//! Windows on streams, and the timestamps that they share.

use crate::engine::command::TimestampSlot;
use crate::engine::ids::IdMap;
use crate::error::ServerError;
use crate::id::StreamId;
use crate::profile::ProfileWindow;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

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
    /// Windows whose stream has not worked since they were opened, by stream and token: work looks for no others.
    unstarted: BTreeSet<(u64, u64)>,
    /// Windows that use each place; a free place has none.
    users: Vec<u32>,
    free: Vec<TimestampSlot>,
}

impl Windows {
    /// Opens a window, which may have failed before it began.
    pub(crate) fn open(&mut self, window: ProfileWindow, failed: Option<ServerError>) {
        self.unstarted.insert((window.stream_id.0, window.token));
        self.open.insert(window.token, Window { stream: window.stream_id, start: None, failed });
    }

    /// Closes a window. Its start stays taken until `give_back`.
    pub(crate) fn close(&mut self, window: ProfileWindow) -> Option<Window> {
        let closed = self.open.remove(&window.token)?;
        if closed.start.is_none() {
            self.unstarted.remove(&(closed.stream.0, window.token));
        }
        Some(closed)
    }

    /// How many windows wait for work on a stream.
    pub(crate) fn unstarted(&self, stream: StreamId) -> u32 {
        if self.unstarted.is_empty() { 0 } else { self.unstarted.range(all_of(stream)).count() as u32 }
    }

    /// Work begins on a stream: the windows that wait for it start at one timestamp.
    pub(crate) fn begin(&mut self, stream: StreamId, at: TimestampSlot) {
        for (_, token) in self.unstarted.extract_if(all_of(stream), |_| true) {
            if let Some(open) = self.open.get_mut(&token) {
                open.start = Some(at);
            }
        }
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

    /// So many windows more use a place that is in use.
    pub(crate) fn share(&mut self, slot: TimestampSlot, users: u32) {
        let known = &mut self.users[slot.0 as usize];
        assert!(*known > 0, "{slot:?} is free");
        *known += users;
    }

    /// Places that are in use, and all that there are.
    #[cfg(test)]
    pub(crate) fn places(&self) -> [usize; 2] {
        [self.users.len() - self.free.len(), self.users.len()]
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

fn all_of(stream: StreamId) -> RangeInclusive<(u64, u64)> {
    (stream.0, 0)..=(stream.0, u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(stream: u64, token: u64) -> ProfileWindow {
        ProfileWindow { stream_id: StreamId(stream), token }
    }

    #[test]
    fn windows_share_a_start_and_places_are_used_again() {
        let mut windows = Windows::default();
        let stream = StreamId(3);
        for round in 0..1_000 {
            let open: Vec<ProfileWindow> = (0..10).map(|n| window(3, 10 * round + n)).collect();
            open.iter().for_each(|window| windows.open(*window, None));
            assert_eq!((windows.unstarted(StreamId(4)), windows.unstarted(stream)), (0, 10));
            let start = windows.take(10);
            windows.begin(stream, start);
            assert_eq!(windows.unstarted(stream), 0);
            let end = windows.take(1);
            windows.share(end, 9);
            for window in open {
                assert_eq!(windows.close(window).unwrap().start, Some(start));
                assert!(windows.close(window).is_none());
                windows.give_back(start);
                windows.give_back(end);
            }
        }
        assert!(windows.open.is_empty() && windows.unstarted.is_empty() && windows.users.len() == 2);
    }

    #[test]
    fn a_window_that_is_closed_before_any_work_waits_for_none() {
        let mut windows = Windows::default();
        windows.open(window(1, 1), None);
        windows.open(window(1, 2), None);
        assert_eq!(windows.close(window(1, 1)).unwrap().start, None);
        assert_eq!(windows.unstarted(StreamId(1)), 1);
    }
}
