//! Closures as programs of a device.

use crate::error::LaunchError;
use crate::kernel::{BufferAccess, HostFn, KernelOptions, KernelSource};
use crate::port::{Compiled, Compiler, Reflection, unsupported};
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A closure that a device made of host memory runs.
#[derive(Clone)]
pub struct Program {
    name: String,
    run: HostFn,
    accesses: Option<Vec<BufferAccess>>,
}

impl Program {
    /// Runs the closure, unless there are no groups.
    ///
    /// # Errors
    /// What the closure panicked with.
    pub(crate) fn call(&self, groups: [u32; 3], buffers: &mut [&mut [u8]], info: &[u8]) -> Result<(), String> {
        if groups.contains(&0) {
            return Ok(());
        }
        // Unwind safe: what the closure left half done is in the buffers, which the failure spoils.
        let run = AssertUnwindSafe(|| (self.run)(groups, buffers, info));
        catch_unwind(run).map_err(|payload| format!("{} panicked: {}", self.name, panic_text(&*payload)))
    }

    /// What the closure does to its buffer of this index, as far as it was told.
    pub(crate) fn access(&self, index: usize) -> BufferAccess {
        let declared = self.accesses.as_ref().and_then(|accesses| accesses.get(index));
        declared.copied().unwrap_or(BufferAccess::ReadWrite)
    }

    /// What errors call it.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("name", &self.name).field("accesses", &self.accesses).finish_non_exhaustive()
    }
}

/// What a panic said.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let literal = payload.downcast_ref::<&str>().copied();
    literal.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

/// Takes closures and refuses code.
///
/// [`KernelOptions::addresses`] says what a closure does to each of its buffers; without it a closure takes any
/// number of buffers and may do anything to them.
#[derive(Debug, Default)]
pub struct HostCompiler {}

impl Compiler for HostCompiler {
    type Pipeline = Program;

    fn compile(
        &self,
        kernel: &str,
        source: KernelSource,
        options: &KernelOptions,
    ) -> Result<Compiled<Program>, LaunchError> {
        match source {
            KernelSource::Host(run) => {
                let accesses = options.addresses.clone();
                let reflection = Reflection { buffers: accesses.clone(), measured: Vec::new(), info_bytes: None };
                Ok(Compiled { pipeline: Program { name: kernel.to_owned(), run, accesses }, reflection })
            }
            KernelSource::Wgsl { .. } => Err(unsupported(kernel, "a compiler for WGSL")),
            KernelSource::Spirv { .. } => Err(unsupported(kernel, "a compiler for SPIR-V")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::CompilationError;
    use crate::kernel::{CubeKernel, HostKernel, SpirvKernel, WgslKernel};
    use crate::properties::TargetProperties;
    use std::collections::BTreeSet;

    fn compile(kernel: &dyn CubeKernel, options: &KernelOptions) -> Result<Compiled<Program>, LaunchError> {
        let target = TargetProperties { spirv: (1, 0), subgroup_size: 1, bounds_check: true, types: BTreeSet::new() };
        HostCompiler::default().compile(kernel.name(), kernel.source(&target).unwrap(), options)
    }

    #[test]
    fn closures_take_any_buffers_unless_their_accesses_are_declared() {
        let kernel = HostKernel::new("k", |_, _: &mut [&mut [u8]], _: &[u8]| {});
        let plain = compile(&kernel, &KernelOptions::default()).unwrap();
        assert_eq!(plain.reflection, Reflection { buffers: None, measured: Vec::new(), info_bytes: None });
        assert_eq!(plain.pipeline.access(7), BufferAccess::ReadWrite);
        let accesses = Some(vec![BufferAccess::Read, BufferAccess::Write]);
        let declared = compile(&kernel, &KernelOptions { addresses: accesses.clone(), ..Default::default() }).unwrap();
        assert_eq!(declared.reflection.buffers, accesses);
        assert_eq!(declared.pipeline.access(1), BufferAccess::Write);
    }

    #[test]
    fn code_is_refused_by_name() {
        for kernel in [&WgslKernel::new("w", "") as &dyn CubeKernel, &SpirvKernel::new("s", vec![0u32])] {
            let refusal = compile(kernel, &KernelOptions::default()).unwrap_err();
            assert!(
                matches!(&refusal, LaunchError::Compilation(CompilationError::Unsupported { kernel: k, .. })
                    if k == kernel.name()),
                "{refusal}"
            );
        }
    }

    #[test]
    fn a_panic_is_told_with_its_text() {
        let literal = HostKernel::new("k", |_, _: &mut [&mut [u8]], _: &[u8]| panic!("plain"));
        let written = HostKernel::new("k", |_, _: &mut [&mut [u8]], info: &[u8]| panic!("with {}", info.len()));
        let other = HostKernel::new("k", |_, _: &mut [&mut [u8]], _: &[u8]| std::panic::panic_any(5));
        let reason = |kernel: &HostKernel, groups| {
            compile(kernel, &KernelOptions::default()).unwrap().pipeline.call(groups, &mut [], &[0, 0])
        };
        assert_eq!(reason(&literal, [1, 1, 1]).unwrap_err(), "k panicked: plain");
        assert_eq!(reason(&written, [1, 1, 1]).unwrap_err(), "k panicked: with 2");
        assert_eq!(reason(&other, [1, 1, 1]).unwrap_err(), "k panicked: no text");
        assert_eq!(reason(&literal, [1, 0, 1]), Ok(()), "nothing runs for no groups");
    }
}
