use super::*;
use crate::Compute;
use bytemuck::pod_collect_to_vec;

fn device() -> Probe {
    let client = Compute::new().expect("a Vulkan device").default_client().expect("the device starts");
    Probe { client: client.fork() }
}

#[test]
fn work_grows_until_it_is_long_enough() {
    let (count, duration) = grow(3, u64::MAX, |n| Ok(Duration::from_micros(n * 7))).unwrap();
    assert!(duration >= LONG_ENOUGH && duration < 3 * AIM, "{count}: {duration:?}");
    assert_eq!(duration, Duration::from_micros(count * 7));
}

#[test]
fn work_that_takes_no_time_ends_too() {
    assert_eq!(grow(1, 1000, |_| Ok(Duration::ZERO)).unwrap(), (1000, Duration::ZERO));
    assert!(grow(1, 1000, |_| Err(ThroughputError::Unsupported("it".into()))).is_err());
}

#[test]
fn the_best_of_the_runs_that_are_long_enough_counts() {
    let mut runs = 0;
    let value = best(2.0, 10, 10, |count| {
        runs += 1;
        assert_eq!(count, 10);
        Ok(Duration::from_millis(if runs == 3 { 21 } else { 25 }))
    });
    let value = value.unwrap();
    assert_eq!((value.amount, value.duration, runs), (20.0, Duration::from_millis(21), RUNS));
    let slow = best(1.0, 1, 1, |_| Ok(RUNS_TIME)).unwrap();
    assert_eq!(slow.duration, RUNS_TIME);
}

/// What one invocation of the arithmetic kernel makes of factor and addend one: each of its sixteen values grows by
/// one for each product and sum.
fn counted(invocation: u64, turns: u64) -> u64 {
    let (values, steps) = (16, u64::from(arithmetic::OPERATIONS) / 2 / 16 * turns);
    (0..values).map(|index| invocation % 64 + index + steps).sum()
}

#[test]
fn the_arithmetic_kernel_does_as_many_operations_as_are_counted() {
    let probe = device();
    let types = probe.client.features().types.clone();
    for elem in types.into_iter().filter(|elem| *elem != ElemType::Bool) {
        let kernel = arithmetic::kernel(elem).unwrap();
        let out = probe.client.empty(2 * arithmetic::GROUP as usize * 4);
        let turns = 3;
        let (one, float) = match elem {
            ElemType::F64 | ElemType::F32 | ElemType::F16 => (1f32.to_bits(), true),
            _ => (1, false),
        };
        let parameters: arithmetic::Parameters = [turns, one, one];
        let bindings = KernelArguments::new().with_buffer(&out).with_info(parameters);
        probe.client.launch(Box::new(kernel), CubeCount::new_1d(2), bindings);
        let words: Vec<u32> = pod_collect_to_vec(&probe.client.read_one(out).unwrap());
        let expected = (0..2 * u64::from(arithmetic::GROUP)).map(|id| {
            let count = counted(id, u64::from(turns));
            // Integers keep their low bits.
            let kept = u64::MAX >> (64 - 8 * elem.size().min(4));
            if float { (count as f32).to_bits() } else { (count & kept) as u32 }
        });
        assert_eq!(words, expected.collect::<Vec<u32>>(), "{elem:?}");
    }
}

#[test]
fn arithmetic_on_what_is_no_number_is_unsupported() {
    let probe = device();
    for elem in [ElemType::Bool, ElemType::BF16] {
        assert!(matches!(probe.compute(elem), Err(ThroughputError::Unsupported(_))), "{elem:?}");
    }
}

#[test]
fn a_matrix_shape_that_no_unit_has_is_unsupported() {
    let probe = device();
    for (shape, elem) in [([16, 16, 16], ElemType::I64), ([3, 5, 7], ElemType::F16), ([3, 5, 7], ElemType::Bool)] {
        assert!(matches!(probe.matrix(shape, elem), Err(ThroughputError::Unsupported(_))), "{shape:?} {elem:?}");
    }
}

