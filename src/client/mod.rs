//! The client: a cheap handle on a device's actor.

mod collective;
mod create;
mod graph;
mod launch;
mod memory;
mod profile;
mod read;
mod shipment;
mod sync;
mod trace;
mod transfer;

pub use collective::ReduceOperation;
pub use graph::{Graph, GraphStats};
pub use memory::DryRun;
pub use sync::DynFut;

use std::fmt;
use std::future::Future;
use std::iter::successors;
use std::sync::Arc;
use vkactor_actors::error::{ComputeError, ServerError};
use vkactor_actors::handle::Handle;
use vkactor_actors::id::{DeviceId, ServiceId, StreamId};
use vkactor_actors::mailbox::Mailbox;
use vkactor_actors::message::{Body, BufferRange};
use vkactor_actors::presence::Presence;
use vkactor_actors::properties::{DeviceProperties, Features, TargetProperties, VectorSize};
use vkactor_actors::registry::{ActorOptions, ActorRef, load, start};
use vkactor_actors::reply::{Answer, Reply, reply};
use vkactor_actors::server::ServerStorage;
use vkactor_actors::wait::spin_then_block_on;

/// A handle on one device, through one stream.
///
/// Cloning is two atomic increments, and the clone is on the same stream. All calls may be made from any thread,
/// inside a runtime or outside; no call holds a lock while it waits. When the last client of a device is dropped, and
/// the last graph, lazy bytes and [`Compute`](crate::Compute) that reached it, work that was sent is finished and the
/// device is closed.
#[derive(Clone)]
pub struct Client {
    /// Dropped before the actor: the last to leave a stream tells it.
    presence: Arc<Presence>,
    actor: Arc<ActorRef>,
}

impl Client {
    /// A client of a running actor, on the default stream.
    pub(crate) fn of(actor: Arc<ActorRef>) -> Self {
        Self::on(actor, StreamId::DEFAULT)
    }

    fn on(actor: Arc<ActorRef>, stream: StreamId) -> Self {
        Self { presence: Presence::on(actor.mailbox(), stream), actor }
    }

    /// Starts an actor for `server` under `device_id`.
    ///
    /// # Panics
    /// Where [`Client::try_init`] gives an error.
    pub fn init<S: ServerStorage>(device_id: DeviceId, server: S) -> Self {
        Self::try_init(device_id, server).unwrap_or_else(|error| panic!("the device does not start: {error}"))
    }

    /// Starts an actor for `server` under `device_id`, which may be any id under which no `S` runs in this process.
    ///
    /// # Errors
    /// [`ComputeError::AlreadyRunning`] where an `S` runs under the id; it is not disturbed. Otherwise why the device
    /// does not start.
    pub fn try_init<S: ServerStorage>(device_id: DeviceId, server: S) -> Result<Self, ComputeError> {
        start(device_id, server, &ActorOptions::default()).map(Self::of)
    }

    /// Reaches the server of type `S` of this device, and opens it with default options if none runs.
    ///
    /// # Panics
    /// Where [`Client::try_load`] gives an error.
    pub fn load<S: ServerStorage>(device_id: DeviceId) -> Self {
        Self::try_load::<S>(device_id).unwrap_or_else(|error| panic!("the device does not load: {error}"))
    }

    /// Reaches the server of type `S` of this device, and opens it with default options if none runs. Simultaneous
    /// calls open it once.
    ///
    /// # Errors
    /// [`ComputeError::UnknownDevice`] where there is no such device; otherwise why it does not open.
    pub fn try_load<S: ServerStorage>(device_id: DeviceId) -> Result<Self, ComputeError> {
        load(device_id, &ActorOptions::default(), || S::open(device_id)).map(Self::of)
    }

    /// Moves this client value to another stream. Its clones, and handles made before, stay where they are.
    ///
    /// # Ordering
    /// What was sent before and what is sent after are ordered only where they meet in a buffer.
    ///
    /// # Safety
    /// No memory safety hangs on it. The caller takes over the order between all users of `stream_id`: whoever
    /// shares a stream shares its capture window, its allocation mode and its pools.
    #[expect(unsafe_code, reason = "the seed page declares it so; there is no unsafe operation inside")]
    pub unsafe fn set_stream(&mut self, stream_id: StreamId) {
        self.presence = Presence::on(self.mailbox(), stream_id);
    }

    /// The same device through a stream of its own, which nobody else has.
    pub fn fork(&self) -> Self {
        Self::on(self.actor.clone(), StreamId::fresh())
    }

