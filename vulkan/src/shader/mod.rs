//! Kernel translation: what a user wrote becomes SPIR-V for one device, with what a launch has to supply.
//!
//! Everything here is pure: no Vulkan, no I/O. [`translate`] is the only way in.
//!
//! # Kernels in WGSL
//!
//! - The entry point is a `@compute` function. Only what it reaches counts: a module may hold other entry points that
//!   use other buffers, or features that the device lacks.
//! - Buffers are `var<storage>` in group 0. A launch passes one buffer for each that the entry point uses, in rising
//!   order of the binding numbers, which may have gaps. `_ = &name;` uses a buffer without touching it.
//! - What happens to each buffer is read off the code, not off `read` and `read_write`: a buffer that is only stored
//!   to is [`Write`](BufferAccess::Write), atomics load and store, `arrayLength` alone is
//!   [`Read`](BufferAccess::Read).
//! - Parameters are one `var<immediate>` of at most [`IMMEDIATE_BYTES_MAX`] bytes. A launch passes exactly its size
//!   by the layout rules of WGSL: a `vec3<f32>` and a `u32` together take 16 bytes, and so does a struct of a
//!   `vec3<f32>` alone.
//! - `override`s take their value from the kernel by name, or by number where they have an `@id`. They are resolved
//!   before code is written, so workgroup sizes and loop bounds that depend on them are constants to the driver.
//! - Uniform buffers, textures, samplers and other groups are refused.
//! - `f16` (behind `enable f16;`), `f64`, `i64` and `u64`, `i16` and `u16` (behind `enable wgpu_int16;`), subgroup
//!   operations and atomic addition on `f32` work where the device has them.
//! - Workgroup memory starts at zero and division by zero is defined, as WGSL says. Loops are taken at their word: one
//!   that never ends hangs the device. But lavapipe ends loops that turn too often, and no error tells: see `loops.rs`
//!   for how far that is put off.
//! - Indices outside local arrays and workgroup memory land on the last element. Outside a buffer, loads give zero and
//!   stores do nothing, be it by the device or by checks in the code.
//!
//! # Kernels in SPIR-V
//!
//! The words go to the driver as they came. They are checked for structure and reflected; what they *mean* is not
//! validated, so the module must be valid for Vulkan. The rules above hold, with storage buffers of set 0 (or
//! `BufferBlock`s), the push-constant block and specialization constants in place of their WGSL counterparts.

mod limits;
mod loops;
mod spirv;
#[cfg(test)]
mod tests;
mod wgsl;

use std::any::Any;
use std::thread;

use vkactor_actors::error::LaunchError;
use vkactor_actors::kernel::{BufferAccess, KernelOptions, KernelSource};
use vkactor_actors::port::{unsupported, wrong_source};

/// Largest parameter block of a WGSL kernel: naga keeps a 64-bit mask of the words of the block, and its arithmetic
/// overflows past it.
pub(crate) const IMMEDIATE_BYTES_MAX: u32 = 256;

/// Longest WGSL module, so that the stack for it stays within what machines have of address space.
const SOURCE_BYTES_MAX: usize = 1 << 20;

/// Stack for any module.
const STACK_BYTES_MIN: usize = 8 << 20;

/// Stack for each byte of a module. The worst found, a chain of `else if`s, took 3.9 KiB with naga 30 unoptimized, and
/// a chain of sums 0.4 KiB with optimization.
const STACK_BYTES_PER_SOURCE_BYTE: usize = if cfg!(debug_assertions) { 4096 } else { 512 };

/// What a kernel is translated for.
#[derive(Debug, Clone)]
pub(crate) struct ShaderTarget {
    /// Newest SPIR-V that the device takes, major and minor.
    pub(crate) spirv: (u8, u8),
    /// What a kernel may ask for at most.
    pub(crate) limits: ShaderLimits,
    /// Whether WGSL kernels check their indices into buffers, for devices that do not do so themselves.
    pub(crate) buffer_bounds_checks: bool,
    /// Whether the driver ends loops after a number of iterations, so that WGSL kernels must repeat their bodies.
    pub(crate) loop_iterations_limited: bool,
    /// What kernels may use.
    pub(crate) capabilities: ShaderCapabilities,
}

/// Limits of the device that a kernel alone can exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShaderLimits {
    /// Buffers of one launch.
    pub(crate) max_bindings: u32,
    /// Parameter block with addresses, in bytes.
    pub(crate) max_info_bytes: u32,
    /// Workgroup memory, in bytes.
    pub(crate) max_shared_bytes: u32,
    /// Invocations of a workgroup.
    pub(crate) max_units: u32,
    /// Invocations of a workgroup in x, y and z.
    pub(crate) max_dim: [u32; 3],
}

