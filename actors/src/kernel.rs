//! What a launch carries: kernels, group counts and arguments.

use crate::error::CompilationError;
use crate::handle::BufferBinding;
use crate::properties::TargetProperties;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Names compiled code in the caches: 128 bits, made once, so that a launch hashes no source.
///
/// Equal ids mean equal code: the second kernel of an id is never asked for its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KernelId(u128);

impl KernelId {
    /// The id of whatever `name` describes wholly.
    pub fn new(name: impl Into<String>) -> Self {
        Self::of(&("name", name.into()))
    }

    /// The id of a value's hash.
    fn of(value: &impl Hash) -> Self {
        let half = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            salt.hash(&mut hasher);
            value.hash(&mut hasher);
            u128::from(hasher.finish())
        };
        Self(half(1) << 64 | half(2))
    }
}

/// A program that the device can run.
pub trait CubeKernel: Send + Sync + 'static {
    /// What errors and traces call it.
    fn name(&self) -> &str;
    /// What the caches call it. Called for each launch, on the launching thread: it should be ready made.
    fn id(&self) -> KernelId;
    /// The program. Called once for each id on a device, off the actor's thread. A panic in it fails the launch.
    ///
    /// # Errors
    /// What keeps the kernel from being written for this target; the outputs of the launch carry it.
    fn source(&self, target: &TargetProperties) -> Result<KernelSource, CompilationError>;
    /// Constants and the calling convention; by default none, and buffers by binding.
    fn options(&self) -> KernelOptions {
        KernelOptions::default()
    }
}

impl fmt::Debug for dyn CubeKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CubeKernel({})", self.name())
    }
}

/// What goes beside a kernel's source.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KernelOptions {
    /// Values for the `override`s of a WGSL module, by name.
    pub overrides: Vec<(String, f64)>,
    /// Values for the specialization constants of SPIR-V, by id.
    pub specialization: Vec<(u32, u32)>,
    /// Where set, buffers go in as 64-bit addresses at the start of the parameter block, with these accesses.
    pub addresses: Option<Vec<BufferAccess>>,
}

/// The text of a kernel.
#[non_exhaustive]
#[derive(Clone)]
pub enum KernelSource {
    /// A WGSL module.
    Wgsl {
        /// The module.
        code: Cow<'static, str>,
        /// The entry point.
        entry: Cow<'static, str>,
    },
    /// A SPIR-V module.
    Spirv {
        /// The module.
        words: Arc<[u32]>,
        /// The entry point.
        entry: Cow<'static, str>,
    },
    /// A closure; devices that are not host memory refuse it.
    Host(HostFn),
}

impl fmt::Debug for KernelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wgsl { code, entry } => write!(f, "Wgsl({} bytes, {entry})", code.len()),
            Self::Spirv { words, entry } => write!(f, "Spirv({} words, {entry})", words.len()),
            Self::Host(_) => write!(f, "Host"),
        }
    }
}

/// A kernel on host memory: it gets the group counts, the buffers in order, and the parameters. It runs once a launch.
pub type HostFn = Arc<dyn Fn([u32; 3], &mut [&mut [u8]], &[u8]) + Send + Sync>;

/// A Rust closure as a kernel of the `Host` server. Each value made by `new` is a kernel of its own.
#[derive(Clone)]
pub struct HostKernel {
    name: Arc<str>,
    id: KernelId,
    run: HostFn,
}

impl HostKernel {
    /// The kernel that calls `f` once a launch.
    pub fn new(name: impl Into<String>, f: impl Fn([u32; 3], &mut [&mut [u8]], &[u8]) + Send + Sync + 'static) -> Self {
        let name: Arc<str> = name.into().into();
        let id = KernelId::of(&("host", &name, crate::id::BufferId::fresh()));
        Self { name, id, run: Arc::new(f) }
    }
}

impl fmt::Debug for HostKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostKernel").field("name", &self.name).finish_non_exhaustive()
    }
}

impl CubeKernel for HostKernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn id(&self) -> KernelId {
        self.id
    }

    fn source(&self, _: &TargetProperties) -> Result<KernelSource, CompilationError> {
        Ok(KernelSource::Host(self.run.clone()))
    }
}

