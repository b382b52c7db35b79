//! Kernels at the limits of a device, and the layout of what goes in and comes out.
//!
//! Subgroup sizes that a kernel asks for (Genesis-Embodied-AI/quadrants#455) are not something that a kernel can ask
//! for here; the ranges of host access to memory that is not coherent are tested where they are computed, in
//! `vulkan/src/page.rs`.

use crate::kernels::{add1, wgsl};
use crate::{Random, assert_all, buffer, children, client, failure, scenario, unused_id, words};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use vkactor::*;

/// pygfx/wgpu-py#473, GPUOpen-Drivers/llpc#704.
#[test]
fn numbers_are_told_apart_by_their_bits() {
    // 1 for not a number, 2 for infinite, 3 for zero, 4 for subnormal, 0 for all others.
    const CLASSIFY: &str = "
        @group(0) @binding(0) var<storage, read> s: array<f32>;
        @group(0) @binding(1) var<storage, read_write> d: array<u32>;
        @compute @workgroup_size(16)
        fn main(@builtin(local_invocation_index) i: u32) {
            let bits = bitcast<u32>(s[i]) & 0x7fffffffu;
            var kind = 0u;
            if (bits > 0x7f800000u) { kind = 1u; }
            if (bits == 0x7f800000u) { kind = 2u; }
            if (bits == 0u) { kind = 3u; }
            if (bits > 0u && bits < 0x00800000u) { kind = 4u; }
            d[i] = kind;
        }";
    scenario(|| {
        let client = client();
        let inputs: [u32; 16] = [
            0x7fc0_0000,
            0xffc0_0000,
            0x7f80_0001,
            0xff80_0001,
            0x7fff_ffff,
            0x7f80_0000,
            0xff80_0000,
            0,
            0x8000_0000,
            1,
            0x807f_ffff,
            0x0040_0000,
            0x3f80_0000,
            0xbf80_0000,
            0x7f7f_ffff,
            0x0080_0000,
        ];
        let (input, output) = (buffer(&client, &inputs), client.empty(64));
        let arguments = KernelArguments::new().with_buffer(&input).with_buffer(&output);
        client.launch(wgsl("classify", CLASSIFY), CubeCount::new_single(), arguments);
        assert_eq!(words(&client, &output), [1, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 4, 0, 0, 0, 0]);
    });
}

/// google/uVkCompute#43.
#[test]
fn subgroups_are_as_large_as_the_properties_say() {
    const SIZES: &str = "
        @group(0) @binding(0) var<storage, read_write> d: array<u32>;
        @compute @workgroup_size(128)
        fn main(@builtin(local_invocation_index) i: u32, @builtin(subgroup_size) size: u32) {
            let all = countOneBits(subgroupBallot(true));
            d[2u * i] = size;
            d[2u * i + 1u] = all.x + all.y + all.z + all.w;
        }";
    scenario(|| {
        let client = client();
        let output = client.empty(128 * 8);
        client.launch(wgsl("sizes", SIZES), CubeCount::new_single(), KernelArguments::new().with_buffer(&output));
        if !client.features().subgroups {
            assert!(failure(&client, &output).is_refusal());
            return;
        }
        let HardwareProperties { plane_size_min, plane_size_max, .. } = client.properties().hardware;
        for pair in words(&client, &output).chunks(2) {
            assert_eq!(pair[0], pair[1], "the size that is told, and the invocations that voted");
            assert!((plane_size_min..=plane_size_max).contains(&pair[0]), "{pair:?}");
        }
    });
}

/// Genesis-Embodied-AI/quadrants#455: what a kernel can ask for is the size of its groups.
#[test]
fn groups_larger_than_the_device_has_are_refused_on_the_output() {
    scenario(|| {
        let client = client();
        let max = client.properties().hardware.max_units_per_cube.min(client.properties().hardware.max_cube_dim.0);
        for (units, fits) in [(8, true), (64, true), (max, true), (max + 1, false), (max * 2, false)] {
            let code = format!(
                "@group(0) @binding(0) var<storage, read_write> d: array<atomic<u32>>;
                @compute @workgroup_size({units}) fn main() {{ atomicAdd(&d[0], 1u); }}"
            );
            let output = buffer(&client, &[0]);
            client.launch(wgsl("units", code), CubeCount::new_single(), KernelArguments::new().with_buffer(&output));
            match client.read_one(output) {
                Ok(bytes) => assert_eq!((crate::words_of(&bytes)[0], fits), (units, true)),
                Err(error) => assert!(!fits && error.is_refusal(), "{units} units: {error}"),
            }
        }
    });
}

