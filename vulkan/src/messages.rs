//! What the validation layer says: counted, kept for the curious, and passed on as traces.

use ash::vk;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Errors that are kept as text; later ones are counted only.
const KEPT_MAX: usize = 64;

static COUNT: AtomicU64 = AtomicU64::new(0);
static KEPT: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Errors that the validation layer has reported in this process.
pub fn validation_error_count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// The first of the errors that the validation layer has reported in this process, at most 64.
pub fn validation_errors() -> Vec<String> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// What makes a messenger of these functions.
pub(crate) fn messenger() -> vk::DebugUtilsMessengerCreateInfoEXT<'static> {
    use vk::DebugUtilsMessageSeverityFlagsEXT as Severity;
    use vk::DebugUtilsMessageTypeFlagsEXT as Kind;
    vk::DebugUtilsMessengerCreateInfoEXT::default()
        .message_severity(Severity::WARNING | Severity::ERROR)
        .message_type(Kind::GENERAL | Kind::VALIDATION | Kind::PERFORMANCE)
        .pfn_user_callback(Some(heard))
}

/// Called by the layer on whatever thread made the call that it finds wrong. It must not call Vulkan.
unsafe extern "system" fn heard(
    severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    kinds: vk::DebugUtilsMessageTypeFlagsEXT,
    message: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    _: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the layer passes a message that lives during the call.
    let text = unsafe { message.as_ref() }.map_or(std::ptr::null(), |m| m.p_message);
    let text = if text.is_null() {
        String::new()
    } else {
        // SAFETY: the text of a message ends with a zero byte, and lives during the call.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    };
    let error = severity.contains(vk::DebugUtilsMessageSeverityFlagsEXT::ERROR);
    // The loader reports drivers that it cannot open as general errors: those are no fault of ours.
    if error && kinds.contains(vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION) {
        tracing::error!(target: "vkactor::validation", "{text}");
        COUNT.fetch_add(1, Ordering::Relaxed);
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX {
            kept.push(text);
        }
    } else {
        tracing::warn!(target: "vkactor::validation", "{text}");
    }
    vk::FALSE
}
