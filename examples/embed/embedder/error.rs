//! What can go wrong between a text and its vector.

use std::path::PathBuf;
use vkactor::ServerError;

/// Why there are no vectors.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EmbedError {
    /// The device failed.
    #[error("device: {0}")]
    Device(#[from] ServerError),
    /// A file of the model is there and cannot be used.
    #[error("{}: {reason}", path.display())]
    File { path: PathBuf, reason: String },
    /// A file of the model is not there.
    #[error(
        "no model: {} does not exist\nscripts/fetch-model.sh fetches it; --model DIR or VKACTOR_MODEL name another place",
        path.display()
    )]
    Missing { path: PathBuf },
    /// The device gave back what are not f32.
    #[error("the device gave {bytes} bytes, which are no row of f32")]
    Odd { bytes: usize },
    /// A task of ours panicked.
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
    /// The tokenizer refused a text.
    #[error("tokenizer: {0}")]
    Text(String),
}
