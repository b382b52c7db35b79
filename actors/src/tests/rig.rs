//! An actor on a simulated device, driven turn by turn from the test's own thread.

use crate::actor::{DeviceActor, ShellOptions};
use crate::bytes::Bytes;
use crate::ending::Ending;
use crate::engine::EngineOptions;
use crate::error::ServerError;
use crate::id::{BufferId, DeviceId, Holder, ServiceId, StreamId};
use crate::kernel::{BufferAccess, CubeKernel};
use crate::mailbox::{Mailbox, mailbox};
use crate::message::{Body, BufferRange, Count, Kernel, Launch};
use crate::meter::Meter;
use crate::port::Device;
use crate::reply::{Answer, Reply, reply};
use crate::sim::{SimControl, SimDevice, SimKernel, SimOptions};
use crate::tensor::Rows;
use std::any::TypeId;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Turns after which a test counts as hung.
const TURNS_MAX: usize = 100_000;

/// The actor, and the ways to it.
pub(super) struct Rig {
    actor: DeviceActor<SimDevice>,
    pub(super) control: SimControl,
    pub(super) mailbox: Mailbox,
    pub(super) kernels: Kernels,
    /// What the registry asks before it gives the actor to another client.
    pub(super) ending: Arc<Ending>,
    runtime: tokio::runtime::Runtime,
}

/// Kernels on words, each with what it does to its buffers.
#[derive(Clone)]
pub(super) struct Kernels {
    /// Every word becomes the first parameter.
    pub(super) fill: SimKernel,
    /// Every word x becomes a * x + b.
    pub(super) affine: SimKernel,
    /// The second buffer becomes the first.
    pub(super) copy: SimKernel,
    /// The third becomes the sum of the first two.
    pub(super) add: SimKernel,
}

pub(super) fn word(bytes: &[u8], index: usize) -> u32 {
    u32::from_ne_bytes(bytes[4 * index..4 * index + 4].try_into().unwrap())
}

fn put(bytes: &mut [u8], index: usize, value: u32) {
    bytes[4 * index..4 * index + 4].copy_from_slice(&value.to_ne_bytes());
}

impl Kernels {
    fn new() -> Self {
        use BufferAccess::{Read, ReadWrite, Write};
        Self {
            fill: SimKernel::new("fill", vec![Write], |_, b: &mut [&mut [u8]], info: &[u8]| {
                (0..b[0].len() / 4).for_each(|i| put(b[0], i, word(info, 0)));
            }),
            affine: SimKernel::new("affine", vec![ReadWrite], |_, b: &mut [&mut [u8]], info: &[u8]| {
                for i in 0..b[0].len() / 4 {
                    let x = word(b[0], i).wrapping_mul(word(info, 0)).wrapping_add(word(info, 1));
                    put(b[0], i, x);
                }
            }),
            copy: SimKernel::new("copy", vec![Read, Write], |_, b: &mut [&mut [u8]], _: &[u8]| {
                for i in 0..b[1].len() / 4 {
                    let x = word(b[0], i);
                    put(b[1], i, x);
                }
            }),
            add: SimKernel::new("add", vec![Read, Read, Write], |_, b: &mut [&mut [u8]], _: &[u8]| {
                for i in 0..b[2].len() / 4 {
                    let x = word(b[0], i).wrapping_add(word(b[1], i));
                    put(b[2], i, x);
                }
            }),
        }
    }
}

impl Rig {
    pub(super) fn new(options: SimOptions) -> Self {
        let budget = options.properties.memory.total;
        Self::with_budget(options, budget)
    }

    pub(super) fn with_budget(options: SimOptions, memory_budget: u64) -> Self {
        let device = SimDevice::new(options);
        let control = device.control();
        let service = ServiceId { device: DeviceId::new(1, 1), service: TypeId::of::<SimDevice>() };
        let (mailbox, inbox) = mailbox(service, 1 << 20);
        let engine = EngineOptions {
            actor: mailbox.actor(),
            properties: device.properties(),
            limits: device.limits(),
            memory_budget,
            zero_memory: false,
        };
        let ending = Arc::new(Ending::default());
        let shell = ShellOptions {
            spin: Duration::ZERO,
            records: None,
            ending: ending.clone(),
            meter: Meter::new("sim", service.device),
        };
        let target = Arc::new(device.target());
        let actor = DeviceActor::new(device, inbox, target, engine, shell);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Self { actor, control, mailbox, kernels: Kernels::new(), ending, runtime }
    }

