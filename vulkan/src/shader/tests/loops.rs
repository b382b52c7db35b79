//! Loops for drivers that limit how often they turn.

use super::*;

const OP_LOOP_MERGE: u32 = 246;
const OP_I_MUL: u32 = 132;
const OP_FUNCTION_CALL: u32 = 57;
const OP_ATOMIC_I_ADD: u32 = 234;
const OP_ATOMIC_U_MAX: u32 = 239;

fn limited() -> ShaderTarget {
    ShaderTarget { loop_iterations_limited: true, ..rich() }
}

/// The kernel whose entry point has this `body`, with a function `once` that multiplies once.
fn kernel(body: &str) -> KernelSource {
    let code = format!(
        "var<immediate> n: u32;
         @group(0) @binding(0) var<storage, read_write> d: array<u32>;
         @group(0) @binding(1) var<storage, read_write> total: atomic<u32>;
         var<workgroup> shared_words: array<u32, 64>;
         override K: u32 = 8u;
         fn once(x: u32) -> u32 {{ return x * 3u; }}
         @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) at: u32) {{
             var x = at;
             {body}
             d[at] = x;
         }}"
    );
    KernelSource::Wgsl { code: code.into(), entry: "main".into() }
}

fn count(words: &[u32], wanted: u32) -> usize {
    let (mut found, mut rest) = (0, &words[5..]);
    while let [first, ..] = rest {
        found += usize::from(first & 0xffff == wanted);
        rest = &rest[(first >> 16) as usize..];
    }
    found
}

/// Compiles `body` and tells its loops and multiplications. With `rich`, nothing is repeated.
fn shape(body: &str, target: &ShaderTarget) -> (usize, usize) {
    let shader = translate("k", kernel(body), &KernelOptions::default(), target).expect("compiles");
    validate(&shader.words, target.spirv);
    (count(&shader.words, OP_LOOP_MERGE), count(&shader.words, OP_I_MUL))
}

/// How often the one multiplication in `body` is there, among so many loops.
fn check(body: &str, loops: usize, copies: usize) {
    assert_eq!(shape(body, &rich()), (loops, 1), "as it is: {body}");
    assert_eq!(shape(body, &limited()), (loops, copies), "repeated: {body}");
}

#[test]
fn a_loop_of_any_form_becomes_one_loop_of_many_copies() {
    check("for (var i = 0u; i < n; i++) { x = x * 5u; }", 1, 128);
    check("while x < n { x = x * 5u; }", 1, 128);
    check("loop { x = x * 5u; if x > n { break; } }", 1, 128);
    check("loop { let y = x * 5u; x = y; continuing { x += 1u; break if y > n; } }", 1, 128);
    check("loop { if x == n { return; } x = x * 5u; }", 1, 128);
    check("for (var i = 0u; i < n; i++) { if x == 1u { continue; } x = x * 5u; }", 1, 128);
    check("loop { x = x * 5u; if x > n { continue; } break; }", 1, 128);
    check(
        "loop { switch x { case 1u: { continue; } case 2u: { break; } default: { x = x * 5u; } } if x > n { break; } }",
        1,
        128,
    );
}

#[test]
fn only_the_innermost_loop_is_repeated() {
    check("while x < n { for (var i = 0u; i < n; i++) { x = x * 5u; } }", 2, 128);
    check("while x < n { x = x * 5u; while x < 7u { x++; } }", 2, 1);
}

#[test]
fn known_counts_are_not_passed() {
    check("for (var i = 0u; i < 1000u; i++) { x = x * 5u; }", 1, 1);
    check("for (var i = 0u; i < 2000u; i++) { x = x * 5u; }", 1, 128);
    check("for (var i = 0u; i < K; i++) { x = x * 5u; }", 1, 1);
    // Within another loop, all of them count.
    check("while x < n { for (var i = 1; i <= 100; i += 2) { x = x * 5u; } }", 2, 51);
    // The driver repeats the inner loop, so the outer one counts as the innermost.
    let (loops, copies) = shape("while x < n { for (var i = 0; i < 4; i++) { x = x * 5u; } }", &limited());
    assert_eq!((loops, copies), (copies + 1, copies));
    assert!(copies > 16, "{copies} copies");
    // A count that only seems to be known.
    check("for (var i = 0u; i < 9u; i++) { x = x * 5u; if x > n { i = 0u; } }", 1, 128);
    check("var i = 9; for (; i > 0; i--) { x = x * 5u; }", 1, 128);
    check("var i = i32(x); for (; i < 9; i++) { x = x * 5u; }", 1, 128);
    // Not below zero, so at most nine.
    check("var i = x; for (; i < 9u; i++) { x = x * 5u; }", 1, 1);
    check("while x < n { for (var i = at; i < 90u; i += 9u) { x = x * 5u; } }", 2, 11);
}

