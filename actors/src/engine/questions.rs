//! What callers ask without changing anything.

use crate::engine::Engine;
use crate::engine::command::{Action, Outbox};
use crate::engine::timeline::Waiter;
use crate::error::ServerError;
use crate::id::StreamId;
use crate::message::BufferRange;
use crate::reply::Reply;
use std::any::Any;

impl Engine {
    /// Answers once everything sent before is done.
    pub(super) fn sync(
        &mut self,
        stream: StreamId,
        ranges: Vec<BufferRange>,
        reply: Reply<Result<(), ServerError>>,
        out: &mut Outbox,
    ) {
        match self.allow(stream, "sync") {
            Ok(()) => self.when_done(Waiter::Sync { ranges, reply }, out),
            Err(error) => reply.send(Err(error)),
        }
    }

    /// Names a slice for code outside. What is recorded so far is sent off, for that code to wait for.
    pub(super) fn resource(
        &mut self,
        range: &BufferRange,
        reply: Reply<Result<Box<dyn Any + Send>, ServerError>>,
        out: &mut Outbox,
    ) {
        if let Err(error) = self.alive().and_then(|()| self.buffers.check([range])) {
            return reply.send(Err(error));
        }
        let Some(at) = self.buffers.span(range) else {
            let reason = "a buffer of no bytes has no memory to name".to_owned();
            return reply.send(Err(crate::error::IoError::Unsupported(reason).into()));
        };
        self.submit(out);
        out.actions.push(Action::AnswerResource { at, reply });
    }
}
