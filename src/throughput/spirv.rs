//! Writes SPIR-V modules word by word, for kernels that WGSL has no words for.
//!
//! It knows the order of a module's parts and the shape of an instruction, nothing more: that a module is valid is
//! the business of whoever writes it. Numbers are those of the SPIR-V specification (unified 1.6).

use std::collections::HashMap;

/// Names a value, a type or a label of a module.
pub(super) type Id = u32;

/// The parts of a module, in the order in which they stand.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Capability,
    Extension,
    Import,
    MemoryModel,
    EntryPoint,
    ExecutionMode,
    Decoration,
    Global,
    Code,
}

/// A module that is being written.
#[derive(Debug)]
pub(super) struct Assembler {
    parts: [Vec<u32>; Part::Code as usize + 1],
    bound: Id,
    /// Types by how they are declared: all but structs and arrays may be declared once only.
    types: HashMap<Vec<u32>, Id>,
}

impl Assembler {
    pub(super) fn new() -> Self {
        Self { parts: Default::default(), bound: 1, types: HashMap::new() }
    }

    /// A fresh id, for what is named before it is written.
    pub(super) fn id(&mut self) -> Id {
        self.bound += 1;
        self.bound - 1
    }

    /// An instruction without a result.
    pub(super) fn put(&mut self, part: Part, op: u16, operands: &[u32]) {
        let words = &mut self.parts[part as usize];
        words.push((operands.len() as u32 + 1) << 16 | u32::from(op));
        words.extend(operands);
    }

    /// A type. Structs and arrays are types of their own each time.
    pub(super) fn declare(&mut self, op: u16, operands: &[u32]) -> Id {
        let key = [&[op.into()], operands].concat();
        let aggregate = matches!(op, op::TYPE_STRUCT | op::TYPE_RUNTIME_ARRAY);
        if let Some(known) = self.types.get(&key).filter(|_| !aggregate) {
            return *known;
        }
        let id = self.id();
        self.put(Part::Global, op, &[&[id], operands].concat());
        self.types.insert(key, id);
        id
    }

    /// A constant or variable.
    pub(super) fn global(&mut self, op: u16, ty: Id, operands: &[u32]) -> Id {
        let id = self.id();
        self.put(Part::Global, op, &[&[ty, id], operands].concat());
        id
    }

    /// An instruction of the function with a result.
    pub(super) fn value(&mut self, op: u16, ty: Id, operands: &[u32]) -> Id {
        let id = self.id();
        self.put(Part::Code, op, &[&[ty, id], operands].concat());
        id
    }

    /// An instruction of the function without a result.
    pub(super) fn effect(&mut self, op: u16, operands: &[u32]) {
        self.put(Part::Code, op, operands);
    }

    /// A 32-bit constant.
    pub(super) fn constant(&mut self, ty: Id, bits: u32) -> Id {
        self.global(op::CONSTANT, ty, &[bits])
    }

    /// Asks for a capability, once however often it is needed.
    pub(super) fn capability(&mut self, capability: u32) {
        let asked = self.parts[Part::Capability as usize].chunks_exact(2).any(|words| words[1] == capability);
        if !asked {
            self.put(Part::Capability, op::CAPABILITY, &[capability]);
        }
    }

    pub(super) fn extension(&mut self, name: &str) {
        self.put(Part::Extension, op::EXTENSION, &text(name));
    }

    pub(super) fn import(&mut self, name: &str) -> Id {
        let id = self.id();
        self.put(Part::Import, op::EXT_INST_IMPORT, &[&[id], &text(name)[..]].concat());
        id
    }

    pub(super) fn decorate(&mut self, id: Id, decoration: &[u32]) {
        self.put(Part::Decoration, op::DECORATE, &[&[id], decoration].concat());
    }

    /// A variable that holds a value of the pipeline.
    pub(super) fn built_in(&mut self, ty: Id, built_in: u32) -> Id {
        let pointer = self.declare(op::TYPE_POINTER, &[class::INPUT, ty]);
        let variable = self.global(op::VARIABLE, pointer, &[class::INPUT]);
        self.decorate(variable, &[decoration::BUILT_IN, built_in]);
        variable
    }

