//! Numbers of the SPIR-V specification, as far as reflection needs them (unified 1.6, revision 7).

pub(super) const MAGIC: u32 = 0x0723_0203;
/// Ids lie below this in every module (universal limits, section 2.17).
pub(super) const BOUND_MAX: u32 = 0x0040_0000;

pub(super) const LINE: u16 = 8;
pub(super) const EXT_INST_IMPORT: u16 = 11;
pub(super) const EXT_INST: u16 = 12;
pub(super) const ENTRY_POINT: u16 = 15;
pub(super) const EXECUTION_MODE: u16 = 16;
pub(super) const CAPABILITY: u16 = 17;
pub(super) const TYPE_BOOL: u16 = 20;
pub(super) const TYPE_INT: u16 = 21;
pub(super) const TYPE_FLOAT: u16 = 22;
pub(super) const TYPE_VECTOR: u16 = 23;
pub(super) const TYPE_MATRIX: u16 = 24;
pub(super) const TYPE_ARRAY: u16 = 28;
pub(super) const TYPE_RUNTIME_ARRAY: u16 = 29;
pub(super) const TYPE_STRUCT: u16 = 30;
pub(super) const TYPE_POINTER: u16 = 32;
pub(super) const CONSTANT_TRUE: u16 = 41;
pub(super) const CONSTANT_FALSE: u16 = 42;
pub(super) const CONSTANT: u16 = 43;
pub(super) const CONSTANT_COMPOSITE: u16 = 44;
pub(super) const CONSTANT_NULL: u16 = 46;
pub(super) const SPEC_CONSTANT_TRUE: u16 = 48;
pub(super) const SPEC_CONSTANT_FALSE: u16 = 49;
pub(super) const SPEC_CONSTANT: u16 = 50;
pub(super) const SPEC_CONSTANT_COMPOSITE: u16 = 51;
pub(super) const SPEC_CONSTANT_OP: u16 = 52;
pub(super) const FUNCTION: u16 = 54;
pub(super) const FUNCTION_PARAMETER: u16 = 55;
pub(super) const FUNCTION_END: u16 = 56;
pub(super) const FUNCTION_CALL: u16 = 57;
pub(super) const VARIABLE: u16 = 59;
pub(super) const LOAD: u16 = 61;
pub(super) const STORE: u16 = 62;
pub(super) const COPY_MEMORY: u16 = 63;
pub(super) const COPY_MEMORY_SIZED: u16 = 64;
pub(super) const ACCESS_CHAIN: u16 = 65;
pub(super) const IN_BOUNDS_ACCESS_CHAIN: u16 = 66;
pub(super) const PTR_ACCESS_CHAIN: u16 = 67;
pub(super) const ARRAY_LENGTH: u16 = 68;
pub(super) const IN_BOUNDS_PTR_ACCESS_CHAIN: u16 = 70;
pub(super) const DECORATE: u16 = 71;
pub(super) const MEMBER_DECORATE: u16 = 72;
pub(super) const GROUP_DECORATE: u16 = 74;
pub(super) const GROUP_MEMBER_DECORATE: u16 = 75;
pub(super) const VECTOR_SHUFFLE: u16 = 79;
pub(super) const COMPOSITE_EXTRACT: u16 = 81;
pub(super) const COMPOSITE_INSERT: u16 = 82;
pub(super) const COPY_OBJECT: u16 = 83;
pub(super) const UCONVERT: u16 = 113;
pub(super) const SCONVERT: u16 = 114;
pub(super) const SNEGATE: u16 = 126;
pub(super) const IADD: u16 = 128;
pub(super) const ISUB: u16 = 130;
pub(super) const IMUL: u16 = 132;
pub(super) const UDIV: u16 = 134;
pub(super) const SDIV: u16 = 135;
pub(super) const UMOD: u16 = 137;
pub(super) const SELECT: u16 = 169;
pub(super) const IEQUAL: u16 = 170;
pub(super) const INOT_EQUAL: u16 = 171;
pub(super) const UGREATER_THAN: u16 = 172;
pub(super) const UGREATER_THAN_EQUAL: u16 = 174;
pub(super) const ULESS_THAN: u16 = 176;
pub(super) const ULESS_THAN_EQUAL: u16 = 178;
pub(super) const SHIFT_RIGHT_LOGICAL: u16 = 194;
pub(super) const SHIFT_LEFT_LOGICAL: u16 = 196;
pub(super) const BITWISE_OR: u16 = 197;
pub(super) const BITWISE_XOR: u16 = 198;
pub(super) const BITWISE_AND: u16 = 199;
pub(super) const NOT: u16 = 200;
pub(super) const ATOMIC_LOAD: u16 = 227;
pub(super) const ATOMIC_STORE: u16 = 228;
pub(super) const ATOMIC_EXCHANGE: u16 = 229;
pub(super) const ATOMIC_XOR: u16 = 242;
pub(super) const LOOP_MERGE: u16 = 246;
pub(super) const SELECTION_MERGE: u16 = 247;
pub(super) const LABEL: u16 = 248;
pub(super) const BRANCH: u16 = 249;
pub(super) const BRANCH_CONDITIONAL: u16 = 250;
pub(super) const SWITCH: u16 = 251;
pub(super) const UNREACHABLE: u16 = 255;
pub(super) const NO_LINE: u16 = 317;
pub(super) const EXECUTION_MODE_ID: u16 = 331;
pub(super) const GROUP_NON_UNIFORM_ELECT: u16 = 333;
pub(super) const GROUP_NON_UNIFORM_QUAD_SWAP: u16 = 366;
pub(super) const TERMINATE_INVOCATION: u16 = 4416;
pub(super) const DOT: u16 = 4450;
pub(super) const SUDOT_ACC_SAT: u16 = 4455;
pub(super) const TYPE_COOPERATIVE_MATRIX: u16 = 4456;
pub(super) const COOPERATIVE_MATRIX_LOAD: u16 = 4457;
pub(super) const COOPERATIVE_MATRIX_STORE: u16 = 4458;
pub(super) const COOPERATIVE_MATRIX_MUL_ADD: u16 = 4459;
pub(super) const ATOMIC_FMIN: u16 = 5614;
pub(super) const ATOMIC_FMAX: u16 = 5615;
pub(super) const ATOMIC_FADD: u16 = 6035;

