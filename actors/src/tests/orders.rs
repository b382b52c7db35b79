//! Any allowed order gives the same bytes as running in sequence, replays too, and nothing is left behind.

use super::rig::{ReadAnswer, Rig};
use crate::engine::command::GraphId;
use crate::id::{BufferId, StreamId};
use crate::message::{Body, BufferRange, GraphCall};
use crate::sim::SimOptions;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};

/// Words of a buffer: two halves that are bindings of their own.
const WORDS: usize = 32;
const BUFFERS: usize = 5;
const STREAMS: u64 = 3;

/// Part of a buffer.
#[derive(Debug, Clone, Copy)]
struct Part {
    buffer: usize,
    /// The whole, the first half, or the second.
    which: u8,
}

impl Part {
    fn words(self) -> std::ops::Range<usize> {
        match self.which {
            0 => 0..WORDS,
            1 => 0..WORDS / 2,
            _ => WORDS / 2..WORDS,
        }
    }
}

/// A launch.
#[derive(Debug, Clone)]
enum Run {
    Fill(Part, u32),
    Affine(Part, u32, u32),
    /// Both parts have one size and are of two buffers.
    Copy(Part, Part),
    Add(Part, Part, Part),
}

/// What clients do.
#[derive(Debug, Clone)]
enum Op {
    Run(u64, Run),
    Write(u64, Part, u32),
    Read(u64, Part),
    /// Drops a buffer and reserves another in its place, which is filled.
    Renew(u64, usize, u32),
    Flush(u64),
    Turn,
    /// Captures launches, replays them with other work between, and drops the graph or keeps it to the end. The
    /// replays in the second half are with one buffer in the place of another.
    Graph(u64, Vec<Run>, Vec<Run>, [usize; 2], bool),
}

impl Run {
    fn parts(&self) -> Vec<Part> {
        self.clone().parts_mut().into_iter().map(|part| *part).collect()
    }

    fn parts_mut(&mut self) -> Vec<&mut Part> {
        match self {
            Self::Fill(part, _) | Self::Affine(part, ..) => vec![part],
            Self::Copy(from, to) => vec![from, to],
            Self::Add(a, b, to) => vec![a, b, to],
        }
    }
}

