//! Profiling windows and capture windows: the calls that open and close them, and replays.

use crate::engine::Engine;
use crate::engine::command::{Action, Command, GraphId, Outbox, SealReply, Span};
use crate::engine::fault::Found;
use crate::engine::graph::{Graph, Recording, refused};
use crate::engine::launch::check_aliases;
use crate::engine::observe::Work;
use crate::engine::profile::Window;
use crate::engine::timeline::Waiter;
use crate::error::{ProfileError, ServerError};
use crate::id::StreamId;
use crate::message::{BufferRange, GraphCall, Sealed};
use crate::profile::{ProfileTicks, ProfileWindow};
use crate::reply::Reply;
use std::sync::Arc;

impl Engine {
    // ------------------------------------------------------------------------------ profiling

    pub(super) fn start_window(&mut self, window: ProfileWindow, reply: Option<Reply<Result<(), ProfileError>>>) {
        match (self.allow(window.stream_id, "profile"), reply) {
            (Ok(()), reply) => {
                self.windows.open(window, None);
                if let Some(reply) = reply {
                    reply.send(Ok(()));
                }
            }
            (Err(refusal), Some(reply)) => reply.send(Err(refusal.into())),
            (Err(refusal), None) => self.windows.open(window, Some(refusal)),
        }
    }

    pub(super) fn end_window(
        &mut self,
        window: ProfileWindow,
        reply: Option<Reply<Result<(), ProfileError>>>,
        ticks: Reply<Result<ProfileTicks, ProfileError>>,
        out: &mut Outbox,
    ) {
        match (self.allow(window.stream_id, "profile"), reply) {
            (Ok(()), None) => {}
            (Ok(()), Some(reply)) => reply.send(Ok(())),
            // The window stays open.
            (Err(refusal), Some(reply)) => return reply.send(Err(refusal.into())),
            (Err(refusal), None) => {
                self.abandon_window(window);
                return ticks.send(Err(refusal.into()));
            }
        }
        let Some(Window { start, failed, .. }) = self.windows.close(window) else {
            return ticks.send(Err(ProfileError::NotRegistered));
        };
        match (failed, start) {
            (Some(error), start) => {
                self.give_back_later(start);
                ticks.send(Err(error.into()));
            }
            (None, None) => ticks.send(Err(ProfileError::NotMeasured)),
            (None, Some(start)) => {
                self.make_room(out);
                let end = self.take_time(1, out);
                self.when_done(Waiter::Ticks { start, end, reply: ticks }, out);
            }
        }
    }

    /// Forgets a window.
    pub(super) fn abandon_window(&mut self, window: ProfileWindow) {
        let start = self.windows.close(window).and_then(|w| w.start);
        self.give_back_later(start);
    }

    /// Frees the place of a timestamp behind what is recorded now: it may be on its way still.
    fn give_back_later(&mut self, start: Option<crate::engine::command::TimestampSlot>) {
        let Some(start) = start else { return };
        match self.timeline.last() {
            Some(submission) => submission.slots.push(start),
            None => self.windows.give_back(start),
        }
    }

    /// Places of timestamps that are in use, and all that there are.
    #[cfg(test)]
    pub(crate) fn timestamps(&self) -> [usize; 2] {
        self.windows.places()
    }

    // ------------------------------------------------------------------------------ capture

    pub(super) fn graph_call(&mut self, stream: StreamId, call: GraphCall, out: &mut Outbox) {
        match call {
            GraphCall::Drop { graph } => self.drop_graph(graph, out),
            GraphCall::Prepare { reply } => {
                let result = self.alive().and_then(|()| self.stream(stream).capture.prepare());
                reply.send(result);
            }
            GraphCall::Rebind { graph, old, new, reply } => self.rebind(graph, &old, &new, reply, out),
            GraphCall::Replay { graph, reply, budgeted } => {
                let result = self.replay(stream, graph, budgeted, out);
                if budgeted && !matches!(result, Ok(true)) {
                    out.actions.push(Action::FinishLaunches(1));
                }
                reply.send(result.map(|_| ()));
            }
            GraphCall::Start { reply } => {
                let result = self.alive().and_then(|()| self.stream(stream).capture.start());
                if result.is_err() {
                    out.actions.push(Action::EndCapture);
                }
                tracing::debug!(stream = stream.0, started = result.is_ok(), "capture");
                reply.send(result);
            }
            GraphCall::Stop { reply } => match self.stop_capture(stream, out) {
                Ok((sealed, tape)) => {
                    let (recording, reply) = (sealed.graph, SealReply::Stopped(reply));
                    out.actions.push(Action::Seal { recording, like: None, sealed, tape, reply });
                }
                Err(error) => reply.send(Err(error)),
            },
        }
    }