    pub(super) fn turn(&mut self) {
        let _entered = self.runtime.enter();
        self.actor.turn();
    }

    /// Asks, and takes turns until there is an answer.
    pub(super) fn ask<T: Send>(&mut self, stream: StreamId, body: impl FnOnce(Reply<T>) -> Body) -> T {
        let answer = self.begin(stream, body);
        self.wait(answer).expect("the actor runs")
    }

    /// Asks, and leaves the answer for later.
    pub(super) fn begin<T>(&mut self, stream: StreamId, body: impl FnOnce(Reply<T>) -> Body) -> Answer<T> {
        let (send, answer) = reply();
        self.mailbox.send(stream, body(send));
        answer
    }

    pub(super) fn wait<T: Send>(&mut self, answer: Answer<T>) -> Result<T, ServerError> {
        let mut future = Box::pin(answer.wait());
        for _ in 0..TURNS_MAX {
            if let Poll::Ready(value) = poll(&mut future) {
                return value;
            }
            self.turn();
            if self.actor.engine().is_waiting_for_threads() {
                std::thread::yield_now();
            }
        }
        panic!("no answer after {TURNS_MAX} turns");
    }

    /// Live reservations, bytes in use, graphs, held messages.
    pub(super) fn counts(&mut self) -> [u64; 4] {
        self.actor.engine().counts()
    }

    /// Places of timestamps that are in use, and all that there are.
    pub(super) fn timestamps(&mut self) -> [usize; 2] {
        self.actor.engine().timestamps()
    }

    // ------------------------------------------------------------------------------ what clients send

    pub(super) fn reserve(&mut self, stream: StreamId, size: u64) -> BufferId {
        let buffer = BufferId::fresh();
        self.mailbox.send(stream, Body::Reserve { buffer, size, holder: Holder::current(), wait: None });
        buffer
    }

    pub(super) fn release(&mut self, stream: StreamId, buffer: BufferId) {
        self.mailbox.send(stream, Body::Release { buffer });
    }

    pub(super) fn write(&mut self, stream: StreamId, to: BufferRange, words: &[u32]) {
        let bytes = Bytes::from_elems(words.to_vec());
        let rows = Rows::contiguous(bytes.len() as u64);
        self.mailbox.send(stream, Body::Write { to, rows, bytes, budget: 0, placed: false });
    }

    pub(super) fn launch(&mut self, stream: StreamId, kernel: &SimKernel, buffers: &[BufferRange], info: &[u32]) {
        let bytes: Vec<u8> = info.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let launch = Launch {
            id: kernel.id(),
            kernel: Kernel(Some(Box::new(kernel.clone()))),
            count: Count::Static([1; 3]),
            buffers: buffers.iter().copied().collect(),
            info: bytes.into_iter().collect(),
            refused: None,
            budgeted: false,
        };
        self.mailbox.send(stream, Body::Launch(launch));
    }

    pub(super) fn begin_read(&mut self, stream: StreamId, range: BufferRange) -> ReadAnswer {
        self.begin(stream, |reply| Body::Read { parts: vec![(range, Rows::contiguous(range.size))], reply })
    }

    pub(super) fn finish_read(&mut self, answer: ReadAnswer) -> Result<Vec<u32>, ServerError> {
        let bytes = self.wait(answer)??;
        Ok(bytemuck::pod_collect_to_vec(&bytes[0]))
    }

    pub(super) fn read(&mut self, stream: StreamId, range: BufferRange) -> Result<Vec<u32>, ServerError> {
        let answer = self.begin_read(stream, range);
        self.finish_read(answer)
    }

    pub(super) fn sync(&mut self) -> Result<(), ServerError> {
        self.ask(StreamId::DEFAULT, |reply| Body::Sync { ranges: Vec::new(), reply })
    }

    pub(super) fn cleanup(&mut self) {
        self.ask(StreamId::DEFAULT, |reply| Body::Cleanup { reply });
    }
}

/// A read that was sent.
pub(super) type ReadAnswer = Answer<Result<Vec<Bytes>, ServerError>>;

fn poll<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}