/// A kernel in WGSL. Buffers are `var<storage>` of group 0 in the order of their bindings, parameters one
/// `var<immediate>`. Cloning is one atomic increment.
///
/// Making one hashes its code: keep it and clone it where launches are frequent.
#[derive(Debug, Clone)]
pub struct WgslKernel(Arc<Wgsl>);

#[derive(Debug, Clone)]
struct Wgsl {
    name: String,
    code: Cow<'static, str>,
    entry: Cow<'static, str>,
    overrides: Vec<(String, f64)>,
    id: KernelId,
}

impl WgslKernel {
    /// The entry point `main` of `code`.
    pub fn new(name: impl Into<String>, code: impl Into<Cow<'static, str>>) -> Self {
        let blank = KernelId(0);
        Self::identified(Wgsl {
            name: name.into(),
            code: code.into(),
            entry: "main".into(),
            overrides: Vec::new(),
            id: blank,
        })
    }

    /// The same module with another entry point.
    #[must_use]
    pub fn entry(self, entry: impl Into<Cow<'static, str>>) -> Self {
        let mut wgsl = Arc::unwrap_or_clone(self.0);
        wgsl.entry = entry.into();
        Self::identified(wgsl)
    }

    /// The same kernel with a value for the module's `override` of this name. The last value of a name counts.
    #[must_use]
    pub fn constant(self, name: impl Into<String>, value: f64) -> Self {
        let mut wgsl = Arc::unwrap_or_clone(self.0);
        let name = name.into();
        wgsl.overrides.retain(|(n, _)| *n != name);
        wgsl.overrides.push((name, value));
        Self::identified(wgsl)
    }

    fn identified(mut wgsl: Wgsl) -> Self {
        let overrides: Vec<(&str, u64)> = wgsl.overrides.iter().map(|(n, v)| (n.as_str(), v.to_bits())).collect();
        wgsl.id = KernelId::of(&("wgsl", &wgsl.name, &wgsl.code, &wgsl.entry, overrides));
        Self(Arc::new(wgsl))
    }
}

impl CubeKernel for WgslKernel {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn id(&self) -> KernelId {
        self.0.id
    }

    fn source(&self, _: &TargetProperties) -> Result<KernelSource, CompilationError> {
        Ok(KernelSource::Wgsl { code: self.0.code.clone(), entry: self.0.entry.clone() })
    }

    fn options(&self) -> KernelOptions {
        KernelOptions { overrides: self.0.overrides.clone(), ..KernelOptions::default() }
    }
}

/// A kernel in SPIR-V. Cloning is one atomic increment.
#[derive(Debug, Clone)]
pub struct SpirvKernel(Arc<Spirv>);

#[derive(Debug, Clone)]
struct Spirv {
    name: String,
    words: Arc<[u32]>,
    entry: Cow<'static, str>,
    specialization: Vec<(u32, u32)>,
    addresses: Option<Vec<BufferAccess>>,
    id: KernelId,
}

impl SpirvKernel {
    /// The entry point `main` of `words`.
    pub fn new(name: impl Into<String>, words: impl Into<Arc<[u32]>>) -> Self {
        Self::identified(Spirv {
            name: name.into(),
            words: words.into(),
            entry: "main".into(),
            specialization: Vec::new(),
            addresses: None,
            id: KernelId(0),
        })
    }

    /// The same module with another entry point.
    #[must_use]
    pub fn entry(self, entry: impl Into<Cow<'static, str>>) -> Self {
        let mut spirv = Arc::unwrap_or_clone(self.0);
        spirv.entry = entry.into();
        Self::identified(spirv)
    }

    /// The same kernel with the bits `value` for the specialization constant `id`. The last value of an id counts.
    #[must_use]
    pub fn constant(self, id: u32, value: u32) -> Self {
        let mut spirv = Arc::unwrap_or_clone(self.0);
        spirv.specialization.retain(|(i, _)| *i != id);
        spirv.specialization.push((id, value));
        Self::identified(spirv)
    }

