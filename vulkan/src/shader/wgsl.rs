//! Kernels in WGSL, by way of naga.

use std::borrow::Cow;

use naga::back::PipelineConstants;
use naga::back::pipeline_constants::{PipelineConstantError, process_overrides};
use naga::back::spv;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy, Layouter};
use naga::valid::{Capabilities, FunctionInfo, GlobalUse, ModuleInfo, ValidationError, ValidationFlags, Validator};
use naga::{AddressSpace, GlobalVariable, Module, ShaderStage, WithSpan};
use vkactor_actors::error::LaunchError;
use vkactor_actors::kernel::{BufferAccess, KernelOptions};
use vkactor_actors::port::{unsupported, wrong_source};

use super::limits::{Needs, within};
use super::{IMMEDIATE_BYTES_MAX, Shader, ShaderCapabilities, ShaderTarget, loops, no_entry, spirv};

/// Features that a device may lack, in the words of a kernel's author.
const FEATURES: [(Capabilities, &str); 8] = [
    (Capabilities::SHADER_FLOAT16, "f16"),
    (Capabilities::FLOAT64, "f64"),
    (Capabilities::SHADER_INT64, "64-bit integers"),
    (Capabilities::SHADER_INT16, "16-bit integers"),
    (Capabilities::SUBGROUP.union(Capabilities::SUBGROUP_BARRIER), "subgroup operations"),
    (Capabilities::SHADER_FLOAT32_ATOMIC, "atomic operations on f32"),
    (
        Capabilities::SHADER_INT64_ATOMIC_ALL_OPS.union(Capabilities::SHADER_INT64_ATOMIC_MIN_MAX),
        "atomic operations on 64-bit integers",
    ),
    (Capabilities::COOPERATIVE_MATRIX, "cooperative matrices in WGSL"),
];

/// Translates the entry point `entry` of the module `code`.
pub(super) fn translate(
    kernel: &str,
    code: &str,
    entry: &str,
    options: &KernelOptions,
    target: &ShaderTarget,
) -> Result<Shader, LaunchError> {
    refuse_options(kernel, options)?;
    let parsed = naga::front::wgsl::parse_str(code);
    let mut module = parsed.map_err(|error| wrong_source(kernel, error.emit_to_string(code).trim_end()))?;
    check_early(kernel, &module, entry, target)?;
    // The whole module must be sound, as WGSL has it; what the device lacks matters only where this entry uses it.
    validate(&module, Capabilities::all())
        .map_err(|error| wrong_source(kernel, error.emit_to_string(code).trim_end()))?;
    let constants = constants(kernel, &module, &options.overrides)?;
    module.entry_points.retain(|e| e.stage == ShaderStage::Compute && e.name == entry);
    naga::compact::compact(&mut module, naga::compact::KeepUnused::No);
    let info = check_features(kernel, &module, target.capabilities)?;
    let (module, info) = resolve(kernel, code, &module, &info, &constants)?;
    let mut shader = reflect(kernel, &module, &info, target)?;
    shader.words = if target.loop_iterations_limited {
        let (module, info) = unroll(kernel, module.into_owned(), target.capabilities)?;
        write(kernel, &module, &info, entry, target)?
    } else {
        write(kernel, &module, &info, entry, target)?
    };
    // naga's own checks ask for lengths too.
    shader.measured = spirv::measured(kernel, &shader.words, entry)?;
    Ok(shader)
}

/// Refuses what only SPIR-V has.
fn refuse_options(kernel: &str, options: &KernelOptions) -> Result<(), LaunchError> {
    if let Some((id, _)) = options.specialization.first() {
        return Err(wrong_source(kernel, format!("constant {id} has a value: WGSL has `override`s, set by name")));
    }
    if options.addresses.is_some() {
        return Err(wrong_source(kernel, "buffers by address need SPIR-V: WGSL has no pointers to device memory"));
    }
    Ok(())
}

/// What has to be known before validation, where these mistakes have worse messages, or panic.
fn check_early(kernel: &str, module: &Module, entry: &str, target: &ShaderTarget) -> Result<(), LaunchError> {
    let mut entries = module.entry_points.iter().filter(|e| e.stage == ShaderStage::Compute);
    let Some(found) = entries.clone().find(|e| e.name == entry) else {
        return Err(wrong_source(kernel, no_entry(entry, entries.by_ref().map(|e| e.name.as_str()))));
    };
    if found.workgroup_size_overrides.is_none() {
        target.limits.check_workgroup(kernel, found.workgroup_size)?;
    }
    let mut layouter = Layouter::default();
    if layouter.update(module.to_ctx()).is_err() {
        // Validation runs into the same and quotes the place.
        return Ok(());
    }
    let limit = target.limits.max_info_bytes.min(IMMEDIATE_BYTES_MAX);
    let blocks = module.global_variables.iter().filter(|(_, v)| v.space == AddressSpace::Immediate);
    for (_, block) in blocks {
        within(kernel, "bytes of the parameter block", layouter[block.ty].size.into(), limit)?;
    }
    Ok(())
}