    fn stop_capture(
        &mut self,
        stream: StreamId,
        out: &mut Outbox,
    ) -> Result<(Sealed, crate::engine::command::Commands), ServerError> {
        let (recording, cause) = self.stream(stream).capture.stop()?;
        out.actions.push(Action::EndCapture);
        if let Some(cause) = cause {
            tracing::debug!(stream = stream.0, launches = recording.tape.len(), %cause, "a capture gives no graph");
            self.discard(&recording, &cause);
            return Err(cause);
        }
        let id = self.next_graph();
        let graph = self.keep(id, *recording);
        let held = graph.buffers.iter().filter_map(|b| self.buffers.get(*b)?.slice).map(|s| s.padded).sum::<u64>();
        let sealed = Sealed {
            graph: id,
            kind: self.options.properties.features.graph,
            launches: graph.tape.len(),
            barriers: graph.score.barriers,
            bytes_held: held + graph.owned.iter().map(|s| s.padded).sum::<u64>(),
        };
        tracing::debug!(
            stream = stream.0,
            graph = id.0,
            launches = sealed.launches,
            barriers = sealed.barriers,
            bytes = sealed.bytes_held,
            "captured"
        );
        let tape = graph.score.commands.clone();
        self.graphs.insert(id, graph);
        Ok((sealed, tape))
    }

