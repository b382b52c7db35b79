//! A server: requests of many lengths come and go, some at once.

use super::{Device, Program, SEED, Step, Tensor, Trace, Transformer};

/// The lengths of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lengths {
    /// Any number of tokens.
    Any,
    /// Powers of two: servers pad, so that kernels and graphs are used again.
    Buckets,
}

/// A server at work.
pub(crate) struct Server {
    program: Program,
    model: Transformer,
    lengths: Lengths,
    /// Tokens of a request, from the shortest to the longest.
    tokens: (u64, u64),
    /// Tokens of a prompt that are read at once.
    chunk: u64,
    /// No request is taken while more than this lives.
    live_bytes_max: u64,
    /// Rounds that a request takes at most.
    rounds_max: u64,
    open: Vec<Request>,
}

/// A request that was taken.
struct Request {
    caches: Vec<Tensor>,
    /// Rounds until it is answered.
    rounds: u64,
    tokens: u64,
}

/// Two thousand rounds.
pub(super) fn trace(device: Device) -> Trace {
    let mut server = Server::large(device);
    (0..ROUNDS).for_each(|_| _ = server.round());
    server.program.end("server, mixed requests")
}

impl Server {
    /// Fills most of a device.
    fn large(device: Device) -> Self {
        let (model, longest, live_bytes_max) = match device {
            Device::Small => {
                let model = Transformer {
                    layers: 12,
                    width: 768,
                    cache_width: 768,
                    hidden: 2048,
                    vocabulary: 30_000,
                    weight_bytes: 2,
                };
                (model, 2048, 1200 << 20)
            }
            // Eight thousand million weights.
            Device::Large => {
                let model = Transformer {
                    layers: 32,
                    width: 4096,
                    cache_width: 1024,
                    hidden: 14_336,
                    vocabulary: 128_256,
                    weight_bytes: 2,
                };
                (model, 131_072, 100 << 30)
            }
        };
        Self {
            program: Program::new(),
            model,
            lengths: Lengths::Any,
            tokens: (16, longest),
            chunk: 8192,
            live_bytes_max,
            rounds_max: 40,
            open: Vec::new(),
        }
        .loaded()
    }

    /// A small model and short requests, to serve very many.
    pub(crate) fn light(lengths: Lengths) -> Self {
        let model =
            Transformer { layers: 2, width: 256, cache_width: 256, hidden: 1024, vocabulary: 1000, weight_bytes: 2 };
        Self {
            program: Program::new(),
            model,
            lengths,
            tokens: (16, 1024),
            chunk: 128,
            live_bytes_max: 24 << 20,
            rounds_max: 8,
            open: Vec::new(),
        }
        .loaded()
    }

    fn loaded(mut self) -> Self {
        self.model.load(&mut self.program);
        self
    }

    /// Takes as many requests as there are, the same each day, and answers all of them.
    pub(crate) fn day(&mut self, requests: u64) {
        self.program.state = SEED;
        let mut taken = 0;
        while taken < requests {
            taken += self.round();
        }
        let open = std::mem::take(&mut self.open);
        open.into_iter().for_each(|request| self.program.release_all(request.caches));
    }

    /// What it did since it was asked last.
    pub(crate) fn take_steps(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.program.steps)
    }

    /// Takes some requests, brings all a step on, and answers those that are done. Returns how many were taken.
    fn round(&mut self) -> u64 {
        let mut taken = 0;
        for _ in 0..self.program.below(4) {
            let mut tokens = self.program.log_uniform(self.tokens.0, self.tokens.1);
            if self.lengths == Lengths::Buckets {
                tokens = tokens.next_power_of_two();
            }
            let caches = 2 * self.model.layers * self.cache_bytes(tokens);
            if self.program.live_bytes + caches <= self.live_bytes_max {
                let rounds = 1 + self.program.below(self.rounds_max);
                let request = self.take(tokens, rounds);
                self.open.push(request);
                taken += 1;
            }
        }
        let Self { program, model, open, .. } = self;
        for request in open.iter_mut() {
            request.rounds -= 1;
            model.pass_layer(program, request.tokens.min(ANSWER_TOKENS));
        }
        for done in open.extract_if(.., |request| request.rounds == 0) {
            program.release_all(done.caches);
        }
        taken
    }

    /// Reads a prompt, by chunks where it is long.
    fn take(&mut self, tokens: u64, rounds: u64) -> Request {
        let mut caches = Vec::new();
        for _ in 0..self.model.layers {
            caches.extend(self.program.reserve_all([self.cache_bytes(tokens); 2]));
            self.model.pass_layer(&mut self.program, tokens.min(self.chunk));
        }
        Request { caches, rounds, tokens }
    }

    fn cache_bytes(&self, tokens: u64) -> u64 {
        tokens * self.model.cache_width * 2
    }
}

const ROUNDS: u64 = 2_000;
/// Tokens of an answer that one step gives.
const ANSWER_TOKENS: u64 = 16;