    /// The same kernel with buffers passed as 64-bit device addresses at the start of the parameter block, one for
    /// each of `accesses` and in their order; the parameters follow.
    ///
    /// The runtime orders launches by these accesses and cannot check them, nor bound what the code reaches.
    #[must_use]
    pub fn by_address(self, accesses: Vec<BufferAccess>) -> Self {
        let mut spirv = Arc::unwrap_or_clone(self.0);
        spirv.addresses = Some(accesses);
        Self::identified(spirv)
    }

    fn identified(mut spirv: Spirv) -> Self {
        let Spirv { name, words, entry, specialization, addresses, .. } = &spirv;
        spirv.id = KernelId::of(&("spirv", name, words, entry, specialization, addresses));
        Self(Arc::new(spirv))
    }
}

impl CubeKernel for SpirvKernel {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn id(&self) -> KernelId {
        self.0.id
    }

    fn source(&self, _: &TargetProperties) -> Result<KernelSource, CompilationError> {
        Ok(KernelSource::Spirv { words: self.0.words.clone(), entry: self.0.entry.clone() })
    }

    fn options(&self) -> KernelOptions {
        KernelOptions {
            specialization: self.0.specialization.clone(),
            addresses: self.0.addresses.clone(),
            ..KernelOptions::default()
        }
    }
}

/// What a kernel does to a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BufferAccess {
    /// It loads and never stores.
    Read,
    /// It stores and never loads: its old bytes do not matter.
    Write,
    /// It does both.
    ReadWrite,
}

impl BufferAccess {
    /// Whether the old bytes matter.
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadWrite)
    }

    /// Whether new bytes are left.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::ReadWrite)
    }
}

/// How many workgroups a launch has.
#[derive(Debug, Clone)]
pub enum CubeCount {
    /// In x, y and z.
    Static(u32, u32, u32),
    /// Three u32 on the device, read when the launch runs. Counts past the device's limit run nothing.
    Dynamic(BufferBinding),
}

impl CubeCount {
    /// One workgroup.
    pub fn new_single() -> Self {
        Self::Static(1, 1, 1)
    }

    /// Workgroups in a row.
    pub fn new_1d(x: u32) -> Self {
        Self::Static(x, 1, 1)
    }

    /// Workgroups in a plane.
    pub fn new_2d(x: u32, y: u32) -> Self {
        Self::Static(x, y, 1)
    }

    /// Workgroups in a box.
    pub fn new_3d(x: u32, y: u32, z: u32) -> Self {
        Self::Static(x, y, z)
    }

    /// Whether the launch is known to run nothing. A dynamic count is not known.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Static(x, y, z) => *x == 0 || *y == 0 || *z == 0,
            Self::Dynamic(_) => false,
        }
    }
}

/// The arguments of a launch: buffers in binding order, and parameters.
///
/// Up to [`INLINE_BUFFERS`] buffers and [`INLINE_INFO`] bytes take no allocation.
#[derive(Debug, Clone, Default)]
pub struct KernelArguments {
    pub(crate) buffers: SmallVec<[BufferBinding; INLINE_BUFFERS]>,
    pub(crate) info: SmallVec<[u8; INLINE_INFO]>,
}

/// Buffers that a launch carries without an allocation.
pub const INLINE_BUFFERS: usize = 8;
/// Parameter bytes that a launch carries without an allocation: what every Vulkan device takes.
pub const INLINE_INFO: usize = 128;

impl KernelArguments {
    /// No arguments.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more buffer.
    #[must_use]
    pub fn with_buffer(mut self, buffer: impl Into<BufferBinding>) -> Self {
        self.buffers.push(buffer.into());
        self
    }

    /// More buffers.
    #[must_use]
    pub fn with_buffers(mut self, buffers: Vec<BufferBinding>) -> Self {
        self.buffers.extend(buffers);
        self
    }

    /// The parameters, in place of those given before.
    #[must_use]
    pub fn with_info<T: bytemuck::NoUninit>(mut self, info: T) -> Self {
        self.info = SmallVec::from_slice(bytemuck::bytes_of(&info));
        self
    }

    /// The buffers, in order.
    pub fn buffers(&self) -> &[BufferBinding] {
        &self.buffers
    }

    /// Takes the parameter bytes.
    pub fn take_info(&mut self) -> SmallVec<[u8; INLINE_INFO]> {
        std::mem::take(&mut self.info)
    }
}
