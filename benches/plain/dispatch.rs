//! The one kernel of the benches, `d[i] += 1`, dispatched by plain Vulkan.
#![expect(unsafe_code, reason = "the floor is plain Vulkan calls")]

use std::any::Any;
use std::rc::Rc;

use ash::{khr, vk};

use crate::common::Result;
use crate::plain::open::has_extension;
use crate::plain::{Device, Gpu, Recorder, Region, Scope};

/// Every word of the buffer grows by one, the first 64 of it by a single group.
pub(crate) const ADD_ONE: &str = "
@group(0) @binding(0) var<storage, read_write> d: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&d)) { d[id.x] = d[id.x] + 1u; }
}";

/// Bytes that one group of [`ADD_ONE`] covers.
pub(crate) const GROUP_BYTES: u64 = 256;

/// Kernels, reading and writing.
pub(crate) const SHADER: Scope = (
    vk::PipelineStageFlags::COMPUTE_SHADER,
    vk::AccessFlags::from_raw(vk::AccessFlags::SHADER_READ.as_raw() | vk::AccessFlags::SHADER_WRITE.as_raw()),
);

/// A pipeline of one storage buffer. Recordings that use it keep it.
#[derive(Clone)]
pub(crate) struct Kernel(Rc<Pipeline>);

/// A buffer that a kernel runs over.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    buffer: [vk::DescriptorBufferInfo; 1],
    /// Null where the buffer is pushed.
    set: vk::DescriptorSet,
}

struct Pipeline {
    set_layout: vk::DescriptorSetLayout,
    layout: vk::PipelineLayout,
    module: vk::ShaderModule,
    raw: vk::Pipeline,
    /// `None` where sets are bound.
    push: Option<khr::push_descriptor::Device>,
    /// Where sets come from; null where buffers are pushed.
    sets: vk::DescriptorPool,
    device: Rc<Device>,
}

impl Kernel {
    /// Compiles [`ADD_ONE`] for at most `targets` targets. Buffers are pushed where the device can do that and `sets`
    /// does not ask for sets to be bound.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn new(gpu: &Gpu, sets: bool, targets: u32) -> Result<Self> {
        let device = &gpu.device;
        let instance = &device.instance.raw;
        let can_push = has_extension(instance, device.physical, khr::push_descriptor::NAME)?;
        let push = (can_push && !sets).then(|| khr::push_descriptor::Device::new(instance, &device.raw));
        // Null objects may be destroyed, so the value owns what there is on every way out.
        let mut pipeline = Pipeline {
            set_layout: vk::DescriptorSetLayout::null(),
            layout: vk::PipelineLayout::null(),
            module: vk::ShaderModule::null(),
            raw: vk::Pipeline::null(),
            push,
            sets: vk::DescriptorPool::null(),
            device: Rc::clone(device),
        };
        pipeline.build(&spirv()?)?;
        if pipeline.push.is_none() {
            let kind = vk::DescriptorType::STORAGE_BUFFER;
            let sizes = [vk::DescriptorPoolSize::default().ty(kind).descriptor_count(targets)];
            let create = vk::DescriptorPoolCreateInfo::default().max_sets(targets).pool_sizes(&sizes);
            // SAFETY: `sizes` outlives the call (V5).
            pipeline.sets = unsafe { device.raw.create_descriptor_pool(&create, None)? };
        }
        Ok(Self(Rc::new(pipeline)))
    }

    /// Makes a buffer ready to be given to the kernel. It must outlive the kernel's recordings, as all buffers of
    /// its device do.
    ///
    /// # Errors
    /// There is room for no more sets.
    pub(crate) fn target(&self, region: Region) -> Result<Target> {
        let raw = &self.0.device.raw;
        let buffer = [vk::DescriptorBufferInfo { buffer: region.raw, offset: region.offset, range: region.bytes }];
        if self.0.push.is_some() {
            return Ok(Target { buffer, set: vk::DescriptorSet::null() });
        }
        let layouts = [self.0.set_layout];
        let allocate = vk::DescriptorSetAllocateInfo::default().descriptor_pool(self.0.sets).set_layouts(&layouts);
        // SAFETY: pool and layout are this device's, and this thread's (V2).
        let sets = unsafe { raw.allocate_descriptor_sets(&allocate)? };
        let [set] = sets[..] else { return Err("the driver gave no descriptor set".into()) };
        // SAFETY: the set is new, so no submission uses it (V3); the buffer lives as long as the device.
        unsafe { raw.update_descriptor_sets(&[write(&buffer).dst_set(set)], &[]) };
        Ok(Target { buffer, set })
    }

    /// Binds the pipeline for the dispatches that follow.
    pub(crate) fn bind(&self, recorder: &mut Recorder<'_>) {
        recorder.kept.push(Rc::clone(&self.0) as Rc<dyn Any>);
        // SAFETY: the recording keeps the pipeline.
        unsafe { recorder.device.cmd_bind_pipeline(recorder.raw, vk::PipelineBindPoint::COMPUTE, self.0.raw) }
    }

    /// Runs one group over `target`, which this kernel made. The kernel must be bound in this recording.
    pub(crate) fn dispatch(&self, recorder: &mut Recorder<'_>, target: &Target) {
        let (point, layout) = (vk::PipelineBindPoint::COMPUTE, self.0.layout);
        match &self.0.push {
            // SAFETY: the layout is for pushed descriptors; the buffer lives as long as the device.
            Some(push) => unsafe {
                push.cmd_push_descriptor_set(recorder.raw, point, layout, 0, &[write(&target.buffer)]);
            },
            // SAFETY: the set is of this layout, and is never written again.
            None => unsafe {
                recorder.device.cmd_bind_descriptor_sets(recorder.raw, point, layout, 0, &[target.set], &[]);
            },
        }
        // SAFETY: pipeline and buffer are bound.
        unsafe { recorder.device.cmd_dispatch(recorder.raw, 1, 1, 1) }
    }
}