    /// The block of parameters, of members of four bytes.
    pub(super) fn parameters(&mut self, members: &[Id]) -> Id {
        let block = self.declare(op::TYPE_STRUCT, members);
        self.decorate(block, &[decoration::BLOCK]);
        for member in 0..members.len() as u32 {
            self.put(Part::Decoration, op::MEMBER_DECORATE, &[block, member, decoration::OFFSET, 4 * member]);
        }
        let pointer = self.declare(op::TYPE_POINTER, &[class::PUSH_CONSTANT, block]);
        self.global(op::VARIABLE, pointer, &[class::PUSH_CONSTANT])
    }

    /// The value of a parameter of type `ty`; `index` is the constant of its place.
    pub(super) fn parameter(&mut self, block: Id, ty: Id, index: Id) -> Id {
        let pointer = self.declare(op::TYPE_POINTER, &[class::PUSH_CONSTANT, ty]);
        let place = self.value(op::ACCESS_CHAIN, pointer, &[block, index]);
        self.value(op::LOAD, ty, &[place])
    }

    /// The storage buffer of binding 0, an array of `ty`.
    pub(super) fn buffer(&mut self, ty: Id, stride: u32) -> Id {
        let array = self.declare(op::TYPE_RUNTIME_ARRAY, &[ty]);
        self.decorate(array, &[decoration::ARRAY_STRIDE, stride]);
        let block = self.declare(op::TYPE_STRUCT, &[array]);
        self.decorate(block, &[decoration::BLOCK]);
        self.put(Part::Decoration, op::MEMBER_DECORATE, &[block, 0, decoration::OFFSET, 0]);
        let pointer = self.declare(op::TYPE_POINTER, &[class::STORAGE_BUFFER, block]);
        let variable = self.global(op::VARIABLE, pointer, &[class::STORAGE_BUFFER]);
        self.decorate(variable, &[decoration::DESCRIPTOR_SET, 0]);
        self.decorate(variable, &[decoration::BINDING, 0]);
        variable
    }

    /// Where an element of a [`buffer`](Self::buffer) of `ty` lies; `zero` is that constant.
    pub(super) fn element(&mut self, buffer: Id, ty: Id, zero: Id, index: Id) -> Id {
        let pointer = self.declare(op::TYPE_POINTER, &[class::STORAGE_BUFFER, ty]);
        self.value(op::ACCESS_CHAIN, pointer, &[buffer, zero, index])
    }

    /// `count` values, each made of the one before and `step`.
    pub(super) fn ladder(&mut self, op: u16, ty: Id, first: Id, step: Id, count: usize) -> Vec<Id> {
        let rungs = std::iter::successors(Some(first), |last| Some(self.value(op, ty, &[*last, step])));
        rungs.take(count).collect()
    }

    /// One value of many.
    pub(super) fn fold(&mut self, op: u16, ty: Id, values: &[Id]) -> Id {
        let folded = values.iter().copied().reduce(|a, b| self.value(op, ty, &[a, b]));
        folded.unwrap_or_else(|| unreachable!("nothing to fold"))
    }

    /// Begins `main`.
    pub(super) fn begin_main(&mut self) -> Id {
        let void = self.declare(op::TYPE_VOID, &[]);
        let of = self.declare(op::TYPE_FUNCTION, &[void]);
        let main = self.value(op::FUNCTION, void, &[0, of]);
        let label = self.id();
        self.effect(op::LABEL, &[label]);
        main
    }

