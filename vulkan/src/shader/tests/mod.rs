//! Tests of translation: what is accepted, what comes out, and what is refused with which words.

mod loops;
mod spirv;
mod wgsl;

use std::io::Write;
use std::process::{Command, Stdio};

use vkactor_actors::error::{CompilationError, LaunchError};
use vkactor_actors::kernel::{KernelOptions, KernelSource};

use super::{Shader, ShaderCapabilities, ShaderLimits, ShaderTarget, translate};

/// A device that has everything.
fn rich() -> ShaderTarget {
    ShaderTarget {
        spirv: (1, 6),
        limits: ShaderLimits {
            max_bindings: 16,
            max_info_bytes: 256,
            max_shared_bytes: 32_768,
            max_units: 1024,
            max_dim: [1024, 1024, 64],
        },
        buffer_bounds_checks: false,
        loop_iterations_limited: false,
        capabilities: ShaderCapabilities {
            f16: true,
            f64: true,
            i64: true,
            i16: true,
            i8: true,
            subgroups: true,
            atomic_float: true,
            buffer_addresses: true,
            matrix: true,
            zero_workgroup: true,
        },
    }
}

/// A device that has only what Vulkan 1.1 demands.
fn poor() -> ShaderTarget {
    ShaderTarget { spirv: (1, 3), capabilities: ShaderCapabilities::default(), ..rich() }
}

fn spirv_source(words: &[u32], entry: &str) -> KernelSource {
    KernelSource::Spirv { words: words.into(), entry: entry.to_owned().into() }
}

/// The words of a [`CompilationError::Source`].
fn reason(result: Result<Shader, LaunchError>) -> String {
    match result {
        Err(LaunchError::Compilation(CompilationError::Source { kernel, reason })) => {
            assert_eq!(kernel, "k");
            reason
        }
        other => panic!("expected wrong source: {other:?}"),
    }
}

/// The words of a [`CompilationError::Unsupported`].
fn lacks(result: Result<Shader, LaunchError>) -> String {
    match result {
        Err(LaunchError::Compilation(CompilationError::Unsupported { kernel, feature })) => {
            assert_eq!(kernel, "k");
            feature
        }
        other => panic!("expected a missing feature: {other:?}"),
    }
}

/// Resource, request and limit of a [`LaunchError::TooManyResources`].
fn exceeds(result: Result<Shader, LaunchError>) -> (String, u64, u64) {
    match result {
        Err(LaunchError::TooManyResources { kernel, resource, requested, limit }) => {
            assert_eq!(kernel, "k");
            (resource, requested, limit)
        }
        other => panic!("expected an exceeded limit: {other:?}"),
    }
}

/// Runs `spirv-val`, where it is installed.
fn validate(words: &[u32], spirv: (u8, u8)) {
    let environment = if spirv >= (1, 6) { "vulkan1.3" } else { "vulkan1.1" };
    let mut command = Command::new("spirv-val");
    command.args(["--target-env", environment, "--scalar-block-layout", "-"]);
    let Ok(mut child) = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() else {
        return;
    };
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut stdin = child.stdin.take().expect("stdin was piped");
    stdin.write_all(&bytes).expect("the validator reads its input");
    drop(stdin);
    let output = child.wait_with_output().expect("the validator ends");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn host_closures_are_refused() {
    let source = KernelSource::Host(std::sync::Arc::new(|_, _, _| {}));
    let result = translate("k", source, &KernelOptions::default(), &rich());
    assert!(lacks(result).contains("host closures"));
}
