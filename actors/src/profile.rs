//! Times of device work, as the caller sees them.

use crate::error::{ProfileError, ServerError};
use crate::id::StreamId;
use crate::reply::Answer;
use crate::wait::block_on;
use std::collections::HashSet;
use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Whose clock times a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimingMethod {
    /// The device's own.
    Device,
    /// The host's, around the work.
    System,
}

/// A window that is open on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProfileWindow {
    /// Where it was opened, and will be closed.
    pub stream_id: StreamId,
    /// Which it is.
    pub token: u64,
}

/// The windows of one device as its clients know them, so that opening and closing one asks nobody. Only a capture
/// window on the stream refuses them: while one is open anywhere, the actor is asked.
#[derive(Debug, Default)]
pub struct Windows {
    open: Mutex<HashSet<u64>>,
    opened: AtomicU64,
    captures: AtomicUsize,
}

impl Windows {
    /// A window on a stream, which no other is.
    pub fn open(&self, stream_id: StreamId) -> ProfileWindow {
        let token = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        self.tokens().insert(token);
        ProfileWindow { stream_id, token }
    }

    /// Takes a window out. False where it is not open.
    pub fn close(&self, window: ProfileWindow) -> bool {
        self.tokens().remove(&window.token)
    }

    /// Puts a window back that could not be closed.
    pub fn reopen(&self, window: ProfileWindow) {
        self.tokens().insert(window.token);
    }

    /// A capture window is asked for. To be called before the message is sent.
    pub fn begin_capture(&self) {
        self.captures.fetch_add(1, Ordering::SeqCst);
    }

    /// A capture window was refused, or is closed.
    pub fn end_capture(&self) {
        let counted = |open: usize| open.checked_sub(1);
        // None is open where messages came past the clients, as tests send them.
        let _uncounted = self.captures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, counted);
    }

    /// Whether a capture window may be open on some stream.
    pub fn may_be_refused(&self) -> bool {
        self.captures.load(Ordering::SeqCst) > 0
    }

    fn tokens(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A time that was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProfileTicks {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
}

impl ProfileTicks {
    /// A window between two readings of one clock, in nanoseconds.
    pub fn new(start_ns: u64, end_ns: u64) -> Self {
        Self { start_ns, end_ns }
    }

    /// From the start of the window to its end. Never zero: work that is shorter than a tick took one nanosecond.
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.end_ns.saturating_sub(self.start_ns).max(1))
    }
}

/// A time that the device is still measuring. Dropping it forgets the time and nothing else.
#[derive(Debug)]
pub struct ProfileDuration {
    method: TimingMethod,
    ticks: Answer<Result<ProfileTicks, ProfileError>>,
}

impl ProfileDuration {
    /// A time that `ticks` will answer.
    pub fn new(method: TimingMethod, ticks: Answer<Result<ProfileTicks, ProfileError>>) -> Self {
        Self { method, ticks }
    }

    /// Whose clock measures.
    pub fn timing_method(&self) -> TimingMethod {
        self.method
    }

    /// Waits for the work of the window, then gives its time.
    ///
    /// # Errors
    /// [`ProfileError::NotMeasured`] where nothing ran in the window; the failure of a launch in it; a lost device.
    #[expect(clippy::manual_async_fn, reason = "the signature promises that the future is Send")]
    pub fn resolve(self) -> impl Future<Output = Result<ProfileTicks, ProfileError>> + Send + 'static {
        async move { self.ticks.wait().await.map_err(|closed: ServerError| ProfileError::from(closed))? }
    }

    /// As [`ProfileDuration::resolve`], blocking; safe inside a runtime.
    ///
    /// # Errors
    /// As [`ProfileDuration::resolve`].
    pub fn resolve_blocking(self) -> Result<ProfileTicks, ProfileError> {
        block_on(self.resolve())
    }
}
