//! Sizes and counts at the edges of what a device takes: none, odd ones, and those past a limit.

use crate::kernels::{add1, copy, fill, wgsl};
use crate::{
    Random, assert_all, buffer, client, failure, own_device, roots, runtime, scenario, scenario_alone, unused_id, words,
};
use vkactor::*;

/// tracel-ai/cubecl#86, tracel-ai/burn#1946, gfx-rs/wgpu#7005.
#[test]
fn buffers_of_no_bytes_are_read_as_no_bytes() {
    scenario(|| {
        let mut client = client();
        let empties = [
            client.empty(0),
            client.create_from_slice(&[]),
            client.create_tensor_from_slice(&[], [0, 3].into(), 4).memory,
            client.create_tensor_from_slice(&[], [3, 0].into(), 4).memory,
        ];
        for handle in &empties {
            client.write(handle, Bytes::default());
            assert_eq!(client.read_one(handle.clone()).unwrap().len(), 0);
        }
        let (left, right) = (client.create_from_slice(&[1; 5]), client.create_from_slice(&[2; 5]));
        let batch = client.read([&[left], &empties[..], &[right]].concat());
        assert_eq!((&batch[0][..], &batch[5][..]), (&[1; 5][..], &[2; 5][..]));
        assert!(batch[1..5].iter().all(|bytes| bytes.is_empty()), "{batch:?}");

        let lazy = client.read_lazy(empties[2].clone().copy_descriptor([0, 3], [3, 1], 4));
        assert_eq!(lazy.try_materialize().unwrap().len(), 0);
        let host = Client::init(unused_id(), Host::new());
        let moved = client.to_client(empties[0].clone(), &host, ElemType::U8);
        assert_eq!(host.read_one(moved).unwrap().len(), 0);
    });
}

/// tracel-ai/cubecl#86, gfx-rs/wgpu#7005: as an argument of a kernel.
#[test]
fn a_binding_of_no_bytes_is_taken_or_refused_on_the_other_outputs() {
    scenario(|| {
        let client = client();
        let (empty, out) = (client.empty(0), buffer(&client, &[9; 16]));
        let arguments = || KernelArguments::new().with_buffer(&empty).with_buffer(&out);
        client.launch(wgsl("touch", TOUCH), CubeCount::new_1d(0), arguments());
        assert_all(&client, &out, 16, 9);
        client.launch(wgsl("touch", TOUCH), CubeCount::new_single(), arguments());
        match client.check([&out]) {
            Ok(()) => assert_eq!(words(&client, &out)[0], 7),
            Err(error) => assert!(error.is_refusal(), "{error}"),
        }
        let after = buffer(&client, &[1; 4]);
        add1(&client, &after);
        assert_all(&client, &after, 4, 2);
    });
}

const TOUCH: &str = "
    @group(0) @binding(0) var<storage, read> s: array<u32>;
    @group(0) @binding(1) var<storage, read_write> d: array<u32>;
    @compute @workgroup_size(1) fn main() { d[0] = arrayLength(&s) + 7u; }";

/// KhronosGroup/Vulkan-LoaderAndValidationLayers#1912.
#[test]
fn a_count_with_a_zero_runs_nothing_and_keeps_the_order() {
    scenario(|| {
        let client = client();
        let handle = buffer(&client, &[4; 64]);
        for count in [[0, 1, 1], [1, 0, 1], [1, 1, 0]] {
            let count = CubeCount::new_3d(count[0], count[1], count[2]);
            client.launch(crate::kernels::add1_kernel(), count, KernelArguments::new().with_buffer(&handle));
        }
        add1(&client, &handle);
        assert_all(&client, &handle, 64, 5);
    });
}

