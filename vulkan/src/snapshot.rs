//! Asks a physical device what it is.

use crate::extensions;
use crate::features::FeatureChain;
use crate::host_memory;
use crate::info::DeviceKind;
use crate::instance::Instance;
use crate::page;
use crate::plan::{CacheKey, Family, Heap, Limits, MemoryType, Snapshot};
use ash::{khr, vk};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use vkactor_actors::properties::{ElemType, MatrixShape};

/// Subgroup operations that kernels may use where a device is said to have them.
const SUBGROUP_OPERATIONS: vk::SubgroupFeatureFlags = vk::SubgroupFeatureFlags::from_raw(
    vk::SubgroupFeatureFlags::BASIC.as_raw()
        | vk::SubgroupFeatureFlags::VOTE.as_raw()
        | vk::SubgroupFeatureFlags::ARITHMETIC.as_raw()
        | vk::SubgroupFeatureFlags::BALLOT.as_raw()
        | vk::SubgroupFeatureFlags::SHUFFLE.as_raw()
        | vk::SubgroupFeatureFlags::SHUFFLE_RELATIVE.as_raw()
        | vk::SubgroupFeatureFlags::QUAD.as_raw(),
);

/// What `device` says about itself. A device older than 1.2 is described as far as its version allows.
pub(crate) fn snapshot(instance: &Instance, device: vk::PhysicalDevice) -> Snapshot {
    // SAFETY: V1: `device` comes from this instance, which is alive.
    let core = unsafe { instance.raw.get_physical_device_properties(device) };
    let api = (vk::api_version_major(core.api_version), vk::api_version_minor(core.api_version));
    // SAFETY: as above.
    let extensions = unsafe { instance.raw.enumerate_device_extension_properties(device) }.unwrap_or_default();
    let extensions: BTreeSet<CString> =
        extensions.iter().filter_map(|e| e.extension_name_as_c_str().ok()).map(CStr::to_owned).collect();
    // SAFETY: as above.
    let families = unsafe { instance.raw.get_physical_device_queue_family_properties(device) };
    let families = families.iter().map(|f| Family {
        flags: f.queue_flags,
        count: f.queue_count,
        timestamp_bits: f.timestamp_valid_bits,
    });
    let mut found = Snapshot {
        name: text(&core.device_name),
        kind: kind(core.device_type),
        driver: String::new(),
        driver_id: vk::DriverId::default(),
        uuid: [0; 16],
        api,
        families: families.collect(),
        types: Vec::new(),
        heaps: Vec::new(),
        features: FeatureChain::default().features(),
        limits: limits(&core.limits),
        cache: CacheKey {
            vendor: core.vendor_id,
            device: core.device_id,
            driver: core.driver_version,
            uuid: core.pipeline_cache_uuid,
        },
        matrix: Vec::new(),
        extensions,
    };
    if api >= (1, 2) {
        read_memory(instance, device, &mut found);
        read_features(instance, device, &mut found);
        read_properties(instance, device, &mut found);
        if found.features.matrix {
            found.matrix = matrix_shapes(instance, device);
        }
    }
    found
}

fn read_features(instance: &Instance, device: vk::PhysicalDevice, found: &mut Snapshot) {
    let mut chain = FeatureChain::default();
    let mut head = chain.link(found.api, |name| found.extensions.contains(name));
    // SAFETY: V5: the chain is in this function, and holds only what the device knows.
    unsafe { instance.raw.get_physical_device_features2(device, &mut head) };
    let core = head.features;
    chain.set_core(core);
    found.features = chain.features();
}

fn read_properties(instance: &Instance, device: vk::PhysicalDevice, found: &mut Snapshot) {
    let mut v11 = vk::PhysicalDeviceVulkan11Properties::default();
    let mut v12 = vk::PhysicalDeviceVulkan12Properties::default();
    let mut v13 = vk::PhysicalDeviceVulkan13Properties::default();
    let mut push = vk::PhysicalDevicePushDescriptorPropertiesKHR::default();
    let mut import = vk::PhysicalDeviceExternalMemoryHostPropertiesEXT::default();
    let mut head = vk::PhysicalDeviceProperties2::default().push_next(&mut v11).push_next(&mut v12);
    if found.api >= (1, 3) {
        head = head.push_next(&mut v13);
    }
    if found.has(extensions::PUSH_DESCRIPTOR) {
        head = head.push_next(&mut push);
    }
    if found.has(extensions::HOST_IMPORT) {
        head = head.push_next(&mut import);
    }
    // SAFETY: V5: the chain is in this function, and holds only what the device knows.
    unsafe { instance.raw.get_physical_device_properties2(device, &mut head) };
    found.uuid = v11.device_uuid;
    found.driver = format!("{} {}", text(&v12.driver_name), text(&v12.driver_info)).trim().to_owned();
    found.driver_id = v12.driver_id;
    let limits = &mut found.limits;
    limits.allocation = v11.max_memory_allocation_size;
    limits.pushed_count = push.max_push_descriptors;
    if found.extensions.contains(extensions::HOST_IMPORT) && imports_buffers(instance, device) {
        limits.import_alignment = import.min_imported_host_pointer_alignment;
    }
    limits.subgroup = [v11.subgroup_size; 3];
    limits.subgroups = v11.subgroup_supported_stages.contains(vk::ShaderStageFlags::COMPUTE)
        && v11.subgroup_supported_operations.contains(SUBGROUP_OPERATIONS);
    if found.api >= (1, 3) {
        limits.subgroup = [v11.subgroup_size, v13.min_subgroup_size, v13.max_subgroup_size];
        limits.buffer = v13.max_buffer_size;
    }
}

