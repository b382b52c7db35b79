//! Kernels in SPIR-V: checked for structure, reflected, and passed on as they are.

mod layout;
mod module;
mod op;
mod stream;
mod uses;

use std::collections::BTreeMap;

use vkactor_actors::error::LaunchError;
use vkactor_actors::kernel::{BufferAccess, KernelOptions};
use vkactor_actors::port::{unsupported, wrong_source};

use self::module::{EntryPoint, Module, Variable};
use self::op::{capability, class, decoration};
use self::stream::{Malformed, Stream};
use self::uses::Use;
use super::limits::Needs;
use super::{Shader, ShaderCapabilities, ShaderTarget, no_entry};

/// Bytes of an address in the parameter block.
const ADDRESS_BYTES: u64 = 8;

/// Whether the entry point `entry` asks for the length of each of its buffers, by rising binding number.
pub(super) fn measured(kernel: &str, words: &[u32], entry: &str) -> Result<Vec<bool>, LaunchError> {
    let measured = || {
        let module = Module::read(Stream::new(words)?, &[])?;
        let resources = Resources::of(&module, find_entry(&module, entry)?)?;
        Ok(resources.measured())
    };
    measured().map_err(|reason: Malformed| wrong_source(kernel, reason))
}

/// Checks and reflects the entry point `entry` of the module `words`.
pub(super) fn translate(
    kernel: &str,
    words: &[u32],
    entry: &str,
    options: &KernelOptions,
    target: &ShaderTarget,
) -> Result<Shader, LaunchError> {
    let wrong = |reason: Malformed| wrong_source(kernel, reason);
    let stream = Stream::new(words).map_err(wrong)?;
    let (major, minor) = stream.version;
    if (major, minor) > target.spirv {
        return Err(unsupported(kernel, &format!("SPIR-V {major}.{minor}")));
    }
    let module = Module::read(stream, &options.specialization).map_err(wrong)?;
    if let Some(missing) = missing_feature(&module, target.capabilities) {
        return Err(unsupported(kernel, &missing));
    }
    check_constants(&module, options).map_err(wrong)?;
    let point = find_entry(&module, entry).map_err(wrong)?;
    let workgroup = module.workgroup(point.function).map_err(wrong)?;
    if workgroup.contains(&0) {
        return Err(wrong(format!("a workgroup of {workgroup:?} invocations")));
    }
    let resources = Resources::of(&module, point).map_err(wrong)?;
    let addresses = options.addresses.as_deref();
    if addresses.is_some() && !target.capabilities.buffer_addresses {
        return Err(unsupported(kernel, "buffers by address"));
    }
    let info_bytes = resources.info_bytes(addresses).map_err(wrong)?;
    let (bindings, access): (Vec<u32>, Vec<BufferAccess>) =
        resources.buffers.iter().map(|(binding, found)| (*binding, access(*found))).unzip();
    let needs = Needs {
        bindings: bindings.len(),
        block_bytes: resources.block_bytes,
        shared_bytes: resources.shared_bytes,
        workgroup,
    };
    target.limits.check(kernel, &needs)?;
    let too_large = |_| wrong("the parameter block is too large".to_owned());
    Ok(Shader {
        words: words.to_vec(),
        entry: entry.to_owned(),
        bindings,
        access: addresses.map_or(access, <[BufferAccess]>::to_vec),
        measured: resources.measured(),
        info_bytes: u32::try_from(info_bytes).map_err(too_large)?,
        address_count: u32::try_from(addresses.map_or(0, <[BufferAccess]>::len)).map_err(too_large)?,
        specialization: options.specialization.clone(),
        workgroup,
    })
}

/// The first capability that the module declares and the device has not. Capabilities that no field stands for are
/// left to the driver.
fn missing_feature(module: &Module<'_>, has: ShaderCapabilities) -> Option<String> {
    let missing = |declared: &u32| {
        let (available, feature) = match *declared {
            capability::KERNEL => (false, "OpenCL kernels; compile for Vulkan"),
            capability::FLOAT16 => (has.f16, "f16"),
            capability::FLOAT64 => (has.f64, "f64"),
            capability::INT64 => (has.i64, "64-bit integers"),
            capability::INT16 => (has.i16, "16-bit integers"),
            capability::INT8 => (has.i8, "8-bit integers"),
            capability::GROUP_NON_UNIFORM..=capability::GROUP_NON_UNIFORM_QUAD => {
                (has.subgroups, "subgroup operations")
            }
            capability::ATOMIC_FLOAT32_ADD => (has.atomic_float, "atomic addition on f32"),
            capability::COOPERATIVE_MATRIX => (has.matrix, "matrix units"),
            capability::PHYSICAL_STORAGE_BUFFER_ADDRESSES => (has.buffer_addresses, "buffers by address"),
            // Their buffers would go unseen.
            capability::UNTYPED_POINTERS => (false, "untyped pointers"),
            _ => (true, ""),
        };
        (!available).then(|| feature.to_owned())
    };
    module.capabilities.iter().find_map(missing)
}