#[test]
fn loops_with_barriers_and_loops_that_do_not_turn_stay() {
    check("for (var i = 0u; i < n; i++) { workgroupBarrier(); x = x * 5u; }", 1, 1);
    check("for (var i = 0u; i < n; i++) { x = x * workgroupUniformLoad(&shared_words[0]); }", 1, 1);
    check("loop { x = x * 5u; break; }", 1, 1);
}

#[test]
fn results_of_calls_and_atomics_are_repeated() {
    let body = "while x < n { x = once(x) + atomicAdd(&total, 1u); }";
    assert_eq!(shape(body, &limited()), (1, 1), "the function is there once");
    let shader = translate("k", kernel(body), &KernelOptions::default(), &limited()).expect("compiles");
    let (calls, atomics) = (count(&shader.words, OP_FUNCTION_CALL), count(&shader.words, OP_ATOMIC_I_ADD));
    assert_eq!(calls, atomics);
    assert!(calls > 16, "{calls} copies");
}

#[test]
fn copies_are_whole_whatever_they_are_made_of() {
    let body = "
        var table = array<vec4<f32>, 4>();
        let p = &table[1];
        while x < n {
            let v = vec4<f32>(f32(x), 1.0, vec2<f32>(2.0)).wzyx + vec4(f32(at));
            (*p) = select(clamp(v, vec4(0.0), vec4(9.0)), -v, v > vec4(3.0));
            table[x & 3u].y = fma(v.x, v.y, (*p)[at & 3u]);
            if any(v == table[x & 3u]) || !all(v < vec4(bitcast<f32>(x))) { x += u32(table[2].z); }
            switch x & 3u { case 0u: { x ^= shared_words[x & 63u]; } case 1u, 2u: { break; } default: { x = ~x; } }
            for (var i = 0u; i < 3u; i++) { if i == x { continue; } shared_words[i] = once(x) % arrayLength(&d); }
            let seen = atomicCompareExchangeWeak(&total, x, at);
            if seen.exchanged { x += seen.old_value; continue; }
            x += subgroupAdd(x) + subgroupShuffle(x, at & 3u) + subgroupBroadcastFirst(x) + subgroupBallot(x > 2u).x;
            atomicMax(&total, x);
        }";
    let before = translate("k", kernel(body), &KernelOptions::default(), &rich()).expect("compiles");
    for buffer_bounds_checks in [false, true] {
        let target = ShaderTarget { buffer_bounds_checks, ..limited() };
        let shader = translate("k", kernel(body), &KernelOptions::default(), &target).expect("compiles");
        validate(&shader.words, target.spirv);
        assert!(count(&shader.words, OP_ATOMIC_U_MAX) > count(&before.words, OP_ATOMIC_U_MAX));
        assert_eq!(Shader { words: Vec::new(), ..shader }, Shader { words: Vec::new(), ..before.clone() });
    }
}

#[test]
fn large_bodies_and_many_loops_stay_within_bounds() {
    let large = "for (var i = 0u; i < n; i++) { x = x * 5u; d[i] += x; d[i + 1u] += x; d[i + 2u] += x; }";
    let (loops, copies) = shape(large, &limited());
    assert_eq!(loops, 1);
    assert!((2..16).contains(&copies), "{copies} copies");
    let many = "while x < n { x = x * 5u; }".repeat(100);
    let (loops, copies) = shape(&many, &limited());
    assert_eq!(loops, 100);
    assert!((200..4_000).contains(&copies), "{copies} copies in all");
}
