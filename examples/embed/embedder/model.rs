//! The encoder: weights on the device, and the order of the launches.

use super::error::EmbedError;
use super::kernels::{Kernels, Linear, Norm, Tables};
use super::sentences::Sentences;
use super::weights::{Config, Weights};
use bytes::Bytes;
use vkactor::{Client, Handle};

/// A BERT encoder on one device.
pub(crate) struct Model {
    kernels: Kernels,
    tables: Tables,
    layers: Vec<Layer>,
    width: usize,
}

struct Layer {
    /// Query, key and value in one: [3 width, width].
    gather: Linear,
    mix: Linear,
    mix_norm: Norm,
    widen: Linear,
    narrow: Linear,
    narrow_norm: Norm,
}

impl Model {
    /// Sends the weights to the device.
    pub(crate) fn upload(client: &Client, weights: &Weights) -> Result<Self, EmbedError> {
        let upload = Upload { client, weights };
        let Config { hidden_size: width, max_position_embeddings, num_hidden_layers, vocab_size, .. } = weights.config;
        let table = |name, rows| upload.handle(&format!("embeddings.{name}_embeddings.weight"), &[rows, width]);
        Ok(Self {
            kernels: Kernels::new(&weights.config),
            tables: Tables {
                words: table("word", vocab_size)?,
                positions: table("position", max_position_embeddings)?,
                kinds: table("token_type", KINDS)?,
                norm: upload.norm("embeddings.LayerNorm")?,
            },
            layers: (0..num_hidden_layers).map(|layer| upload.layer(layer)).collect::<Result<_, _>>()?,
            width,
        })
    }

    /// Numbers in a sentence's vector.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Queues all of the model, and gives the buffer that will hold the sentences' vectors: [count, width].
    ///
    /// Each buffer on the way is dropped after its last use, and so free for the launches that follow.
    pub(crate) fn forward(&self, client: &Client, sentences: &Sentences) -> Handle {
        let mut rows = self.kernels.lookup(client, &self.tables, sentences);
        for layer in &self.layers {
            rows = layer.forward(client, &self.kernels, &rows, sentences);
        }
        self.kernels.pool(client, &rows, sentences)
    }
}

impl Layer {
    fn forward(&self, client: &Client, kernels: &Kernels, input: &Handle, sentences: &Sentences) -> Handle {
        let rows = sentences.rows();
        let mixed = {
            let qkv = kernels.linear(client, &self.gather, input, rows);
            let gathered = kernels.attention(client, &qkv, sentences);
            drop(qkv);
            let mixed = kernels.linear(client, &self.mix, &gathered, rows);
            kernels.norm(client, &self.mix_norm, &mixed, input, rows)
        };
        let wide = kernels.linear_gelu(client, &self.widen, &mixed, rows);
        let narrow = kernels.linear(client, &self.narrow, &wide, rows);
        drop(wide);
        kernels.norm(client, &self.narrow_norm, &narrow, &mixed, rows)
    }
}

/// Takes tensors by name to the device.
struct Upload<'a> {
    client: &'a Client,
    weights: &'a Weights,
}

impl Upload<'_> {
    fn layer(&self, layer: usize) -> Result<Layer, EmbedError> {
        let Config { hidden_size: width, intermediate_size: wide, .. } = self.weights.config;
        let name = |part: &str| format!("encoder.layer.{layer}.{part}");
        let parts = ["query", "key", "value"].map(|part| name(&format!("attention.self.{part}")));
        Ok(Layer {
            gather: self.linear(&parts, width, width)?,
            mix: self.linear(&[name("attention.output.dense")], width, width)?,
            mix_norm: self.norm(&name("attention.output.LayerNorm"))?,
            widen: self.linear(&[name("intermediate.dense")], wide, width)?,
            narrow: self.linear(&[name("output.dense")], width, wide)?,
            narrow_norm: self.norm(&name("output.LayerNorm"))?,
        })
    }

    /// One product that does the work of several: their columns stand side by side. A file has a row for each column.
    fn linear(&self, parts: &[String], columns: usize, inner: usize) -> Result<Linear, EmbedError> {
        let tensors = |suffix: &str, shape: &[usize]| {
            let tensor = |part: &String| self.weights.tensor(&format!("{part}.{suffix}"), shape);
            Ok::<_, EmbedError>(parts.iter().map(tensor).collect::<Result<Vec<Bytes>, _>>()?.concat())
        };
        let weight = packed(&tensors("weight", &[columns, inner])?, inner);
        Ok(Linear {
            weight: self.client.create(weight.into()),
            bias: self.client.create(tensors("bias", &[columns])?.into()),
            columns: (parts.len() * columns) as u32,
            inner: inner as u32,
        })
    }

    fn norm(&self, name: &str) -> Result<Norm, EmbedError> {
        let width = self.weights.config.hidden_size;
        Ok(Norm {
            gain: self.handle(&format!("{name}.weight"), &[width])?,
            offset: self.handle(&format!("{name}.bias"), &[width])?,
        })
    }

    fn handle(&self, name: &str, shape: &[usize]) -> Result<Handle, EmbedError> {
        Ok(self.client.create(self.weights.tensor(name, shape)?.into()))
    }
}

/// Turns rows of `inner` f32 into columns of vectors of 4: what was [columns, inner] becomes [inner / 4, columns, 4].
fn packed(rows: &[u8], inner: usize) -> Vec<u8> {
    const VECTOR: usize = 4 * size_of::<f32>();
    let row_bytes = inner * size_of::<f32>();
    let mut out = Vec::with_capacity(rows.len());
    for start in (0..row_bytes).step_by(VECTOR) {
        for row in rows.chunks_exact(row_bytes) {
            out.extend_from_slice(&row[start..start + VECTOR]);
        }
    }
    out
}

/// Token types of BERT: first and second sentence of a pair. We have no pairs, so that all are of type 0.
const KINDS: usize = 2;
