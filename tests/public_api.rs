//! Which public types cross threads and which are cloned: a change here is a change of the API.

use std::future::Future;
use vkactor::*;

fn send<T: Send>() {}
fn shared<T: Send + Sync>() {}
fn cloned<T: Send + Sync + Clone>() {}
fn owned_future<F: Future + Send + 'static>(_: F) {}

/// `cloned!` and its like, for a list of types.
macro_rules! all {
    ($check:ident: $($type:ty),+ $(,)?) => { $($check::<$type>();)+ };
}

#[test]
fn handles_on_the_runtime_are_cloned_and_shared() {
    all!(cloned: Bytes, BufferBinding, Client, Compute, Graph, Handle);
    all!(shared: ComputeBuilder, DryRun, Host, Vulkan, ManagedResource<VulkanResource>, ManagedResource<HostResource>);
}

#[test]
fn kernels_and_arguments_are_cloned_and_shared() {
    all!(cloned: BufferAccess, CubeCount, HostFn, HostKernel, KernelArguments, KernelId, KernelOptions, KernelSource,
        SpirvKernel, WgslKernel);
    shared::<Box<dyn CubeKernel>>();
}

#[test]
fn plain_values_are_cloned_and_shared() {
    all!(cloned: AllocationProperty, CopyDescriptor, DeviceId, DeviceInfo, DeviceInventory, DeviceKind, DeviceProperties, ElemType,
        Features, GraphKind, GraphStats, HardwareProperties, HostResource, MatrixShape, MemoryAllocationMode,
        MemoryDeviceProperties, MemoryHeap, MemoryLayout, MemoryLayoutDescriptor, MemoryLayoutStrategy, MemoryPoolConfig,
        MemoryPoolKind, MemoryPoolReport, MemoryPoolsConfig, MemoryPoolsPreset, MemoryReport, MemoryUsage,
        ProfileTicks, ProfileWindow, QueueFamily, ReduceOperation, RefusedDevice, ServiceId, Shape, StreamId, Strides, TargetProperties,
        ThroughputKey, ThroughputMode, ThroughputValue, TimingMethod, TraceSummary, VectorSize, VulkanOptions, VulkanResource);
    all!(shared: HostStorage, VulkanStorage);
    // One answer, taken once.
    send::<ProfileDuration>();
}

#[test]
fn errors_are_cloned_and_shared_and_are_errors() {
    fn error<T: std::error::Error + Clone + Send + Sync + 'static>() {}
    all!(error: CompilationError, ComputeError, InstallMemoryPoolsError, IoError, LaunchError, ProfileError, ServerError,
        ThroughputError);
}

/// Compiles only while each future may move between threads and borrows nothing. It is never called.
#[expect(dead_code, reason = "the types are what is tested")]
fn futures_are_sent_and_borrow_nothing(
    compute: &Compute,
    client: &Client,
    handle: &Handle,
    tensor: &CopyDescriptor,
    graph: &Graph,
    time: ProfileDuration,
) {
    owned_future(compute.shutdown());
    owned_future(client.ready());
    owned_future(client.read_async(vec![handle.clone()]));
    owned_future(client.read_one_async(handle.clone()));
    owned_future(client.read_tensor_async(vec![tensor.clone()]));
    owned_future(client.read_one_tensor_async(tensor.clone()));
    owned_future(client.read_lazy_async(tensor.clone()));
    owned_future(client.create_async(Bytes::default()));
    owned_future(client.empty_async(1));
    owned_future(client.sync_buffers([handle]));
    owned_future(client.trace_start_async(&*String::from("borrowed by the call alone")));
    owned_future(client.trace_stop_async());
    let name = String::from("borrowed by the call alone");
    owned_future(client.profile_async(std::future::ready(()), &name));
    owned_future(graph.replay_async());
    owned_future(time.resolve());
    let boxed: DynFut<Result<(), ServerError>> = client.sync();
    owned_future(boxed);
}

/// Compiles only while the bytes that a future looks at are borrowed from it and it may move between threads.
#[expect(dead_code, reason = "the types are what is tested")]
fn a_look_at_lazy_bytes_is_sent(bytes: &Bytes) -> impl Future<Output = Result<&[u8], ServerError>> + Send {
    bytes.materialize_async()
}

#[test]
fn servers_and_their_storage_belong_together() {
    fn server<S: ServerStorage<Storage = T>, T: ComputeStorage<Resource = R>, R: Send + 'static>() {}
    server::<Vulkan, VulkanStorage, VulkanResource>();
    server::<Host, HostStorage, HostResource>();
}
