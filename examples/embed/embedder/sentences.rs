//! A batch on the device.

use super::text::Batch;
use vkactor::{Bytes, Client, Handle};

/// Token ids and lengths, as the kernels take them.
pub(crate) struct Sentences {
    /// u32 [count, padded].
    pub(crate) ids: Handle,
    /// u32 [count].
    pub(crate) lengths: Handle,
    pub(crate) count: u32,
    /// Tokens that each sentence takes up.
    pub(crate) padded: u32,
}

impl Sentences {
    pub(crate) fn upload(client: &Client, batch: &Batch) -> Self {
        Self {
            ids: client.create_from_slice(bytemuck::cast_slice(&batch.ids)),
            lengths: client.create_from_slice(bytemuck::cast_slice(&batch.lengths)),
            count: batch.count(),
            padded: batch.padded,
        }
    }

    /// Puts other sentences in their place: a batch of the same shape.
    pub(crate) fn write(&self, client: &Client, batch: &Batch) {
        client.write(&self.ids, Bytes::from_elems(batch.ids.clone()));
        client.write(&self.lengths, Bytes::from_elems(batch.lengths.clone()));
    }

    /// Rows of an activation: one a token, padding included.
    pub(crate) fn rows(&self) -> u32 {
        self.count * self.padded
    }
}
