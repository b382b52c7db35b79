//! What a reduction gives, computed on the host: integers exactly in 128 bits, floats of 16 bits by looking for the
//! nearest of all values.

use super::*;

pub(crate) const TYPES: [ElemType; 13] = [
    ElemType::F64,
    ElemType::F32,
    ElemType::F16,
    ElemType::BF16,
    ElemType::I64,
    ElemType::I32,
    ElemType::I16,
    ElemType::I8,
    ElemType::U64,
    ElemType::U32,
    ElemType::U16,
    ElemType::U8,
    ElemType::Bool,
];
pub(crate) const OPERATIONS: [ReduceOperation; 5] =
    [ReduceOperation::Sum, ReduceOperation::Mean, ReduceOperation::Min, ReduceOperation::Max, ReduceOperation::Prod];

fn is_float(dtype: ElemType) -> bool {
    matches!(dtype, ElemType::F64 | ElemType::F32 | ElemType::F16 | ElemType::BF16)
}

/// Elements of a type: any bits for integers; floats of all signs, a few of them special.
pub(crate) fn elements(random: &mut Random, dtype: ElemType, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..count {
        let size = dtype.size();
        if !is_float(dtype) {
            let zero = dtype == ElemType::Bool && random.below(3) > 0;
            bytes.extend((0..size).map(|_| if zero { 0 } else { random.next() as u8 }));
            continue;
        }
        let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0];
        let common = (f64::from(random.next()) / f64::from(u32::MAX) - 0.5) * 2f64.powi(random.below(16) as i32 - 8);
        let value = if random.below(20) == 0 { special[random.below(special.len())] } else { common };
        bytes.extend_from_slice(&encoded(dtype, value)[..size]);
    }
    bytes
}

/// The element of a float type that is nearest to a value; of two, the even one.
fn encoded(dtype: ElemType, value: f64) -> Vec<u8> {
    match dtype {
        ElemType::F64 => value.to_ne_bytes().to_vec(),
        ElemType::F32 => (value as f32).to_ne_bytes().to_vec(),
        _ => nearest(dtype, value).to_ne_bytes().to_vec(),
    }
}

/// What the bits of a 16-bit float stand for (IEEE 754, or the upper half of an f32).
fn decoded16(dtype: ElemType, bits: u16) -> f64 {
    if dtype == ElemType::BF16 {
        return f64::from(f32::from_bits(u32::from(bits) << 16));
    }
    let (sign, exponent, digits) = (bits >> 15, i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let size = match exponent {
        31 if digits == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        0 => digits * 2f64.powi(-24),
        _ => (1.0 + digits / 1024.0) * 2f64.powi(exponent - 15),
    };
    if sign == 1 { -size } else { size }
}

fn nearest(dtype: ElemType, value: f64) -> u16 {
    let infinity: u16 = if dtype == ElemType::F16 { 0x7c00 } else { 0x7f80 };
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    if value.is_nan() {
        return infinity | 1 << 5;
    }
    // Beyond the largest value the next would be as far again.
    let size = |bits: u16| match bits == infinity {
        true => 2.0 * decoded16(dtype, infinity - 1) - decoded16(dtype, infinity - 2),
        false => decoded16(dtype, bits),
    };
    let value = value.abs().min(size(infinity));
    let (mut low, mut high) = (0u16, infinity);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if size(middle) <= value { low = middle } else { high = middle }
    }
    let (below, above) = (value - size(low), size(high) - value);
    let chosen = match below.partial_cmp(&above) {
        Some(std::cmp::Ordering::Less) => low,
        Some(std::cmp::Ordering::Greater) => high,
        _ => {
            if low % 2 == 0 {
                low
            } else {
                high
            }
        }
    };
    sign | chosen
}

