//! WGSL kernels.

use vkactor_actors::kernel::BufferAccess::{self, Read, ReadWrite, Write};
use vkactor_actors::kernel::{KernelOptions, KernelSource};

use super::*;

fn compile_with(
    code: &str,
    entry: &str,
    overrides: &[(&str, f64)],
    target: &ShaderTarget,
) -> Result<Shader, LaunchError> {
    let overrides = overrides.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let options = KernelOptions { overrides, ..KernelOptions::default() };
    let source = KernelSource::Wgsl { code: code.to_owned().into(), entry: entry.to_owned().into() };
    translate("k", source, &options, target)
}

fn compile(code: &str) -> Result<Shader, LaunchError> {
    compile_with(code, "main", &[], &rich())
}

/// Compiles for devices with and without checks and extensions; the code must be valid for each, and reflecting it as
/// SPIR-V must tell the same story.
fn check(code: &str, bindings: &[u32], access: &[BufferAccess], info_bytes: u32, workgroup: [u32; 3]) {
    for (base, checked) in [(rich(), false), (rich(), true), (poor(), false), (poor(), true)] {
        let target = ShaderTarget { buffer_bounds_checks: checked, ..base };
        let shader = compile_with(code, "main", &[], &target).expect("compiles");
        assert_eq!(shader.bindings, bindings);
        assert_eq!(shader.access, access);
        assert_eq!((shader.info_bytes, shader.address_count), (info_bytes, 0));
        assert_eq!((shader.workgroup, shader.entry.as_str()), (workgroup, "main"));
        validate(&shader.words, target.spirv);
        let again = translate("k", spirv_source(&shader.words, "main"), &KernelOptions::default(), &target);
        assert_eq!(again.expect("reflects"), shader);
        // naga does not read back its own zeroed atomics in workgroup memory.
        if !target.capabilities.zero_workgroup {
            let options = naga::front::spv::Options::default();
            let parsed = naga::front::spv::Frontend::new(shader.words.iter().copied(), &options).parse();
            parsed.expect("another reader takes the words");
        }
    }
}

// ------------------------------------------------------------------------------ what a launch has to supply

#[test]
fn a_kernel_that_asks_for_a_length_is_known() {
    let code = "@group(0) @binding(0) var<storage> source: array<f32>;
         @group(0) @binding(3) var<storage, read_write> sink: array<f32>;
         @compute @workgroup_size(1) fn main() { if arrayLength(&sink) > 3 { sink[0] = source[0]; } }";
    assert_eq!(compile(code).unwrap().measured, [false, true]);
    let checked = ShaderTarget { buffer_bounds_checks: true, ..rich() };
    assert_eq!(compile_with(code, "main", &[], &checked).unwrap().measured, [true, true]);
}

#[test]
fn stored_only_is_write_and_loaded_only_is_read() {
    check(
        "@group(0) @binding(0) var<storage, read_write> source: array<f32>;
         @group(0) @binding(1) var<storage, read_write> sink: array<f32>;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) at: vec3<u32>) {
             if at.x < arrayLength(&sink) { sink[at.x] = source[at.x] * 2.0; }
         }",
        &[0, 1],
        &[Read, Write],
        0,
        [64, 1, 1],
    );
}

#[test]
fn a_buffer_that_grows_in_place_is_loaded_and_stored() {
    check(
        "@group(0) @binding(0) var<storage, read_write> d: array<u32>;
         @compute @workgroup_size(8, 4, 2) fn main(@builtin(local_invocation_index) at: u32) { d[at] += 1u; }",
        &[0],
        &[ReadWrite],
        0,
        [8, 4, 2],
    );
}

#[test]
fn atomics_load_and_store() {
    check(
        "@group(0) @binding(0) var<storage, read_write> sum: atomic<u32>;
         @group(0) @binding(1) var<storage, read_write> many: array<atomic<i32>>;
         @compute @workgroup_size(1) fn main(@builtin(workgroup_id) at: vec3<u32>) {
             atomicAdd(&sum, 1u);
             atomicMax(&many[at.x], 3);
         }",
        &[0, 1],
        &[ReadWrite, ReadWrite],
        0,
        [1, 1, 1],
    );
}