/// What kernels may use, as enabled on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ShaderCapabilities {
    /// `f16` in arithmetic and in buffers.
    pub(crate) f16: bool,
    /// `f64`.
    pub(crate) f64: bool,
    /// 64-bit integers.
    pub(crate) i64: bool,
    /// 16-bit integers in arithmetic and in buffers.
    pub(crate) i16: bool,
    /// 8-bit integers in arithmetic and in buffers.
    pub(crate) i8: bool,
    /// Subgroup operations in compute kernels: basic, vote, arithmetic, ballot, shuffle, relative shuffle and quad.
    pub(crate) subgroups: bool,
    /// Load, store, exchange and addition on `f32` atomics in buffers.
    pub(crate) atomic_float: bool,
    /// Buffers by 64-bit address.
    pub(crate) buffer_addresses: bool,
    /// Cooperative matrices in SPIR-V.
    pub(crate) matrix: bool,
    /// Workgroup memory that the driver zeroes (`shaderZeroInitializeWorkgroupMemory`). Without it one invocation of
    /// each workgroup does, while the others wait.
    pub(crate) zero_workgroup: bool,
}

/// A kernel that a driver can compile, and what a launch of it supplies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shader {
    /// The SPIR-V module.
    pub(crate) words: Vec<u32>,
    /// The entry point.
    pub(crate) entry: String,
    /// Binding numbers in set 0, in the order of the arguments.
    pub(crate) bindings: Vec<u32>,
    /// What happens to each buffer, in the order of the arguments; the addresses' where there are addresses.
    pub(crate) access: Vec<BufferAccess>,
    /// Whether the kernel asks for the length of each buffer that is bound, in the order of the arguments.
    pub(crate) measured: Vec<bool>,
    /// Parameter bytes of a launch, without addresses.
    pub(crate) info_bytes: u32,
    /// Addresses of eight bytes each in front of the parameters.
    pub(crate) address_count: u32,
    /// Bits for specialization constants of 32 bits, by id.
    pub(crate) specialization: Vec<(u32, u32)>,
    /// Invocations of a workgroup in x, y and z.
    pub(crate) workgroup: [u32; 3],
}

/// Translates a kernel for `target`.
///
/// # Errors
/// [`LaunchError::Compilation`] where the code is wrong or asks for what the device lacks;
/// [`LaunchError::TooManyResources`] where it exceeds a limit.
pub(crate) fn translate(
    kernel: &str,
    source: KernelSource,
    options: &KernelOptions,
    target: &ShaderTarget,
) -> Result<Shader, LaunchError> {
    match source {
        KernelSource::Wgsl { code, entry } => {
            contained(kernel, code.len(), || wgsl::translate(kernel, &code, &entry, options, target))
        }
        KernelSource::Spirv { words, entry } => spirv::translate(kernel, &words, &entry, options, target),
        KernelSource::Host(_) => Err(unsupported(kernel, "host closures; they run on the `Host` server")),
        _ => Err(unsupported(kernel, "this kind of kernel source")),
    }
}

/// Runs naga on `source_bytes` of text where neither a panic nor deep nesting can hurt the process.
///
/// naga recurses over expressions and statements, and an overflowing stack aborts: with naga unoptimized, a chain of
/// sixty `else if`s is too much for the two megabytes of a pool's thread. So it gets a thread whose stack fits the
/// text; pages of it that are not touched cost nothing.
fn contained(
    kernel: &str,
    source_bytes: usize,
    translate: impl FnOnce() -> Result<Shader, LaunchError> + Send,
) -> Result<Shader, LaunchError> {
    if source_bytes > SOURCE_BYTES_MAX {
        let reason = format!("{source_bytes} bytes of WGSL, and {SOURCE_BYTES_MAX} is the most that is taken");
        return Err(wrong_source(kernel, reason));
    }
    let stack = STACK_BYTES_MIN + source_bytes * STACK_BYTES_PER_SOURCE_BYTE;
    let builder = thread::Builder::new().name("vkactor-wgsl".to_owned()).stack_size(stack);
    thread::scope(|scope| match builder.spawn_scoped(scope, translate) {
        Ok(thread) => thread.join().unwrap_or_else(|panic| Err(wrong_source(kernel, gave_up(&*panic)))),
        Err(_) => Err(LaunchError::OutOfMemory { kernel: kernel.to_owned() }),
    })
}

fn gave_up(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("the compiler gave up: {}", said.unwrap_or("no reason given"))
}

/// The names of `entries`, as the end of a sentence that says that `wanted` is not among them.
fn no_entry<'a>(wanted: &str, entries: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = entries.map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [] => format!("no compute entry point `{wanted}`; the module has none"),
        names => format!("no compute entry point `{wanted}`; the module has {}", names.join(", ")),
    }
}