/// tracel-ai/cubecl#564.
#[test]
fn uploads_of_odd_lengths_come_back_exactly() {
    scenario(|| {
        let client = client();
        let mut random = Random::new(16);
        let lengths: Vec<usize> = (1..=67).chain(255..=257).chain(4095..=4097).collect();
        for &len in &lengths {
            let (first, second) = (random.bytes(len), random.bytes(len));
            let handle = client.create_from_slice(&first);
            assert_eq!(client.read_one(handle.clone()).unwrap()[..], first, "{len} bytes");
            client.write(&handle, Bytes::from(second.clone()));
            assert_eq!(client.read_one(handle).unwrap()[..], second, "{len} bytes, written");
        }
        let contents: Vec<Vec<u8>> = lengths.iter().map(|&len| random.bytes(len)).collect();
        let packed = contents.iter().map(|c| (MemoryLayoutDescriptor::contiguous([c.len()], 1), &c[..])).collect();
        let tensors = client.create_tensors_from_slices(packed);
        let read = client.read(tensors.into_iter().map(|tensor| tensor.memory).collect());
        for (found, wanted) in read.iter().zip(&contents) {
            assert_eq!(found[..], wanted[..], "{} bytes, packed", wanted.len());
        }
    });
}

/// ggml-org/llama.cpp#10984.
#[test]
fn every_member_of_a_list_starts_where_a_binding_may_start() {
    scenario(|| {
        let client = client();
        let mut random = Random::new(17);
        let contents: Vec<Vec<u8>> = (1..=500).map(|len| random.bytes(len)).collect();
        let of = |len: usize| MemoryLayoutDescriptor::contiguous([len], 1);
        let from = client.create_tensors_from_slices(contents.iter().map(|c| (of(c.len()), &c[..])).collect());
        let zeros: Vec<_> = contents.iter().map(|c| (of(c.len()), Bytes::from(vec![0; c.len()]))).collect();
        let to = client.create_tensors(zeros);
        let alignment = client.properties().memory.alignment;
        for (from, to) in from.iter().zip(&to) {
            copy(&client, &from.memory, &to.memory);
            let resource = client.get_resource::<Vulkan>(from.memory.clone()).unwrap();
            assert_eq!(resource.resource().offset % alignment, 0, "{:?}", resource.resource());
        }
        let read = |all: &[MemoryLayout]| client.read(all.iter().map(|tensor| tensor.memory.clone()).collect());
        for ((wanted, from), to) in contents.iter().zip(read(&from)).zip(read(&to)) {
            assert_eq!(from[..], wanted[..]);
            // A kernel of words copies whole ones.
            let whole = wanted.len() / 4 * 4;
            assert_eq!(to[..whole], wanted[..whole]);
            assert!(to[whole..].iter().all(|&byte| byte == 0), "{} bytes", wanted.len());
        }
    });
}

/// Every group stores its place in the row of all groups.
const PLACES: &str = "
    @group(0) @binding(0) var<storage, read_write> d: array<u32>;
    @compute @workgroup_size(1)
    fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
        let place = (id.z * n.y + id.y) * n.x + id.x;
        if (place < arrayLength(&d)) { d[place] = place; }
    }";

/// tracel-ai/cubecl#1388, tracel-ai/cubecl#423, ggml-org/llama.cpp#19965.
#[test]
fn counts_past_the_limit_run_whole_or_are_refused_with_the_limit() {
    scenario(|| {
        let client = client();
        let (max_x, max_y, max_z) = client.properties().hardware.max_cube_count;
        let over = |limit: u32| limit.checked_add(1).filter(|&count| count <= 1 << 20);
        let mut counts = vec![[65_535, 1, 1], [65_536, 1, 1], [70_001, 1, 1], [204_800, 1, 1], [256, 256, 1]];
        counts.extend(over(max_x).map(|x| [x, 1, 1]));
        counts.extend(over(max_y).map(|y| [1, y, 1]));
        counts.extend(over(max_z).map(|z| [1, 1, z]));
        for [x, y, z] in counts {
            let len = (x * y * z) as usize;
            let members =
                client.empty_tensors([len, 64].map(|words| MemoryLayoutDescriptor::contiguous([words], 4)).into());
            let (places, guard) = (&members[0].memory, &members[1].memory);
            fill(&client, places, u32::MAX);
            fill(&client, guard, u32::MAX);
            client.launch(
                wgsl("places", PLACES),
                CubeCount::new_3d(x, y, z),
                KernelArguments::new().with_buffer(places),
            );
            let fits = x <= max_x && y <= max_y && z <= max_z;
            match client.check([places]) {
                Ok(()) => {
                    assert!(fits, "{x} x {y} x {z} ran");
                    let found = words(&client, places);
                    let wrong = found.iter().enumerate().find(|&(at, &word)| word != at as u32);
                    assert_eq!(wrong, None, "{x} x {y} x {z}");
                }
                Err(error) => {
                    assert!(!fits, "{x} x {y} x {z}: {error}");
                    let limit = if x > max_x {
                        max_x
                    } else if y > max_y {
                        max_y
                    } else {
                        max_z
                    };
                    assert!(error.to_string().contains(&limit.to_string()), "{error}");
                }
            }
            assert_all(&client, guard, 64, u32::MAX);
        }
    });
}