/// A launch of a kernel with so many words of parameters, of which it stores the sum and the last.
fn sum_of_parameters<T: bytemuck::NoUninit>(client: &Client, info: T) -> Result<[u32; 2], ServerError> {
    let count = size_of::<T>() / 4;
    let code = format!(
        "struct Words {{ v: array<u32, {count}> }}
        var<immediate> p: Words;
        @group(0) @binding(0) var<storage, read_write> d: array<u32>;
        @compute @workgroup_size(1)
        fn main() {{
            var sum = 0u;
            for (var i = 0u; i < {count}u; i++) {{ sum += p.v[i]; }}
            d[0] = sum;
            d[1] = p.v[{count}u - 1u];
        }}"
    );
    let output = client.empty(8);
    let arguments = KernelArguments::new().with_buffer(&output).with_info(info);
    client.launch(wgsl("parameters", code), CubeCount::new_single(), arguments);
    client.read_one(output).map(|bytes| [0, 1].map(|at: usize| crate::words_of(&bytes)[at]))
}

/// KomputeProject/kompute#174, simplerr/UtopianEngine#139.
#[test]
fn parameters_are_exact_up_to_the_limit_and_refused_past_it() {
    fn check<T: bytemuck::Pod>(client: &Client) {
        let words: Vec<u32> = (0..size_of::<T>() as u32 / 4).map(|at| at * 7 + 3).collect();
        let limit = client.properties().hardware.max_info_size;
        let fits = size_of::<T>() <= limit;
        match sum_of_parameters(client, bytemuck::pod_read_unaligned::<T>(bytemuck::cast_slice(&words))) {
            Ok(found) => assert_eq!((found, fits), ([words.iter().sum(), words[words.len() - 1]], true)),
            Err(error) => {
                assert!(!fits && error.is_refusal(), "{} bytes: {error}", size_of::<T>());
                assert!(error.to_string().contains(&limit.to_string()), "{error}");
            }
        }
    }
    scenario(|| {
        let client = client();
        assert!(client.properties().hardware.max_info_size >= 128);
        // None at all: the launches of every other test that has no parameters.
        let handle = buffer(&client, &[1]);
        add1(&client, &handle);
        assert_all(&client, &handle, 1, 2);
        check::<[u32; 1]>(&client);
        check::<[u32; 31]>(&client);
        check::<[u32; 32]>(&client);
        check::<[[u32; 11]; 3]>(&client);
        check::<[u32; 64]>(&client);
        check::<[u32; 256]>(&client);
        check::<[[u32; 4096]; 4]>(&client);
    });
}

/// ggml-org/llama.cpp#9516.
#[test]
fn workgroup_memory_past_the_limit_is_refused_on_the_output() {
    scenario(|| {
        let client = client();
        let limit = client.properties().hardware.max_shared_memory_size / 4;
        for (count, fits) in [(limit, true), (limit + 1, false)] {
            let code = format!(
                "var<workgroup> part: array<u32, {count}>;
                @group(0) @binding(0) var<storage, read_write> d: array<u32>;
                @compute @workgroup_size(64)
                fn main(@builtin(local_invocation_index) lane: u32) {{
                    for (var i = lane; i < {count}u; i += 64u) {{ part[i] = i; }}
                    workgroupBarrier();
                    d[lane] = part[{count}u - 1u - lane];
                }}"
            );
            let output = client.empty(256);
            client.launch(wgsl("shared", code), CubeCount::new_single(), KernelArguments::new().with_buffer(&output));
            match client.check([&output]) {
                Ok(()) => {
                    assert!(fits, "{count} words ran");
                    let wanted: Vec<u32> = (0..64).map(|lane| (count - 1 - lane) as u32).collect();
                    assert_eq!(words(&client, &output), wanted);
                }
                Err(error) => assert!(!fits && error.is_refusal(), "{count} words: {error}"),
            }
        }
        let after = buffer(&client, &[1; 4]);
        add1(&client, &after);
        assert_all(&client, &after, 4, 2);
    });
}

/// A kernel that adds one to the first word of each of its buffers.
fn add1_to_each(buffers: usize) -> Box<dyn CubeKernel> {
    let (mut code, mut body) = (String::new(), String::new());
    for at in 0..buffers {
        writeln!(code, "@group(0) @binding({at}) var<storage, read_write> d{at}: array<u32>;").unwrap();
        write!(body, "d{at}[0] += 1u; ").unwrap();
    }
    wgsl("add1 to each", format!("{code} @compute @workgroup_size(1) fn main() {{ {body} }}"))
}

/// pytorch/executorch#2398, iree-org/iree#7720, gfx-rs/wgpu#181: a twentieth of the report's launches.
fn launch_without_end(client: &Client) {
    const ROUNDS: u32 = 320;
    let max = client.properties().hardware.max_bindings.min(16) as usize;
    let handles: Vec<Handle> = (0..max).map(|_| buffer(client, &[0])).collect();
    for _ in 0..ROUNDS {
        for count in 1..=max {
            let buffers = handles[..count].iter().map(BufferBinding::from).collect();
            client.launch(add1_to_each(count), CubeCount::new_single(), KernelArguments::new().with_buffers(buffers));
        }
    }
    for (at, handle) in handles.iter().enumerate() {
        assert_all(client, handle, 1, ROUNDS * (max - at) as u32);
    }
}

/// pytorch/executorch#2398, iree-org/iree#7720, gfx-rs/wgpu#181.
#[test]
fn launches_with_any_number_of_buffers_do_not_run_out_of_descriptors() {
    scenario(|| launch_without_end(&client()));
}

