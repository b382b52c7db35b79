//! The kernels of the scenarios, each with a function that launches it over whole buffers.
//!
//! The element-wise ones stride over their buffer, so that one launch covers any size within the limit on groups.

use vkactor::*;

/// Groups of an element-wise launch at most: enough for any device, and far below every limit.
const GROUPS_MAX: usize = 4096;
/// Invocations of a group of an element-wise launch.
const UNITS: usize = 64;

/// An element-wise kernel: what is declared, then what happens to word `i` of the `n` that `d` has.
macro_rules! each_word {
    ($declared:literal, $does:literal) => {
        concat!(
            $declared,
            "
            @compute @workgroup_size(64)
            fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
                let n = arrayLength(&d);
                for (var i = id.x; i < n; i += groups.x * 64u) { ",
            $does,
            " }
            }"
        )
    };
}

const FILL: &str = each_word!(
    "var<immediate> value: u32;
    @group(0) @binding(0) var<storage, read_write> d: array<u32>;",
    "d[i] = value;"
);

const ADD1: &str = each_word!("@group(0) @binding(0) var<storage, read_write> d: array<u32>;", "d[i] += 1u;");

const AFFINE: &str = each_word!(
    "struct Factors { scale: u32, shift: u32 }
    var<immediate> by: Factors;
    @group(0) @binding(0) var<storage, read_write> d: array<u32>;",
    "d[i] = d[i] * by.scale + by.shift;"
);

const COPY: &str = each_word!(
    "@group(0) @binding(0) var<storage, read> s: array<u32>;
    @group(0) @binding(1) var<storage, read_write> d: array<u32>;",
    "d[i] = s[i];"
);

const SUCCESSOR: &str = each_word!(
    "@group(0) @binding(0) var<storage, read> s: array<u32>;
    @group(0) @binding(1) var<storage, read_write> d: array<u32>;",
    "d[i] = s[i] + 1u;"
);

/// One invocation a group, each busy for `SPIN_STEPS`; the last word becomes 1 when a group has done its steps. That
/// the result decides about a store keeps a compiler from leaving the loop out.
const SPIN: &str = "
    @group(0) @binding(0) var<storage, read_write> d: array<u32>;
    @compute @workgroup_size(1)
    fn main(@builtin(workgroup_id) id: vec3<u32>) {
        var x = id.x;
        for (var i = 0u; i < 50000u; i++) { x = (x * 1664525u + 1013904223u) ^ (x >> 13u); }
        if (x != 4294967295u || id.x == 0u) { d[arrayLength(&d) - 1u] = 1u; }
    }";

/// Groups of `SPIN` that a software device with two cores is busy with for a millisecond.
const SPIN_GROUPS_PER_MS: u32 = 8;

/// A kernel in WGSL.
pub(crate) fn wgsl(name: &'static str, code: impl Into<std::borrow::Cow<'static, str>>) -> Box<dyn CubeKernel> {
    Box::new(WgslKernel::new(name, code))
}

/// Groups that cover a buffer of words.
fn over(handle: &Handle) -> CubeCount {
    let words = handle.size_in_used() as usize / 4;
    CubeCount::new_1d(words.div_ceil(UNITS).clamp(1, GROUPS_MAX) as u32)
}

/// Every word becomes `value`.
pub(crate) fn fill(client: &Client, handle: &Handle, value: u32) {
    client.launch(wgsl("fill", FILL), over(handle), KernelArguments::new().with_buffer(handle).with_info(value));
}

/// Every word grows by one.
pub(crate) fn add1(client: &Client, handle: &Handle) {
    client.launch(add1_kernel(), over(handle), KernelArguments::new().with_buffer(handle));
}

/// The kernel of [`add1`].
pub(crate) fn add1_kernel() -> Box<dyn CubeKernel> {
    wgsl("add1", ADD1)
}

/// Every word x becomes `scale * x + shift`: two of these in the wrong order give another result.
pub(crate) fn affine(client: &Client, handle: &Handle, scale: u32, shift: u32) {
    let arguments = KernelArguments::new().with_buffer(handle).with_info([scale, shift]);
    client.launch(wgsl("affine", AFFINE), over(handle), arguments);
}

/// `to` becomes `from`.
pub(crate) fn copy(client: &Client, from: &Handle, to: &Handle) {
    client.launch(wgsl("copy", COPY), over(to), KernelArguments::new().with_buffer(from).with_buffer(to));
}

/// `to` becomes `from` plus one, word by word.
pub(crate) fn successor(client: &Client, from: &Handle, to: &Handle) {
    client.launch(wgsl("successor", SUCCESSOR), over(to), KernelArguments::new().with_buffer(from).with_buffer(to));
}

/// Keeps a software device busy for about `ms`, then stores 1 in the last word.
pub(crate) fn spin(client: &Client, handle: &Handle, ms: u32) {
    let groups = CubeCount::new_1d(ms * SPIN_GROUPS_PER_MS);
    client.launch(wgsl("spin", SPIN), groups, KernelArguments::new().with_buffer(handle));
}

/// A kernel that is certain not to compile.
pub(crate) fn bad(name: &'static str) -> Box<dyn CubeKernel> {
    wgsl(name, "@compute @workgroup_size(1) fn main() { let x = nowhere_declared; }")
}

/// Launches [`bad`] with `handle` as its only buffer.
pub(crate) fn launch_bad(client: &Client, handle: &Handle) {
    client.launch(bad("bad"), CubeCount::new_single(), KernelArguments::new().with_buffer(handle));
}
