//! A closure that says what it does to its buffers.

use crate::error::CompilationError;
use crate::id::BufferId;
use crate::kernel::{BufferAccess, CubeKernel, HostFn, KernelId, KernelOptions, KernelSource};
use crate::properties::TargetProperties;
use std::fmt;
use std::sync::Arc;

/// A closure as a kernel, with its accesses declared. Each value made by `new` is a kernel of its own; clones are
/// the same kernel.
///
/// The simulated device holds it to what it declares not to write.
#[derive(Clone)]
pub struct SimKernel {
    name: Arc<str>,
    id: KernelId,
    accesses: Vec<BufferAccess>,
    run: HostFn,
}

impl SimKernel {
    /// The kernel that calls `f` once a launch, with as many buffers as there are `accesses` and in their order.
    pub fn new(
        name: &str,
        accesses: Vec<BufferAccess>,
        f: impl Fn([u32; 3], &mut [&mut [u8]], &[u8]) + Send + Sync + 'static,
    ) -> Self {
        // Closures cannot be compared: a number that is not used again tells them apart.
        let id = KernelId::new(format!("sim/{name}/{}", BufferId::fresh().0));
        Self { name: name.into(), id, accesses, run: Arc::new(f) }
    }
}

impl fmt::Debug for SimKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimKernel").field("name", &self.name).field("accesses", &self.accesses).finish_non_exhaustive()
    }
}

impl CubeKernel for SimKernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn id(&self) -> KernelId {
        self.id
    }

    fn source(&self, _: &TargetProperties) -> Result<KernelSource, CompilationError> {
        Ok(KernelSource::Host(self.run.clone()))
    }

    fn options(&self) -> KernelOptions {
        KernelOptions { addresses: Some(self.accesses.clone()), ..KernelOptions::default() }
    }
}