/// pytorch/executorch#2398, iree-org/iree#7720: on devices that push no descriptors.
#[test]
fn launches_do_not_run_out_of_descriptor_sets() {
    scenario(|| {
        let options = VulkanOptions { push_descriptors: false, ..VulkanOptions::default() };
        let server = Vulkan::open_with(crate::device_id(), &options).unwrap();
        launch_without_end(&Client::init(unused_id(), server));
    });
}

/// Tells a child where its pipeline cache is.
const CACHE: &str = "VKACTOR_BUGS_CACHE";

/// yuzu-emu/yuzu#8507, shadps4-emu/shadPS4#4878, PCSX2/pcsx2#9839.
#[test]
fn pipeline_caches_that_went_bad_are_not_believed() {
    const TEST: &str = "shaders::pipeline_caches_that_went_bad_are_not_believed";
    if children::is_child(TEST) {
        let compute = Compute::builder().pipeline_cache(std::env::var_os(CACHE).map(PathBuf::from)).build().unwrap();
        let client = compute.default_client().unwrap();
        let handle = buffer(&client, &[1; 1000]);
        add1(&client, &handle);
        return assert_all(&client, &handle, 1000, 2);
    }
    let folder = tempfile::tempdir().unwrap();
    let run = |count| {
        let env = [(CACHE, folder.path().to_str().unwrap())];
        children::run_many(TEST, &env, count).iter().for_each(|ended| ended.assert_passed());
    };
    // Written by eight at once, from nothing.
    run(8);
    let file = only_file(folder.path());
    let good = std::fs::read(&file).unwrap();
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 0x55;
        bytes
    };
    // Cut off, emptied, flipped in the middle, and of another driver: Vulkan's own header begins behind ours.
    for bad in [good[..good.len() / 2].to_vec(), Vec::new(), flipped(good.len() / 2), flipped(24 + 9)] {
        std::fs::write(&file, bad).unwrap();
        run(2);
        assert_eq!(only_file(folder.path()), file);
    }
    // A folder in the place of the file cannot be written, whoever runs the test.
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    run(1);
}

/// The one cache in a folder. A process that ends while it writes may leave its unfinished file beside.
fn only_file(folder: &Path) -> PathBuf {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "pipelines"));
    assert_eq!(files.len(), 1, "{files:?}");
    files.into_iter().next().unwrap()
}

/// gfx-rs/wgpu-rs#530.
#[test]
fn tensors_are_read_without_the_padding_of_their_rows() {
    scenario(|| {
        let client = client();
        let mut random = Random::new(48);
        let shapes: [(Shape, usize); 4] =
            [([10, 10].into(), 4), ([3, 5, 7].into(), 1), ([2, 1].into(), 8), ([1, 4097].into(), 1)];
        for (shape, elem_size) in shapes {
            let bytes = random.bytes(shape.0.iter().product::<usize>() * elem_size);
            let MemoryLayout { memory, strides } = client.create_tensor_from_slice(&bytes, shape.clone(), elem_size);
            let read = client.read_tensor(vec![CopyDescriptor::new(memory, shape.clone(), strides, elem_size)]);
            assert_eq!(read[0][..], bytes[..], "{shape:?}");
        }
    });
}

/// gfx-rs/wgpu-rs#530: strides that are not rows.
#[test]
fn strides_that_are_no_padded_rows_are_refused() {
    scenario(|| {
        let client = client();
        let memory = client.create_from_slice(&[1; 400]);
        for strides in [[1usize, 10], [5, 1], [10, 2]] {
            let descriptor = CopyDescriptor::new(memory.clone(), [10, 10], strides, 4);
            let error = crate::runtime().block_on(client.read_one_tensor_async(descriptor)).expect_err("no rows");
            assert!(matches!(error, ServerError::Io(IoError::UnsupportedStrides(_))), "{strides:?}: {error}");
        }
    });
}

/// vulkano-rs/vulkano#2148, amethyst/rendy#201.
#[test]
fn neighbours_are_written_by_the_host_and_by_the_device_at_once() {
    scenario(|| {
        let client = client();
        let mut random = Random::new(148);
        for len in [1usize, 3, 63, 64, 65, 255, 1001] {
            let members = [len, 4000, len].map(|bytes| MemoryLayoutDescriptor::contiguous([bytes], 1));
            let members = client.empty_tensors(members.into());
            let [left, middle, right] = [0, 1, 2].map(|at: usize| members[at].memory.clone());
            client.write(&middle, Bytes::from(vec![0; 4000]));
            let mut written = Vec::new();
            for _ in 0..20 {
                written = random.bytes(len);
                add1(&client, &middle);
                client.write(&left, Bytes::from(written.clone()));
                client.write(&right, Bytes::from(written.clone()));
            }
            assert_all(&client, &middle, 1000, 20);
            for bytes in client.read(vec![left, right]) {
                assert_eq!(bytes[..], written[..]);
            }
        }
    });
}