#[test]
fn a_buffer_that_is_only_measured_is_read() {
    check(
        "@group(0) @binding(0) var<storage, read_write> measured: array<u32>;
         @group(0) @binding(1) var<storage, read_write> d: array<u32>;
         @compute @workgroup_size(1) fn main() { d[0] = arrayLength(&measured); }",
        &[0, 1],
        &[Read, Write],
        0,
        [1, 1, 1],
    );
}

#[test]
fn bindings_may_have_gaps_and_stand_in_any_order() {
    check(
        "@group(0) @binding(7) var<storage, read_write> last: array<u32>;
         @group(0) @binding(2) var<storage, read> first: array<u32>;
         @group(0) @binding(5) var<storage, read> unused: array<u32>;
         @compute @workgroup_size(1) fn main() { last[0] = first[0]; }",
        &[2, 7],
        &[Read, Write],
        0,
        [1, 1, 1],
    );
}

#[test]
fn accesses_in_functions_and_through_pointers_count() {
    check(
        "@group(0) @binding(0) var<storage, read_write> a: array<vec4<f32>>;
         @group(0) @binding(1) var<storage, read_write> b: array<vec4<f32>>;
         fn leaf(at: u32) { let slot = &b[at]; (*slot).y = 1.0; }
         fn inner(at: u32) -> f32 { leaf(at); return a[at].x; }
         @compute @workgroup_size(1) fn main() { let x = inner(3u); leaf(u32(x)); }",
        &[0, 1],
        &[Read, Write],
        0,
        [1, 1, 1],
    );
}

#[test]
fn whole_arrays_and_structs_are_copied() {
    check(
        "struct Head { count: u32, parts: array<vec2<f32>, 4>, rest: array<f32> }
         @group(0) @binding(0) var<storage, read_write> head: Head;
         @group(0) @binding(1) var<storage, read> parts: array<vec2<f32>, 4>;
         @compute @workgroup_size(1) fn main() { head.parts = parts; head.rest[9] = 1.0; }",
        &[0, 1],
        &[Write, Read],
        0,
        [1, 1, 1],
    );
}

#[test]
fn parameters_have_the_size_of_their_layout() {
    for (block, bytes) in [
        ("u32", 4),
        ("vec2<f32>", 8),
        ("Mixed", 16),
        ("array<vec4<u32>, 8>", 128),
        ("mat3x3<f32>", 48),
        ("array<u32, 31>", 124),
        ("array<vec4<f32>, 16>", 256),
    ] {
        let code = format!(
            "struct Mixed {{ by: vec3<f32>, count: u32 }}
             var<immediate> p: {block};
             @group(0) @binding(0) var<storage, read_write> d: array<{block}>;
             @compute @workgroup_size(1) fn main() {{ d[0] = p; }}"
        );
        check(&code, &[0], &[Write], bytes, [1, 1, 1]);
    }
}

#[test]
fn a_struct_of_three_floats_is_padded_as_wgsl_pads_it() {
    let shader = compile(
        "struct P { v: vec3<f32> }
         var<immediate> p: P;
         @group(0) @binding(0) var<storage, read_write> d: array<f32>;
         @compute @workgroup_size(1) fn main() { d[0] = p.v.z; }",
    );
    assert_eq!(shader.expect("compiles").info_bytes, 16);
}

#[test]
fn workgroup_memory_and_barriers_compile() {
    check(
        "@group(0) @binding(0) var<storage, read_write> d: array<f32>;
         var<workgroup> tile: array<array<vec3<f32>, 16>, 16>;
         var<workgroup> count: atomic<u32>;
         @compute @workgroup_size(16, 16) fn main(@builtin(local_invocation_id) at: vec3<u32>) {
             tile[at.y][at.x] = vec3(d[at.x]);
             atomicAdd(&count, 1u);
             workgroupBarrier();
             d[at.x] = tile[at.x][at.y].y / f32(atomicLoad(&count));
         }",
        &[0],
        &[ReadWrite],
        0,
        [16, 16, 1],
    );
}

