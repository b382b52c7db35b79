//! The device extensions that the runtime uses where they are present.

use ash::{ext, khr};
use std::ffi::CStr;

/// Descriptors written straight into a command buffer.
pub(crate) const PUSH_DESCRIPTOR: &CStr = khr::push_descriptor::NAME;
/// Exact bounds, and bindings without a buffer.
pub(crate) const ROBUSTNESS2: &CStr = ext::robustness2::NAME;
/// Atomic addition on floats.
pub(crate) const ATOMIC_FLOAT: &CStr = ext::shader_atomic_float::NAME;
/// Matrix units.
pub(crate) const MATRIX: &CStr = khr::cooperative_matrix::NAME;
/// What a driver knows about a loss.
pub(crate) const FAULT: &CStr = ext::device_fault::NAME;
/// How much of each heap may be used.
pub(crate) const MEMORY_BUDGET: &CStr = ext::memory_budget::NAME;
/// The device's clock, read by the host.
pub(crate) const CALIBRATED: &CStr = ext::calibrated_timestamps::NAME;
/// The same by its later name.
pub(crate) const CALIBRATED_KHR: &CStr = khr::calibrated_timestamps::NAME;
/// Must be enabled where a device has it, as layered drivers do.
pub(crate) const PORTABILITY: &CStr = khr::portability_subset::NAME;

/// Memory of the host, as it lies.
pub(crate) const HOST_IMPORT: &CStr = ext::external_memory_host::NAME;

/// All of them.
pub(crate) const ALL: [&CStr; 10] = [
    PUSH_DESCRIPTOR,
    ROBUSTNESS2,
    ATOMIC_FLOAT,
    MATRIX,
    FAULT,
    MEMORY_BUDGET,
    CALIBRATED,
    CALIBRATED_KHR,
    PORTABILITY,
    HOST_IMPORT,
];