fn validate(module: &Module, capabilities: Capabilities) -> Result<ModuleInfo, Box<WithSpan<ValidationError>>> {
    Validator::new(ValidationFlags::all(), capabilities).validate(module).map_err(Box::new)
}

/// The values given for the module's `override`s, as naga keys them: by number where there is one.
fn constants(kernel: &str, module: &Module, given: &[(String, f64)]) -> Result<PipelineConstants, LaunchError> {
    let mut constants = PipelineConstants::default();
    for (name, value) in given {
        let named =
            |o: &naga::Override| o.name.as_ref() == Some(name) || o.id.is_some_and(|id| id.to_string() == *name);
        let Some((_, found)) = module.overrides.iter().find(|(_, o)| named(o)) else {
            let known: Vec<_> = module.overrides.iter().filter_map(|(_, o)| o.name.as_deref()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(wrong_source(kernel, format!("no override `{name}`; the module has {known}")));
        };
        if !value.is_finite() {
            return Err(wrong_source(kernel, format!("override `{name}` cannot be {value}")));
        }
        constants.insert(found.id.map_or_else(|| name.clone(), |id| id.to_string()), *value);
    }
    Ok(constants)
}

/// What the device offers, in naga's terms.
fn available(device: ShaderCapabilities) -> Capabilities {
    // Half floats inside u32 words are part of every Vulkan, and so are the decorations.
    let mut all = Capabilities::IMMEDIATES
        | Capabilities::SHADER_FLOAT16_IN_FLOAT32
        | Capabilities::MEMORY_DECORATION_COHERENT
        | Capabilities::MEMORY_DECORATION_VOLATILE;
    all.set(Capabilities::SHADER_FLOAT16, device.f16);
    all.set(Capabilities::FLOAT64, device.f64);
    all.set(Capabilities::SHADER_INT64, device.i64);
    all.set(Capabilities::SHADER_INT16, device.i16);
    all.set(Capabilities::SUBGROUP | Capabilities::SUBGROUP_BARRIER, device.subgroups);
    all.set(Capabilities::SHADER_FLOAT32_ATOMIC, device.atomic_float);
    all
}

/// Validates a sound module for the device. What fails is then a missing feature.
fn check_features(kernel: &str, module: &Module, device: ShaderCapabilities) -> Result<ModuleInfo, LaunchError> {
    let has = available(device);
    let error = match validate(module, has) {
        Ok(info) => return Ok(info),
        Err(error) => error,
    };
    // naga reports its first complaint in one of a dozen shapes. Taking features away one by one names all of them.
    let missing = |&&(feature, _): &&(Capabilities, &str)| {
        !has.contains(feature) && validate(module, Capabilities::all() - feature).is_err()
    };
    let names: Vec<&str> = FEATURES.iter().filter(missing).map(|(_, name)| *name).collect();
    if names.is_empty() {
        let mut cause: &dyn std::error::Error = error.as_inner();
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        return Err(unsupported(kernel, &cause.to_string()));
    }
    Err(unsupported(kernel, &names.join(", ")))
}

/// Puts constants in the place of `override`s.
fn resolve<'a>(
    kernel: &str,
    code: &str,
    module: &'a Module,
    info: &'a ModuleInfo,
    constants: &PipelineConstants,
) -> Result<(Cow<'a, Module>, Cow<'a, ModuleInfo>), LaunchError> {
    // Values for overrides that this entry point does not use are no error.
    let used = |key: &String| {
        module.overrides.iter().any(|(_, o)| match o.id {
            Some(id) => id.to_string() == *key,
            None => o.name.as_ref() == Some(key),
        })
    };
    let constants = constants.iter().filter(|(key, _)| used(key)).map(|(key, value)| (key.clone(), *value)).collect();
    process_overrides(module, info, None, &constants).map_err(|error| {
        let reason = match error {
            PipelineConstantError::ValidationError(error) => error.emit_to_string(code).trim_end().to_owned(),
            error => error.to_string(),
        };
        if constants.is_empty() {
            return wrong_source(kernel, reason);
        }
        // Most of these errors do not say which.
        let given: Vec<String> = constants.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        wrong_source(kernel, format!("{reason}, with {}", given.join(", ")))
    })
}

/// Repeats the bodies of loops, for a driver that limits how often they turn.
fn unroll(kernel: &str, mut module: Module, device: ShaderCapabilities) -> Result<(Module, ModuleInfo), LaunchError> {
    loops::unroll(&mut module);
    let info = validate(&module, available(device))
        .map_err(|error| wrong_source(kernel, format!("its loops cannot be repeated: {}", error.as_inner())))?;
    Ok((module, info))
}

