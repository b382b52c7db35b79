//! The model recorded once for each shape of batch, and replayed.

use super::error::EmbedError;
use super::model::Model;
use super::sentences::Sentences;
use super::text::Batch;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};
use vkactor::{Bytes, Client, Graph, Handle, ServerError};

/// Recordings by the number of sentences and the tokens that each takes up.
#[derive(Default)]
pub(crate) struct Graphs(Mutex<HashMap<(u32, u32), Recorded>>);

/// A graph, the buffers that it reads its sentences from, and the one that it leaves their vectors in.
struct Recorded {
    graph: Graph,
    sentences: Sentences,
    vectors: Handle,
}

impl Graphs {
    /// Queues new sentences, a replay and the read of its vectors. Records the model first, if the shape is new.
    ///
    /// # Errors
    /// The stream refuses the recording.
    pub(crate) fn submit(
        &self,
        client: &Client,
        model: &Model,
        batch: &Batch,
    ) -> Result<impl Future<Output = Result<Bytes, ServerError>> + Send + use<>, EmbedError> {
        // Held until the read is queued: replays of a shape share their buffers, and nothing of another batch may come
        // between. Nor may it come into a recording.
        let mut shapes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recorded = match shapes.entry((batch.count(), batch.padded)) {
            Entry::Occupied(known) => {
                known.get().sentences.write(client, batch);
                known.into_mut()
            }
            Entry::Vacant(shape) => shape.insert(Recorded::new(client, model, batch)?),
        };
        let replay = recorded.graph.replay_async();
        let read = client.read_one_async(recorded.vectors.clone());
        Ok(async move {
            replay.await?;
            read.await
        })
    }
}

impl Recorded {
    /// Records the model on a batch's sentences; they are its first input.
    fn new(client: &Client, model: &Model, batch: &Batch) -> Result<Self, ServerError> {
        let sentences = Sentences::upload(client, batch);
        client.graph_prepare()?;
        client.start_capture()?;
        let vectors = model.forward(client, &sentences);
        Ok(Self { graph: client.stop_capture()?, sentences, vectors })
    }
}
