//! The one answer to a message.

use crate::error::ServerError;
use std::future::Future;
use tokio::sync::oneshot;

/// The sending end of an answer. Dropped unanswered, it ends the caller's future with [`ServerError::Closed`].
#[derive(Debug)]
pub struct Reply<T>(oneshot::Sender<T>);

/// The receiving end.
#[derive(Debug)]
pub struct Answer<T>(oneshot::Receiver<T>);

/// A pair of ends.
pub fn reply<T>() -> (Reply<T>, Answer<T>) {
    let (send, receive) = oneshot::channel();
    (Reply(send), Answer(receive))
}

impl<T> Reply<T> {
    /// Answers. That the caller is gone is no error: nobody is left to know.
    pub fn send(self, value: T) {
        let _gone = self.0.send(value);
    }

    /// Answers, or gives the value back where the caller is gone: for what somebody has to let go of.
    ///
    /// # Errors
    /// The value.
    pub fn offer(self, value: T) -> Result<(), T> {
        self.0.send(value)
    }

    /// Whether the caller is gone.
    pub fn is_abandoned(&self) -> bool {
        self.0.is_closed()
    }
}

impl<T> Answer<T> {
    /// Waits for the answer, or for its sender to be dropped.
    ///
    /// # Errors
    /// [`ServerError::Closed`] where the sender was dropped.
    #[expect(clippy::manual_async_fn, reason = "the signature promises that the future is Send")]
    pub fn wait(self) -> impl Future<Output = Result<T, ServerError>> + Send
    where
        T: Send,
    {
        async move { self.0.await.map_err(|_| ServerError::Closed) }
    }

    /// As [`Answer::wait`], for a caller that looks after the answer when it stops waiting.
    ///
    /// # Errors
    /// As [`Answer::wait`].
    #[expect(clippy::manual_async_fn, reason = "the signature promises that the future is Send")]
    pub fn answered(&mut self) -> impl Future<Output = Result<T, ServerError>> + Send
    where
        T: Send,
    {
        async move { (&mut self.0).await.map_err(|_| ServerError::Closed) }
    }

    /// Stops waiting: gives an answer that has come and was not taken, and refuses one that would come later.
    pub fn close(&mut self) -> Option<T> {
        self.0.close();
        self.0.try_recv().ok()
    }
}