/// All of the shader but its words and what they measure. `module` has one entry point.
fn reflect(kernel: &str, module: &Module, info: &ModuleInfo, target: &ShaderTarget) -> Result<Shader, LaunchError> {
    let entry = &module.entry_points[0];
    let uses = info.get_entry_point(0);
    let mut layouter = Layouter::default();
    layouter.update(module.to_ctx()).map_err(|error| wrong_source(kernel, error.to_string()))?;
    let mut buffers = Vec::new();
    let (mut info_bytes, mut shared_bytes) = (0, 0u64);
    for (handle, variable) in module.global_variables.iter().filter(|(handle, _)| !uses[*handle].is_empty()) {
        let layout = layouter[variable.ty];
        match variable.space {
            AddressSpace::Storage { .. } => {
                buffers.push((storage_binding(kernel, variable)?, access(uses, handle)));
            }
            AddressSpace::Immediate => info_bytes = layout.size,
            AddressSpace::WorkGroup => {
                let alignment = u64::from(layout.alignment.round_up(1));
                shared_bytes = shared_bytes.next_multiple_of(alignment) + u64::from(layout.size);
            }
            AddressSpace::Function | AddressSpace::Private => {}
            AddressSpace::Uniform => return Err(misplaced(kernel, "uniform buffer", variable)),
            _ => return Err(misplaced(kernel, "texture, sampler or other resource", variable)),
        }
    }
    buffers.sort_unstable_by_key(|(binding, _)| *binding);
    let (bindings, access): (Vec<u32>, Vec<BufferAccess>) = buffers.into_iter().unzip();
    let workgroup = entry.workgroup_size;
    let needs = Needs { bindings: bindings.len(), block_bytes: u64::from(info_bytes), shared_bytes, workgroup };
    target.limits.check(kernel, &needs)?;
    Ok(Shader {
        words: Vec::new(),
        entry: entry.name.clone(),
        bindings,
        access,
        measured: Vec::new(),
        info_bytes,
        address_count: 0,
        specialization: Vec::new(),
        workgroup,
    })
}

fn storage_binding(kernel: &str, variable: &GlobalVariable) -> Result<u32, LaunchError> {
    match &variable.binding {
        Some(binding) if binding.group == 0 => Ok(binding.binding),
        _ => Err(misplaced(kernel, "buffer outside group 0", variable)),
    }
}

fn access(uses: &FunctionInfo, handle: naga::Handle<GlobalVariable>) -> BufferAccess {
    let (reads, writes) = (uses[handle].contains(GlobalUse::READ), uses[handle].contains(GlobalUse::WRITE));
    match (reads, writes) {
        (_, false) => BufferAccess::Read,
        (false, true) => BufferAccess::Write,
        (true, true) => BufferAccess::ReadWrite,
    }
}

fn misplaced(kernel: &str, what: &str, variable: &GlobalVariable) -> LaunchError {
    let name = variable.name.as_deref().unwrap_or("without a name");
    let rule = "buffers are `var<storage>` of group 0, parameters `var<immediate>`";
    wrong_source(kernel, format!("`{name}` is a {what}: {rule}"))
}

/// Writes the one entry point of `module`.
fn write(
    kernel: &str,
    module: &Module,
    info: &ModuleInfo,
    entry: &str,
    target: &ShaderTarget,
) -> Result<Vec<u32>, LaunchError> {
    // Skipping a store is the only policy that is safe in a buffer smaller than one element, where there is no index
    // to clamp to.
    let policy =
        if target.buffer_bounds_checks { BoundsCheckPolicy::ReadZeroSkipWrite } else { BoundsCheckPolicy::Unchecked };
    let pipeline = spv::PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: entry.to_owned() };
    let attempt = |policy| spv::write_vec(module, info, &write_options(policy, target), Some(&pipeline));
    let written = match attempt(policy) {
        // naga 30 cannot skip an atomic; clamping is right for all buffers of at least one element.
        Err(spv::Error::FeatureNotImplemented(_)) if target.buffer_bounds_checks => {
            attempt(BoundsCheckPolicy::Restrict)
        }
        written => written,
    };
    written.map_err(|error| match error {
        spv::Error::FeatureNotImplemented(feature) => unsupported(kernel, feature),
        spv::Error::SpirvVersionTooLow(major, minor) => unsupported(kernel, &format!("SPIR-V {major}.{minor}")),
        error => wrong_source(kernel, error.to_string()),
    })
}

fn write_options(buffer: BoundsCheckPolicy, target: &ShaderTarget) -> spv::Options<'static> {
    spv::Options {
        lang_version: target.spirv,
        flags: spv::WriterFlags::empty(),
        // What is not in the map, and nothing is, keeps its number.
        fake_missing_bindings: true,
        binding_map: spv::BindingMap::default(),
        capabilities: None,
        bounds_check_policies: BoundsCheckPolicies {
            // Local and workgroup arrays lie outside every robustness feature, and their lengths are known: one `min`.
            index: BoundsCheckPolicy::Restrict,
            buffer,
            image_load: BoundsCheckPolicy::Unchecked,
            binding_array: BoundsCheckPolicy::Unchecked,
        },
        zero_initialize_workgroup_memory: if target.capabilities.zero_workgroup {
            spv::ZeroInitializeWorkgroupMemoryMode::Native
        } else {
            spv::ZeroInitializeWorkgroupMemoryMode::Polyfill
        },
        // A counter in each loop costs registers in the innermost loops of every kernel.
        force_loop_bounding: false,
        // Only shader inputs and outputs would use it, and NVIDIA does not offer it.
        use_storage_input_output_16: false,
        ..spv::Options::default()
    }
}
