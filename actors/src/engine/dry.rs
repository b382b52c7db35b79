//! Buffers that a dry run reserved: they have a place and no memory, until something uses them.

use crate::engine::Engine;
use crate::engine::command::Outbox;
use crate::engine::hold::names;
use crate::engine::transfer::finish_upload;
use crate::error::{IoError, ServerError};
use crate::id::BufferId;
use crate::message::{Body, Envelope, GraphCall};

impl Engine {
    /// Gives memory to what a message uses and a dry run reserved. Nothing comes back where the message waits for that
    /// memory, or has failed for want of it.
    pub(super) fn back_used(&mut self, envelope: Envelope, waited: bool, out: &mut Outbox) -> Option<Envelope> {
        if !self.buffers.any_unbacked() || self.lost.is_some() {
            return Some(envelope);
        }
        let is_dry = self.memory.is_dry(envelope.stream);
        while let Some(buffer) = self.unbacked(&envelope.body) {
            if is_dry {
                return self.count_only(envelope, out);
            }
            let Some(slice) = self.buffers.get(buffer).and_then(|buffer| buffer.slice) else {
                unreachable!("{buffer:?} is unbacked and has no place")
            };
            if let Err(shortage) = self.memory.back(slice.id) {
                self.short(envelope, shortage, waited, out);
                return None;
            }
            self.buffers.back(buffer);
            if self.options.zero_memory {
                self.zero(envelope.stream, slice, out);
            }
        }
        Some(envelope)
    }

    /// In a dry run launches do not run and writes write nothing. What has an answer says why there is none.
    fn count_only(&mut self, envelope: Envelope, out: &mut Outbox) -> Option<Envelope> {
        match envelope.body {
            Body::Copy { .. } | Body::Launch(_) | Body::Write { .. } => Some(envelope),
            _ => {
                let reason = "reserved in a dry run, which backs no memory: use it when the dry run is over".to_owned();
                self.fail_use(envelope, IoError::Unsupported(reason).into(), out);
                None
            }
        }
    }

    /// A message fails for want of memory.
    pub(super) fn fail_use(&mut self, envelope: Envelope, error: ServerError, out: &mut Outbox) {
        let Envelope { lease, stream, body } = envelope;
        match body {
            Body::Copy { to, .. } => self.buffers.fail(&to, error),
            Body::Graph(GraphCall::Rebind { reply, .. }) => reply.send(Err(error)),
            Body::Launch(mut launch) => {
                launch.refused = Some(Box::new(error));
                self.launch(lease, stream, launch, out);
            }
            Body::Lend { reply, .. } => reply.send(Err(error)),
            Body::Read { reply, .. } => reply.send(Err(error)),
            Body::Resource { reply, .. } => reply.send(Err(error)),
            Body::Write { to, budget, .. } => {
                self.buffers.fail(&to, error);
                finish_upload(budget, out);
            }
            other => unreachable!("{other:?} uses no memory"),
        }
    }

    /// The first buffer without memory of those that a message reads or writes on the device.
    fn unbacked(&self, body: &Body) -> Option<BufferId> {
        let mut found = None;
        let mut see = |id| {
            found = Some(id).filter(|id| self.buffers.is_unbacked(*id));
            found.is_some()
        };
        match body {
            // What was refused does not run.
            Body::Launch(launch) if launch.refused.is_some() => {}
            Body::Copy { .. } | Body::Launch(_) | Body::Read { .. } | Body::Resource { .. } | Body::Write { .. } => {
                _ = names(body, see)
            }
            Body::Graph(GraphCall::Rebind { new, .. }) => _ = see(new.buffer),
            _ => {}
        }
        found
    }
}
