//! Sentence embeddings by all-MiniLM-L6-v2: text in, unit vectors out, all arithmetic on the device.

mod error;
mod graphs;
mod kernels;
mod model;
mod sentences;
mod text;
mod weights;

use futures::future::Either;
use futures::{StreamExt, TryStreamExt, stream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vkactor::Client;

pub(crate) use error::EmbedError;
use graphs::Graphs;
use model::Model;
use sentences::Sentences;
use text::{Batch, Text};
use weights::Weights;

/// Where `scripts/fetch-model.sh` puts the model, unless `VKACTOR_MODEL` names another place.
pub(crate) fn model_dir() -> PathBuf {
    let fetched = concat!(env!("CARGO_MANIFEST_DIR"), "/target/model");
    std::env::var_os("VKACTOR_MODEL").map_or_else(|| fetched.into(), PathBuf::from)
}

/// Batches whose work is queued at the same time: while one runs, the next is uploaded and the one before read back.
const IN_FLIGHT: usize = 3;
/// Recordings are of lengths that are multiples of this: 16 of them cover all, at the price of 8 tokens a text.
const RECORDED_STEP: usize = 16;

/// The model on one device. Cloning shares it.
#[derive(Clone)]
pub(crate) struct Embedder {
    client: Client,
    text: Arc<Text>,
    model: Arc<Model>,
    graphs: Option<Arc<Graphs>>,
}

/// One unit vector a text, in the order of the texts.
pub(crate) struct Vectors {
    width: usize,
    values: Vec<f32>,
    /// Tokens in all texts together, `[CLS]` and `[SEP]` among them, padding not.
    pub(crate) tokens: usize,
}

impl Embedder {
    /// Loads the tokenizer and the weights from `dir`, and sends the weights to the device of `client`.
    ///
    /// # Errors
    /// The folder lacks a file, or a file is not what this model needs. What the device has against the weights is
    /// told by the first embedding.
    pub(crate) async fn load(client: Client, dir: &Path) -> Result<Self, EmbedError> {
        let weights = Weights::read(dir).await?;
        let text = Text::read(dir).await?;
        // Weights live as long as the program: in pools of their own they leave no gaps among the short-lived buffers.
        let model = client.memory_persistent_allocation(weights, |weights| Model::upload(&client, &weights))?;
        Ok(Self { client, text: Arc::new(text), model: Arc::new(model), graphs: None })
    }

    /// The same model, which records the launches of each shape of batch when it first comes, and then replays them.
    pub(crate) fn recording(&self) -> Self {
        // On a stream of its own: what others launch must not come into a recording.
        Self { client: self.client.fork(), graphs: Some(Arc::default()), ..self.clone() }
    }

    /// The token ids of each text, `[CLS]` and `[SEP]` included, at most 256.
    ///
    /// # Errors
    /// The tokenizer refuses a text.
    pub(crate) async fn tokens(&self, texts: Vec<String>) -> Result<Vec<Vec<u32>>, EmbedError> {
        let text = self.text.clone();
        // Every core may be busy with this for a while: not on a thread that other tasks wait for.
        tokio::task::spawn_blocking(move || text.encode(texts)).await?
    }

    /// The vectors of `texts`, by batches of at most `batch` texts of like length. `done` is called with the number of
    /// texts in each batch that came back.
    ///
    /// # Errors
    /// The tokenizer refuses a text, or the device fails.
    ///
    /// # Cancellation
    /// Batches that were queued run to their end on the device; nobody reads them.
    pub(crate) async fn embed(
        &self,
        texts: Vec<String>,
        batch: usize,
        mut done: impl FnMut(usize),
    ) -> Result<Vectors, EmbedError> {
        let tokens = self.tokens(texts).await?;
        let width = self.model.width();
        let mut values = vec![0.0; tokens.len() * width];
        let step = if self.graphs.is_some() { RECORDED_STEP } else { 1 };
        let batches = text::batches(&tokens, batch, step);
        let mut results = stream::iter(batches).map(|batch| self.submit(batch)).buffered(IN_FLIGHT);
        while let Some((members, rows)) = results.try_next().await? {
            for (member, row) in members.iter().zip(rows.chunks_exact(width)) {
                values[member * width..][..width].copy_from_slice(row);
            }
            done(members.len());
        }
        Ok(Vectors { width, values, tokens: tokens.iter().map(Vec::len).sum() })
    }

    /// Queues one batch. The future gives the batch's members and their rows.
    ///
    /// Everything is queued when this returns, the read too, so that batches run in the order of the calls.
    fn submit(&self, batch: Batch) -> impl Future<Output = Result<(Vec<usize>, Vec<f32>), EmbedError>> + Send + use<> {
        let read = match &self.graphs {
            Some(graphs) => graphs.submit(&self.client, &self.model, &batch).map(Either::Left),
            None => {
                let sentences = Sentences::upload(&self.client, &batch);
                Ok(Either::Right(self.client.read_one_async(self.model.forward(&self.client, &sentences))))
            }
        };
        async move {
            let rows = read?.await?;
            let rows = rows.try_into_vec().map_err(|bytes| EmbedError::Odd { bytes: bytes.len() })?;
            Ok((batch.members, rows))
        }
    }
}

impl Vectors {
    /// How many vectors there are.
    pub(crate) fn len(&self) -> usize {
        self.values.len() / self.width
    }

    /// The vector of text `index`.
    ///
    /// # Panics
    /// There is no such text.
    pub(crate) fn row(&self, index: usize) -> &[f32] {
        &self.values[index * self.width..][..self.width]
    }
}
