//! Element types as SPIR-V has them.

use super::spirv::{Assembler, Id, Part, Words, capability, op};
use vkactor_actors::properties::ElemType;

/// A type of numbers that kernels compute with. Integers have no sign: sums and products are the same bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scalar {
    pub(super) float: bool,
    pub(super) bits: u32,
    pub(super) signed: bool,
}

impl Scalar {
    /// `None` for what is no number, or has no type in SPIR-V without an extension.
    pub(super) fn of(elem: ElemType) -> Option<Self> {
        let (float, signed) = match elem {
            ElemType::F64 | ElemType::F32 | ElemType::F16 => (true, true),
            ElemType::I64 | ElemType::I32 | ElemType::I16 | ElemType::I8 => (false, true),
            ElemType::U64 | ElemType::U32 | ElemType::U16 | ElemType::U8 => (false, false),
            ElemType::BF16 | ElemType::Bool => return None,
        };
        Some(Self { float, bits: elem.size() as u32 * 8, signed })
    }

    /// Declares the type, with the capability that it takes.
    pub(super) fn declare(self, module: &mut Assembler) -> Id {
        let needs = match (self.float, self.bits) {
            (true, 16) => Some(capability::FLOAT16),
            (true, 64) => Some(capability::FLOAT64),
            (false, 8) => Some(capability::INT8),
            (false, 16) => Some(capability::INT16),
            (false, 64) => Some(capability::INT64),
            _ => None,
        };
        if let Some(needs) = needs {
            module.capability(needs);
        }
        if self.float {
            module.declare(op::TYPE_FLOAT, &[self.bits])
        } else {
            module.declare(op::TYPE_INT, &[self.bits, 0])
        }
    }

    /// The type of a parameter that a value of this type is made of: `f32` or a word.
    pub(super) fn parameter(self, module: &mut Assembler, words: Words) -> Id {
        if self.float { module.declare(op::TYPE_FLOAT, &[32]) } else { words.word }
    }

    /// A parameter as a value of this type.
    pub(super) fn widen(self, module: &mut Assembler, ty: Id, parameter: Id) -> Id {
        match self {
            Self { bits: 32, .. } => parameter,
            Self { float: true, .. } => module.value(op::F_CONVERT, ty, &[parameter]),
            Self { float: false, .. } => module.value(op::U_CONVERT, ty, &[parameter]),
        }
    }

    /// A word's number in this type.
    pub(super) fn convert(self, module: &mut Assembler, ty: Id, word: Id) -> Id {
        if self.float { module.value(op::CONVERT_U_TO_F, ty, &[word]) } else { self.widen(module, ty, word) }
    }

    /// A value as a word: its low bits, or those of the nearest `f32`.
    pub(super) fn word(self, module: &mut Assembler, words: Words, value: Id) -> Id {
        match self {
            Self { float: false, bits: 32, .. } => value,
            Self { float: false, .. } => module.value(op::U_CONVERT, words.word, &[value]),
            Self { float: true, bits, .. } => {
                let single = module.declare(op::TYPE_FLOAT, &[32]);
                let value = if bits == 32 { value } else { module.value(op::F_CONVERT, single, &[value]) };
                module.value(op::BITCAST, words.word, &[value])
            }
        }
    }

    /// The instruction that adds values, vectors or matrices.
    pub(super) fn sum(self) -> u16 {
        if self.float { op::FADD } else { op::IADD }
    }

    /// The capability for a buffer of this type.
    pub(super) fn stored(self, module: &mut Assembler) {
        match self.bits {
            8 => module.capability(capability::STORAGE_BUFFER_8BIT_ACCESS),
            16 => module.capability(capability::STORAGE_BUFFER_16BIT_ACCESS),
            _ => {}
        }
    }
}

/// Whether modules use the memory model of Vulkan or the older one.
#[derive(Debug, Clone, Copy)]
pub(super) enum MemoryModel {
    Glsl450 = 1,
    Vulkan = 3,
}

/// The head of a compute module.
pub(super) fn begin(module: &mut Assembler, model: MemoryModel) {
    module.capability(capability::SHADER);
    module.put(Part::MemoryModel, op::MEMORY_MODEL, &[0, model as u32]);
}
