//! A compute pipeline and how its arguments go in.

use crate::device::DeviceShared;
use crate::shader::Shader;
use ash::vk;
use std::ffi::CString;
use std::fmt;
use std::sync::Arc;
use vkactor_actors::error::LaunchError;
use vkactor_actors::port::wrong_source;

/// Bytes of a buffer's address.
const ADDRESS_BYTES: u32 = 8;

/// A compiled kernel. Complete, or never given out.
pub struct Pipeline {
    pub(crate) raw: vk::Pipeline,
    pub(crate) layout: vk::PipelineLayout,
    set_layout: vk::DescriptorSetLayout,
    template: vk::DescriptorUpdateTemplate,
    /// Buffers that go in as bindings.
    pub(crate) bindings: u32,
    /// Buffers that go in as addresses, before the others.
    pub(crate) addresses: u32,
    /// Bytes of push constants: addresses, then parameters, in whole words.
    pub(crate) push_bytes: u32,
    shared: Arc<DeviceShared>,
}

impl Pipeline {
    /// The pipeline of a shader.
    ///
    /// # Errors
    /// What the driver says about it, as a [`LaunchError`] of `kernel`.
    pub(crate) fn new(
        shared: &Arc<DeviceShared>,
        shader: &Shader,
        cache: vk::PipelineCache,
        kernel: &str,
    ) -> Result<Self, LaunchError> {
        let limit = shared.plan.limits.push;
        let push_bytes = (shader.address_count * ADDRESS_BYTES + shader.info_bytes).next_multiple_of(4);
        if push_bytes > limit {
            return Err(LaunchError::TooManyResources {
                kernel: kernel.to_owned(),
                resource: "max_info_size".to_owned(),
                requested: push_bytes.into(),
                limit: limit.into(),
            });
        }
        // What is made before an error is destroyed with this value.
        let mut pipeline = Self {
            raw: vk::Pipeline::null(),
            layout: vk::PipelineLayout::null(),
            set_layout: vk::DescriptorSetLayout::null(),
            template: vk::DescriptorUpdateTemplate::null(),
            bindings: shader.bindings.len() as u32,
            addresses: shader.address_count,
            push_bytes,
            shared: shared.clone(),
        };
        let refused = |doing: &str, error: vk::Result| launch_error(shared, kernel, doing, error);
        pipeline.make_layout(&shader.bindings).map_err(|e| refused("laying out its arguments", e))?;
        pipeline.make(shader, cache, kernel)?;
        Ok(pipeline)
    }

    /// The layout of the descriptor set and what fills it, where the kernel has bindings.
    pub(crate) fn set(&self) -> (vk::DescriptorSetLayout, vk::DescriptorUpdateTemplate) {
        (self.set_layout, self.template)
    }

    fn make_layout(&mut self, bindings: &[u32]) -> Result<(), vk::Result> {
        let stage = vk::ShaderStageFlags::COMPUTE;
        let entry = |&number: &u32| {
            vk::DescriptorSetLayoutBinding::default()
                .binding(number)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .descriptor_count(1)
                .stage_flags(stage)
        };
        let entries: Vec<_> = bindings.iter().map(entry).collect();
        let raw = self.shared.raw();
        if !entries.is_empty() {
            let mut create = vk::DescriptorSetLayoutCreateInfo::default().bindings(&entries);
            if self.shared.push.is_some() {
                create = create.flags(vk::DescriptorSetLayoutCreateFlags::PUSH_DESCRIPTOR_KHR);
            }
            // SAFETY: V1, V5. V6: pushing is asked for where its extension is on.
            self.set_layout = unsafe { raw.create_descriptor_set_layout(&create, None) }?;
        }
        let sets = [self.set_layout];
        let ranges = [vk::PushConstantRange::default().stage_flags(stage).size(self.push_bytes)];
        let create = vk::PipelineLayoutCreateInfo::default()
            .set_layouts(&sets[..usize::from(!entries.is_empty())])
            .push_constant_ranges(&ranges[..usize::from(self.push_bytes > 0)]);
        // SAFETY: V1, V5.
        self.layout = unsafe { raw.create_pipeline_layout(&create, None) }?;
        if !entries.is_empty() {
            self.template = self.make_template(bindings)?;
        }
        Ok(())
    }