#[test]
fn not_a_number_survives_translation() {
    // The bit test has to reach the driver as it stands.
    check(
        "@group(0) @binding(0) var<storage, read> s: array<f32>;
         @group(0) @binding(1) var<storage, read_write> d: array<u32>;
         @compute @workgroup_size(16) fn main(@builtin(local_invocation_index) at: u32) {
             let x = s[at];
             let bits = (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
             d[at] = select(0u, 1u, x != x) | select(0u, 2u, bits);
         }",
        &[0, 1],
        &[Read, Write],
        0,
        [16, 1, 1],
    );
}

// ------------------------------------------------------------------------------------ entries and overrides

const TWO: &str = "
override step: u32 = 10;
@id(3) override other: f32 = 1.0;
override wide = 4u;
@group(0) @binding(0) var<storage, read_write> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> b: array<f32>;
@compute @workgroup_size(wide, 2) fn up() { a[0] = a[0] + step; }
@compute @workgroup_size(1) fn down() { b[0] = b[0] - other; }";

#[test]
fn each_entry_has_its_own_buffers_and_overrides() {
    for (entry, overrides, bindings, workgroup) in [
        ("up", &[][..], [0], [4, 2, 1]),
        ("up", &[("step", 7.0), ("wide", 128.0)][..], [0], [128, 2, 1]),
        ("up", &[("other", 7.0)][..], [0], [4, 2, 1]),
        ("down", &[("other", 0.5)][..], [1], [1, 1, 1]),
        ("down", &[("3", 0.5), ("step", 3.0)][..], [1], [1, 1, 1]),
    ] {
        let shader = compile_with(TWO, entry, overrides, &rich()).expect("compiles");
        assert_eq!((shader.bindings.as_slice(), shader.workgroup), (&bindings[..], workgroup), "{entry} {overrides:?}");
        assert_eq!(shader.entry, entry);
        validate(&shader.words, (1, 6));
    }
}

#[test]
fn an_override_changes_the_code() {
    let words = |value| compile_with(TWO, "up", &[("step", value)], &rich()).expect("compiles").words;
    assert!(words(77.0).contains(&77));
    assert_ne!(words(77.0), words(78.0));
}

#[test]
fn absent_entries_and_overrides_are_named() {
    let absent = reason(compile_with(TWO, "absent", &[], &rich()));
    assert!(absent.contains("`absent`") && absent.contains("`up`, `down`"), "{absent}");
    let absent = reason(compile_with(TWO, "up", &[("absent", 1.0)], &rich()));
    assert!(absent.contains("`absent`") && absent.contains("step, other, wide"), "{absent}");
    let none = reason(compile_with("const x = 1;", "main", &[], &rich()));
    assert!(none.contains("`main`"), "{none}");
}

#[test]
fn values_that_an_override_cannot_take_are_refused() {
    for value in [f64::NAN, f64::INFINITY, -1.0, 1e20] {
        let refused = reason(compile_with(TWO, "up", &[("step", value)], &rich()));
        assert!(refused.contains("step"), "{refused}");
    }
    let missing = "override n: u32;
        @group(0) @binding(0) var<storage, read_write> d: array<u32>;
        @compute @workgroup_size(1) fn main() { d[0] = n; }";
    assert!(reason(compile(missing)).contains('n'));
    assert!(compile_with(missing, "main", &[("n", 3.0)], &rich()).is_ok());
}

#[test]
fn what_only_spirv_has_is_refused() {
    let code = "@compute @workgroup_size(1) fn main() {}";
    let source = || KernelSource::Wgsl { code: code.into(), entry: "main".into() };
    let specialized = KernelOptions { specialization: vec![(7, 1)], ..KernelOptions::default() };
    assert!(reason(translate("k", source(), &specialized, &rich())).contains("constant 7"));
    let addressed = KernelOptions { addresses: Some(vec![Read]), ..KernelOptions::default() };
    assert!(reason(translate("k", source(), &addressed, &rich())).contains("by address"));
}

// ------------------------------------------------------------------------------------------------- mistakes

#[test]
fn mistakes_quote_the_line_and_the_name() {
    for (body, quoted) in [
        ("d[0] = wrong_name;", "wrong_name"),
        ("d[0] = 1.5;", "d[0] = 1.5;"),
        ("let x = ;", "let x = ;"),
        ("d.x = 1u;", "d.x"),
        ("missing_function(d[0]);", "missing_function"),
        ("fn", "fn"),
    ] {
        let code = format!(
            "@group(0) @binding(0) var<storage, read_write> d: array<u32>;\n@compute @workgroup_size(1) fn main() {{ {body} }}"
        );
        let refused = reason(compile(&code));
        assert!(refused.contains(quoted) && refused.contains("wgsl:2:"), "{refused}");
    }
}

#[test]
fn mistakes_found_by_validation_quote_the_place() {
    let code = "@group(0) @binding(0) var<storage, read> d: array<u32>;
        @compute @workgroup_size(1) fn main() { d[0] = 1u; }";
    let refused = reason(compile(code));
    assert!(refused.contains("d[0] = 1u"), "{refused}");
    // Also where the entry point does not get there.
    let unused = "@group(0) @binding(0) var<storage, read> d: array<u32>;
        fn unused() { d[0] = 1u; }
        @compute @workgroup_size(1) fn main() {}";
    assert!(reason(compile(unused)).contains("d[0] = 1u"));
}

#[test]
fn odd_input_is_refused_and_never_a_panic() {
    let nested =
        format!("@compute @workgroup_size(1) fn main() {{ let x = {}1{}; }}", "(".repeat(5000), ")".repeat(5000));
    let blocks = format!("@compute @workgroup_size(1) fn main() {{ {} {} }}", "{".repeat(5000), "}".repeat(5000));
    let recursive = "fn f() { f(); } @compute @workgroup_size(1) fn main() { f(); }";
    for code in ["", "\0", "@", "fn", "@compute", "/*", "var<immediate> x: x;", &nested, &blocks, recursive, "é日本"]
    {
        reason(compile(code));
    }
}

#[test]
fn long_chains_do_not_overflow_the_stack() {
    let chain = |link: &str, count: usize, rest: &str| {
        let links = link.repeat(count);
        compile(&format!(
            "@group(0) @binding(0) var<storage, read_write> d: u32;
             @compute @workgroup_size(1) fn main() {{ {rest}{links}; }}"
        ))
    };
    assert!(chain("+d", 20_000, "d = d").is_ok());
    assert!(chain("else if d==1{}", 3_000, "if d == 2 {}").is_ok());
    let long = format!("//{}", "x".repeat(super::super::SOURCE_BYTES_MAX));
    assert!(reason(compile(&long)).contains("bytes of WGSL"));
}

#[test]
fn resources_other_than_buffers_are_refused() {
    for (declaration, used, named) in [
        ("@group(0) @binding(0) var<uniform> u: vec4<f32>;", "let x = u.x;", "uniform buffer"),
        ("@group(0) @binding(0) var u: texture_2d<f32>;", "let x = textureDimensions(u);", "texture"),
        ("@group(1) @binding(0) var<storage> u: array<u32>;", "let x = u[0];", "outside group 0"),
    ] {
        let code = format!("{declaration}\n@compute @workgroup_size(1) fn main() {{ {used} }}");
        let refused = reason(compile(&code));
        assert!(refused.contains(named) && refused.contains("`u`") && refused.contains("var<storage>"), "{refused}");
        let unused = format!("{declaration}\n@compute @workgroup_size(1) fn main() {{}}");
        assert!(compile(&unused).is_ok(), "what is not used does not matter");
    }
}

#[test]
fn stages_other_than_compute_do_not_count() {
    let code = "@vertex fn main() -> @builtin(position) vec4<f32> { return vec4(0.0); }
        @compute @workgroup_size(1) fn other() {}";
    assert!(reason(compile(code)).contains("`other`"));
    assert!(compile_with(code, "other", &[], &rich()).is_ok());
}

// --------------------------------------------------------------------------------------------------- limits

#[test]
fn groups_past_the_limit_are_refused_with_numbers() {
    let with =
        |size: &str| compile(&format!("override n: u32 = 2048; @compute @workgroup_size({size}) fn main() {{ }}"));
    assert!(with("1024").is_ok() && with("32, 32").is_ok() && with("1, 16, 64").is_ok());
    assert_eq!(exceeds(with("1025")), ("invocations of a workgroup".into(), 1025, 1024));
    assert_eq!(exceeds(with("33, 32")), ("invocations of a workgroup".into(), 1056, 1024));
    assert_eq!(exceeds(with("1, 1, 65")), ("invocations of a workgroup in z".into(), 65, 64));
    assert_eq!(exceeds(with("100000")), ("invocations of a workgroup".into(), 100_000, 1024));
    assert_eq!(exceeds(with("n")), ("invocations of a workgroup".into(), 2048, 1024));
    assert!(reason(with("0")).contains("orkgroup"));
}

#[test]
fn workgroup_memory_is_taken_up_to_the_limit() {
    let with = |words: u32| {
        compile(&format!(
            "var<workgroup> much: array<u32, {words}>;
             var<workgroup> unused: array<u32, 9000>;
             @group(0) @binding(0) var<storage, read_write> d: array<u32>;
             @compute @workgroup_size(1) fn main() {{ much[d[0]] = 1u; d[0] = much[1]; }}"
        ))
    };
    assert!(with(8192).is_ok());
    assert_eq!(exceeds(with(8193)), ("bytes of workgroup memory".into(), 32_772, 32_768));
    assert_eq!(exceeds(with(4_000_000)).1, 16_000_000);
}

#[test]
fn parameters_past_the_limit_are_refused() {
    let with = |vectors: u32, limit: u32| {
        let mut target = rich();
        target.limits.max_info_bytes = limit;
        let code = format!(
            "var<immediate> p: array<vec4<u32>, {vectors}>;
             @group(0) @binding(0) var<storage, read_write> d: array<u32>;
             @compute @workgroup_size(1) fn main() {{ d[0] = p[0].x; }}"
        );
        compile_with(&code, "main", &[], &target)
    };
    assert!(with(8, 128).is_ok() && with(16, 256).is_ok());
    assert_eq!(exceeds(with(9, 128)), ("bytes of the parameter block".into(), 144, 128));
    assert_eq!(exceeds(with(4096, 256)), ("bytes of the parameter block".into(), 65_536, 256));
    assert_eq!(exceeds(with(17, 4096)), ("bytes of the parameter block".into(), 272, 256));
}

#[test]
fn buffers_past_the_limit_are_refused() {
    let with = |count: u32| {
        let each = |text: fn(u32) -> String| (0..count).map(text).collect::<String>();
        let declared = each(|i| format!("@group(0) @binding({i}) var<storage, read_write> b{i}: array<u32>;\n"));
        let used = each(|i| format!("b{i}[0] = 1u; "));
        compile(&format!("{declared}@compute @workgroup_size(1) fn main() {{ {used} }}"))
    };
    assert_eq!(with(16).expect("compiles").access, [Write; 16]);
    assert_eq!(exceeds(with(17)), ("buffers of one launch".into(), 17, 16));
}

// -------------------------------------------------------------------------------------------------- features

const FEATURES: [(&str, &str, &str); 7] = [
    ("enable f16;", "d[0] = u32(f16(d[1]) * 0.5h);", "f16"),
    ("", "d[0] = u32(f64(d[1]) * 0.5lf);", "f64"),
    ("", "d[0] = u32(u64(d[1]) << 3u);", "64-bit integers"),
    ("enable wgpu_int16;", "d[0] = u32(i16(d[1]));", "16-bit integers"),
    ("", "d[0] = subgroupAdd(d[1]) + subgroupShuffleXor(d[2], 1u);", "subgroup operations"),
    ("", "subgroupBarrier();", "subgroup operations"),
    (
        "@group(0) @binding(1) var<storage, read_write> f: atomic<f32>;",
        "atomicAdd(&f, 1.0);",
        "atomic operations on f32",
    ),
];

fn feature(top: &str, body: &str) -> String {
    format!(
        "{top}
         @group(0) @binding(0) var<storage, read_write> d: array<u32>;
         @compute @workgroup_size(1) fn plain() {{ d[0] = d[1]; }}
         @compute @workgroup_size(1) fn main() {{ {body} }}"
    )
}

#[test]
fn features_compile_where_the_device_has_them() {
    for (top, body, named) in FEATURES {
        let shader = compile(&feature(top, body)).unwrap_or_else(|error| panic!("{named}: {error}"));
        validate(&shader.words, (1, 6));
        let again = translate("k", spirv_source(&shader.words, "main"), &KernelOptions::default(), &rich());
        assert_eq!(again.expect("reflects"), shader, "{named}");
    }
}

#[test]
fn features_that_the_device_lacks_are_named() {
    for (top, body, named) in FEATURES {
        assert_eq!(lacks(compile_with(&feature(top, body), "main", &[], &poor())), named);
    }
}

#[test]
fn features_of_other_entries_do_not_matter() {
    for (top, body, named) in FEATURES {
        let plain = compile_with(&feature(top, body), "plain", &[], &poor()).unwrap_or_else(|e| panic!("{named}: {e}"));
        validate(&plain.words, (1, 3));
    }
}

#[test]
fn several_missing_features_are_all_named() {
    let code = feature("enable f16;", "d[0] = u32(f16(d[1]) * 0.5h) + u32(f64(d[2]) * 0.5lf);");
    assert_eq!(lacks(compile_with(&code, "main", &[], &poor())), "f16, f64");
}

#[test]
fn features_that_no_device_of_ours_offers_are_named() {
    let code = feature("@group(0) @binding(1) var<storage, read_write> f: atomic<u64>;", "atomicMax(&f, 1lu);");
    assert!(lacks(compile(&code)).contains("64-bit"));
    let code = "enable wgpu_binding_array;
        struct B { x: u32 }
        @group(0) @binding(0) var<storage, read_write> b: binding_array<B, 4>;
        @compute @workgroup_size(1) fn main() { b[0].x = 1u; }";
    assert!(!lacks(compile(code)).is_empty());
}

// ----------------------------------------------------------------------------------------------- the written code

/// How often an instruction occurs.
fn count(words: &[u32], op: u32) -> usize {
    let (mut at, mut found) = (5, 0);
    while at < words.len() {
        found += usize::from(words[at] & 0xffff == op);
        at += (words[at] >> 16) as usize;
    }
    found
}

const ARRAY_LENGTH: u32 = 68;
const BRANCH_CONDITIONAL: u32 = 250;

#[test]
fn checks_are_written_where_the_device_has_none() {
    let code = "@group(0) @binding(0) var<storage, read_write> d: array<u32>;
        @compute @workgroup_size(1) fn main(@builtin(workgroup_id) at: vec3<u32>) { d[at.x] = d[at.y]; }";
    let unchecked = compile(code).expect("compiles");
    assert_eq!(count(&unchecked.words, ARRAY_LENGTH), 0);
    let target = ShaderTarget { buffer_bounds_checks: true, ..rich() };
    let checked = compile_with(code, "main", &[], &target).expect("compiles");
    assert_eq!(count(&checked.words, BRANCH_CONDITIONAL), 2, "a load and a store that are skipped");
    assert_eq!(unchecked.access, checked.access);
}

#[test]
fn atomics_are_checked_too() {
    let code = "@group(0) @binding(0) var<storage, read_write> d: array<atomic<u32>>;
        @compute @workgroup_size(1) fn main(@builtin(workgroup_id) at: vec3<u32>) { atomicAdd(&d[at.x], 1u); }";
    let target = ShaderTarget { buffer_bounds_checks: true, ..rich() };
    let checked = compile_with(code, "main", &[], &target).expect("compiles");
    assert_eq!(count(&checked.words, ARRAY_LENGTH), 1);
}

#[test]
fn the_driver_zeroes_workgroup_memory_where_it_can() {
    let code = "@group(0) @binding(0) var<storage, read_write> d: array<u32>;
        var<workgroup> w: array<u32, 64>;
        @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) at: u32) { d[at] = w[at]; }";
    let branches = |zero_workgroup| {
        let capabilities = ShaderCapabilities { zero_workgroup, ..rich().capabilities };
        let shader = compile_with(code, "main", &[], &ShaderTarget { capabilities, ..rich() }).expect("compiles");
        count(&shader.words, BRANCH_CONDITIONAL)
    };
    assert_eq!((branches(true), branches(false)), (0, 1));
}

#[test]
fn loops_are_not_counted() {
    let code = "@group(0) @binding(0) var<storage, read_write> d: array<u32>;
        @compute @workgroup_size(1) fn main() { var x = 0u; for (var i = 0u; i < d[1]; i++) { x += i; } d[0] = x; }";
    let shader = compile(code).expect("compiles");
    assert_eq!(count(&shader.words, BRANCH_CONDITIONAL), 1);
}

#[test]
fn the_asked_version_is_written() {
    for minor in 3..=6 {
        let target = ShaderTarget { spirv: (1, minor), ..rich() };
        let shader = compile_with("@compute @workgroup_size(1) fn main() {}", "main", &[], &target).expect("compiles");
        assert_eq!(shader.words[1], 0x1_0000 | u32::from(minor) << 8);
    }
}