    /// Nobody is left on a stream to close its window.
    pub(super) fn leave(&mut self, stream: StreamId, out: &mut Outbox) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        let Ok((recording, cause)) = state.capture.stop() else { return };
        out.actions.push(Action::EndCapture);
        let cause = cause.unwrap_or_else(|| refused("capture: every client of the stream is gone"));
        tracing::debug!(stream = stream.0, %cause, "a capture gives no graph");
        self.discard(&recording, &cause);
    }

    fn next_graph(&mut self) -> GraphId {
        self.next_token += 1;
        GraphId(self.next_token)
    }

    /// What a good window leaves.
    fn keep(&self, id: GraphId, recording: Recording) -> Graph {
        let inputs = recording.tape.inputs();
        let is_input = |span: &Span| inputs.contains(span);
        let lives = |range: &BufferRange| self.buffers.get(range.buffer).is_some();
        let mut reads: Vec<BufferRange> =
            recording.reads.iter().filter(|(r, span)| lives(r) && is_input(span)).map(|(r, _)| *r).collect();
        let key = |r: &BufferRange| (r.buffer, r.offset, r.size);
        reads.sort_unstable_by_key(key);
        reads.dedup();
        let mut outputs: Vec<(BufferRange, bool)> = recording.writes.into_iter().filter(|(r, _)| lives(r)).collect();
        // What is read before it is written keeps its failure: such an output is no clean one.
        outputs.sort_unstable_by_key(|(r, read)| (key(r), !read));
        outputs.dedup_by_key(|(r, _)| key(r));
        Graph {
            recording: id,
            score: recording.tape.score(),
            tape: recording.tape,
            buffers: recording.buffers,
            owned: recording.owned,
            inputs: reads,
            outputs,
            before: None,
        }
    }

    /// What a doomed window leaves: its outputs were never written.
    fn discard(&mut self, recording: &Recording, cause: &ServerError) {
        let claim = self.buffers.ledger.fail(cause.clone());
        recording.writes.iter().for_each(|(range, _)| self.buffers.claim(range, claim.clone()));
        recording.buffers.iter().for_each(|buffer| self.disown(*buffer));
        recording.owned.iter().for_each(|slice| self.memory.release(slice.id));
    }

    /// Enqueues a replay. True where it went to the queue.
    fn replay(&mut self, stream: StreamId, id: GraphId, budgeted: bool, out: &mut Outbox) -> Result<bool, ServerError> {
        self.allow(stream, "replay")?;
        let Some(graph) = self.graphs.get(&id) else { return Err(refused("replay: there is no such graph")) };
        let (launches, recording) = (graph.tape.len(), graph.recording);
        if launches == 0 || self.memory.is_dry(stream) {
            return Ok(false);
        }
        if self.buffers.any_spoiled() && !self.failures_allow(id) {
            return Ok(false);
        }
        self.make_room(out);
        self.begin_work(stream, out);
        let noted = self.begin_note(out);
        let conflicts = self.hazards.access_everything();
        self.separate(conflicts, out);
        out.commands.list.push(Command::Replay(recording));
        if self.options.limits.late_failures
            && let Some(graph) = self.graphs.get(&id)
        {
            let outputs = graph.outputs.iter().map(|(range, _)| *range).collect();
            self.timeline.open.replays.push((recording, outputs));
        }
        self.tally.replays += 1;
        self.timeline.open.commands += 1;
        if let Some(start) = noted {
            self.end_note(stream, Work::Replay { launches }, start, out);
        }
        self.timeline.open.launches += usize::from(budgeted);
        Ok(true)
    }

    /// Whether what a replay reads was ever written. If not, what it writes carries the same failures.
    fn failures_allow(&mut self, id: GraphId) -> bool {
        let Some(graph) = self.graphs.get(&id) else { return true };
        let mut found = Found::default();
        graph.inputs.iter().for_each(|range| self.buffers.find(range, &mut found));
        if found.is_empty() {
            for (range, read) in &graph.outputs {
                if !read {
                    self.buffers.heal(range);
                }
            }
            return true;
        }
        let step: Arc<str> = "graph replay".into();
        for (range, _) in &graph.outputs {
            found.claims().iter().for_each(|claim| self.buffers.claim(range, claim.through(&step)));
        }
        false
    }

    fn rebind(
        &mut self,
        id: GraphId,
        old: &BufferRange,
        new: &BufferRange,
        reply: Reply<Result<(), ServerError>>,
        out: &mut Outbox,
    ) {
        let rebound = match self.rebound(id, old, new) {
            Ok(rebound) => rebound,
            Err(error) => return reply.send(Err(error)),
        };
        let tape = rebound.score.commands.clone();
        let sealed = Sealed {
            graph: id,
            kind: self.options.properties.features.graph,
            launches: rebound.tape.len(),
            barriers: rebound.score.barriers,
            bytes_held: 0,
        };
        let recording = rebound.recording;
        let Some(graph) = self.graphs.get_mut(&id) else { unreachable!("it was rebound") };
        let before = std::mem::replace(graph, rebound);
        let like = Some(before.recording);
        graph.before = Some(Box::new(before));
        let reply = SealReply::Rebound(reply);
        out.actions.push(Action::Seal { recording, like, sealed, tape, reply });
    }

    /// What a graph becomes with `new` in the place of `old`, under a new recording.
    fn rebound(&mut self, id: GraphId, old: &BufferRange, new: &BufferRange) -> Result<Graph, ServerError> {
        self.alive()?;
        let (Some(from), Some(to)) = (self.buffers.span(old), self.buffers.span(new)) else {
            return Err(refused("rebind: a buffer has no memory"));
        };
        if from.size != to.size {
            return Err(refused(&format!("rebind: {} bytes for {}", to.size, from.size)));
        }
        let alignment = self.options.properties.memory.alignment;
        if from.offset % alignment != to.offset % alignment {
            let reason = format!("rebind: the new buffer lies otherwise than the old to a multiple of {alignment}");
            return Err(refused(&reason));
        }
        let recording = self.next_graph();
        let Some(graph) = self.graphs.get(&id) else { return Err(refused("rebind: there is no such graph")) };
        let mut rebound = graph.rebound((old, from), (new, to))?;
        if !self.options.limits.aliased_bindings {
            rebound.tape.accesses().try_for_each(|accesses| {
                check_aliases("a launch of the graph", accesses).map_err(|error| refused(&format!("rebind: {error}")))
            })?;
        }
        rebound.recording = recording;
        let left = self.buffers.get(old.buffer).and_then(|buffer| buffer.slice);
        if left.is_some_and(|slice| !rebound.tape.uses(slice.span)) {
            rebound.buffers.retain(|buffer| *buffer != old.buffer);
        }
        Ok(rebound)
    }

    /// The shell has asked the device to keep the recording of [`Action::Seal`].
    pub fn seal_answered(&mut self, id: GraphId, kept: bool, out: &mut Outbox) {
        let Some(graph) = self.graphs.get_mut(&id) else { return };
        match (graph.before.take(), kept) {
            (None, true) => {}
            (None, false) => {
                if let Some(graph) = self.graphs.remove(&id) {
                    self.let_go(&graph, out);
                }
            }
            (Some(before), false) => *graph = *before,
            (Some(before), true) => {
                let (now, then) = (graph.buffers.clone(), before.buffers);
                for id in now.iter().filter(|id| !then.contains(id)) {
                    if let Some(buffer) = self.buffers.get_mut(*id) {
                        buffer.owners += 1;
                    }
                }
                // Replays of the old recording may be on their way; what they use is free for work behind them.
                then.iter().filter(|id| !now.contains(id)).for_each(|id| self.disown(*id));
                self.retire(before.recording, out);
                self.feed(out);
            }
        }
    }

    /// Drops a recording behind the last submission that may name it.
    fn retire(&mut self, recording: GraphId, out: &mut Outbox) {
        match self.timeline.last() {
            Some(submission) => submission.graphs.push(recording),
            None => out.actions.push(Action::DropGraph(recording)),
        }
    }

    /// Gives back what a graph keeps.
    fn let_go(&mut self, graph: &Graph, out: &mut Outbox) {
        graph.buffers.iter().for_each(|buffer| self.disown(*buffer));
        graph.owned.iter().for_each(|slice| self.memory.release(slice.id));
        self.feed(out);
    }

    /// The last holder of a graph is gone: its memory may be used by later work at once.
    pub(super) fn drop_graph(&mut self, id: GraphId, out: &mut Outbox) {
        let Some(graph) = self.graphs.remove(&id) else { return };
        self.retire(graph.recording, out);
        self.let_go(&graph, out);
    }
}
