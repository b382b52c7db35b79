//! The model written out in plain Rust, one sentence at a time. It shares nothing with the example, so that golden data
//! and example can each be checked against it; it is made to be read, not to be fast.

use safetensors::SafeTensors;
use std::collections::HashMap;
use std::path::Path;

const WIDTH: usize = 384;
const HEADS: usize = 12;
const LAYERS: usize = 6;
const EPSILON: f32 = 1e-12;

/// All tensors by name.
pub(crate) struct Bert(HashMap<String, Vec<f32>>);

type Rows = Vec<Vec<f32>>;

impl Bert {
    /// Reads `model.safetensors` in `dir`.
    pub(crate) fn read(dir: &Path) -> Self {
        let path = dir.join("model.safetensors");
        let file = std::fs::read(&path)
            .unwrap_or_else(|error| panic!("{}: {error}; scripts/fetch-model.sh fetches the model", path.display()));
        let tensors = SafeTensors::deserialize(&file).expect("a safetensors file");
        // Positions are 64-bit numbers, and only count upwards: not needed.
        let weights = tensors.iter().filter(|(name, _)| !name.ends_with("position_ids"));
        let floats = |bytes: &[u8]| bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        Self(weights.map(|(name, tensor)| (name.to_owned(), floats(tensor.data()))).collect())
    }

    /// The unit vector of a sentence.
    pub(crate) fn embed(&self, ids: &[u32]) -> Vec<f32> {
        let part = |name: &str, row: usize| &self.0[&format!("embeddings.{name}_embeddings.weight")][row * WIDTH..];
        let sum = |(position, &id): (usize, &u32)| {
            let (word, position, kind) = (part("word", id as usize), part("position", position), part("token_type", 0));
            (0..WIDTH).map(|c| word[c] + position[c] + kind[c]).collect()
        };
        let mut rows = self.norm("embeddings.LayerNorm", &ids.iter().enumerate().map(sum).collect());
        for layer in 0..LAYERS {
            let name = |part: &str| format!("encoder.layer.{layer}.{part}");
            let mixed = self.linear(&name("attention.output.dense"), &self.attention(&name("attention.self"), &rows));
            rows = self.norm(&name("attention.output.LayerNorm"), &add(&mixed, &rows));
            let mut wide = self.linear(&name("intermediate.dense"), &rows);
            wide.iter_mut().flatten().for_each(|x| *x = gelu(*x));
            rows = self.norm(&name("output.LayerNorm"), &add(&self.linear(&name("output.dense"), &wide), &rows));
        }
        let mean: Vec<f32> =
            (0..WIDTH).map(|c| rows.iter().map(|row| row[c]).sum::<f32>() / rows.len() as f32).collect();
        let length = dot(&mean, &mean).sqrt();
        mean.iter().map(|x| x / length).collect()
    }

    fn attention(&self, name: &str, rows: &Rows) -> Rows {
        let [queries, keys, values] =
            ["query", "key", "value"].map(|part| self.linear(&format!("{name}.{part}"), rows));
        let size = WIDTH / HEADS;
        let mut out = vec![vec![0.0; WIDTH]; rows.len()];
        for head in (0..WIDTH).step_by(size).map(|start| start..start + size) {
            for (query, out) in queries.iter().zip(&mut out) {
                let score = |key: &Vec<f32>| dot(&query[head.clone()], &key[head.clone()]) / (size as f32).sqrt();
                let scores: Vec<f32> = keys.iter().map(score).collect();
                let peak = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let shares: Vec<f32> = scores.iter().map(|score| (score - peak).exp()).collect();
                let total: f32 = shares.iter().sum();
                for c in head.clone() {
                    out[c] = shares.iter().zip(&values).map(|(share, value)| share * value[c]).sum::<f32>() / total;
                }
            }
        }
        out
    }

    fn linear(&self, name: &str, rows: &Rows) -> Rows {
        let (weight, bias) = (&self.0[&format!("{name}.weight")], &self.0[&format!("{name}.bias")]);
        let inner = weight.len() / bias.len();
        let product = |row: &Vec<f32>| weight.chunks(inner).zip(bias).map(|(w, b)| dot(row, w) + b).collect();
        rows.iter().map(product).collect()
    }

    fn norm(&self, name: &str, rows: &Rows) -> Rows {
        let (gain, offset) = (&self.0[&format!("{name}.weight")], &self.0[&format!("{name}.bias")]);
        let norm = |row: &Vec<f32>| {
            let mean = row.iter().sum::<f32>() / WIDTH as f32;
            let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / WIDTH as f32;
            (0..WIDTH).map(|c| (row[c] - mean) / (variance + EPSILON).sqrt() * gain[c] + offset[c]).collect()
        };
        rows.iter().map(norm).collect()
    }
}

fn add(a: &Rows, b: &Rows) -> Rows {
    a.iter().zip(b).map(|(a, b)| a.iter().zip(b).map(|(a, b)| a + b).collect()).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x / std::f32::consts::SQRT_2))
}

/// By its Taylor series near zero and its continued fraction farther out, in f64: exact to f32, and by another way than
/// the kernel's polynomial.
fn erf(x: f32) -> f32 {
    let x = f64::from(x);
    let z = x.abs();
    let scale = (-z * z).exp() / std::f64::consts::PI.sqrt();
    let value = if z < 3.0 {
        let (mut term, mut sum) = (z, z);
        for n in 1..60 {
            term *= 2.0 * z * z / f64::from(2 * n + 1);
            sum += term;
        }
        2.0 * scale * sum
    } else {
        1.0 - scale / (1..30).rev().fold(z, |tail, n| z + 0.5 * f64::from(n) / tail)
    };
    value.copysign(x) as f32
}
