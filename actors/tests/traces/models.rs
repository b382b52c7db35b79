//! Two models that take turns: one is unloaded before the other is loaded.

use super::{Device, Program, Trace, Transformer};

struct Job {
    /// Few and large weights, for text.
    text: Transformer,
    texts: u64,
    /// Channels of each stage of a model for images.
    channels: [u64; 4],
    /// Blocks in each.
    blocks: u64,
    /// Images at once, and pixels along the side of one.
    images: u64,
    side: u64,
}

/// Six turns of each.
pub(super) fn trace(device: Device) -> Trace {
    let job = match device {
        Device::Small => Job {
            text: Transformer {
                layers: 24,
                width: 1024,
                cache_width: 1024,
                hidden: 2816,
                vocabulary: 32_000,
                weight_bytes: 2,
            },
            texts: 4,
            channels: [192, 384, 768, 1024],
            blocks: 8,
            images: 8,
            side: 128,
        },
        Device::Large => Job {
            text: Transformer {
                layers: 48,
                width: 6144,
                cache_width: 1536,
                hidden: 24_576,
                vocabulary: 128_256,
                weight_bytes: 2,
            },
            texts: 16,
            channels: [1024, 2048, 4096, 6144],
            blocks: 20,
            images: 64,
            side: 256,
        },
    };
    let mut program = Program::new();
    for _ in 0..6 {
        job.read_texts(&mut program);
        job.see_images(&mut program);
    }
    program.end("two models in turns")
}

impl Job {
    fn read_texts(&self, program: &mut Program) {
        let weights = self.text.load(program);
        for _ in 0..10 {
            let tokens = self.texts * (64 + program.below(960));
            let ids = program.reserve(tokens * 4);
            (0..self.text.layers).for_each(|_| self.text.pass_layer(program, tokens));
            program.release(ids);
        }
        program.release_all(weights);
    }

    fn see_images(&self, program: &mut Program) {
        let mut weights = Vec::new();
        for channels in self.channels {
            for _ in 0..self.blocks {
                // A convolution of 3 by 3, one of 1 by 1, and scales.
                weights.extend(program.reserve_all([9, 1].map(|taps| taps * channels * channels * 2)));
                weights.extend(program.reserve_all([channels * 4; 4]));
            }
        }
        for _ in 0..10 {
            let images = self.images / 2 + program.below(self.images / 2);
            let mut image = program.reserve(images * self.side * self.side * 3 * 4);
            for (stage, channels) in self.channels.into_iter().enumerate() {
                let side = self.side >> (stage + 1);
                for _ in 0..self.blocks {
                    let inner = program.reserve(images * side * side * channels * 2);
                    let next = program.reserve(images * side * side * channels * 2);
                    let old = std::mem::replace(&mut image, next);
                    program.release_all([inner, old]);
                }
            }
            program.release(image);
        }
        program.release_all(weights);
    }
}
