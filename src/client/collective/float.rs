//! Reductions of floats. Those of 16 bits are put together by integers: every device then rounds alike, and none needs
//! to know the type.

use super::ReduceOperation;
use super::kernel::Text;
use vkactor_actors::properties::ElemType;

/// The text for a float type.
pub(super) fn text(dtype: ElemType, op: ReduceOperation, members: usize) -> Text {
    let f64 = dtype == ElemType::F64;
    let value = if f64 { "f64" } else { "f32" };
    let combine = match op {
        ReduceOperation::Sum | ReduceOperation::Mean => "a + x",
        ReduceOperation::Prod => "a * x",
        ReduceOperation::Min => "least(a, x)",
        ReduceOperation::Max => "most(a, x)",
    };
    let finish = match op {
        ReduceOperation::Mean => format!("a / {value}({members}u)"),
        ReduceOperation::Sum | ReduceOperation::Prod | ReduceOperation::Min | ReduceOperation::Max => "a".to_owned(),
    };
    let is_nan = if f64 { "!(x == x)" } else { "(bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u" };
    let (word, elements, packing) = match dtype {
        ElemType::F16 => ("u32", 2, HALF.to_owned() + IN_WORDS),
        ElemType::BF16 => ("u32", 2, BRAIN.to_owned() + IN_WORDS),
        _ => {
            let own = format!(
                "fn unpack(w: {value}, at: u32) -> {value} {{ return w; }}\n\
                 fn pack(x: {value}, at: u32) -> {value} {{ return x; }}\n"
            );
            (value, 1, own)
        }
    };
    let code = format!(
        "fn is_nan(x: {value}) -> bool {{ return {is_nan}; }}\n\
         fn least(a: {value}, x: {value}) -> {value} {{ return select(a, x, !is_nan(a) && (is_nan(x) || x < a)); }}\n\
         fn most(a: {value}, x: {value}) -> {value} {{ return select(a, x, !is_nan(a) && (is_nan(x) || x > a)); }}\n\
         fn start(x: {value}) -> {value} {{ return x; }}\n\
         fn add(a: {value}, x: {value}) -> {value} {{ return {combine}; }}\n\
         fn finish(a: {value}) -> {value} {{ return {finish}; }}\n\
         {packing}"
    );
    Text::new(word, elements, code)
}

/// Two elements in a word.
const IN_WORDS: &str = "
fn unpack(w: u32, at: u32) -> f32 { return widen((w >> (16u * at)) & 0xffffu); }
fn pack(x: f32, at: u32) -> u32 { return narrow(x) << (16u * at); }
";

/// IEEE 754 half precision. Below 2⁻¹⁴ its values are multiples of 2⁻²⁴.
const HALF: &str = "
fn widen(h: u32) -> f32 {
    let sign = (h & 0x8000u) << 16u;
    let rest = h & 0x7fffu;
    if (rest >= 0x7c00u) { return bitcast<f32>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13u)); }
    if (rest < 0x400u) { return bitcast<f32>(sign | bitcast<u32>(f32(rest) * 5.9604644775390625e-8)); }
    return bitcast<f32>(sign | ((rest << 13u) + 0x38000000u));
}
fn narrow(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 16u) & 0x8000u;
    let rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) { return sign | 0x7e00u; }
    // Half way between the largest value and the next power of two.
    if (rest >= 0x477ff000u) { return sign | 0x7c00u; }
    if (rest >= 0x38800000u) { return sign | ((rest - 0x38000000u + 0xfffu + ((rest >> 13u) & 1u)) >> 13u); }
    let exponent = rest >> 23u;
    if (exponent < 102u) { return sign; }
    let digits = (rest & 0x7fffffu) | 0x800000u;
    let shift = 126u - exponent;
    let whole = digits >> shift;
    let cut = digits & ((1u << shift) - 1u);
    let half = 1u << (shift - 1u);
    return sign | (whole + select(0u, 1u, cut > half || (cut == half && (whole & 1u) == 1u)));
}
";

/// The upper half of an `f32`.
const BRAIN: &str = "
fn widen(h: u32) -> f32 { return bitcast<f32>(h << 16u); }
fn narrow(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) { return (bits >> 16u) | 0x40u; }
    return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}
";
