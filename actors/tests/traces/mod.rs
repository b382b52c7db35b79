//! What programs ask of a memory manager: reservations and releases, in the order in which they come.
//!
//! Sizes are those of models that fill most of the device, and every trace is the same on each run. The tests of the
//! pools and `benches/memory.rs` share them.

mod decode;
mod models;
pub(crate) mod pools;
pub(crate) mod server;
mod tiny;
mod training;

/// How large a device the program is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Device {
    /// A software device, or one of a laptop: 2 GiB.
    Small,
    /// A data centre's: 140 GiB.
    Large,
}

/// One call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// What was reserved under this name is not used any more.
    Release(u32),
    /// `bytes` are needed, under a name that is free.
    Reserve {
        /// The name: small and used again.
        name: u32,
        /// More than none.
        bytes: u64,
    },
}

/// A program.
#[derive(Debug)]
pub(crate) struct Trace {
    /// What it does.
    pub(crate) name: &'static str,
    /// Its calls. What it still has at the end is not released.
    pub(crate) steps: Vec<Step>,
    /// How many names it uses.
    pub(crate) names: u32,
}

impl Device {
    /// Bytes of its memory.
    pub(crate) fn memory_bytes(self) -> u64 {
        match self {
            Self::Small => 2 << 30,
            Self::Large => 140 << 30,
        }
    }
}

impl Trace {
    /// All traces for a device.
    pub(crate) fn all(device: Device) -> Vec<Self> {
        vec![
            decode::trace(device),
            training::trace(device),
            server::trace(device),
            tiny::trace(device),
            models::trace(device),
        ]
    }

    /// The most bytes that live at once, each reservation rounded up to `alignment`.
    pub(crate) fn peak_bytes(&self, alignment: u64) -> u64 {
        let mut sizes = vec![0; self.names as usize];
        let (mut live, mut peak) = (0, 0);
        for step in &self.steps {
            match *step {
                Step::Release(name) => live -= sizes[name as usize],
                Step::Reserve { name, bytes } => {
                    sizes[name as usize] = bytes.next_multiple_of(alignment);
                    live += sizes[name as usize];
                    peak = peak.max(live);
                }
            }
        }
        peak
    }
}

/// Writes a trace down.
struct Program {
    steps: Vec<Step>,
    sizes: Vec<u64>,
    unused: Vec<u32>,
    live_bytes: u64,
    state: u64,
}

/// Something reserved.
#[derive(Debug)]
struct Tensor(u32);

impl Program {
    fn new() -> Self {
        Self { steps: Vec::new(), sizes: Vec::new(), unused: Vec::new(), live_bytes: 0, state: SEED }
    }

    fn end(self, name: &'static str) -> Trace {
        Trace { name, steps: self.steps, names: self.sizes.len() as u32 }
    }

    fn reserve(&mut self, bytes: u64) -> Tensor {
        let name = self.unused.pop().unwrap_or(self.sizes.len() as u32);
        self.sizes.resize(self.sizes.len().max(name as usize + 1), 0);
        self.sizes[name as usize] = bytes;
        self.live_bytes += bytes;
        self.steps.push(Step::Reserve { name, bytes });
        Tensor(name)
    }

    fn reserve_all(&mut self, bytes: impl IntoIterator<Item = u64>) -> Vec<Tensor> {
        bytes.into_iter().map(|bytes| self.reserve(bytes)).collect()
    }

    fn release(&mut self, Tensor(name): Tensor) {
        self.live_bytes -= self.sizes[name as usize];
        self.unused.push(name);
        self.steps.push(Step::Release(name));
    }

    fn release_all(&mut self, tensors: impl IntoIterator<Item = Tensor>) {
        tensors.into_iter().for_each(|tensor| self.release(tensor));
    }

    /// A number below `end`: the high bits of a linear congruential generator (Knuth's multiplier).
    fn below(&mut self, end: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % end
    }

    /// A number from `least` to `most`, as likely in one power of two as in another.
    fn log_uniform(&mut self, least: u64, most: u64) -> u64 {
        let power = 1 << (least.ilog2() + self.below(u64::from(most.ilog2() - least.ilog2()) + 1) as u32);
        (power + self.below(power)).clamp(least, most)
    }
}

/// The shape of a transformer.
#[derive(Debug, Clone, Copy)]
struct Transformer {
    layers: u64,
    /// Of the residual stream.
    width: u64,
    /// Of the keys, and of the values.
    cache_width: u64,
    /// Of the feed-forward part.
    hidden: u64,
    vocabulary: u64,
    /// Bytes of one weight.
    weight_bytes: u64,
}

impl Transformer {
    /// Elements of each weight of a layer: norms, projections of attention, the gated feed-forward part.
    fn layer(self) -> [u64; 9] {
        let Self { width, cache_width, hidden, .. } = self;
        let (square, narrow, wide) = (width * width, width * cache_width, width * hidden);
        [width, square, narrow, narrow, square, width, wide, wide, wide]
    }

    /// Elements of each weight: the embedding, all layers, the last norm, the head.
    fn weights(self) -> Vec<u64> {
        let ends = self.vocabulary * self.width;
        let layers = (0..self.layers).flat_map(|_| self.layer());
        [ends].into_iter().chain(layers).chain([self.width, ends]).collect()
    }

    fn load(self, program: &mut Program) -> Vec<Tensor> {
        program.reserve_all(self.weights().into_iter().map(|elements| elements * self.weight_bytes))
    }

    /// What one layer takes for `tokens` tokens beside its caches, each released when the next two are there: elements
    /// of two bytes.
    fn pass_layer(self, program: &mut Program, tokens: u64) {
        let Self { width, cache_width, hidden, .. } = self;
        let mut before = Vec::new();
        for wide in [width, width, cache_width, cache_width, width, width, width, hidden, hidden, hidden, width] {
            before.push(program.reserve(tokens * wide * 2));
            if before.len() > 2 {
                let oldest = before.remove(0);
                program.release(oldest);
            }
        }
        program.release_all(before);
    }
}

/// Where random numbers start.
const SEED: u64 = 1;
