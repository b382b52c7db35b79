//! Nearest neighbours among unit vectors.

use super::embedder::Vectors;

/// The `top` vectors nearest to `query`, nearest first, each with its cosine similarity. Of equals the earlier comes first.
pub(crate) fn nearest(vectors: &Vectors, query: &[f32], top: usize) -> Vec<(usize, f32)> {
    let dot = |index| vectors.row(index).iter().zip(query).map(|(a, b)| a * b).sum();
    let mut found: Vec<(usize, f32)> = (0..vectors.len()).map(|index| (index, dot(index))).collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    found.truncate(top);
    found
}
