//! Reductions of integers and of truth values. Those of 64 bits are pairs of words, the lower first: no device needs to
//! know the type.
//!
//! The mean is exact however large the sum is: quotients and remainders of the elements are added apart.

use super::ReduceOperation;
use super::kernel::Text;

/// The text for integers of up to 32 bits.
pub(super) fn narrow(signed: bool, bytes: usize, op: ReduceOperation, members: usize) -> Text {
    let value = if signed { "i32" } else { "u32" };
    let bits = 8 * bytes as u32;
    // To the top of the word and back down: the sign comes along.
    let (up, down) = (format!("({}u - {bits}u * at)", 32 - bits), 32 - bits);
    let mask = u32::MAX >> down;
    let packing = format!(
        "fn unpack(w: u32, at: u32) -> {value} {{ return bitcast<{value}>(w << {up}) >> {down}u; }}\n\
         fn pack(x: {value}, at: u32) -> u32 {{ return (bitcast<u32>(x) & {mask}u) << ({bits}u * at); }}\n"
    );
    let code = match (op, signed) {
        (ReduceOperation::Mean, true) => mean("i32", "i32", members, SIGNED_MEAN),
        (ReduceOperation::Mean, false) => mean("u32", "u32", members, UNSIGNED_MEAN),
        (ReduceOperation::Sum, _) => plain(value, "a + x"),
        (ReduceOperation::Prod, _) => plain(value, "a * x"),
        (ReduceOperation::Min, _) => plain(value, "min(a, x)"),
        (ReduceOperation::Max, _) => plain(value, "max(a, x)"),
    };
    Text::new("u32", 32 / bits, code + &packing)
}

/// The text for integers of 64 bits.
pub(super) fn wide(signed: bool, op: ReduceOperation, members: usize) -> Text {
    let value = "vec2<u32>";
    // With the sign turned round, signed numbers are in the order of unsigned ones.
    let turn = if signed { "0x80000000u" } else { "0u" };
    let less = format!(
        "fn less(a: {value}, b: {value}) -> bool {{\n\
         let p = a.y ^ {turn};\n\
         let q = b.y ^ {turn};\n\
         return p < q || (p == q && a.x < b.x);\n}}\n"
    );
    let code = match (op, signed) {
        (ReduceOperation::Mean, true) => mean(value, "i32", members, WIDE_SIGNED_MEAN) + DIVIDE,
        (ReduceOperation::Mean, false) => mean(value, "u32", members, WIDE_UNSIGNED_MEAN) + DIVIDE,
        (ReduceOperation::Sum, _) => plain(value, "sum(a, x)"),
        (ReduceOperation::Prod, _) => plain(value, "product(a, x)") + PRODUCT,
        (ReduceOperation::Min, _) => plain(value, "select(a, x, less(x, a))"),
        (ReduceOperation::Max, _) => plain(value, "select(a, x, less(a, x))"),
    };
    let packing = format!(
        "fn unpack(w: {value}, at: u32) -> {value} {{ return w; }}\n\
         fn pack(x: {value}, at: u32) -> {value} {{ return x; }}\n"
    );
    Text::new(value, 1, code + SUM + &less + &packing)
}

/// The text for bytes that are true or false.
pub(super) fn truth(op: ReduceOperation) -> Text {
    let combine = match op {
        ReduceOperation::Sum | ReduceOperation::Max => "a | x",
        ReduceOperation::Min | ReduceOperation::Prod => "a & x",
        ReduceOperation::Mean => unreachable!("a mean of Bool was refused"),
    };
    let packing = "
fn unpack(w: u32, at: u32) -> u32 { return select(0u, 1u, ((w >> (8u * at)) & 0xffu) != 0u); }
fn pack(x: u32, at: u32) -> u32 { return x << (8u * at); }
";
    Text::new("u32", 4, plain("u32", combine) + packing)
}

/// An accumulator that is an element.
fn plain(value: &str, combine: &str) -> String {
    format!(
        "fn start(x: {value}) -> {value} {{ return x; }}\n\
         fn add(a: {value}, x: {value}) -> {value} {{ return {combine}; }}\n\
         fn finish(a: {value}) -> {value} {{ return a; }}\n"
    )
}