    /// The runtime's name, the same for all its devices, as traces and cache keys show it.
    pub fn name(&self) -> &'static str {
        self.actor.name()
    }

    /// What the client reaches; its handles carry the same.
    pub fn service_id(&self) -> ServiceId {
        self.actor.service()
    }

    /// The stream that the calls of this value go through.
    pub fn stream_id(&self) -> StreamId {
        self.presence.stream()
    }

    /// Resolves when the device would take a launch without holding its sender back. Tasks that wait get their turn
    /// in the order of their first poll. Whoever holds the device (see [`Client::exclusive`]) when calling has his
    /// turn at once.
    ///
    /// # Errors
    /// [`ServerError::Closed`].
    ///
    /// # Cancellation
    /// A dropped future gives its place in the line up, and nothing else.
    pub fn ready(&self) -> impl Future<Output = Result<(), ServerError>> + Send + 'static + use<> {
        // The places may be taken by work that waits for the hold to end.
        let (mailbox, held) = (self.mailbox().clone(), self.holds_device());
        async move { if held && !mailbox.is_closed() { Ok(()) } else { mailbox.ready().await } }
    }

    /// What the device is. The same value for all its clients, made once.
    pub fn properties(&self) -> &DeviceProperties {
        self.actor.properties()
    }

    /// As [`Client::properties`], shared: it needs no client to live.
    pub fn properties_shared(&self) -> Arc<DeviceProperties> {
        self.actor.properties().clone()
    }

    /// What the device can do.
    pub fn features(&self) -> &Features {
        &self.properties().features
    }

    /// What kernels may rely on. Made once, when the device starts.
    pub fn target_properties(&self) -> &TargetProperties {
        self.actor.target()
    }

    /// As [`Client::target_properties`], shared: one atomic increment.
    pub fn target_properties_shared(&self) -> Arc<TargetProperties> {
        self.actor.target().clone()
    }

    /// How many elements of `size` bytes one load may take: powers of two, widest first, down to one. An element
    /// that is wider than a load is taken alone; for elements of no bytes there is nothing.
    pub fn io_optimized_vector_sizes(&self, size: usize) -> impl Iterator<Item = VectorSize> + Clone + use<> {
        vector_sizes(self.properties().hardware.load_width as usize / 8, size)
    }

    /// Whether this thread holds the device.
    pub(crate) fn holds_device(&self) -> bool {
        self.mailbox().lease().is_some()
    }

    /// [`Client::sync_buffers`], blocking.
    pub(crate) fn wait_for<'a>(&self, handles: impl IntoIterator<Item = &'a Handle>) -> Result<(), ServerError> {
        self.block(self.sync_buffers(handles))
    }

    fn mailbox(&self) -> &Mailbox {
        self.actor.mailbox()
    }

    /// Sends on the client's stream. A stopped actor drops the message, which ends the answer in it.
    fn send(&self, body: Body) {
        self.mailbox().send(self.stream_id(), body);
    }

    /// Sends a message that has an answer.
    fn ask<T>(&self, body: impl FnOnce(Reply<T>) -> Body) -> Answer<T> {
        let (reply, answer) = reply();
        self.send(body(reply));
        answer
    }

    /// Waits on this thread.
    fn block<F: Future>(&self, future: F) -> F::Output {
        spin_then_block_on(future, self.actor.spin())
    }

    /// Sends a message, and waits on this thread for its answer, which may be an error itself.
    fn ask_and_wait<T: Send, E: From<ServerError> + Send>(
        &self,
        body: impl FnOnce(Reply<Result<T, E>>) -> Body,
    ) -> Result<T, E> {
        self.block(self.ask(body).wait())?
    }

    /// The bytes that a handle of this device names.
    fn range_of(&self, handle: &Handle) -> Result<BufferRange, ServerError> {
        self.refuse_foreign(handle)?;
        handle.range()
    }

    /// The actor is compared, not the service: a device that was started afresh knows no handle of its last run.
    fn refuse_foreign(&self, handle: &Handle) -> Result<(), ServerError> {
        if handle.actor() == self.mailbox().actor() {
            return Ok(());
        }
        Err(ServerError::ForeignHandle { handle: handle.service_id(), client: self.service_id() })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("name", &self.name())
            .field("device", &self.service_id().device)
            .field("stream", &self.stream_id())
            .finish()
    }
}

fn vector_sizes(load_bytes: usize, size: usize) -> impl Iterator<Item = VectorSize> + Clone + use<> {
    let most = load_bytes.checked_div(size).map(|fit| 1usize << fit.max(1).ilog2());
    successors(most, |&v| (v > 1).then_some(v / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_fill_a_load_and_are_never_of_no_elements() {
        let sizes = |load, size| vector_sizes(load, size).collect::<Vec<_>>();
        assert_eq!(sizes(16, 4), [4, 2, 1]);
        assert_eq!(sizes(16, 1), [16, 8, 4, 2, 1]);
        assert_eq!(sizes(16, 3), [4, 2, 1]);
        assert_eq!(sizes(16, 32), [1]);
        assert_eq!(sizes(0, usize::MAX), [1]);
        assert!(sizes(16, 0).is_empty());
    }
}
