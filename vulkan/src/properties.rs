//! The plan in the runtime's words.

use crate::plan::DevicePlan;
use std::collections::BTreeSet;
use vkactor_actors::port;
use vkactor_actors::profile::TimingMethod;
use vkactor_actors::properties::{
    DeviceProperties, ElemType, Features, GraphKind, HardwareProperties, MatrixShape, MemoryDeviceProperties,
    TargetProperties,
};

/// Widest load of a kernel, in bits: a vector of four words, on every device that there is.
const LOAD_WIDTH: u32 = 128;
/// Bytes on which every slice starts at least: one such load.
const SLICE_ALIGNMENT_MIN: u64 = LOAD_WIDTH as u64 / 8;

pub(crate) fn properties(plan: &DevicePlan, matrix: &[MatrixShape]) -> DeviceProperties {
    let limits = &plan.limits;
    let [x, y, z] = limits.groups;
    let [dim_x, dim_y, dim_z] = limits.dim;
    let [_, plane_size_min, plane_size_max] = limits.subgroup;
    DeviceProperties {
        features: Features {
            types: types(plan),
            atomic_float: plan.has_atomic_float(),
            subgroups: limits.subgroups,
            matrix: if plan.has_matrix() { matrix.to_vec() } else { Vec::new() },
            device_transport: plan.import_alignment.is_some(),
            host_import: plan.import_alignment.is_some(),
            graph: GraphKind::Hardware,
        },
        memory: MemoryDeviceProperties {
            max_page_size: plan.memory.page_max,
            alignment: limits.storage_alignment.max(SLICE_ALIGNMENT_MIN),
            total: plan.memory.total,
        },
        hardware: HardwareProperties {
            plane_size_min,
            plane_size_max,
            max_bindings: limits.binding_count,
            max_shared_memory_size: limits.shared as usize,
            max_cube_count: (x, y, z),
            max_units_per_cube: limits.units,
            max_cube_dim: (dim_x, dim_y, dim_z),
            load_width: LOAD_WIDTH,
            max_info_size: limits.push as usize,
            queues: 1,
        },
        timing_method: if plan.timestamp_bits > 0 { TimingMethod::Device } else { TimingMethod::System },
    }
}

pub(crate) fn target(plan: &DevicePlan) -> TargetProperties {
    TargetProperties {
        spirv: plan.spirv,
        subgroup_size: plan.limits.subgroup[0],
        bounds_check: plan.bounds_check,
        types: types(plan),
    }
}

pub(crate) fn limits(plan: &DevicePlan) -> port::Limits {
    port::Limits {
        binding_bytes: plan.limits.binding,
        length_bytes: plan.length_bytes_max(),
        empty_bindings: plan.features.null_descriptor,
        aliased_bindings: true,
        late_failures: false,
    }
}

/// Types that kernels may keep in buffers and compute with.
fn types(plan: &DevicePlan) -> BTreeSet<ElemType> {
    let features = &plan.features;
    let mut types = BTreeSet::from([ElemType::F32, ElemType::I32, ElemType::U32, ElemType::Bool]);
    let mut add = |there: bool, more: &[ElemType]| {
        if there {
            types.extend(more);
        }
    };
    add(features.float64, &[ElemType::F64]);
    add(features.int64, &[ElemType::I64, ElemType::U64]);
    add(features.float16 && features.storage16, &[ElemType::F16]);
    add(features.int16 && features.storage16, &[ElemType::I16, ElemType::U16]);
    add(features.int8 && features.storage8, &[ElemType::I8, ElemType::U8]);
    types
}