fn integer(dtype: ElemType, bytes: &[u8]) -> i128 {
    let mut wide = [0u8; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    let value = u128::from_le_bytes(wide);
    let signed = matches!(dtype, ElemType::I8 | ElemType::I16 | ElemType::I32 | ElemType::I64);
    let shift = 128 - 8 * bytes.len() as u32;
    if signed { ((value << shift) as i128) >> shift } else { value as i128 }
}

fn float(dtype: ElemType, bytes: &[u8]) -> f64 {
    match dtype {
        ElemType::F64 => f64::from_ne_bytes(bytes.try_into().unwrap()),
        ElemType::F32 => f64::from(f32::from_ne_bytes(bytes.try_into().unwrap())),
        _ => decoded16(dtype, u16::from_ne_bytes(bytes.try_into().unwrap())),
    }
}

/// The reduction of these inputs, in their order.
pub(crate) fn reduced(dtype: ElemType, op: ReduceOperation, inputs: &[Vec<u8>]) -> Vec<u8> {
    let size = dtype.size();
    let places = 0..inputs[0].len() / size;
    places.flat_map(|at| one(dtype, op, inputs.iter().map(|input| &input[at * size..][..size]).collect())).collect()
}

fn one(dtype: ElemType, op: ReduceOperation, values: Vec<&[u8]>) -> Vec<u8> {
    if dtype == ElemType::Bool {
        let mut values = values.iter().map(|bytes| bytes[0] != 0);
        let any = matches!(op, ReduceOperation::Sum | ReduceOperation::Max);
        return vec![u8::from(if any { values.any(|v| v) } else { values.all(|v| v) })];
    }
    if is_float(dtype) {
        return encoded(dtype, one_float(dtype, op, values.iter().map(|bytes| float(dtype, bytes)).collect()));
    }
    let values = values.into_iter().map(|bytes| integer(dtype, bytes));
    let count = values.len() as i128;
    let result = match op {
        ReduceOperation::Sum => values.sum(),
        ReduceOperation::Mean => values.sum::<i128>() / count,
        ReduceOperation::Min => values.min().unwrap(),
        ReduceOperation::Max => values.max().unwrap(),
        ReduceOperation::Prod => values.fold(1i128, i128::wrapping_mul),
    };
    result.to_le_bytes()[..dtype.size()].to_vec()
}

/// In the precision of the type, which for 16 bits is that of f32.
fn one_float(dtype: ElemType, op: ReduceOperation, values: Vec<f64>) -> f64 {
    let count = values.len() as f64;
    let round = |x: f64| if dtype == ElemType::F64 { x } else { f64::from(x as f32) };
    let step = |a: f64, x: f64| match op {
        ReduceOperation::Sum | ReduceOperation::Mean => round(a + x),
        ReduceOperation::Prod => round(a * x),
        ReduceOperation::Min if a.is_nan() || x.is_nan() => f64::NAN,
        ReduceOperation::Min => {
            if x < a {
                x
            } else {
                a
            }
        }
        ReduceOperation::Max if a.is_nan() || x.is_nan() => f64::NAN,
        ReduceOperation::Max => {
            if x > a {
                x
            } else {
                a
            }
        }
    };
    let all = values.into_iter().reduce(step).unwrap();
    if op == ReduceOperation::Mean { round(all / count) } else { all }
}

/// Fails unless both are the same elements. A quotient of floats may be off by the 2.5 units in the last place that
/// Vulkan allows a division (Vulkan 1.3, precision of SPIR-V instructions), which for 16 bits is one at most.
#[track_caller]
pub(crate) fn assert_same(what: &str, dtype: ElemType, op: ReduceOperation, found: &[u8], expected: &[u8]) {
    assert_eq!(found.len(), expected.len(), "{what}: bytes");
    let size = dtype.size();
    for (at, (found, expected)) in found.chunks(size).zip(expected.chunks(size)).enumerate() {
        let same = found == expected
            || is_float(dtype) && {
                let units = if size == 2 { 1 } else { 3 };
                let off = integer(ElemType::I64, found).abs_diff(integer(ElemType::I64, expected));
                float(dtype, found).is_nan() && float(dtype, expected).is_nan()
                    || op == ReduceOperation::Mean && off <= units
            };
        assert!(same, "{what}: element {at} is {found:?}, not {expected:?}");
    }
}

#[test]
fn every_16_bit_float_is_its_own_nearest() {
    for dtype in [ElemType::F16, ElemType::BF16] {
        for bits in 0..=u16::MAX {
            let value = decoded16(dtype, bits);
            assert!(value.is_nan() || nearest(dtype, value) == bits, "{dtype:?} {bits:#x}");
        }
    }
    assert_eq!(nearest(ElemType::F16, 65_519.9), 0x7bff);
    assert_eq!(nearest(ElemType::F16, 65_520.0), 0x7c00);
    assert_eq!(nearest(ElemType::F16, 1.0 + 2f64.powi(-11)), 0x3c00, "half way goes to the even one");
}