/// Counts the groups that run, in the first word.
const COUNT: &str = "
    @group(0) @binding(0) var<storage, read_write> d: atomic<u32>;
    @compute @workgroup_size(1) fn main() { atomicAdd(&d, 1u); }";

/// gfx-rs/wgpu#5714, gfx-rs/wgpu#6414.
#[test]
fn counts_on_the_device_run_whole_or_not_at_all() {
    const THREE: &str = "
        @group(0) @binding(0) var<storage, read_write> d: array<u32>;
        @compute @workgroup_size(1) fn main() { d[0] = 3u; d[1] = 1u; d[2] = 1u; }";
    scenario(|| {
        let client = client();
        let ran = |counts: &Handle| {
            let out = buffer(&client, &[0]);
            let count = CubeCount::Dynamic(counts.into());
            client.launch(wgsl("count", COUNT), count, KernelArguments::new().with_buffer(&out));
            client.read_one(out).map(|bytes| crate::words_of(&bytes)[0])
        };
        let counts = client.empty(12);
        client.launch(wgsl("three", THREE), CubeCount::new_single(), KernelArguments::new().with_buffer(&counts));
        assert_eq!(ran(&counts).unwrap(), 3);
        assert_eq!(ran(&buffer(&client, &[0, 1, 1])).unwrap(), 0);
        let max = client.properties().hardware.max_cube_count.0;
        for x in [max.saturating_add(1), u32::MAX] {
            let groups = ran(&buffer(&client, &[x, 1, 1])).unwrap_or(0);
            assert!(groups == 0 || groups == x, "{groups} of {x} groups");
        }
        for short in [4, 0] {
            let error = ran(&client.create_from_slice(&vec![0; short])).expect_err("no room for three counts");
            assert!(error.is_refusal(), "{error}");
        }
        let after = buffer(&client, &[1; 4]);
        add1(&client, &after);
        assert_all(&client, &after, 4, 2);
    });
}

/// Stores to the first word and to one that it is told.
const ENDS: &str = "
    @group(0) @binding(0) var<storage, read_write> d: array<u32>;
    var<immediate> last: u32;
    @compute @workgroup_size(1) fn main() { d[0] = 11u; d[last] = 22u; }";

/// Stores to the first word and the last.
const MEASURED_ENDS: &str = "
    @group(0) @binding(0) var<storage, read_write> d: array<u32>;
    @compute @workgroup_size(1) fn main() { d[0] = 11u; d[arrayLength(&d) - 1u] = 22u; }";

/// Launches `ENDS` or `MEASURED_ENDS` on a buffer and looks at both ends, without reading what is between.
fn touch_ends(client: &Client, handle: &Handle, is_measured: bool) -> Result<(), ServerError> {
    let arguments = KernelArguments::new().with_buffer(handle);
    let (kernel, arguments) = if is_measured {
        (wgsl("measured ends", MEASURED_ENDS), arguments)
    } else {
        (wgsl("ends", ENDS), arguments.with_info((handle.size_in_used() / 4 - 1) as u32))
    };
    client.launch(kernel, CubeCount::new_single(), arguments);
    let last = handle.clone().offset_start(handle.size_in_used() - 4);
    let ends = [handle.clone(), last].map(|handle| CopyDescriptor::new(handle, [1], [1], 4));
    let read = runtime().block_on(client.read_tensor_async(ends.into()))?;
    assert_eq!([&read[0][..], &read[1][..]], [&11u32.to_le_bytes(), &22u32.to_le_bytes()]);
    Ok(())
}