    /// A loop of `count` turns that carries values round; gives those that are left. `body` makes the next values of
    /// the last ones, without branches.
    pub(super) fn repeat(
        &mut self,
        count: Id,
        words: Words,
        carried: &[(Id, Id)],
        body: impl FnOnce(&mut Self, &[Id]) -> Vec<Id>,
    ) -> Vec<Id> {
        let [before, header, inside, next, after, turned] = std::array::from_fn(|_| self.id());
        let boolean = self.declare(op::TYPE_BOOL, &[]);
        let now: Vec<Id> = carried.iter().map(|_| self.id()).collect();
        // The head of the loop names what the body makes, so the body is written first.
        let ahead = std::mem::take(&mut self.parts[Part::Code as usize]);
        let made = body(self, &now);
        let body = std::mem::replace(&mut self.parts[Part::Code as usize], ahead);
        self.effect(op::BRANCH, &[before]);
        self.effect(op::LABEL, &[before]);
        self.effect(op::BRANCH, &[header]);
        self.effect(op::LABEL, &[header]);
        let turn = self.value(op::PHI, words.word, &[words.zero, before, turned, next]);
        for ((ty, first), (now, then)) in carried.iter().zip(now.iter().zip(made)) {
            self.effect(op::PHI, &[*ty, *now, *first, before, then, next]);
        }
        let more = self.value(op::ULESS_THAN, boolean, &[turn, count]);
        self.effect(op::LOOP_MERGE, &[after, next, 0]);
        self.effect(op::BRANCH_CONDITIONAL, &[more, inside, after]);
        self.effect(op::LABEL, &[inside]);
        self.parts[Part::Code as usize].extend(body);
        self.effect(op::BRANCH, &[next]);
        self.effect(op::LABEL, &[next]);
        self.effect(op::IADD, &[words.word, turned, turn, words.one]);
        self.effect(op::BRANCH, &[header]);
        self.effect(op::LABEL, &[after]);
        now
    }

    /// Ends `main`, which uses these variables and has workgroups of so many invocations; the module.
    pub(super) fn finish(mut self, main: Id, uses: &[Id], workgroup: u32) -> Vec<u32> {
        self.effect(op::RETURN, &[]);
        self.effect(op::FUNCTION_END, &[]);
        let entry = [&[MODEL_COMPUTE, main], &text("main")[..], uses].concat();
        self.put(Part::EntryPoint, op::ENTRY_POINT, &entry);
        self.put(Part::ExecutionMode, op::EXECUTION_MODE, &[main, MODE_LOCAL_SIZE, workgroup, 1, 1]);
        let header = vec![MAGIC, VERSION, 0, self.bound, 0];
        std::iter::once(header).chain(self.parts).flatten().collect()
    }
}

/// The type of 32-bit words, and two constants of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    pub(super) word: Id,
    pub(super) zero: Id,
    pub(super) one: Id,
}

impl Words {
    pub(super) fn new(module: &mut Assembler) -> Self {
        let word = module.declare(op::TYPE_INT, &[32, 0]);
        let (zero, one) = (module.constant(word, 0), module.constant(word, 1));
        Self { word, zero, one }
    }
}

/// A name as words: its bytes from the lowest up, and a zero at least.
fn text(name: &str) -> Vec<u32> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize((name.len() / 4 + 1) * 4, 0);
    bytes.chunks_exact(4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect()
}

const MAGIC: u32 = 0x0723_0203;
/// What Vulkan 1.2 takes. From 1.6 on a driver may choose a subgroup size that the host does not know of.
const VERSION: u32 = 0x0001_0500;
const MODEL_COMPUTE: u32 = 5;
const MODE_LOCAL_SIZE: u32 = 17;

