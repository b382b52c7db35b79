//! The check of a kernel against the limits of the device.

use vkactor_actors::error::LaunchError;

use super::ShaderLimits;

/// What a kernel asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needs {
    /// Buffers.
    pub(super) bindings: usize,
    /// Parameter block with addresses.
    pub(super) block_bytes: u64,
    /// Workgroup memory.
    pub(super) shared_bytes: u64,
    /// Invocations of a workgroup in x, y and z.
    pub(super) workgroup: [u32; 3],
}

impl ShaderLimits {
    /// Checks all that `kernel` needs.
    pub(super) fn check(&self, kernel: &str, needs: &Needs) -> Result<(), LaunchError> {
        self.check_workgroup(kernel, needs.workgroup)?;
        within(kernel, "buffers of one launch", needs.bindings as u64, self.max_bindings)?;
        within(kernel, "bytes of the parameter block", needs.block_bytes, self.max_info_bytes)?;
        within(kernel, "bytes of workgroup memory", needs.shared_bytes, self.max_shared_bytes)
    }

    /// Checks the size of a workgroup.
    pub(super) fn check_workgroup(&self, kernel: &str, size: [u32; 3]) -> Result<(), LaunchError> {
        // Three factors of 32 bits overflow 64.
        let units = size.iter().fold(1u64, |product, &n| product.saturating_mul(n.into()));
        within(kernel, "invocations of a workgroup", units, self.max_units)?;
        let axes =
            ["invocations of a workgroup in x", "invocations of a workgroup in y", "invocations of a workgroup in z"];
        for (axis, resource) in axes.into_iter().enumerate() {
            within(kernel, resource, size[axis].into(), self.max_dim[axis])?;
        }
        Ok(())
    }
}

/// Checks one number.
pub(super) fn within(kernel: &str, resource: &str, requested: u64, limit: u32) -> Result<(), LaunchError> {
    let limit = u64::from(limit);
    if requested <= limit {
        return Ok(());
    }
    Err(LaunchError::TooManyResources { kernel: kernel.to_owned(), resource: resource.to_owned(), requested, limit })
}
