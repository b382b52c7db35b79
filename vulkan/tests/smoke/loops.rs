//! Loops of every form, beyond the 65,535 iterations after which one driver ends them.

use super::*;

/// One step of the arithmetic that all the loops do, in both languages.
const STEP: &str = "
fn step(x: u32) -> u32 { let y = x * 1664525u + 1013904223u; return y ^ (y >> 13u); }
";

fn step(x: u32) -> u32 {
    let y = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    y ^ (y >> 13)
}

/// A counted loop, and nothing else.
const SPIN: &str = "
var<immediate> steps: u32;
@group(0) @binding(0) var<storage, read_write> d: array<u32>;
@compute @workgroup_size(1) fn main() {
    var x = 1u;
    for (var i = 0u; i < steps; i = i + 1u) { x = x * 1664525u + 1013904223u; x = x ^ (x >> 13u); }
    d[0] = x;
}";

fn spun(steps: u32) -> u32 {
    (0..steps).fold(1, |x, _| step(x))
}

fn spin(bench: &mut Bench, pipeline: PipelineId, steps: u32) -> u32 {
    bench.commands.dispatch(pipeline, &[at(DATA, 0, 4)], &words(&[steps]), Groups::Direct([1, 1, 1]));
    bench.read_words(0, 1)[0]
}

#[test]
fn a_loop_turns_as_often_as_it_says() {
    run(&options(), |bench| {
        let pipeline = bench.kernel("spin", SPIN);
        for steps in [0, 1, 2, 127, 128, 129, 65_534, 65_535, 65_536, 1_000_000, 8_000_000] {
            assert_eq!(spin(bench, pipeline, steps), spun(steps), "{steps} steps");
        }
    });
}

/// Where this fails, the driver no longer needs `shader/loops.rs`: SPIR-V goes to it as it is.
#[test]
fn the_driver_cuts_long_loops_short() {
    run(&options(), |bench| {
        if !list(true).unwrap()[0].driver.contains("llvmpipe") {
            return;
        }
        let module = naga::front::wgsl::parse_str(SPIN).unwrap();
        let capabilities = naga::valid::Capabilities::IMMEDIATES;
        let info =
            naga::valid::Validator::new(naga::valid::ValidationFlags::all(), capabilities).validate(&module).unwrap();
        let options = naga::back::spv::Options { fake_missing_bindings: true, ..Default::default() };
        let code = naga::back::spv::write_vec(&module, &info, &options, None).unwrap();
        let pipeline = bench.add_kernel("plain spin", KernelSource::Spirv { words: code.into(), entry: "main".into() });
        assert_eq!(spin(bench, pipeline, 65_535), spun(65_535));
        assert_eq!(spin(bench, pipeline, 1_000_000), spun(65_535), "the workaround can go for this version");
    });
}

/// Invocations of a case, each with a number of steps of its own.
const LANES: u32 = 11;

/// Runs `code`, the body of `fn run(n: u32) -> u32`, and compares each lane with `expected`.
fn check(name: &str, code: &str, steps: u32, expected: impl Fn(u32) -> u32) {
    let code = format!(
        "{STEP}
         var<immediate> steps: u32;
         @group(0) @binding(0) var<storage, read_write> d: array<u32>;
         fn run(n: u32) -> u32 {{ {code} }}
         @compute @workgroup_size({LANES}) fn main(@builtin(local_invocation_index) at: u32) {{
             d[at] = run(steps + at * at);
         }}"
    );
    run(&options(), |bench| {
        let pipeline = bench.add_kernel(name, KernelSource::Wgsl { code: code.clone().into(), entry: "main".into() });
        for steps in [0, 1, 100, steps] {
            let target = at(DATA, 0, u64::from(LANES) * 4);
            bench.commands.dispatch(pipeline, &[target], &words(&[steps]), Groups::Direct([1, 1, 1]));
            let wanted: Vec<u32> = (0..LANES).map(|lane| expected(steps + lane * lane)).collect();
            assert_eq!(bench.read_words(0, LANES.into()), wanted, "{name}, {steps} steps");
        }
    });
}

#[test]
fn loops_of_every_form_turn_as_often_as_they_say() {
    check("while", "var x = 1u; var i = 0u; while i < n { x = step(x) + i; i++; } return x + i;", 200_000, |n| {
        (0..n).fold(1u32, |x, i| step(x).wrapping_add(i)).wrapping_add(n)
    });
    check(
        "break if, on a value of the body",
        "var x = 1u; var i = 0u;
         loop { let y = step(x); x = y; continuing { i += 1u; break if (y & 0xffffffu) == 5u || i >= n; } }
         return x ^ i;",
        200_000,
        |n| {
            let (mut x, mut i) = (1, 0);
            loop {
                (x, i) = (step(x), i + 1);
                if x & 0xff_ffff == 5 || i >= n {
                    return x ^ i;
                }
            }
        },
    );
    check(
        "return within",
        "var x = 1u; var i = 0u; loop { if i == n { return x; } x = step(x); i++; } return 0u;",
        200_000,
        spun,
    );
    check(
        "break in the middle, and a switch with breaks of its own",
        "var x = 1u; var i = 0u;
         loop {
             x = step(x);
             if i >= n { break; }
             switch x & 3u { case 0u: { x += 1u; } case 1u, 2u: { if (x & 8u) == 0u { break; } x ^= 5u; } default: { } }
             i++;
         }
         return x;",
        200_000,
        |n| {
            let (mut x, mut i) = (1u32, 0);
            loop {
                x = step(x);
                if i >= n {
                    return x;
                }
                x = match x & 3 {
                    0 => x.wrapping_add(1),
                    1 | 2 if x & 8 != 0 => x ^ 5,
                    _ => x,
                };
                i += 1;
            }
        },
    );
}

