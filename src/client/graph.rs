//! Recording launches once, and replaying them as one.

use crate::client::Client;
use std::future::Future;
use std::sync::Arc;
use vkactor_actors::error::ServerError;
use vkactor_actors::handle::Handle;
use vkactor_actors::id::StreamId;
use vkactor_actors::message::{Body, GraphCall, Sealed};
use vkactor_actors::properties::GraphKind;
use vkactor_actors::reply::Answer;

impl Client {
    /// Makes the client's stream ready for a capture. The run to be recorded is made once before the window, so that
    /// its kernels are compiled and its memory is there.
    ///
    /// # Errors
    /// [`ServerError::Graph`] inside a window; [`ServerError::Closed`].
    pub fn graph_prepare(&self) -> Result<(), ServerError> {
        self.ask_and_wait(|reply| Body::Graph(GraphCall::Prepare { reply }))
    }

    /// Opens a window: launches on the client's stream, through any of its clients, are recorded and do not run.
    ///
    /// Reading, syncing and profiling the stream are refused inside the window and do it no harm. Writing to a buffer
    /// is refused late, by [`Client::stop_capture`], and so is a launch that fails. Memory reserved inside the window
    /// belongs to the graph. Other streams are not concerned. When the last client of the stream is dropped, and the last
    /// graph of it, an open window is closed: what was to be written in it was never written, and the stream is as new.
    ///
    /// # Errors
    /// [`ServerError::Graph`] without [`Client::graph_prepare`] before, or inside a window; [`ServerError::Closed`].
    pub fn start_capture(&self) -> Result<(), ServerError> {
        self.presence.note_capture();
        self.mailbox().windows().begin_capture();
        self.ask_and_wait(|reply| Body::Graph(GraphCall::Start { reply }))
    }

    /// Closes the window. A window without launches gives a graph of none.
    ///
    /// # Errors
    /// [`ServerError::Graph`] outside a window, or after a write in it; the failure of a launch in it; a device
    /// error; [`ServerError::Closed`]. The window is closed in each case, and the stream works on.
    pub fn stop_capture(&self) -> Result<Graph, ServerError> {
        let sealed = self.ask_and_wait(|reply| Body::Graph(GraphCall::Stop { reply }))?;
        Ok(Graph(Arc::new(Recording { client: self.clone(), sealed })))
    }
}

/// A recorded run of launches, replayed as one.
///
/// It keeps every buffer that it touches, and its device, alive. Replays are ordered with all other work, so there is
/// nothing unsafe about them: new input is written to the recorded buffers between replays. Cloning is one atomic
/// increment; the memory goes back when the last clone is dropped, in order with the replays before.
#[derive(Debug, Clone)]
pub struct Graph(Arc<Recording>);

#[derive(Debug)]
struct Recording {
    client: Client,
    sealed: Sealed,
}

/// What a graph is.
#[derive(Debug, Clone)]
pub struct GraphStats {
    /// How it is replayed.
    pub kind: GraphKind,
    /// Launches of one replay.
    pub launches: usize,
    /// Barriers between them.
    pub barriers: usize,
    /// Bytes of device memory that live as long as the graph.
    pub bytes_held: u64,
}

impl Graph {
    /// Runs the recorded launches once more.
    ///
    /// # Ordering
    /// As a launch on [`Graph::stream_id`], whichever thread calls. Blocks until the replay is enqueued, not until it
    /// is done; a sender with too much in flight is held back.
    ///
    /// # Errors
    /// [`ServerError::Graph`] inside a capture window of the stream; the failure of a buffer that the graph reads,
    /// which its outputs then carry; a lost device; [`ServerError::Closed`].
    pub fn replay(&self) -> Result<(), ServerError> {
        self.0.client.block(self.enqueue().wait())?
    }

    /// As [`Graph::replay`]. The future resolves when the replay is enqueued.
    ///
    /// # Ordering
    /// The replay takes its place in the stream when this is called, not when the future is polled.
    /// [`Client::ready`] before it waits for a place without blocking.
    ///
    /// # Errors
    /// As [`Graph::replay`].
    ///
    /// # Cancellation
    /// A dropped future gives the answer up. The replay runs.
    pub fn replay_async(&self) -> impl Future<Output = Result<(), ServerError>> + Send + 'static + use<> {
        let answer = self.enqueue();
        async move { answer.wait().await? }
    }

    /// The stream on which it was recorded, and on which it is replayed.
    pub fn stream_id(&self) -> StreamId {
        self.0.client.stream_id()
    }

    /// What it does and holds, as it was recorded.
    pub fn stats(&self) -> GraphStats {
        let Sealed { kind, launches, barriers, bytes_held, .. } = self.0.sealed;
        GraphStats { kind, launches, barriers, bytes_held }
    }

    /// Makes later replays use `new` wherever the recording uses `old`, which has the same size. The graph keeps
    /// `new` alive instead. The caller records nothing again, and the device only the launches that change, with
    /// a few beside them.
    ///
    /// # Ordering
    /// Blocks until it is done. Replays sent before use `old`.
    ///
    /// # Errors
    /// [`ServerError::ForeignHandle`]; [`ServerError::Graph`] where the recording does not use `old`, or a launch
    /// uses bytes on both sides of its ends, where the sizes or the alignments of the two differ, or a launch would
    /// write what it has bound twice and the device forbids it; a device error; [`ServerError::Closed`]. The graph is
    /// then as before.
    pub fn rebind(&self, old: &Handle, new: &Handle) -> Result<(), ServerError> {
        let Recording { client, sealed } = &*self.0;
        let (old, new) = (client.range_of(old)?, client.range_of(new)?);
        client.ask_and_wait(|reply| Body::Graph(GraphCall::Rebind { graph: sealed.graph, old, new, reply }))
    }

    fn enqueue(&self) -> Answer<Result<(), ServerError>> {
        let Recording { client, sealed } = &*self.0;
        let budgeted = client.mailbox().admit_launch();
        client.ask(|reply| Body::Graph(GraphCall::Replay { graph: sealed.graph, reply, budgeted }))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.client.send(Body::Graph(GraphCall::Drop { graph: self.sealed.graph }));
    }
}