fn run() -> impl Strategy<Value = Run> {
    let part = (0..BUFFERS, 0u8..3).prop_map(|(buffer, which)| Part { buffer, which });
    let other = |of: usize, by: usize| (of + by) % BUFFERS;
    prop_oneof![
        (part.clone(), any::<u32>()).prop_map(|(p, v)| Run::Fill(p, v)),
        (part.clone(), 0u32..9, 0u32..9).prop_map(|(p, a, b)| Run::Affine(p, a, b)),
        (part.clone(), 1..BUFFERS).prop_map(move |(p, by)| Run::Copy(p, Part { buffer: other(p.buffer, by), ..p })),
        (part, 1..BUFFERS, 1..BUFFERS - 1).prop_map(move |(p, x, y)| {
            let second = other(p.buffer, x);
            let third = (0..BUFFERS).filter(|b| *b != p.buffer && *b != second).nth(y % (BUFFERS - 2)).unwrap();
            Run::Add(p, Part { buffer: second, ..p }, Part { buffer: third, ..p })
        }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let part = (0..BUFFERS, 0u8..3).prop_map(|(buffer, which)| Part { buffer, which });
    let stream = 0..STREAMS;
    prop_oneof![
        12 => (stream.clone(), run()).prop_map(|(s, r)| Op::Run(s, r)),
        3 => (stream.clone(), part.clone(), any::<u32>()).prop_map(|(s, p, v)| Op::Write(s, p, v)),
        2 => (stream.clone(), part).prop_map(|(s, p)| Op::Read(s, p)),
        2 => (stream.clone(), 0..BUFFERS, any::<u32>()).prop_map(|(s, b, v)| Op::Renew(s, b, v)),
        1 => stream.clone().prop_map(Op::Flush),
        1 => Just(Op::Turn),
        1 => (stream, proptest::collection::vec(run(), 0..6), proptest::collection::vec(run(), 0..4),
              (0..BUFFERS, 0..BUFFERS), any::<bool>())
            .prop_map(|(s, kept, between, (old, new), drop)| Op::Graph(s, kept, between, [old, new], drop)),
    ]
}

/// The sequential result.
struct Model([Vec<u32>; BUFFERS]);

impl Model {
    fn get(&self, part: Part) -> Vec<u32> {
        self.0[part.buffer][part.words()].to_vec()
    }

    fn set(&mut self, part: Part, words: Vec<u32>) {
        self.0[part.buffer][part.words()].copy_from_slice(&words);
    }

    fn run(&mut self, run: &Run) {
        match *run {
            Run::Fill(p, v) => self.set(p, vec![v; p.words().len()]),
            Run::Affine(p, a, b) => {
                let words = self.get(p).into_iter().map(|x| x.wrapping_mul(a).wrapping_add(b)).collect();
                self.set(p, words);
            }
            Run::Copy(from, to) => self.set(to, self.get(from)),
            Run::Add(a, b, to) => {
                let words = self.get(a).into_iter().zip(self.get(b)).map(|(x, y)| x.wrapping_add(y)).collect();
                self.set(to, words);
            }
        }
    }
}

/// A program on its way.
struct Play {
    rig: Rig,
    model: Model,
    buffers: [BufferId; BUFFERS],
    graphs: Vec<(u64, GraphId)>,
    reads: Vec<(ReadAnswer, Vec<u32>)>,
}

impl Play {
    fn new(rig: Rig) -> Self {
        let mut play = Self {
            rig,
            model: Model(std::array::from_fn(|_| vec![0; WORDS])),
            buffers: [BufferId::FOREIGN; BUFFERS],
            graphs: Vec::new(),
            reads: Vec::new(),
        };
        (0..BUFFERS).for_each(|b| play.reserve(0, b, b as u32));
        play
    }

    fn range(&self, part: Part) -> BufferRange {
        let words = part.words();
        let buffer = self.buffers[part.buffer];
        BufferRange { buffer, offset: 4 * words.start as u64, size: 4 * words.len() as u64 }
    }

    fn reserve(&mut self, stream: u64, buffer: usize, value: u32) {
        self.buffers[buffer] = self.rig.reserve(StreamId(stream), 4 * WORDS as u64);
        self.write(stream, Part { buffer, which: 0 }, value);
    }

    fn write(&mut self, stream: u64, part: Part, value: u32) {
        let words: Vec<u32> = (0..part.words().len() as u32).map(|i| value.wrapping_add(i)).collect();
        self.rig.write(StreamId(stream), self.range(part), &words);
        self.model.set(part, words);
    }

    fn launch(&mut self, stream: u64, run: &Run) {
        let kernels = self.rig.kernels.clone();
        let stream = StreamId(stream);
        match *run {
            Run::Fill(p, v) => self.rig.launch(stream, &kernels.fill, &[self.range(p)], &[v]),
            Run::Affine(p, a, b) => self.rig.launch(stream, &kernels.affine, &[self.range(p)], &[a, b]),
            Run::Copy(from, to) => {
                self.rig.launch(stream, &kernels.copy, &[self.range(from), self.range(to)], &[]);
            }
            Run::Add(a, b, to) => {
                let ranges = [self.range(a), self.range(b), self.range(to)];
                self.rig.launch(stream, &kernels.add, &ranges, &[]);
            }
        }
    }

    fn step(&mut self, op: &Op) {
        match op {
            Op::Run(stream, run) => {
                self.launch(*stream, run);
                self.model.run(run);
            }
            Op::Write(stream, part, value) => self.write(*stream, *part, *value),
            Op::Read(stream, part) => {
                let answer = self.rig.begin_read(StreamId(*stream), self.range(*part));
                self.reads.push((answer, self.model.get(*part)));
            }
            Op::Renew(stream, buffer, value) => {
                self.rig.release(StreamId(*stream), self.buffers[*buffer]);
                self.reserve(*stream, *buffer, *value);
            }
            Op::Flush(stream) => {
                let _answer = self.rig.begin(StreamId(*stream), |reply| Body::Flush { reply });
            }
            Op::Turn => self.rig.turn(),
            Op::Graph(stream, kept, between, exchange, drop) => self.graph(*stream, kept, between, *exchange, *drop),
        }
    }

    fn graph(&mut self, stream: u64, kept: &[Run], between: &[Run], exchange: [usize; 2], drop: bool) {
        // A stream of its own, on which nothing else can come into the window.
        let (stream, other) = (stream + STREAMS, stream);
        let call = |reply| Body::Graph(GraphCall::Prepare { reply });
        self.rig.ask(StreamId(stream), call).unwrap();
        let call = |reply| Body::Graph(GraphCall::Start { reply });
        self.rig.ask(StreamId(stream), call).unwrap();
        kept.iter().for_each(|run| self.launch(stream, run));
        let call = |reply| Body::Graph(GraphCall::Stop { reply });
        let graph = self.rig.ask(StreamId(stream), call).unwrap().graph;
        let mut kept = kept.to_vec();
        for (at, run) in between.iter().enumerate() {
            self.replay(stream, graph, &kept);
            if at == between.len() / 2 {
                self.rebind(stream, graph, &mut kept, exchange);
            }
            self.launch(other, run);
            self.model.run(run);
        }
        self.replay(stream, graph, &kept);
        if drop {
            self.rig.mailbox.send(StreamId(stream), Body::Graph(GraphCall::Drop { graph }));
        } else {
            self.graphs.push((stream, graph));
        }
    }

    /// Puts a buffer in the place of another, which a launch must not have already.
    fn rebind(&mut self, stream: u64, graph: GraphId, kept: &mut [Run], [old, new]: [usize; 2]) {
        let [from, to] = [old, new].map(|buffer| self.range(Part { buffer, which: 0 }));
        let call = |reply| Body::Graph(GraphCall::Rebind { graph, old: from, new: to, reply });
        let done = self.rig.ask(StreamId(stream), call);
        let is_used = kept.iter().any(|run| run.parts().iter().any(|part| part.buffer == old));
        // What a launch writes is the last of its parts, and none of the others.
        let is_free = kept.iter().all(|run| {
            let names: Vec<usize> = run.parts().iter().map(|p| if p.buffer == old { new } else { p.buffer }).collect();
            let (written, read) = names.split_last().unwrap();
            !read.contains(written)
        });
        assert_eq!(done.is_ok(), is_used && is_free, "{done:?}");
        if done.is_ok() {
            let put = |part: &mut Part| part.buffer = if part.buffer == old { new } else { part.buffer };
            kept.iter_mut().for_each(|run| run.parts_mut().into_iter().for_each(put));
        }
    }

    fn replay(&mut self, stream: u64, graph: GraphId, kept: &[Run]) {
        let call = |reply| Body::Graph(GraphCall::Replay { graph, reply, budgeted: false });
        let _answer = self.rig.begin::<Result<(), _>>(StreamId(stream), call);
        kept.iter().for_each(|run| self.model.run(run));
    }

    /// Compares what was read on the way and what is there at the end.
    fn end(&mut self) -> Result<(), String> {
        for buffer in 0..BUFFERS {
            self.step(&Op::Read(0, Part { buffer, which: 0 }));
        }
        for (number, (answer, expected)) in std::mem::take(&mut self.reads).into_iter().enumerate() {
            let found = self.rig.finish_read(answer).map_err(|e| format!("read {number}: {e}"))?;
            if found != expected {
                return Err(format!("read {number}: {found:?}, not {expected:?}"));
            }
        }
        Ok(())
    }

    /// Drops everything; what is left.
    fn leave(mut self) -> Result<(), String> {
        for buffer in self.buffers {
            self.rig.release(StreamId(0), buffer);
        }
        for (stream, graph) in std::mem::take(&mut self.graphs) {
            self.rig.mailbox.send(StreamId(stream), Body::Graph(GraphCall::Drop { graph }));
        }
        self.rig.sync().map_err(|e| e.to_string())?;
        self.rig.cleanup();
        self.rig.turn();
        let counts = self.rig.counts();
        let left = self.rig.control.counters();
        if counts != [0; 4] || left.graphs != 0 || left.bytes > HOST_BYTES_KEPT {
            return Err(format!("left behind: {counts:?}, {left:?}"));
        }
        Ok(())
    }
}

/// Empty host pages that the pools may keep for the next copies.
const HOST_BYTES_KEPT: u64 = 64 << 20;

fn play(program: &[Op], seed: u64, dropped: Option<u64>) -> (Play, Result<(), String>) {
    let rig = Rig::new(SimOptions { seed, ..SimOptions::default() });
    if let Some(number) = dropped {
        rig.control.drop_barrier(number);
    }
    let mut play = Play::new(rig);
    program.iter().for_each(|op| play.step(op));
    let result = play.end();
    (play, result)
}

#[test]
fn any_allowed_order_gives_the_bytes_of_the_sequence() {
    let mut runner = TestRunner::new(Config::with_cases(2_000));
    let programs = (proptest::collection::vec(op(), 1..60), any::<u64>());
    let result = runner.run(&programs, |(program, seed)| {
        let (play, result) = play(&program, seed, None);
        prop_assert_eq!(result, Ok(()));
        prop_assert_eq!(play.rig.control.conflicts(), vec![], "commands without a barrier between them");
        prop_assert_eq!(play.leave(), Ok(()));
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// The score counts barriers that matter: one that stands before a replay, or behind it, may order nothing.
#[test]
fn a_barrier_taken_out_is_noticed() {
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(1) });
    let programs = proptest::collection::vec(op().prop_filter("no graphs", |op| !matches!(op, Op::Graph(..))), 40..60);
    let (mut taken, mut noticed) = (0, 0);
    for seed in 0..150 {
        let program = programs.new_tree(&mut runner).unwrap().current();
        let (whole, result) = play(&program, seed, None);
        assert_eq!(result, Ok(()));
        let barriers = whole.rig.control.counters().barriers;
        for number in (0..barriers).step_by(3) {
            let (play, result) = play(&program, seed, Some(number));
            taken += 1;
            noticed += u32::from(result.is_err() || !play.rig.control.conflicts().is_empty());
        }
    }
    println!("mutation score: {noticed} of {taken} barriers taken out were noticed");
    assert!(taken >= 1_000 && noticed * 100 >= taken * 99, "{noticed} of {taken}");
}

/// How soon wrong bytes alone give a missing barrier away, without the checker of orders.
#[test]
fn a_missing_barrier_shows_in_the_bytes_within_a_thousand_orders() {
    let part = |buffer| Part { buffer, which: 0 };
    let program = [Op::Run(0, Run::Affine(part(0), 3, 1)), Op::Run(1, Run::Affine(part(0), 5, 2))];
    let (whole, result) = play(&program, 0, None);
    assert_eq!(result, Ok(()));
    let barriers = whole.rig.control.counters().barriers;
    let found = (0..1_000).find(|&seed| (0..barriers).any(|number| play(&program, seed, Some(number)).1.is_err()));
    println!("a missing barrier showed in the bytes of order {found:?}");
    assert!(found.is_some());
}
