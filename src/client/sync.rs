//! Asking whether work is done, and whether its results are good.

use crate::client::Client;
use std::future::Future;
use std::pin::Pin;
use vkactor_actors::error::ServerError;
use vkactor_actors::handle::Handle;
use vkactor_actors::message::{Body, BufferRange};

/// A boxed future that may move between threads and needs no client.
pub type DynFut<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Client {
    /// Whether the bytes behind these handles can be trusted, as far as is known now. It waits for no work on the
    /// device: a kernel that does not compile is known, a device that will be lost is not. Asking does not use a
    /// failure up.
    ///
    /// # Ordering
    /// Blocks until the actor has taken all calls before this one, and compiled the kernels that the buffers hang on.
    ///
    /// # Errors
    /// The failure that the buffers carry, or [`ServerError::Several`] with each cause once;
    /// [`ServerError::ForeignHandle`]; [`ServerError::Closed`].
    pub fn check<'a>(&self, handles: impl IntoIterator<Item = &'a Handle>) -> Result<(), ServerError> {
        let ranges = self.ranges_of(handles)?;
        self.ask_and_wait(|reply| Body::Check { ranges, reply })
    }

    /// Waits until all work sent before is done.
    ///
    /// # Ordering
    /// The barrier takes its place when this is called, not when the future is polled.
    ///
    /// # Errors
    /// A lost device; [`ServerError::Graph`] inside a capture window of the stream; [`ServerError::Closed`]. Failures
    /// of launches are not told here but by their buffers.
    ///
    /// # Cancellation
    /// A dropped future stops waiting. The work goes on.
    pub fn sync(&self) -> DynFut<Result<(), ServerError>> {
        self.barrier(Ok(Vec::new()))
    }

    /// Waits until all work sent before is done, then answers for these handles as a read would, without the copy.
    ///
    /// # Ordering
    /// As [`Client::sync`].
    ///
    /// # Errors
    /// As [`Client::sync`] and [`Client::check`]. A foreign handle is refused without waiting.
    ///
    /// # Cancellation
    /// As [`Client::sync`].
    pub fn sync_buffers<'a>(&self, handles: impl IntoIterator<Item = &'a Handle>) -> DynFut<Result<(), ServerError>> {
        self.barrier(self.ranges_of(handles))
    }

    fn barrier(&self, ranges: Result<Vec<BufferRange>, ServerError>) -> DynFut<Result<(), ServerError>> {
        let answer = ranges.map(|ranges| self.ask(|reply| Body::Sync { ranges, reply }));
        Box::pin(async move { answer?.wait().await? })
    }

    fn ranges_of<'a>(&self, handles: impl IntoIterator<Item = &'a Handle>) -> Result<Vec<BufferRange>, ServerError> {
        handles.into_iter().map(|handle| self.range_of(handle)).collect()
    }
}
