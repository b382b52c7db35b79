//! GPU compute for async Rust services, over Vulkan.
//!
//! Each device is an actor: it owns a queue, the memory pools and the recorded graphs of one GPU, and nobody else
//! touches them. A [`Client`] sends it messages. Calls that only hand over work ([`Client::launch`],
//! [`Client::create`], [`Client::write`]) return at once; calls that ask for something give a future that completes
//! by itself on any executor, may be dropped at any time, and has a blocking twin that is safe inside a runtime.
//!
//! ```no_run
//! use vkactor::{Bytes, Compute, CubeCount, KernelArguments, WgslKernel};
//!
//! const DOUBLE: &str = "
//!     @group(0) @binding(0) var<storage, read_write> values: array<f32>;
//!     @compute @workgroup_size(64)
//!     fn main(@builtin(global_invocation_id) id: vec3<u32>) {
//!         if (id.x < arrayLength(&values)) { values[id.x] *= 2.0; }
//!     }";
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let client = Compute::new()?.default_client()?;
//!     let values = client.create(Bytes::from_elems(vec![1.0f32, 2.0, 3.0]));
//!     let kernel = WgslKernel::new("double", DOUBLE);
//!     client.launch(Box::new(kernel), CubeCount::new_1d(1), KernelArguments::new().with_buffer(&values));
//!     let doubled = client.read_one_async(values).await?.try_into_vec::<f32>();
//!     assert_eq!(doubled.ok(), Some(vec![2.0, 4.0, 6.0]));
//!     Ok(())
//! }
//! ```
//!
//! # Order
//! Each client value is on a *stream*. What is sent through one stream runs in the order of the calls, whichever
//! thread or task makes them. Work of different streams is ordered where it meets in a buffer, in the order in which
//! the device's actor takes the calls.
//!
//! # Failures
//! A call that hands over work returns no error. What goes wrong marks the buffers that it was to write, and goes on
//! to whatever is computed from them; [`Client::check`], [`Client::sync_buffers`] and every read of such a buffer
//! tell it, with the chain back to its cause. Everything else goes on. Writing a buffer whole makes it good again.

mod client;
mod compute;
mod throughput;

pub use client::{Client, DryRun, DynFut, Graph, GraphStats, ReduceOperation};
pub use compute::{Compute, ComputeBuilder};
pub use throughput::{ThroughputKey, ThroughputMode, ThroughputValue};
pub use vkactor_actors::bytes::{AllocationProperty, Bytes};
pub use vkactor_actors::engine::memory::{
    InstallMemoryPoolsError, MemoryAllocationMode, MemoryPoolConfig, MemoryPoolKind, MemoryPoolReport,
    MemoryPoolsConfig, MemoryPoolsPreset, MemoryReport, MemoryUsage,
};
pub use vkactor_actors::error::{
    CompilationError, ComputeError, IoError, LaunchError, ProfileError, ServerError, ThroughputError,
};
pub use vkactor_actors::handle::{BufferBinding, Handle};
pub use vkactor_actors::host::{Host, HostResource, HostStorage};
pub use vkactor_actors::id::{DeviceId, ServiceId, StreamId};
pub use vkactor_actors::kernel::{
    BufferAccess, CubeCount, CubeKernel, HostFn, HostKernel, KernelArguments, KernelId, KernelOptions, KernelSource,
    SpirvKernel, WgslKernel,
};
pub use vkactor_actors::profile::{ProfileDuration, ProfileTicks, ProfileWindow, TimingMethod};
pub use vkactor_actors::properties::{
    DeviceProperties, ElemType, Features, GraphKind, HardwareProperties, MatrixShape, MemoryDeviceProperties,
    TargetProperties, VectorSize,
};
pub use vkactor_actors::server::{ComputeStorage, ManagedResource, Server, ServerStorage};
pub use vkactor_actors::tensor::{
    CopyDescriptor, MemoryLayout, MemoryLayoutDescriptor, MemoryLayoutStrategy, Shape, Strides,
};
pub use vkactor_actors::trace::TraceSummary;
pub use vkactor_vulkan::{
    DeviceInfo, DeviceInventory, DeviceKind, MemoryHeap, QueueFamily, RefusedDevice, Vulkan, VulkanOptions,
    VulkanResource, VulkanStorage,
};
