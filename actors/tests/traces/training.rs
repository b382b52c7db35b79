//! Training: activations that live from the way forward to the way back, gradients, and the optimiser's state.

use super::{Device, Program, Tensor, Trace, Transformer};

struct Job {
    model: Transformer,
    /// Bytes of one element of activations and gradients.
    element_bytes: u64,
    /// Texts of a step.
    batch: u64,
    /// Tokens of the longest of them: each step has others.
    tokens_max: u64,
    /// Whether the scores of attention are kept: one for each pair of tokens and each head.
    heads_kept: u64,
    steps: u64,
}

pub(super) fn trace(device: Device) -> Trace {
    let job = match device {
        Device::Small => Job {
            model: Transformer {
                layers: 6,
                width: 512,
                cache_width: 512,
                hidden: 1536,
                vocabulary: 16_000,
                weight_bytes: 4,
            },
            element_bytes: 4,
            batch: 16,
            tokens_max: 256,
            heads_kept: 8,
            steps: 12,
        },
        // Three thousand million weights, with copies in single precision.
        Device::Large => Job {
            model: Transformer {
                layers: 28,
                width: 3072,
                cache_width: 1024,
                hidden: 8192,
                vocabulary: 128_256,
                weight_bytes: 2,
            },
            element_bytes: 2,
            batch: 8,
            tokens_max: 2048,
            heads_kept: 0,
            steps: 12,
        },
    };
    let mut program = Program::new();
    job.model.load(&mut program);
    let mut state = Vec::new();
    for _ in 0..job.steps {
        let tokens = job.tokens_max - program.below(job.tokens_max / 2);
        job.step(&mut program, tokens, &mut state);
    }
    program.end("training steps")
}

impl Job {
    fn step(&self, program: &mut Program, tokens: u64, state: &mut Vec<Tensor>) {
        let kept: Vec<Vec<Tensor>> = (0..self.model.layers).map(|_| self.forward(program, tokens)).collect();
        let rows = self.batch * tokens;
        let loss = [program.reserve(rows * self.model.vocabulary * self.element_bytes / 4), program.reserve(4)];
        let mut gradients = vec![program.reserve(self.model.vocabulary * self.model.width * self.element_bytes)];
        program.release_all(loss);
        for activations in kept.into_iter().rev() {
            gradients.extend(self.backward(program, rows, activations));
        }
        self.optimise(program, gradients, state);
    }

    /// One layer: what is kept for the way back, and what is not.
    fn forward(&self, program: &mut Program, tokens: u64) -> Vec<Tensor> {
        let Transformer { width, cache_width, hidden, .. } = self.model;
        let rows = self.batch * tokens;
        let mut kept = Vec::new();
        for wide in [width, width, cache_width, cache_width, width, width, hidden, hidden, width] {
            let workspace = program.reserve(rows * wide * self.element_bytes / 2);
            kept.push(program.reserve(rows * wide * self.element_bytes));
            program.release(workspace);
        }
        if self.heads_kept > 0 {
            kept.push(program.reserve(self.batch * self.heads_kept * tokens * tokens * self.element_bytes));
        }
        kept.push(program.reserve(rows * 4));
        kept
    }

    /// One layer: the gradients of its weights.
    fn backward(&self, program: &mut Program, rows: u64, activations: Vec<Tensor>) -> Vec<Tensor> {
        let of_weights = self.model.layer().into_iter().rev();
        let mut upstream = program.reserve(rows * self.model.width * self.element_bytes);
        let mut gradients = Vec::new();
        for (activation, elements) in activations.into_iter().rev().zip(of_weights.cycle()) {
            let next = program.reserve(rows * self.model.width * self.element_bytes);
            if gradients.len() < self.model.layer().len() {
                gradients.push(program.reserve(elements * self.element_bytes));
            }
            program.release(activation);
            let old = std::mem::replace(&mut upstream, next);
            program.release(old);
        }
        program.release(upstream);
        gradients
    }

    /// Two moments and a copy of each weight, made at the first step.
    fn optimise(&self, program: &mut Program, gradients: Vec<Tensor>, state: &mut Vec<Tensor>) {
        let is_first = state.is_empty();
        for gradient in gradients {
            let bytes = program.sizes[gradient.0 as usize] / self.element_bytes * 4;
            if is_first {
                state.extend(program.reserve_all([bytes; 2]));
            }
            let update = program.reserve(bytes);
            program.release_all([update, gradient]);
        }
    }
}