pub(super) mod op {
    pub(in super::super) const EXTENSION: u16 = 10;
    pub(in super::super) const EXT_INST_IMPORT: u16 = 11;
    pub(in super::super) const EXT_INST: u16 = 12;
    pub(in super::super) const MEMORY_MODEL: u16 = 14;
    pub(in super::super) const ENTRY_POINT: u16 = 15;
    pub(in super::super) const EXECUTION_MODE: u16 = 16;
    pub(in super::super) const CAPABILITY: u16 = 17;
    pub(in super::super) const TYPE_VOID: u16 = 19;
    pub(in super::super) const TYPE_BOOL: u16 = 20;
    pub(in super::super) const TYPE_INT: u16 = 21;
    pub(in super::super) const TYPE_FLOAT: u16 = 22;
    pub(in super::super) const TYPE_VECTOR: u16 = 23;
    pub(in super::super) const TYPE_RUNTIME_ARRAY: u16 = 29;
    pub(in super::super) const TYPE_STRUCT: u16 = 30;
    pub(in super::super) const TYPE_POINTER: u16 = 32;
    pub(in super::super) const TYPE_FUNCTION: u16 = 33;
    pub(in super::super) const CONSTANT: u16 = 43;
    pub(in super::super) const CONSTANT_COMPOSITE: u16 = 44;
    pub(in super::super) const CONSTANT_NULL: u16 = 46;
    pub(in super::super) const FUNCTION: u16 = 54;
    pub(in super::super) const FUNCTION_END: u16 = 56;
    pub(in super::super) const VARIABLE: u16 = 59;
    pub(in super::super) const LOAD: u16 = 61;
    pub(in super::super) const STORE: u16 = 62;
    pub(in super::super) const ACCESS_CHAIN: u16 = 65;
    pub(in super::super) const DECORATE: u16 = 71;
    pub(in super::super) const MEMBER_DECORATE: u16 = 72;
    pub(in super::super) const COMPOSITE_CONSTRUCT: u16 = 80;
    pub(in super::super) const COMPOSITE_EXTRACT: u16 = 81;
    pub(in super::super) const CONVERT_U_TO_F: u16 = 112;
    pub(in super::super) const U_CONVERT: u16 = 113;
    pub(in super::super) const F_CONVERT: u16 = 115;
    pub(in super::super) const BITCAST: u16 = 124;
    pub(in super::super) const IADD: u16 = 128;
    pub(in super::super) const FADD: u16 = 129;
    pub(in super::super) const IMUL: u16 = 132;
    pub(in super::super) const ULESS_THAN: u16 = 176;
    pub(in super::super) const BITWISE_AND: u16 = 199;
    pub(in super::super) const PHI: u16 = 245;
    pub(in super::super) const LOOP_MERGE: u16 = 246;
    pub(in super::super) const LABEL: u16 = 248;
    pub(in super::super) const BRANCH: u16 = 249;
    pub(in super::super) const BRANCH_CONDITIONAL: u16 = 250;
    pub(in super::super) const RETURN: u16 = 253;
    pub(in super::super) const TYPE_COOPERATIVE_MATRIX: u16 = 4456;
    pub(in super::super) const COOPERATIVE_MATRIX_STORE: u16 = 4458;
    pub(in super::super) const COOPERATIVE_MATRIX_MUL_ADD: u16 = 4459;
}

pub(super) mod capability {
    pub(in super::super) const SHADER: u32 = 1;
    pub(in super::super) const FLOAT16: u32 = 9;
    pub(in super::super) const FLOAT64: u32 = 10;
    pub(in super::super) const INT64: u32 = 11;
    pub(in super::super) const INT16: u32 = 22;
    pub(in super::super) const INT8: u32 = 39;
    pub(in super::super) const GROUP_NON_UNIFORM: u32 = 61;
    pub(in super::super) const STORAGE_BUFFER_16BIT_ACCESS: u32 = 4433;
    pub(in super::super) const STORAGE_BUFFER_8BIT_ACCESS: u32 = 4448;
    pub(in super::super) const VULKAN_MEMORY_MODEL: u32 = 5345;
    pub(in super::super) const COOPERATIVE_MATRIX: u32 = 6022;
}

pub(super) mod class {
    pub(in super::super) const INPUT: u32 = 1;
    pub(in super::super) const PUSH_CONSTANT: u32 = 9;
    pub(in super::super) const STORAGE_BUFFER: u32 = 12;
}

pub(super) mod decoration {
    pub(in super::super) const BLOCK: u32 = 2;
    pub(in super::super) const ARRAY_STRIDE: u32 = 6;
    pub(in super::super) const BUILT_IN: u32 = 11;
    pub(in super::super) const BINDING: u32 = 33;
    pub(in super::super) const DESCRIPTOR_SET: u32 = 34;
    pub(in super::super) const OFFSET: u32 = 35;
}

pub(super) mod built_in {
    pub(in super::super) const WORKGROUP_ID: u32 = 26;
    pub(in super::super) const GLOBAL_INVOCATION_ID: u32 = 28;
    pub(in super::super) const SUBGROUP_ID: u32 = 40;
}
