//! What runs after what: barriers, uploads, reads, and state that a launch must not inherit.

use crate::kernels::{add1, affine, copy, fill, spin, successor, wgsl};
use crate::{assert_all, assert_words, buffer, client, scenario, words, words_of};
use vkactor::*;

/// vulkano-rs/vulkano#2060: a tenth of the report's launches, on a sixteenth of its memory.
#[test]
fn work_of_earlier_submissions_is_seen_by_later_ones() {
    const WORDS: usize = 64 << 10;
    const LAUNCHES: u32 = 200;
    scenario(|| {
        let client = client();
        for _ in 0..5 {
            let handle = client.empty(WORDS * 4);
            fill(&client, &handle, 0);
            for launch in 1..=LAUNCHES {
                add1(&client, &handle);
                if launch % 7 == 0 {
                    client.flush().unwrap();
                }
            }
            assert_all(&client, &handle, WORDS, LAUNCHES);
        }
    });
}

/// tracel-ai/cubecl#814, tracel-ai/cubecl#56.
#[test]
fn a_write_does_not_overtake_launches_that_read_the_old_bytes() {
    const WORDS: usize = 256 << 10;
    scenario(|| {
        let client = client();
        let of = |value: u32| Bytes::from_elems(vec![value; WORDS]);
        let a = client.create(of(1));
        let (b, c) = (client.empty(WORDS * 4), client.empty(WORDS * 4));
        copy(&client, &a, &b);
        client.write(&a, of(2));
        copy(&client, &a, &c);
        client.write(&a, of(3));
        for (bytes, value) in client.read(vec![a, b, c]).iter().zip([3, 1, 2]) {
            assert_words(&words_of(bytes), WORDS, value);
        }
    });
}

/// tracel-ai/cubecl#814, tracel-ai/cubecl#56: the form with memory that is used again.
#[test]
fn a_create_in_memory_that_was_dropped_does_not_overtake_its_last_launch() {
    const WORDS: usize = 64 << 10;
    scenario(|| {
        let client = client();
        for _ in 0..50 {
            let x = client.create(Bytes::from_elems(vec![7u32; WORDS]));
            let out = client.empty(WORDS * 4);
            copy(&client, &x, &out);
            drop(x);
            let y = client.create(Bytes::from_elems(vec![8u32; WORDS]));
            assert_all(&client, &out, WORDS, 7);
            assert_all(&client, &y, WORDS, 8);
        }
    });
}

/// jwmcglynn/donner#1114, godotengine/godot#69635.
#[test]
fn a_read_waits_for_the_last_store_of_a_slow_launch() {
    scenario(|| {
        let client = client();
        for words in [1usize, 1 << 10, 16 << 20] {
            let handle = client.empty(words * 4);
            fill(&client, &handle, 7);
            spin(&client, &handle, 100);
            let found = words_of(&client.read(vec![handle])[0]);
            assert_words(&found[..words - 1], words - 1, 7);
            assert_eq!(found[words - 1], 1, "the last of {words} words");
        }
    });
}

/// KomputeProject/kompute#275.
#[test]
fn each_launch_in_a_row_has_its_own_constants() {
    const ADD_THREE: &str = "
        struct Terms { x: f32, y: f32, z: f32 }
        var<immediate> add: Terms;
        @group(0) @binding(0) var<storage, read_write> d: array<f32>;
        @compute @workgroup_size(1)
        fn main() { d[0] += add.x; d[1] += add.y; d[2] += add.z; }";
    scenario(|| {
        let client = client();
        let sums = client.create(Bytes::from_elems(vec![0f32; 3]));
        for terms in [[0.1f32, 0.2, 0.3], [0.3, 0.2, 0.1], [0.3, 0.2, 0.1]] {
            let arguments = KernelArguments::new().with_buffer(&sums).with_info(terms);
            client.launch(wgsl("add three", ADD_THREE), CubeCount::new_single(), arguments);
        }
        let sums: Vec<f32> = bytemuck::pod_collect_to_vec(&client.read_one(sums).unwrap());
        for (found, wanted) in sums.iter().zip([0.7f32, 0.6, 0.5]) {
            assert!((found - wanted).abs() < 1e-6, "{sums:?}");
        }

        let handle = buffer(&client, &[1; 100]);
        let mut expected = 1u32;
        for shift in 0..1000 {
            affine(&client, &handle, 3, shift);
            expected = expected.wrapping_mul(3).wrapping_add(shift);
        }
        assert_all(&client, &handle, 100, expected);
    });
}

/// tracel-ai/cubecl#672, gpuweb/gpuweb#1842: neighbours in one reservation.
#[test]
fn neighbours_in_one_page_are_input_and_output_of_one_launch() {
    scenario(|| {
        let client = client();
        let words = 100;
        let members = client.empty_tensors(vec![MemoryLayoutDescriptor::contiguous([words], 4); 2]);
        let [a, b] = [0, 1].map(|at: usize| members[at].memory.clone());
        fill(&client, &a, 0);
        for _ in 0..500 {
            successor(&client, &a, &b);
            successor(&client, &b, &a);
        }
        assert_all(&client, &a, words, 1000);
        assert_all(&client, &b, words, 999);
    });
}

/// tracel-ai/cubecl#672: one buffer as both.
#[test]
fn one_buffer_as_input_and_output_is_exact_or_refused() {
    scenario(|| {
        let client = client();
        let handle = buffer(&client, &[41; 1000]);
        successor(&client, &handle, &handle);
        match client.check([&handle]) {
            Ok(()) => assert_all(&client, &handle, 1000, 42),
            Err(error) => {
                let binding = |e: &ServerError| matches!(e, ServerError::Launch(LaunchError::Bindings { .. }));
                assert!(crate::comes_from(&error, binding), "{error}");
            }
        }
    });
}

/// alibaba/MNN#526.
#[test]
fn a_kernel_run_again_with_other_sizes_keeps_nothing_of_the_first() {
    const ROW_SUMS: &str = "
        struct Extents { rows: u32, columns: u32 }
        var<immediate> matrix: Extents;
        @group(0) @binding(0) var<storage, read> s: array<f32>;
        @group(0) @binding(1) var<storage, read_write> d: array<f32>;
        @compute @workgroup_size(64)
        fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if (id.x >= matrix.rows) { return; }
            var sum = 0.0;
            for (var c = 0u; c < matrix.columns; c++) { sum += s[id.x * matrix.columns + c]; }
            d[id.x] = sum;
        }";
    scenario(|| {
        let client = client();
        let mut first: Option<Vec<u32>> = None;
        for (rows, columns) in [(8usize, 8usize), (8, 1000), (3, 7), (8, 8), (1, 1)] {
            // Whole numbers, so that the order of the additions does not matter.
            let matrix: Vec<f32> = (0..rows * columns).map(|i| (i * 37 % 101) as f32).collect();
            let expected: Vec<f32> = matrix.chunks(columns).map(|row| row.iter().sum()).collect();
            let (input, output) = (client.create(Bytes::from_elems(matrix)), client.empty(rows * 4));
            let arguments = KernelArguments::new().with_buffer(&input).with_buffer(&output);
            let arguments = arguments.with_info([rows as u32, columns as u32]);
            client.launch(wgsl("row sums", ROW_SUMS), CubeCount::new_single(), arguments);
            let found = words(&client, &output);
            assert_eq!(found, expected.iter().map(|sum| sum.to_bits()).collect::<Vec<_>>(), "{rows} x {columns}");
            if (rows, columns) == (8, 8) {
                assert_eq!(*first.get_or_insert_with(|| found.clone()), found);
            }
        }
    });
}
