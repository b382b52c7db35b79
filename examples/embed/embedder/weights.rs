//! The model's files: configuration, and named tensors of f32.

use super::error::EmbedError;
use bytes::Bytes;
use safetensors::tensor::Metadata;
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The sizes of a BERT encoder, as `config.json` names them.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Config {
    pub(crate) hidden_act: String,
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) layer_norm_eps: f64,
    pub(crate) max_position_embeddings: usize,
    pub(crate) num_attention_heads: usize,
    pub(crate) num_hidden_layers: usize,
    pub(crate) vocab_size: usize,
}

/// The weights in host memory. Tensors are cut out of the file's bytes without a copy.
pub(crate) struct Weights {
    pub(crate) config: Config,
    path: PathBuf,
    names: Metadata,
    /// What comes after the header: all tensors.
    tensors: Bytes,
}

impl Weights {
    /// Reads `config.json` and `model.safetensors`.
    pub(crate) async fn read(dir: &Path) -> Result<Self, EmbedError> {
        let path = dir.join("config.json");
        let config: Config = serde_json::from_slice(&read(&path).await?)
            .map_err(|error| EmbedError::File { path: path.clone(), reason: error.to_string() })?;
        let head = config.hidden_size / config.num_attention_heads.max(1);
        let sizes = [config.hidden_size, config.intermediate_size];
        if config.hidden_act != "gelu" || head != HEAD || sizes.iter().any(|size| !size.is_multiple_of(HEAD)) {
            let reason = format!(
                "the kernels are for heads of {HEAD}, sizes that are multiples of it, and gelu; not for {head}, {sizes:?} and {}",
                config.hidden_act
            );
            return Err(EmbedError::File { path, reason });
        }
        let path = dir.join("model.safetensors");
        let file = Bytes::from(read(&path).await?);
        let (header, names) = SafeTensors::read_metadata(&file)
            .map_err(|error| EmbedError::File { path: path.clone(), reason: error.to_string() })?;
        Ok(Self { config, path, names, tensors: file.slice(size_of::<u64>() + header..) })
    }

    /// The bytes of the tensor `name`, f32, row by row.
    ///
    /// # Errors
    /// The file has no such tensor, or one of another type or shape.
    pub(crate) fn tensor(&self, name: &str, shape: &[usize]) -> Result<Bytes, EmbedError> {
        let wrong = |reason| EmbedError::File { path: self.path.clone(), reason };
        let Some(tensor) = self.names.info(name) else { return Err(wrong(format!("no tensor {name}"))) };
        if tensor.dtype != Dtype::F32 || tensor.shape != shape {
            let reason = format!("{name} is {:?} {:?}, not F32 {shape:?}", tensor.dtype, tensor.shape);
            return Err(wrong(reason));
        }
        let (start, end) = tensor.data_offsets;
        Ok(self.tensors.slice(start..end))
    }
}

/// Reads a file of the model, and tells a missing one apart.
pub(crate) async fn read(path: &Path) -> Result<Vec<u8>, EmbedError> {
    tokio::fs::read(path).await.map_err(|error| match error.kind() {
        ErrorKind::NotFound => EmbedError::Missing { path: path.into() },
        _ => EmbedError::File { path: path.into(), reason: error.to_string() },
    })
}

/// Numbers in an attention head, as the attention kernel has them.
const HEAD: usize = 32;
