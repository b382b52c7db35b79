//! What a warm launch costs in allocations: none on the actor's side, from the mailbox to the outbox.

#[path = "../../tests/common/counting.rs"]
mod counting;

use counting::allocations;
use std::any::TypeId;
use vkactor_actors::engine::command::{Action, Outbox, TimelineValue};
use vkactor_actors::engine::{Engine, EngineOptions};
use vkactor_actors::error::CompilationError;
use vkactor_actors::id::{BufferId, DeviceId, Holder, ServiceId, StreamId};
use vkactor_actors::kernel::{BufferAccess, CubeKernel, KernelId, KernelSource};
use vkactor_actors::mailbox::mailbox;
use vkactor_actors::message::{Body, BufferRange, Count, Event, Kernel, Launch};
use vkactor_actors::port::{Device, Reflection};
use vkactor_actors::properties::TargetProperties;
use vkactor_actors::server::Server;

/// A kernel without state: boxing it allocates nothing, so that only our own allocations are counted.
struct Blank;

impl CubeKernel for Blank {
    fn name(&self) -> &str {
        "blank"
    }

    fn id(&self) -> KernelId {
        KernelId::new("blank")
    }

    fn source(&self, _: &TargetProperties) -> Result<KernelSource, CompilationError> {
        Err(CompilationError::Unsupported { kernel: "blank".into(), feature: "running".into() })
    }
}

/// Does what the shell would, without a device: submissions are done at once.
fn carry_out(engine: &mut Engine, out: &mut Outbox, actions: &mut Vec<Action>) {
    loop {
        std::mem::swap(&mut out.actions, actions);
        if actions.is_empty() {
            return;
        }
        for action in actions.drain(..) {
            match action {
                Action::AllocatePage { page, .. } => engine.page_answered(page, true, out),
                Action::Compile { pipeline, .. } => {
                    let buffers = Some(vec![BufferAccess::ReadWrite, BufferAccess::Read]);
                    let reflection = Reflection { buffers, measured: Vec::new(), info_bytes: Some(8) };
                    engine.handle(Event::Compiled { pipeline, result: Ok((reflection, Box::new(()))) }, out);
                }
                Action::Submit { value, mut commands } => {
                    commands.clear();
                    out.spare.push(commands);
                    engine.handle(Event::Progress(TimelineValue(value.0)), out);
                }
                _ => {}
            }
        }
    }
}

#[test]
fn a_warm_launch_allocates_nothing_between_mailbox_and_outbox() {
    let device = vkactor_actors::host::Host::open(DeviceId::new(9, 9)).unwrap().into_device();
    let service = ServiceId { device: DeviceId::new(9, 9), service: TypeId::of::<Blank>() };
    let (mailbox, inbox) = mailbox(service, 1 << 20);
    let properties = device.properties();
    let mut engine = Engine::new(EngineOptions {
        actor: mailbox.actor(),
        memory_budget: properties.memory.total,
        properties,
        limits: vkactor_actors::port::Limits { late_failures: false, ..device.limits() },
        zero_memory: false,
    });
    let (mut out, mut actions, mut events) = (Outbox::default(), Vec::new(), Vec::new());
    let id = KernelId::new("blank");
    let [first, second] = [BufferId::fresh(), BufferId::fresh()];
    for buffer in [first, second] {
        mailbox.send(StreamId::DEFAULT, Body::Reserve { buffer, size: 1 << 16, holder: Holder::current(), wait: None });
    }
    let mut round = |launches: usize, measured: bool| {
        let before = allocations();
        for i in 0..launches as u64 {
            let range = |buffer, at: u64| BufferRange { buffer, offset: 256 * (at % 64), size: 256 };
            mailbox.send(
                StreamId::DEFAULT,
                Body::Launch(Launch {
                    id,
                    kernel: Kernel(Some(Box::new(Blank))),
                    count: Count::Static([1, 2, 3]),
                    buffers: [range(first, i), range(second, i + 1)].into_iter().collect(),
                    info: [0u8; 8].into_iter().collect(),
                    refused: None,
                    budgeted: true,
                }),
            );
        }
        inbox.take(&mut events);
        for event in events.drain(..) {
            engine.handle(event, &mut out);
            carry_out(&mut engine, &mut out, &mut actions);
        }
        engine.end_turn(true, &mut out);
        carry_out(&mut engine, &mut out, &mut actions);
        if measured { allocations() - before } else { 0 }
    };
    for _ in 0..4 {
        round(1_000, false);
    }
    assert_eq!(round(1_000, true), 0, "allocations of 1,000 warm launches");
}