/// Whether buffers over host memory can be made as pages are: any buffer, at any place of the memory.
fn imports_buffers(instance: &Instance, device: vk::PhysicalDevice) -> bool {
    use vk::ExternalMemoryFeatureFlags as Can;
    let usage = page::USAGE;
    let asked = vk::PhysicalDeviceExternalBufferInfo::default().usage(usage).handle_type(host_memory::HANDLE);
    let mut answer = vk::ExternalBufferProperties::default();
    // SAFETY: V1: `device` comes from this instance, which is alive. V5: both structures are in this function.
    unsafe { instance.raw.get_physical_device_external_buffer_properties(device, &asked, &mut answer) };
    let can = answer.external_memory_properties.external_memory_features;
    can.contains(Can::IMPORTABLE) && !can.contains(Can::DEDICATED_ONLY)
}

fn read_memory(instance: &Instance, device: vk::PhysicalDevice, found: &mut Snapshot) {
    let told = found.has(extensions::MEMORY_BUDGET);
    let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let mut head = vk::PhysicalDeviceMemoryProperties2::default();
    if told {
        head = head.push_next(&mut budget);
    }
    // SAFETY: V5: the chain is in this function, and holds only what the device knows.
    unsafe { instance.raw.get_physical_device_memory_properties2(device, &mut head) };
    let memory = head.memory_properties;
    let types = memory.memory_types_as_slice().iter();
    found.types = types.map(|t| MemoryType { flags: t.property_flags, heap: t.heap_index }).collect();
    let budgets = budget.heap_budget.iter().map(|&bytes| (told && bytes > 0).then_some(bytes));
    let heaps = memory.memory_heaps_as_slice().iter().zip(budgets);
    found.heaps = heaps.map(|(heap, budget)| Heap { bytes: heap.size, budget }).collect();
}

fn matrix_shapes(instance: &Instance, device: vk::PhysicalDevice) -> Vec<MatrixShape> {
    let api = khr::cooperative_matrix::Instance::new(instance.entry(), &instance.raw);
    // SAFETY: V6: the device listed the extension. V1: the instance is alive.
    let shapes = unsafe { api.get_physical_device_cooperative_matrix_properties(device) }.unwrap_or_default();
    let of_subgroups = shapes.iter().filter(|s| s.scope == vk::ScopeKHR::SUBGROUP && s.c_type == s.result_type);
    let shape = |s: &vk::CooperativeMatrixPropertiesKHR<'_>| {
        let (a, b, c) = (element(s.a_type)?, element(s.b_type)?, element(s.c_type)?);
        Some(MatrixShape { m: s.m_size, n: s.n_size, k: s.k_size, a, b, c })
    };
    let mut found: Vec<MatrixShape> = Vec::new();
    // Saturating variants of a shape are listed beside it.
    for shape in of_subgroups.filter_map(shape) {
        if !found.contains(&shape) {
            found.push(shape);
        }
    }
    found
}

fn element(of: vk::ComponentTypeKHR) -> Option<ElemType> {
    Some(match of {
        vk::ComponentTypeKHR::FLOAT16 => ElemType::F16,
        vk::ComponentTypeKHR::FLOAT32 => ElemType::F32,
        vk::ComponentTypeKHR::FLOAT64 => ElemType::F64,
        vk::ComponentTypeKHR::SINT8 => ElemType::I8,
        vk::ComponentTypeKHR::SINT16 => ElemType::I16,
        vk::ComponentTypeKHR::SINT32 => ElemType::I32,
        vk::ComponentTypeKHR::SINT64 => ElemType::I64,
        vk::ComponentTypeKHR::UINT8 => ElemType::U8,
        vk::ComponentTypeKHR::UINT16 => ElemType::U16,
        vk::ComponentTypeKHR::UINT32 => ElemType::U32,
        vk::ComponentTypeKHR::UINT64 => ElemType::U64,
        _ => return None,
    })
}

fn limits(core: &vk::PhysicalDeviceLimits) -> Limits {
    Limits {
        push: core.max_push_constants_size,
        storage_alignment: core.min_storage_buffer_offset_alignment,
        atom: core.non_coherent_atom_size,
        allocation_count: core.max_memory_allocation_count,
        allocation: u64::MAX,
        buffer: u64::MAX,
        binding: u64::from(core.max_storage_buffer_range),
        binding_count: core
            .max_per_stage_descriptor_storage_buffers
            .min(core.max_per_stage_resources)
            .min(core.max_descriptor_set_storage_buffers),
        pushed_count: 0,
        shared: core.max_compute_shared_memory_size,
        groups: core.max_compute_work_group_count,
        units: core.max_compute_work_group_invocations,
        dim: core.max_compute_work_group_size,
        subgroup: [1; 3],
        subgroups: false,
        import_alignment: 0,
        tick_ns: core.timestamp_period,
    }
}

fn kind(of: vk::PhysicalDeviceType) -> DeviceKind {
    match of {
        vk::PhysicalDeviceType::DISCRETE_GPU => DeviceKind::DiscreteGpu,
        vk::PhysicalDeviceType::INTEGRATED_GPU => DeviceKind::IntegratedGpu,
        vk::PhysicalDeviceType::VIRTUAL_GPU => DeviceKind::VirtualGpu,
        vk::PhysicalDeviceType::CPU => DeviceKind::Cpu,
        _ => DeviceKind::Other,
    }
}

/// The characters of a fixed array of a driver, which ends it with a zero and need not be UTF-8.
pub(crate) fn text(chars: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().take_while(|&&c| c != 0).map(|&c| c.to_ne_bytes()[0]).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
