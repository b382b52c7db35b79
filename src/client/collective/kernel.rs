//! The kernel of a reduction: text in WGSL for a type, an operation and a number of members.
//!
//! An invocation takes one word of each member's part (two where elements have 64 bits), combines the elements in it one
//! by one, and stores one word. The text of a type says how: `start` makes an accumulator of the first member's
//! element, `add` takes one more, `finish` makes an element of it; `unpack` and `pack` are between words and elements.

use super::{ReduceOperation, float, integer};
use std::borrow::Cow;
use std::fmt::Write;
use vkactor_actors::kernel::WgslKernel;
use vkactor_actors::properties::ElemType;

/// Invocations of a workgroup: what every device has (Vulkan 1.3, table 53).
pub(super) const UNITS: u32 = 128;

/// How a type is kept in words.
pub(super) struct Text {
    /// What a buffer is an array of.
    word: &'static str,
    /// Elements in one.
    elements: u32,
    /// The functions on elements.
    code: String,
}

impl Text {
    pub(super) fn new(word: &'static str, elements: u32, code: String) -> Self {
        Self { word, elements, code }
    }
}

/// Bytes that one invocation stores.
pub(super) const fn unit_bytes(dtype: ElemType) -> u64 {
    if dtype.size() == 8 { 8 } else { 4 }
}

/// The kernel that takes a buffer of each member, in order, and one for the result.
pub(super) fn kernel(dtype: ElemType, op: ReduceOperation, members: usize) -> WgslKernel {
    let Text { word, elements, code } = text(dtype, op, members);
    let mut source = String::new();
    let mut line = |text: std::fmt::Arguments<'_>| {
        let Ok(()) = source.write_fmt(text) else { unreachable!("a string takes all that is written to it") };
    };
    for member in 0..members {
        line(format_args!("@group(0) @binding({member}) var<storage, read> in{member}: array<{word}>;\n"));
    }
    line(format_args!("@group(0) @binding({members}) var<storage, read_write> result: array<{word}>;\n{code}"));
    line(format_args!(
        "@compute @workgroup_size({UNITS})\n\
         fn main(@builtin(global_invocation_id) id: vec3<u32>) {{\n\
         let i = id.x;\n\
         if (i >= arrayLength(&result)) {{ return; }}\n"
    ));
    for member in 0..members {
        line(format_args!("let w{member} = in{member}[i];\n"));
    }
    for element in 0..elements {
        line(format_args!("var a{element} = start(unpack(w0, {element}u));\n"));
        for member in 1..members {
            line(format_args!("a{element} = add(a{element}, unpack(w{member}, {element}u));\n"));
        }
    }
    let packed: Vec<String> = (0..elements).map(|e| format!("pack(finish(a{e}), {e}u)")).collect();
    line(format_args!("result[i] = {};\n}}\n", packed.join(" | ")));
    WgslKernel::new(format!("vkactor all_reduce {op:?} {dtype:?} of {members}"), Cow::Owned(source))
}

fn text(dtype: ElemType, op: ReduceOperation, members: usize) -> Text {
    match dtype {
        ElemType::F64 | ElemType::F32 | ElemType::F16 | ElemType::BF16 => float::text(dtype, op, members),
        ElemType::I64 | ElemType::U64 => integer::wide(dtype == ElemType::I64, op, members),
        ElemType::I32 | ElemType::I16 | ElemType::I8 => integer::narrow(true, dtype.size(), op, members),
        ElemType::U32 | ElemType::U16 | ElemType::U8 => integer::narrow(false, dtype.size(), op, members),
        ElemType::Bool => integer::truth(op),
    }
}
