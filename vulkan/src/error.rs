//! What Vulkan's results mean to the runtime.

use ash::vk;
use vkactor_actors::error::{ComputeError, ServerError};
use vkactor_actors::port::DeviceError;

/// What the driver said, in words.
pub(crate) fn describe(result: vk::Result) -> String {
    match result {
        vk::Result::ERROR_OUT_OF_HOST_MEMORY => "out of host memory".into(),
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => "out of device memory".into(),
        vk::Result::ERROR_INITIALIZATION_FAILED => "the driver did not start".into(),
        vk::Result::ERROR_DEVICE_LOST => "the driver reports the device as lost".into(),
        vk::Result::ERROR_MEMORY_MAP_FAILED => "memory could not be mapped".into(),
        vk::Result::ERROR_LAYER_NOT_PRESENT => "a layer is not installed".into(),
        vk::Result::ERROR_EXTENSION_NOT_PRESENT => "an extension is missing".into(),
        vk::Result::ERROR_FEATURE_NOT_PRESENT => "a feature is missing".into(),
        vk::Result::ERROR_INCOMPATIBLE_DRIVER => "no driver fits the loader".into(),
        vk::Result::ERROR_TOO_MANY_OBJECTS => "too many objects".into(),
        other => format!("{other:?}"),
    }
}

/// The error of taking memory or making an object.
pub(crate) fn device_error(result: vk::Result, doing: &str) -> DeviceError {
    match result {
        vk::Result::ERROR_OUT_OF_HOST_MEMORY
        | vk::Result::ERROR_OUT_OF_DEVICE_MEMORY
        | vk::Result::ERROR_TOO_MANY_OBJECTS => DeviceError::OutOfMemory,
        other => DeviceError::Lost(format!("{doing}: {}", describe(other))),
    }
}

/// The error of opening a device.
pub(crate) fn open_error(doing: &str, reason: impl std::fmt::Display) -> ComputeError {
    ServerError::Generic { reason: format!("{doing}: {reason}") }.into()
}
