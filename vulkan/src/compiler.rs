//! Kernels become pipelines, on whatever thread asks.

use crate::cache::PipelineCache;
use crate::device::DeviceShared;
use crate::pipeline::Pipeline;
use crate::shader::{ShaderCapabilities, ShaderLimits, ShaderTarget, translate};
use std::path::Path;
use std::sync::Arc;
use vkactor_actors::error::LaunchError;
use vkactor_actors::kernel::{KernelOptions, KernelSource};
use vkactor_actors::port::{Compiled, Compiler, Reflection};

/// Compiles for one device. Several threads may use it at once.
#[derive(Debug)]
pub struct VulkanCompiler {
    target: ShaderTarget,
    cache: PipelineCache,
    shared: Arc<DeviceShared>,
}

impl VulkanCompiler {
    pub(crate) fn new(shared: Arc<DeviceShared>, directory: Option<&Path>, key: &crate::plan::CacheKey) -> Self {
        let target = target(&shared.plan);
        let cache = PipelineCache::open(shared.clone(), directory, key);
        Self { target, cache, shared }
    }
}

impl Compiler for VulkanCompiler {
    type Pipeline = Pipeline;

    fn compile(
        &self,
        kernel: &str,
        source: KernelSource,
        options: &KernelOptions,
    ) -> Result<Compiled<Pipeline>, LaunchError> {
        let shader = translate(kernel, source, options, &self.target)?;
        let pipeline = Pipeline::new(&self.shared, &shader, self.cache.raw(), kernel)?;
        self.cache.grown();
        let measured = shader.measured.iter().enumerate().filter(|(_, measured)| **measured);
        let reflection = Reflection {
            buffers: Some(shader.access),
            measured: measured.map(|(index, _)| index).collect(),
            info_bytes: Some(shader.info_bytes),
        };
        Ok(Compiled { pipeline, reflection })
    }
}

fn target(plan: &crate::plan::DevicePlan) -> ShaderTarget {
    let (limits, features) = (&plan.limits, &plan.features);
    ShaderTarget {
        spirv: plan.spirv,
        limits: ShaderLimits {
            max_bindings: limits.binding_count,
            max_info_bytes: limits.push,
            max_shared_bytes: limits.shared,
            max_units: limits.units,
            max_dim: limits.dim,
        },
        buffer_bounds_checks: plan.checks_in_kernels(),
        loop_iterations_limited: plan.ends_long_loops(),
        capabilities: ShaderCapabilities {
            f16: features.float16 && features.storage16,
            f64: features.float64,
            i64: features.int64,
            i16: features.int16 && features.storage16,
            i8: features.int8 && features.storage8,
            subgroups: limits.subgroups,
            atomic_float: plan.has_atomic_float(),
            buffer_addresses: features.addresses,
            matrix: plan.has_matrix(),
            zero_workgroup: features.zero_workgroup,
        },
    }
}
