//! A transformer that writes text: its caches grow by a copy into a larger tensor.

use super::{Device, Program, Trace, Transformer};

/// What is generated.
struct Job {
    model: Transformer,
    /// Texts at once.
    batch: u64,
    /// Tokens of the longest text.
    tokens_max: u64,
    /// Tokens by which a cache grows at once.
    growth: u64,
    /// One batch after the other.
    batches: u64,
}

/// Three batches of prompts of random lengths, each written on to the same length.
pub(super) fn trace(device: Device) -> Trace {
    let job = match device {
        Device::Small => Job {
            model: Transformer {
                layers: 24,
                width: 1024,
                cache_width: 1024,
                hidden: 2816,
                vocabulary: 32_000,
                weight_bytes: 2,
            },
            batch: 4,
            tokens_max: 1536,
            growth: 1,
            batches: 3,
        },
        // 70 thousand million weights of a byte each.
        Device::Large => Job {
            model: Transformer {
                layers: 80,
                width: 8192,
                cache_width: 1024,
                hidden: 28_672,
                vocabulary: 128_256,
                weight_bytes: 1,
            },
            batch: 32,
            tokens_max: 4096,
            growth: 16,
            batches: 3,
        },
    };
    let mut program = Program::new();
    job.model.load(&mut program);
    for _ in 0..job.batches {
        let prompt = job.tokens_max / 8 + program.below(job.tokens_max / 8);
        job.generate(&mut program, prompt);
    }
    program.end("decode, growing caches")
}

impl Job {
    fn generate(&self, program: &mut Program, prompt: u64) {
        let Self { model, batch, .. } = *self;
        let cache_bytes = |tokens: u64| batch * tokens * model.cache_width * 2;
        let mut caches = Vec::new();
        for _ in 0..model.layers {
            caches.push([program.reserve(cache_bytes(prompt)), program.reserve(cache_bytes(prompt))]);
            model.pass_layer(program, batch * prompt);
        }
        let mut tokens = prompt;
        while tokens < self.tokens_max {
            tokens += self.growth;
            for cache in &mut caches {
                for side in cache {
                    let grown = program.reserve(cache_bytes(tokens));
                    let old = std::mem::replace(side, grown);
                    program.release(old);
                }
                model.pass_layer(program, batch);
            }
            let logits = program.reserve(batch * model.vocabulary * 4);
            program.release(logits);
        }
        program.release_all(caches.into_iter().flatten());
    }
}
