//! Times of device work, as the caller sees them.

use crate::error::{ProfileError, ServerError};
use crate::id::StreamId;
use crate::reply::Answer;
use crate::wait::block_on;
use std::future::Future;
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