/// Needs a device with matrix units to say anything.
#[test]
fn the_matrix_kernel_does_as_many_products_as_are_counted() {
    let probe = device();
    let subgroup_size = probe.client.target_properties().subgroup_size;
    for shape in probe.client.features().matrix.iter().filter(|shape| shape.a == shape.b) {
        for tiles in matrix::TILES {
            let kernel = matrix::kernel(shape, tiles, subgroup_size).unwrap();
            let elements = (2 * matrix::SUBGROUPS * shape.m * shape.n) as usize;
            let out = probe.client.empty(elements * shape.c.size());
            let float = shape.a == ElemType::F16;
            // A turn adds so many products to each sum; `PRODUCTS` of them are in `turns`.
            let rounds = f64::from(matrix::PRODUCTS / matrix::turns(tiles) / (tiles[0] * tiles[1]));
            let parameters: matrix::Parameters = [1, if float { UNIT.to_bits() } else { 1 }];
            let bindings = KernelArguments::new().with_buffer(&out).with_info(parameters);
            probe.client.launch(Box::new(kernel), CubeCount::new_1d(2), bindings);
            let multiples = tiles.map(|count| f64::from(count * (count + 1) / 2));
            let unit = if float { f64::from(UNIT) } else { 1.0 };
            let expected = rounds * f64::from(shape.k) * multiples[0] * multiples[1] * unit * unit;
            let bytes = probe.client.read_one(out).unwrap();
            let element: Vec<u8> = match shape.c {
                ElemType::F16 => half(expected as f32).to_le_bytes().to_vec(),
                ElemType::F32 => (expected as f32).to_le_bytes().to_vec(),
                ElemType::F64 => expected.to_le_bytes().to_vec(),
                ElemType::I32 | ElemType::U32 => (expected as u32).to_le_bytes().to_vec(),
                other => panic!("no expectation for {other:?}"),
            };
            assert_eq!(&bytes[..], element.repeat(elements), "{shape:?} in {tiles:?} tiles");
        }
    }
}

/// The bits of a number that f16 has as it is.
fn half(value: f32) -> u16 {
    let bits = value.to_bits();
    let (exponent, fraction) = (bits >> 23, bits & 0x7f_ffff);
    assert!((113..=142).contains(&exponent) && fraction.trailing_zeros() >= 13, "{value}");
    ((exponent - 112) << 10 | fraction >> 13) as u16
}

#[test]
fn the_memory_kernels_touch_every_byte() {
    let probe = device();
    let bytes: Vec<u8> = (0..6 * BLOCK).map(|at| (at / 5 % 251) as u8).collect();
    let run = |code: &'static str| {
        let [a, b] = [probe.client.create_from_slice(&bytes), probe.client.create_from_slice(&vec![0; bytes.len()])];
        let bindings = KernelArguments::new().with_buffer(&a).with_buffer(&b);
        probe.client.launch(Box::new(WgslKernel::new("memory", code)), CubeCount::new_2d(3, 2), bindings);
        [a, b].map(|buffer| probe.client.read_one(buffer).unwrap())
    };
    let [_, copied] = run(COPY);
    assert_eq!(&copied[..], &bytes[..]);
    let [written, _] = run(WRITE);
    let words: Vec<u32> = pod_collect_to_vec(&written);
    // Each vector holds the place where its invocation began, which no other of its workgroup has.
    let begins = |at: usize| (at / 4 / 1024 * 1024 + at / 4 % 128) as u32;
    assert!(words.iter().enumerate().all(|(at, word)| *word == begins(at)));
    // What the loads are looked through for is found wherever it is.
    for place in [0, BLOCK / 2 + 16, 5 * BLOCK + 16 * 1023] {
        let mut bytes = vec![0; 6 * BLOCK];
        let sought = 0x5ced_c834_f39c_c060_7f4a_7c15_9e37_79b9_u128;
        bytes[place..][..16].copy_from_slice(&sought.to_le_bytes());
        let [a, b] = [probe.client.create_from_slice(&bytes), probe.client.create_from_slice(&[0; 16])];
        let bindings = KernelArguments::new().with_buffer(&a).with_buffer(&b);
        probe.client.launch(Box::new(WgslKernel::new("memory", READ)), CubeCount::new_2d(3, 2), bindings);
        assert_eq!(probe.client.read_one(b).unwrap()[..], sought.to_le_bytes(), "at {place}");
    }
}