pub(super) const MODEL_COMPUTE: u32 = 5;
pub(super) const MODE_LOCAL_SIZE: u32 = 17;
pub(super) const MODE_LOCAL_SIZE_ID: u32 = 38;
pub(super) const BUILTIN_WORKGROUP_SIZE: u32 = 25;

/// Storage classes.
pub(super) mod class {
    pub(in super::super) const UNIFORM_CONSTANT: u32 = 0;
    pub(in super::super) const UNIFORM: u32 = 2;
    pub(in super::super) const WORKGROUP: u32 = 4;
    pub(in super::super) const PUSH_CONSTANT: u32 = 9;
    pub(in super::super) const STORAGE_BUFFER: u32 = 12;
}

/// Decorations.
pub(super) mod decoration {
    pub(in super::super) const SPEC_ID: u32 = 1;
    pub(in super::super) const BLOCK: u32 = 2;
    pub(in super::super) const BUFFER_BLOCK: u32 = 3;
    pub(in super::super) const ROW_MAJOR: u32 = 4;
    pub(in super::super) const ARRAY_STRIDE: u32 = 6;
    pub(in super::super) const MATRIX_STRIDE: u32 = 7;
    pub(in super::super) const BUILT_IN: u32 = 11;
    pub(in super::super) const NON_WRITABLE: u32 = 24;
    pub(in super::super) const NON_READABLE: u32 = 25;
    pub(in super::super) const BINDING: u32 = 33;
    pub(in super::super) const DESCRIPTOR_SET: u32 = 34;
    pub(in super::super) const OFFSET: u32 = 35;
}

/// Capabilities.
pub(super) mod capability {
    pub(in super::super) const SHADER: u32 = 1;
    pub(in super::super) const KERNEL: u32 = 6;
    pub(in super::super) const FLOAT16: u32 = 9;
    pub(in super::super) const FLOAT64: u32 = 10;
    pub(in super::super) const INT64: u32 = 11;
    pub(in super::super) const INT16: u32 = 22;
    pub(in super::super) const INT8: u32 = 39;
    pub(in super::super) const GROUP_NON_UNIFORM: u32 = 61;
    pub(in super::super) const GROUP_NON_UNIFORM_QUAD: u32 = 68;
    pub(in super::super) const UNTYPED_POINTERS: u32 = 4473;
    pub(in super::super) const PHYSICAL_STORAGE_BUFFER_ADDRESSES: u32 = 5347;
    pub(in super::super) const COOPERATIVE_MATRIX: u32 = 6022;
    pub(in super::super) const ATOMIC_FLOAT32_ADD: u32 = 6033;
}
