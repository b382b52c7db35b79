//! The device features that the runtime knows: read from a physical device, enabled on a logical one.

use crate::extensions;
use ash::vk;

/// The structures that carry features, of the versions and extensions that a device has.
#[derive(Default)]
pub(crate) struct FeatureChain {
    core: vk::PhysicalDeviceFeatures,
    v11: vk::PhysicalDeviceVulkan11Features<'static>,
    v12: vk::PhysicalDeviceVulkan12Features<'static>,
    v13: vk::PhysicalDeviceVulkan13Features<'static>,
    robustness2: vk::PhysicalDeviceRobustness2FeaturesEXT<'static>,
    atomic_float: vk::PhysicalDeviceShaderAtomicFloatFeaturesEXT<'static>,
    matrix: vk::PhysicalDeviceCooperativeMatrixFeaturesKHR<'static>,
    fault: vk::PhysicalDeviceFaultFeaturesEXT<'static>,
}

/// Writes the set of features once: as a struct of flags, and as the field of the chain that each one is.
macro_rules! features {
    ($($(#[$doc:meta])* $name:ident: $($field:ident).+;)*) => {
        /// Which features there are, or which are enabled.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub(crate) struct Features {
            $($(#[$doc])* pub(crate) $name: bool,)*
        }

        impl FeatureChain {
            /// A chain that asks for these features.
            pub(crate) fn of(features: &Features) -> Self {
                let mut chain = Self::default();
                $(chain.$($field).+ = vk::Bool32::from(features.$name);)*
                chain
            }

            /// The features in the chain.
            pub(crate) fn features(&self) -> Features {
                Features { $($name: self.$($field).+ == vk::TRUE,)* }
            }
        }
    };
}

features! {
    /// Loads and stores past a binding stay inside the memory of its buffer.
    robust_access: core.robust_buffer_access;
    /// Loads and stores past a binding do nothing at all.
    robust_access2: robustness2.robust_buffer_access2;
    /// A binding may have no buffer.
    null_descriptor: robustness2.null_descriptor;
    /// f64 in shaders.
    float64: core.shader_float64;
    /// i64 and u64 in shaders.
    int64: core.shader_int64;
    /// i16 and u16 in shaders.
    int16: core.shader_int16;
    /// f16 in shaders.
    float16: v12.shader_float16;
    /// i8 and u8 in shaders.
    int8: v12.shader_int8;
    /// 16-bit types in buffers.
    storage16: v11.storage_buffer16_bit_access;
    /// 16-bit types in push constants.
    push16: v11.storage_push_constant16;
    /// 8-bit types in buffers.
    storage8: v12.storage_buffer8_bit_access;
    /// 8-bit types in push constants.
    push8: v12.storage_push_constant8;
    /// Pointers into one buffer as values.
    variable_pointers_buffer: v11.variable_pointers_storage_buffer;
    /// Pointers as values.
    variable_pointers: v11.variable_pointers;
    /// Buffers by their address.
    addresses: v12.buffer_device_address;
    /// Timeline semaphores.
    timeline: v12.timeline_semaphore;
    /// Queries that the host makes ready.
    host_query_reset: v12.host_query_reset;
    /// The Vulkan memory model.
    memory_model: v12.vulkan_memory_model;
    /// The memory model across a whole device.
    memory_model_device: v12.vulkan_memory_model_device_scope;
    /// 64-bit atomics in buffers.
    atomic_int64: v12.shader_buffer_int64_atomics;
    /// 64-bit atomics in workgroup memory.
    atomic_int64_shared: v12.shader_shared_int64_atomics;
    /// Subgroup operations on 8-, 16- and 64-bit types.
    subgroup_extended: v12.shader_subgroup_extended_types;
    /// Blocks with C-like layout.
    scalar_layout: v12.scalar_block_layout;
    /// Larger limits on buffers, and local sizes by id.
    maintenance4: v13.maintenance4;
    /// Subgroup sizes that a pipeline chooses.
    subgroup_control: v13.subgroup_size_control;
    /// Workgroups of whole subgroups.
    full_subgroups: v13.compute_full_subgroups;
    /// Workgroup memory that starts at zero.
    zero_workgroup: v13.shader_zero_initialize_workgroup_memory;
    /// Dot products of packed integers.
    integer_dot: v13.shader_integer_dot_product;
    /// Loads and stores of f32 that are atomic.
    atomic_float: atomic_float.shader_buffer_float32_atomics;
    /// Atomic addition on f32 in buffers.
    atomic_float_add: atomic_float.shader_buffer_float32_atomic_add;
    /// Atomic addition on f32 in workgroup memory.
    atomic_float_add_shared: atomic_float.shader_shared_float32_atomic_add;
    /// Matrix units.
    matrix: matrix.cooperative_matrix;
    /// What the driver knows about the loss of a device.
    fault: fault.device_fault;
}

impl FeatureChain {
    /// Links the structures that a device of this API version with these extensions knows.
    pub(crate) fn link<'a>(
        &'a mut self,
        api: (u32, u32),
        has: impl Fn(&std::ffi::CStr) -> bool,
    ) -> vk::PhysicalDeviceFeatures2<'a> {
        let mut head = vk::PhysicalDeviceFeatures2::default()
            .features(self.core)
            .push_next(&mut self.v11)
            .push_next(&mut self.v12);
        if api >= (1, 3) {
            head = head.push_next(&mut self.v13);
        }
        if has(extensions::ROBUSTNESS2) {
            head = head.push_next(&mut self.robustness2);
        }
        if has(extensions::ATOMIC_FLOAT) {
            head = head.push_next(&mut self.atomic_float);
        }
        if has(extensions::MATRIX) {
            head = head.push_next(&mut self.matrix);
        }
        if has(extensions::FAULT) {
            head = head.push_next(&mut self.fault);
        }
        head
    }

    /// Takes the features of the core, which a query writes into the head and not into the chain.
    pub(crate) fn set_core(&mut self, core: vk::PhysicalDeviceFeatures) {
        self.core = core;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_survive_the_way_through_a_chain() {
        let features = Features { robust_access: true, timeline: true, fault: true, ..Features::default() };
        assert_eq!(FeatureChain::of(&features).features(), features);
    }

    #[test]
    fn structures_of_absent_extensions_stay_out_of_the_chain() {
        let length = |api, has: bool| {
            let mut chain = FeatureChain::default();
            let head = chain.link(api, |_| has);
            let mut count = 0;
            let mut next = head.p_next.cast_const().cast::<vk::BaseInStructure<'_>>();
            // SAFETY: V5: the chain lives in this function, and each link starts as a `BaseInStructure`.
            while let Some(link) = unsafe { next.as_ref() } {
                count += 1;
                next = link.p_next;
            }
            count
        };
        assert_eq!((length((1, 2), false), length((1, 3), false), length((1, 3), true)), (2, 3, 7));
    }
}