/// An accumulator of quotients and remainders.
fn mean(value: &str, rest: &str, members: usize, code: &str) -> String {
    format!(
        "const MEMBERS: {rest} = {rest}({members});\n\
         struct Total {{ whole: {value}, rest: {rest} }}\n\
         {code}"
    )
}

const UNSIGNED_MEAN: &str = "
fn start(x: u32) -> Total { return Total(x / MEMBERS, x % MEMBERS); }
fn add(a: Total, x: u32) -> Total { return Total(a.whole + x / MEMBERS, a.rest + x % MEMBERS); }
fn finish(a: Total) -> u32 { return a.whole + a.rest / MEMBERS; }
";

/// Quotient and remainder may differ in sign: then the fraction pulls the quotient towards zero.
const SIGNED_MEAN: &str = "
fn start(x: i32) -> Total { return Total(x / MEMBERS, x % MEMBERS); }
fn add(a: Total, x: i32) -> Total { return Total(a.whole + x / MEMBERS, a.rest + x % MEMBERS); }
fn finish(a: Total) -> i32 {
    let whole = a.whole + a.rest / MEMBERS;
    let left = a.rest % MEMBERS;
    return whole + select(0, 1, whole < 0 && left > 0) - select(0, 1, whole > 0 && left < 0);
}
";

const WIDE_UNSIGNED_MEAN: &str = "
fn share(x: vec2<u32>) -> Total {
    let parts = divide(x, MEMBERS);
    return Total(parts.xy, parts.z);
}
fn start(x: vec2<u32>) -> Total { return share(x); }
fn add(a: Total, x: vec2<u32>) -> Total {
    let b = share(x);
    return Total(sum(a.whole, b.whole), a.rest + b.rest);
}
fn finish(a: Total) -> vec2<u32> { return sum(a.whole, vec2<u32>(a.rest / MEMBERS, 0u)); }
";

const WIDE_SIGNED_MEAN: &str = "
fn negative(x: vec2<u32>) -> bool { return (x.y >> 31u) == 1u; }
fn negated(x: vec2<u32>) -> vec2<u32> { return sum(~x, vec2<u32>(1u, 0u)); }
fn share(x: vec2<u32>) -> Total {
    let below = negative(x);
    let parts = divide(select(x, negated(x), below), u32(MEMBERS));
    let rest = i32(parts.z);
    return Total(select(parts.xy, negated(parts.xy), below), select(rest, -rest, below));
}
fn start(x: vec2<u32>) -> Total { return share(x); }
fn add(a: Total, x: vec2<u32>) -> Total {
    let b = share(x);
    return Total(sum(a.whole, b.whole), a.rest + b.rest);
}
fn finish(a: Total) -> vec2<u32> {
    let more = a.rest / MEMBERS;
    let left = a.rest % MEMBERS;
    let whole = sum(a.whole, vec2<u32>(bitcast<u32>(more), select(0u, 0xffffffffu, more < 0)));
    let below = negative(whole);
    let above = !below && (whole.x | whole.y) != 0u;
    if (below && left > 0) { return sum(whole, vec2<u32>(1u, 0u)); }
    if (above && left < 0) { return sum(whole, vec2<u32>(0xffffffffu, 0xffffffffu)); }
    return whole;
}
";

const SUM: &str = "
fn sum(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}
";

const PRODUCT: &str = "
fn product(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let p = a.x & 0xffffu;
    let q = a.x >> 16u;
    let r = b.x & 0xffffu;
    let s = b.x >> 16u;
    let middle = ((p * r) >> 16u) + ((p * s) & 0xffffu) + ((q * r) & 0xffffu);
    let high = q * s + ((p * s) >> 16u) + ((q * r) >> 16u) + (middle >> 16u);
    return vec2<u32>(a.x * b.x, high + a.x * b.y + a.y * b.x);
}
";

/// By a number of up to 16 bits, digit by digit: the quotient, and the remainder behind it.
const DIVIDE: &str = "
fn divide(a: vec2<u32>, by: u32) -> vec3<u32> {
    let c3 = a.y >> 16u;
    let c2 = ((c3 % by) << 16u) | (a.y & 0xffffu);
    let c1 = ((c2 % by) << 16u) | (a.x >> 16u);
    let c0 = ((c1 % by) << 16u) | (a.x & 0xffffu);
    return vec3<u32>(((c1 / by) << 16u) | (c0 / by), ((c3 / by) << 16u) | (c2 / by), c0 % by);
}
";