#[test]
fn a_continue_goes_to_the_next_iteration() {
    check(
        "continue, deep and within a switch",
        "var x = 1u; var odd = 0u;
         for (var i = 0u; i < n; i++) {
             x = step(x);
             if (x & 1u) == 1u { odd++; if (x & 2u) == 2u { continue; } x += 3u; }
             switch x & 12u { case 4u: { if (x & 64u) == 64u { continue; } x ^= 9u; } case 8u: { continue; } default: { } }
             x += odd;
             if (x & 15u) == 15u { continue; } else { x ^= 77u; }
         }
         return x ^ odd;",
        200_000,
        |n| {
            let (mut x, mut odd) = (1u32, 0u32);
            for _ in 0..n {
                x = step(x);
                if x & 1 == 1 {
                    odd += 1;
                    if x & 2 == 2 {
                        continue;
                    }
                    x = x.wrapping_add(3);
                }
                match x & 12 {
                    4 if x & 64 == 64 => continue,
                    4 => x ^= 9,
                    8 => continue,
                    _ => {}
                }
                x = x.wrapping_add(odd);
                if x & 15 != 15 {
                    x ^= 77;
                }
            }
            x ^ odd
        },
    );
    check(
        "a loop that turns by continue alone",
        "var x = 1u; var i = 0u;
         loop { if i < n { x = step(x); i++; if (x & 1u) == 1u { continue; } x ^= 6u; continue; } break; }
         return x;",
        200_000,
        |n| (0..n).fold(1, |x, _| if step(x) & 1 == 1 { step(x) } else { step(x) ^ 6 }),
    );
}

#[test]
fn loops_within_loops_turn_as_often_as_they_say() {
    check(
        "a loop in a loop that is left early",
        "var x = 1u;
         for (var i = 0u; i < n; i++) {
             for (var j = 0u; j <= i % 1000u; j++) { x = step(x); if (x & 1023u) == 7u { break; } }
             x ^= i;
         }
         return x;",
        2_000,
        |n| {
            (0..n).fold(1, |mut x, i| {
                for _ in 0..=i % 1000 {
                    x = step(x);
                    if x & 1023 == 7 {
                        break;
                    }
                }
                x ^ i
            })
        },
    );
    check(
        "counts that the code tells, and an array",
        "var x = 1u; var sums: array<u32, 4>;
         for (var i = 0u; i < n; i++) { for (var j = 0; j < 4; j++) { x = step(x); sums[j] += x; } }
         for (var i = 3; i <= 1500; i += 7) { x = step(x); sums[i & 3] ^= x; }
         return sums[0] ^ (sums[1] * 3u) ^ (sums[2] * 5u) ^ (sums[3] * 7u);",
        100_000,
        |n| {
            let (mut x, mut sums) = (1, [0u32; 4]);
            for step_count in 0..n as usize * 4 {
                x = step(x);
                sums[step_count % 4] = sums[step_count % 4].wrapping_add(x);
            }
            for i in (3..=1500).step_by(7) {
                x = step(x);
                sums[i & 3] ^= x;
            }
            sums[0] ^ sums[1].wrapping_mul(3) ^ sums[2].wrapping_mul(5) ^ sums[3].wrapping_mul(7)
        },
    );
}

#[test]
fn results_of_atomics_are_those_of_their_iteration() {
    const TICKETS: &str = "
        var<immediate> steps: u32;
        @group(0) @binding(0) var<storage, read_write> next: atomic<u32>;
        @group(0) @binding(1) var<storage, read_write> sum: array<u32>;
        @compute @workgroup_size(1) fn main() {
            var x = 0u;
            for (var i = 0u; i < steps; i++) { let ticket = atomicAdd(&next, 1u); if ticket == i { x += ticket; } }
            sum[0] = x;
        }";
    run(&options(), |bench| {
        let tickets = bench.kernel("tickets", TICKETS);
        bench.upload(at(DATA, 0, 4), &words(&[0]));
        let both = [at(DATA, 0, 4), at(DATA, 256, 4)];
        bench.commands.dispatch(tickets, &both, &words(&[300_000]), Groups::Direct([1, 1, 1]));
        assert_eq!(bench.read_words(0, 1), [300_000]);
        assert_eq!(bench.read_words(256, 1), [(0..300_000).fold(0, u32::wrapping_add)]);
    });
}
