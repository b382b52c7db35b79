//! What a device is and can do.

use crate::profile::TimingMethod;
use std::collections::BTreeSet;

/// How many elements one load or store takes.
pub type VectorSize = usize;

/// The element types that kernels and collectives know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each name is its own description")]
pub enum ElemType {
    F64,
    F32,
    F16,
    BF16,
    I64,
    I32,
    I16,
    I8,
    U64,
    U32,
    U16,
    U8,
    Bool,
}

impl ElemType {
    /// Bytes of one element in a buffer.
    pub const fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 | Self::U64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::BF16 | Self::I16 | Self::U16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }
}

/// How a graph is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphKind {
    /// The device takes a recording again as it is.
    Hardware,
    /// The runtime issues the kept commands anew.
    Software,
}

/// What a device is.
#[derive(Debug, Clone)]
pub struct DeviceProperties {
    /// What it can do.
    pub features: Features,
    /// Its memory.
    pub memory: MemoryDeviceProperties,
    /// Its limits for launches.
    pub hardware: HardwareProperties,
    /// Whose clock times a profiling window.
    pub timing_method: TimingMethod,
}

/// Memory of a device, in bytes.
#[derive(Debug, Clone)]
pub struct MemoryDeviceProperties {
    /// The largest single buffer.
    pub max_page_size: u64,
    /// Where a binding may start: a power of two.
    pub alignment: u64,
    /// All memory that the runtime may use.
    pub total: u64,
}

/// Limits of a launch. A cube is a workgroup, a unit one invocation, a plane a subgroup.
#[derive(Debug, Clone)]
pub struct HardwareProperties {
    /// Smallest subgroup.
    pub plane_size_min: u32,
    /// Largest subgroup.
    pub plane_size_max: u32,
    /// Buffers of one launch.
    pub max_bindings: u32,
    /// Workgroup memory, in bytes.
    pub max_shared_memory_size: usize,
    /// Workgroups in x, y and z.
    pub max_cube_count: (u32, u32, u32),
    /// Invocations of a workgroup.
    pub max_units_per_cube: u32,
    /// Invocations of a workgroup in x, y and z.
    pub max_cube_dim: (u32, u32, u32),
    /// Widest load, in bits.
    pub load_width: u32,
    /// Parameter block, in bytes.
    pub max_info_size: usize,
    /// Queues that the runtime drives.
    pub queues: u32,
}

/// What a device can do.
#[derive(Debug, Clone)]
pub struct Features {
    /// Types that kernels may compute with.
    pub types: BTreeSet<ElemType>,
    /// Atomic addition on f32 in buffers.
    pub atomic_float: bool,
    /// Subgroup operations.
    pub subgroups: bool,
    /// Shapes of the matrix units.
    pub matrix: Vec<MatrixShape>,
    /// Bytes move between devices of the runtime without a copy by the host.
    pub device_transport: bool,
    /// Host memory can be imported as it lies.
    pub host_import: bool,
    /// How graphs are replayed.
    pub graph: GraphKind,
}

/// One shape that the matrix units multiply: `c += a × b`, `a` of m by k.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the type says what each is")]
pub struct MatrixShape {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub a: ElemType,
    pub b: ElemType,
    pub c: ElemType,
}

/// What a compiler may rely on; resolved once, when the device starts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TargetProperties {
    /// Newest SPIR-V, major and minor.
    pub spirv: (u8, u8),
    /// Usual size of a subgroup.
    pub subgroup_size: u32,
    /// Whether accesses out of bounds stay inside the buffers of the launch.
    pub bounds_check: bool,
    /// Types that kernels may compute with.
    pub types: BTreeSet<ElemType>,
}