    /// The template that reads one `VkDescriptorBufferInfo` for each binding, in the order of the arguments.
    fn make_template(&self, bindings: &[u32]) -> Result<vk::DescriptorUpdateTemplate, vk::Result> {
        let stride = size_of::<vk::DescriptorBufferInfo>();
        let entry = |(argument, &number): (usize, &u32)| {
            vk::DescriptorUpdateTemplateEntry::default()
                .dst_binding(number)
                .descriptor_count(1)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .offset(argument * stride)
                .stride(stride)
        };
        let entries: Vec<_> = bindings.iter().enumerate().map(entry).collect();
        let create = vk::DescriptorUpdateTemplateCreateInfo::default().descriptor_update_entries(&entries);
        let create = match self.shared.push {
            Some(_) => create
                .template_type(vk::DescriptorUpdateTemplateType::PUSH_DESCRIPTORS_KHR)
                .pipeline_bind_point(vk::PipelineBindPoint::COMPUTE)
                .pipeline_layout(self.layout),
            None => create
                .template_type(vk::DescriptorUpdateTemplateType::DESCRIPTOR_SET)
                .descriptor_set_layout(self.set_layout),
        };
        // SAFETY: V1, V5. V6: as in `make_layout`.
        unsafe { self.shared.raw().create_descriptor_update_template(&create, None) }
    }

    fn make(&mut self, shader: &Shader, cache: vk::PipelineCache, kernel: &str) -> Result<(), LaunchError> {
        let raw = self.shared.raw();
        let entry = CString::new(shader.entry.as_str());
        let entry = entry.map_err(|_| wrong_source(kernel, "the entry point's name has a zero byte"))?;
        let mut map = Vec::new();
        let mut values: Vec<u8> = Vec::new();
        for &(id, value) in &shader.specialization {
            let offset = values.len() as u32;
            map.push(vk::SpecializationMapEntry::default().constant_id(id).offset(offset).size(size_of::<u32>()));
            values.extend(value.to_ne_bytes());
        }
        let refused = |doing: &str, error: vk::Result| launch_error(&self.shared, kernel, doing, error);
        let constants = vk::SpecializationInfo::default().map_entries(&map).data(&values);
        let create = vk::ShaderModuleCreateInfo::default().code(&shader.words);
        // SAFETY: V1, V5. The words went through `shader`, which lets valid modules pass only.
        let module = unsafe { raw.create_shader_module(&create, None) };
        let module = module.map_err(|e| refused("loading its code", e))?;
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module)
            .name(&entry)
            .specialization_info(&constants);
        let create = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(self.layout)];
        // SAFETY: V1, V5. The cache orders simultaneous use by itself.
        let made = unsafe { raw.create_compute_pipelines(cache, &create, None) };
        // SAFETY: made above, and a pipeline does not need its module any more.
        unsafe { raw.destroy_shader_module(module, None) };
        match made {
            Ok(pipelines) => {
                self.raw = pipelines[0];
                Ok(())
            }
            Err((_, error)) => Err(refused("compiling it", error)),
        }
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bindings, addresses, push_bytes, .. } = self;
        let mut out = f.debug_struct("Pipeline");
        out.field("bindings", bindings).field("addresses", addresses).field("push_bytes", push_bytes);
        out.finish_non_exhaustive()
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        let raw = self.shared.raw();
        // SAFETY: V1. V3: the device waits for its queue before it lets go of its pipelines. Null is allowed.
        unsafe {
            raw.destroy_pipeline(self.raw, None);
            raw.destroy_descriptor_update_template(self.template, None);
            raw.destroy_pipeline_layout(self.layout, None);
            raw.destroy_descriptor_set_layout(self.set_layout, None);
        }
    }
}

fn launch_error(shared: &DeviceShared, kernel: &str, doing: &str, error: vk::Result) -> LaunchError {
    match error {
        vk::Result::ERROR_OUT_OF_HOST_MEMORY | vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => {
            LaunchError::OutOfMemory { kernel: kernel.to_owned() }
        }
        vk::Result::ERROR_DEVICE_LOST => wrong_source(kernel, shared.lose(error, doing).to_string()),
        other => wrong_source(kernel, format!("{doing}: {}", crate::error::describe(other))),
    }
}
