//! Text to token ids, and token ids to batches.

use super::error::EmbedError;
use super::weights::read;
use std::path::Path;
use tokenizers::{Tokenizer, TruncationParams};

/// The model's tokenizer.
pub(crate) struct Text(Tokenizer);

/// Texts that run together, padded to one length.
pub(crate) struct Batch {
    /// Which texts they are.
    pub(crate) members: Vec<usize>,
    /// Token ids, `padded` of them a text.
    pub(crate) ids: Vec<u32>,
    /// Tokens of each text.
    pub(crate) lengths: Vec<u32>,
    /// Tokens that each text takes up.
    pub(crate) padded: u32,
}

impl Text {
    /// Reads `tokenizer.json`.
    pub(crate) async fn read(dir: &Path) -> Result<Self, EmbedError> {
        let path = dir.join("tokenizer.json");
        let refused = |error: tokenizers::Error| EmbedError::File { path: path.clone(), reason: error.to_string() };
        let mut tokenizer = Tokenizer::from_bytes(read(&path).await?).map_err(refused)?;
        // The file asks for 128 tokens, always: neither the model's limit nor what a short text should cost.
        let cut = TruncationParams { max_length: TOKENS_MAX, ..TruncationParams::default() };
        tokenizer.with_padding(None).with_truncation(Some(cut)).map_err(refused)?;
        Ok(Self(tokenizer))
    }

    /// The token ids of each text, at most [`TOKENS_MAX`].
    pub(crate) fn encode(&self, texts: Vec<String>) -> Result<Vec<Vec<u32>>, EmbedError> {
        let encodings = self.0.encode_batch_fast(texts, true).map_err(|error| EmbedError::Text(error.to_string()))?;
        Ok(encodings.iter().map(|encoding| encoding.get_ids().to_vec()).collect())
    }
}

/// Groups texts of like length, so that little is padded: at most `size` texts and [`BATCH_TOKENS_MAX`] tokens each,
/// every text padded to a multiple of `step` tokens. The longest come first: their buffers serve all that follow.
pub(crate) fn batches(texts: &[Vec<u32>], size: usize, step: usize) -> Vec<Batch> {
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|&text| std::cmp::Reverse(texts[text].len()));
    let mut rest = order.as_slice();
    let mut batches = Vec::new();
    while let Some(&longest) = rest.first() {
        let padded = texts[longest].len().next_multiple_of(step);
        let (members, later) = rest.split_at(size.min(BATCH_TOKENS_MAX / padded).clamp(1, rest.len()));
        batches.push(Batch::new(texts, members, padded));
        rest = later;
    }
    batches
}

impl Batch {
    /// How many texts there are.
    pub(crate) fn count(&self) -> u32 {
        self.lengths.len() as u32
    }

    fn new(texts: &[Vec<u32>], members: &[usize], padded: usize) -> Self {
        let mut ids = vec![PAD; members.len() * padded];
        for (row, &text) in ids.chunks_exact_mut(padded).zip(members) {
            row[..texts[text].len()].copy_from_slice(&texts[text]);
        }
        let lengths = members.iter().map(|&text| texts[text].len() as u32).collect();
        Self { members: members.to_vec(), ids, lengths, padded: padded as u32 }
    }
}

/// Where the model was trained to cut.
const TOKENS_MAX: usize = 256;
/// The widest activation has 1536 f32 a token: 96 MiB, below the 128 MiB that every Vulkan device can bind.
const BATCH_TOKENS_MAX: usize = 16 * 1024;
/// What stands where there is no token. Any id would do, since nothing looks at it.
const PAD: u32 = 0;