/// Checks that values are given for constants that exist and have 32 bits.
fn check_constants(module: &Module<'_>, options: &KernelOptions) -> Result<(), Malformed> {
    if let Some((name, _)) = options.overrides.first() {
        return Err(format!("`{name}` has a value: SPIR-V has specialization constants, set by id"));
    }
    let known = &module.constants.specializable;
    for (id, _) in &options.specialization {
        match known.get(id) {
            Some(32) => {}
            Some(bits) => return Err(format!("constant {id} has {bits} bits; values of 32 can be given")),
            None => return Err(format!("no constant {id}; the module has {:?}", known.keys().collect::<Vec<_>>())),
        }
    }
    Ok(())
}

fn find_entry<'m>(module: &'m Module<'_>, name: &str) -> Result<&'m EntryPoint, Malformed> {
    if !module.capabilities.contains(&capability::SHADER) && module.entries.is_empty() {
        return Err("the module has neither the capability `Shader` nor an entry point".to_owned());
    }
    let mut entries = module.entries.iter().filter(|entry| entry.model == op::MODEL_COMPUTE);
    let found = entries.clone().find(|entry| entry.name == name);
    found.ok_or_else(|| no_entry(name, entries.by_ref().map(|entry| entry.name.as_str())))
}

/// What an entry point uses.
#[derive(Debug, Default)]
struct Resources {
    /// By binding number in set 0.
    buffers: BTreeMap<u32, Use>,
    block_bytes: u64,
    shared_bytes: u64,
}

impl Resources {
    fn of(module: &Module<'_>, entry: &EntryPoint) -> Result<Self, Malformed> {
        let uses = uses::uses(module, entry.function)?;
        let mut resources = Self::default();
        // Variables of this kind overlay each other.
        let mut overlaid_bytes = 0;
        for variable in module.variables.iter().filter(|variable| uses::is_resource(variable.class)) {
            let Some(found) = uses.get(&variable.id) else {
                continue;
            };
            let Some(ty) = module.types.pointee(variable.pointer) else {
                return Err(format!("variable %{} has no pointer type", variable.id));
            };
            let decorated = |kind| module.decorations.of(ty, kind).is_some();
            match variable.class {
                class::STORAGE_BUFFER => resources.add_buffer(module, variable, ty, *found)?,
                class::UNIFORM if decorated(decoration::BUFFER_BLOCK) => {
                    resources.add_buffer(module, variable, ty, *found)?;
                }
                class::PUSH_CONSTANT => {
                    let bytes = module.types.explicit_bytes(ty).checked_next_multiple_of(4);
                    resources.block_bytes = bytes.unwrap_or(u64::MAX);
                }
                class::WORKGROUP if decorated(decoration::BLOCK) => {
                    overlaid_bytes = module.types.explicit_bytes(ty).max(overlaid_bytes);
                }
                class::WORKGROUP => {
                    let (bytes, alignment) = module.types.natural_layout(ty);
                    let start = resources.shared_bytes.checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
                    resources.shared_bytes = start.saturating_add(bytes);
                }
                class::UNIFORM => return Err(misplaced(variable, "a uniform buffer")),
                _ => return Err(misplaced(variable, "a texture or sampler")),
            }
        }
        resources.shared_bytes = resources.shared_bytes.saturating_add(overlaid_bytes);
        Ok(resources)
    }

    fn add_buffer(&mut self, module: &Module<'_>, variable: &Variable, ty: u32, found: Use) -> Result<(), Malformed> {
        let decorations = &module.decorations;
        let Some(members) = module.types.members(ty) else {
            return Err(misplaced(variable, "an array of buffers"));
        };
        if decorations.of(variable.id, decoration::DESCRIPTOR_SET) != Some(0) {
            return Err(misplaced(variable, "a buffer outside set 0"));
        }
        let Some(binding) = decorations.of(variable.id, decoration::BINDING) else {
            return Err(misplaced(variable, "a buffer without a binding number"));
        };
        let declared = |kind| {
            let mut indices = (0..).zip(members);
            let all = !members.is_empty() && indices.all(|(at, _)| decorations.of_member(ty, at, kind).is_some());
            all || decorations.of(variable.id, kind).is_some()
        };
        let buffer = self.buffers.entry(binding).or_default();
        buffer.reads |= found.reads && !declared(decoration::NON_READABLE);
        buffer.writes |= found.writes && !declared(decoration::NON_WRITABLE);
        buffer.measures |= found.measures;
        Ok(())
    }

    fn measured(&self) -> Vec<bool> {
        self.buffers.values().map(|found| found.measures).collect()
    }

    /// Parameter bytes behind the addresses.
    fn info_bytes(&self, addresses: Option<&[BufferAccess]>) -> Result<u64, Malformed> {
        let Some(addresses) = addresses else {
            return Ok(self.block_bytes);
        };
        if let Some(binding) = self.buffers.keys().next() {
            return Err(format!("buffers go by address, and the module has one at binding {binding}"));
        }
        let taken = ADDRESS_BYTES * addresses.len() as u64;
        self.block_bytes.checked_sub(taken).ok_or_else(|| {
            format!(
                "{} addresses take {taken} bytes, and the parameter block has {}",
                addresses.len(),
                self.block_bytes
            )
        })
    }
}

fn access(found: Use) -> BufferAccess {
    match (found.reads, found.writes) {
        (_, false) => BufferAccess::Read,
        (false, true) => BufferAccess::Write,
        (true, true) => BufferAccess::ReadWrite,
    }
}

fn misplaced(variable: &Variable, what: &str) -> Malformed {
    format!("variable %{} is {what}: buffers are storage buffers of set 0, parameters push constants", variable.id)
}
