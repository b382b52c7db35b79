//! Who is on a stream: the last to leave has what is open there closed.

use crate::id::StreamId;
use crate::mailbox::Mailbox;
use crate::message::Body;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The presence of clients on one stream of an actor. Clones of the `Arc` are on the stream together; when the last is
/// dropped, a capture window that is open there is closed.
pub struct Presence {
    mailbox: Mailbox,
    stream: StreamId,
    captured: AtomicBool,
}

/// The streams of an actor that somebody is on.
#[derive(Debug, Default)]
pub(crate) struct Streams(Mutex<HashMap<StreamId, Weak<Presence>>>);

impl Presence {
    /// Joins whoever is on the stream.
    pub fn on(mailbox: &Mailbox, stream: StreamId) -> Arc<Self> {
        let mut streams = mailbox.streams().lock();
        if let Some(there) = streams.get(&stream).and_then(Weak::upgrade) {
            return there;
        }
        let presence = Arc::new(Self { mailbox: mailbox.clone(), stream, captured: AtomicBool::new(false) });
        streams.insert(stream, Arc::downgrade(&presence));
        presence
    }

    /// The stream.
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// Notes that a window is about to be opened.
    pub fn note_capture(&self) {
        self.captured.store(true, Ordering::Relaxed);
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut streams = self.mailbox.streams().lock();
        // Who came after this was the last, and before now, has the stream and what is open there.
        if streams.get(&self.stream).is_some_and(|there| std::ptr::eq(there.as_ptr(), self)) {
            streams.remove(&self.stream);
            // Sent under the lock: nobody comes and opens a window in between.
            if *self.captured.get_mut() {
                self.mailbox.send(self.stream, Body::Left);
            }
        }
    }
}

impl fmt::Debug for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Presence").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Streams {
    fn lock(&self) -> MutexGuard<'_, HashMap<StreamId, Weak<Presence>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