impl Pipeline {
    fn build(&mut self, words: &[u32]) -> Result<()> {
        let raw = &self.device.raw;
        let pushed = match self.push {
            Some(_) => vk::DescriptorSetLayoutCreateFlags::PUSH_DESCRIPTOR_KHR,
            None => vk::DescriptorSetLayoutCreateFlags::empty(),
        };
        let bindings = [vk::DescriptorSetLayoutBinding::default()
            .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(1)
            .stage_flags(vk::ShaderStageFlags::COMPUTE)];
        let create = vk::DescriptorSetLayoutCreateInfo::default().flags(pushed).bindings(&bindings);
        // SAFETY: the flag is only set where its extension is enabled (V6); pointers as V5, here and below.
        self.set_layout = unsafe { raw.create_descriptor_set_layout(&create, None)? };
        let layouts = [self.set_layout];
        let create = vk::PipelineLayoutCreateInfo::default().set_layouts(&layouts);
        // SAFETY: the set layout lives.
        self.layout = unsafe { raw.create_pipeline_layout(&create, None)? };
        // SAFETY: the words are a valid module: naga wrote them.
        self.module = unsafe { raw.create_shader_module(&vk::ShaderModuleCreateInfo::default().code(words), None)? };
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(self.module)
            .name(c"main");
        let create = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(self.layout)];
        // SAFETY: module and layout live, and agree about the one binding.
        let made = unsafe { raw.create_compute_pipelines(vk::PipelineCache::null(), &create, None) };
        let made = made.map_err(|(_, error)| error)?;
        self.raw = made.first().copied().ok_or("the driver gave no pipeline")?;
        Ok(())
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        let raw = &self.device.raw;
        // SAFETY: no recording keeps the pipeline, and after the wait no old one is pending (V3).
        unsafe {
            let _lost = raw.device_wait_idle();
            raw.destroy_pipeline(self.raw, None);
            raw.destroy_shader_module(self.module, None);
            raw.destroy_pipeline_layout(self.layout, None);
            raw.destroy_descriptor_pool(self.sets, None);
            raw.destroy_descriptor_set_layout(self.set_layout, None);
        }
    }
}

fn write(buffer: &[vk::DescriptorBufferInfo; 1]) -> vk::WriteDescriptorSet<'_> {
    vk::WriteDescriptorSet::default().descriptor_type(vk::DescriptorType::STORAGE_BUFFER).buffer_info(buffer)
}

/// [`ADD_ONE`] for Vulkan 1.2.
fn spirv() -> Result<Vec<u32>> {
    use naga::back::spv;
    use naga::valid::{Capabilities, ValidationFlags, Validator};
    let module = naga::front::wgsl::parse_str(ADD_ONE)?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::empty()).validate(&module)?;
    let options = spv::Options { lang_version: (1, 3), ..spv::Options::default() };
    let entry = spv::PipelineOptions { shader_stage: naga::ShaderStage::Compute, entry_point: "main".to_owned() };
    Ok(spv::write_vec(&module, &info, &options, Some(&entry))?)
}