/// The most bytes of one binding that the device takes, where that is less than its largest buffer.
fn binding_limit(client: &Client, is_measured: bool) -> Option<u64> {
    let whole = client.empty(client.properties().memory.max_page_size as usize / 4 * 4);
    let error = touch_ends(client, &whole, is_measured).err()?;
    let [ServerError::Launch(LaunchError::TooManyResources { limit, .. })] = roots(&error)[..] else {
        panic!("a limit is named: {error}");
    };
    Some(*limit)
}

/// Whatever a kernel can be bound, it can reach; and what it cannot be bound is refused with the limit.
fn bindings_are_whole_up_to_the_limit(is_measured: bool) {
    scenario_alone(move || {
        let client = own_device();
        let Some(limit) = binding_limit(&client, is_measured) else { return };
        let words = limit / 4 * 4;
        for size in [words - 4, words] {
            touch_ends(&client, &client.empty(size as usize), is_measured).unwrap();
        }
        let over = client.empty(words as usize + 4);
        let error = touch_ends(&client, &over, is_measured).expect_err("a binding past the limit");
        assert!(error.to_string().contains(&limit.to_string()), "{error}");
        // A part of such a buffer is bound like any other.
        touch_ends(&client, &client.empty(words as usize + 4).offset_end(8), is_measured).unwrap();
    });
}

/// ggml-org/llama.cpp#16354.
#[test]
fn a_binding_past_the_storage_range_is_refused_with_the_limit() {
    bindings_are_whole_up_to_the_limit(false);
}

/// A driver that tells kernels a wrong length of large buffers.
#[test]
fn a_kernel_is_told_the_length_of_the_largest_binding() {
    bindings_are_whole_up_to_the_limit(true);
}

/// ggml-org/llama.cpp#16354: slices of a page that is larger than any binding.
#[test]
fn small_slices_of_the_largest_page_are_bound_by_themselves() {
    scenario_alone(|| {
        let client = own_device();
        let page_size = client.properties().memory.max_page_size;
        let pool = MemoryPoolConfig::Sliced {
            page_size,
            max_slice_size: None,
            max_pool_size: Some(page_size),
            dealloc_period: None,
        };
        client.install_memory_pools(&MemoryPoolsConfig::Explicit(vec![pool])).unwrap();
        let handles: Vec<Handle> = (0..200).map(|value| buffer(&client, &vec![value; 1000])).collect();
        handles.iter().for_each(|handle| add1(&client, handle));
        for (value, handle) in handles.iter().enumerate() {
            assert_all(&client, handle, 1000, value as u32 + 1);
        }
        assert_eq!(client.memory_report().dynamic[0].pages, 1);
    });
}

/// ggml-org/llama.cpp#5441.
#[test]
fn the_largest_buffer_is_had_or_is_out_of_memory_and_one_byte_more_is_too_big() {
    scenario_alone(|| {
        let client = own_device();
        let max = client.properties().memory.max_page_size;
        let largest = client.empty(max as usize);
        let word = |from: u64| largest.clone().offset_start(from).offset_end(max - from - 64);
        for part in [word(0), word((max - 64) / 64 * 64)] {
            match client.check([&largest]) {
                Ok(()) => {
                    fill(&client, &part, 3);
                    assert_all(&client, &part, 16, 3);
                }
                Err(error) => assert!(error.is_out_of_memory(), "{error}"),
            }
        }
        let error = failure(&client, &client.empty(max as usize + 1));
        let too_big = |e: &ServerError| matches!(e, ServerError::Io(IoError::BufferTooBig { .. }));
        assert!(crate::comes_from(&error, too_big), "{error}");
        assert!(!error.is_out_of_memory(), "{error}");
        drop(largest);
        let handle = buffer(&client, &vec![1; 256 << 10]);
        add1(&client, &handle);
        assert_all(&client, &handle, 256 << 10, 2);
    });
}
