//! Names of devices, services, streams and buffers, and of who holds these.

use std::any::TypeId;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;

/// Names one device of a process.
///
/// The registry keeps at most one running actor for each id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId {
    /// The family of devices, chosen by the runtime that lists them.
    pub type_id: u16,
    /// The place within the family.
    pub index_id: u16,
}

impl DeviceId {
    /// The device `index_id` of the family `type_id`.
    pub const fn new(type_id: u16, index_id: u16) -> Self {
        Self { type_id, index_id }
    }
}

/// What a client reaches: a device, and the type of the server that drives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServiceId {
    /// The device.
    pub device: DeviceId,
    /// The type of the server.
    pub service: TypeId,
}

/// A client's order of work on one device.
///
/// The id belongs to the client value: a task keeps its order when it moves to another thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamId(pub u64);

impl StreamId {
    /// Where each client starts.
    pub const DEFAULT: Self = Self(0);

    /// An id that this process has not given out before.
    pub fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Names one reservation of device memory. Minted by the client, so that `empty` needs no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u64);

impl BufferId {
    /// Stands for a buffer of another device. Nothing is reserved under it.
    pub const FOREIGN: Self = Self(0);

    /// An id that this process has not given out before.
    pub fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Who made a reservation: what waits for memory as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Holder {
    /// A task of tokio.
    Task(tokio::task::Id),
    /// A thread, outside of any task.
    Thread(ThreadId),
}

impl Holder {
    /// Who runs this.
    pub fn current() -> Self {
        tokio::task::try_id().map_or_else(|| Self::Thread(std::thread::current().id()), Self::Task)
    }
}

/// Tells one run of an actor from the next on the same device, so that old handles are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ActorId(pub u64);

impl ActorId {
    /// An id that this process has not given out before.
    pub fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}
