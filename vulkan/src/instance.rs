//! The loader and the process's Vulkan instances: one with the validation layer, one without.

use crate::error::{describe, open_error};
use crate::messages;
use ash::{ext, khr, vk};
use std::ffi::CStr;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use vkactor_actors::error::ComputeError;

const VALIDATION_LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";
/// The newest version whose rules the runtime follows.
const API: u32 = vk::API_VERSION_1_3;
/// The oldest loader and device that do.
const API_MIN: u32 = vk::API_VERSION_1_2;

/// Without and with validation. They live as long as the process: some drivers do not survive the end of their
/// instance while another thread is still inside them.
static INSTANCES: Mutex<[Option<Arc<Instance>>; 2]> = Mutex::new([None, None]);

/// A Vulkan instance. It outlives every device made from it (V1).
pub(crate) struct Instance {
    pub(crate) raw: ash::Instance,
    messenger: Option<(ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
    /// The loader's library, which must stay while anything of it is called; dropped last.
    entry: ash::Entry,
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance").field("validation", &self.messenger.is_some()).finish_non_exhaustive()
    }
}

/// The process's instance. A failure is not kept: the next call tries again.
///
/// # Errors
/// [`ComputeError::NoLoader`] and [`ComputeError::NoDevice`] say what to install.
pub(crate) fn instance(validation: bool) -> Result<Arc<Instance>, ComputeError> {
    let mut instances = INSTANCES.lock().unwrap_or_else(PoisonError::into_inner);
    let place = &mut instances[usize::from(validation)];
    if let Some(instance) = place {
        return Ok(instance.clone());
    }
    let instance = Arc::new(Instance::new(validation)?);
    *place = Some(instance.clone());
    Ok(instance)
}

impl Instance {
    fn new(validation: bool) -> Result<Self, ComputeError> {
        let no_loader = |reason: String| {
            ComputeError::NoLoader(format!(
                "{reason}; install a Vulkan loader and driver, such as the packages libvulkan1 and \
                 mesa-vulkan-drivers"
            ))
        };
        // SAFETY: loading runs the initialisers of the system's Vulkan loader, which has to be trusted to have
        // none that harm; nothing else of it is called before.
        let entry = unsafe { ash::Entry::load() }.map_err(|e| no_loader(e.to_string()))?;
        // SAFETY: a global call with no preconditions.
        let version = unsafe { entry.try_enumerate_instance_version() };
        let version = version.map_err(|e| no_loader(describe(e)))?.unwrap_or(vk::API_VERSION_1_0);
        if version < API_MIN {
            let (major, minor) = (vk::api_version_major(version), vk::api_version_minor(version));
            return Err(no_loader(format!("the loader knows Vulkan {major}.{minor}, at least 1.2 is needed")));
        }
        let validate = validation && has_layer(&entry);
        if validation && !validate {
            tracing::warn!("the validation layer is not installed; going on without (package vulkan-validationlayers)");
        }
        let raw = create(&entry, validate)?;
        let mut instance = Self { raw, messenger: None, entry };
        if validate {
            instance.messenger = Some(instance.listen()?);
        }
        Ok(instance)
    }

    fn listen(&self) -> Result<(ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT), ComputeError> {
        let api = ext::debug_utils::Instance::new(&self.entry, &self.raw);
        // SAFETY: V6: `create` enabled the extension when it enabled the layer. V5: the structure outlives the call.
        let messenger = unsafe { api.create_debug_utils_messenger(&messages::messenger(), None) };
        let messenger = messenger.map_err(|e| open_error("starting validation", describe(e)))?;
        Ok((api, messenger))
    }

    /// The loader's functions.
    pub(crate) fn entry(&self) -> &ash::Entry {
        &self.entry
    }

    /// The driver's devices, in its order.
    pub(crate) fn physical_devices(&self) -> Result<Vec<vk::PhysicalDevice>, ComputeError> {
        // SAFETY: V1: the instance is alive.
        unsafe { self.raw.enumerate_physical_devices() }.map_err(|e| match e {
            vk::Result::ERROR_INITIALIZATION_FAILED => no_device(describe(e)),
            other => open_error("listing devices", describe(other)),
        })
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some((api, messenger)) = self.messenger.take() {
            // SAFETY: made by `listen` from this instance, and destroyed here only.
            unsafe { api.destroy_debug_utils_messenger(messenger, None) };
        }
        // SAFETY: V1: every device holds the instance, so none is left.
        unsafe { self.raw.destroy_instance(None) };
    }
}

/// The error of a system without a usable device.
pub(crate) fn no_device(reason: String) -> ComputeError {
    ComputeError::NoDevice(format!("{reason}; install a driver, such as the package mesa-vulkan-drivers"))
}

fn has_layer(entry: &ash::Entry) -> bool {
    // SAFETY: a global call with no preconditions.
    let layers = unsafe { entry.enumerate_instance_layer_properties() }.unwrap_or_default();
    layers.iter().any(|layer| layer.layer_name_as_c_str() == Ok(VALIDATION_LAYER))
}

fn create(entry: &ash::Entry, validate: bool) -> Result<ash::Instance, ComputeError> {
    let application =
        vk::ApplicationInfo::default().engine_name(c"vkactor").application_name(c"vkactor").api_version(API);
    // SAFETY: a global call with no preconditions.
    let present = unsafe { entry.enumerate_instance_extension_properties(None) }.unwrap_or_default();
    let portable = present.iter().any(|e| e.extension_name_as_c_str() == Ok(khr::portability_enumeration::NAME));
    let mut extensions = Vec::new();
    let mut flags = vk::InstanceCreateFlags::empty();
    if portable {
        extensions.push(khr::portability_enumeration::NAME.as_ptr());
        flags |= vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR;
    }
    let mut layers = Vec::new();
    if validate {
        extensions.push(ext::debug_utils::NAME.as_ptr());
        layers.push(VALIDATION_LAYER.as_ptr());
    }
    // Messages about making and destroying the instance itself.
    let mut messenger = messages::messenger();
    let mut create = vk::InstanceCreateInfo::default()
        .application_info(&application)
        .enabled_extension_names(&extensions)
        .enabled_layer_names(&layers)
        .flags(flags);
    if validate {
        create = create.push_next(&mut messenger);
    }
    // SAFETY: V5: all that `create` points to is in this function. V6: the extensions and the layer were listed.
    unsafe { entry.create_instance(&create, None) }.map_err(|e| match e {
        vk::Result::ERROR_INCOMPATIBLE_DRIVER => no_device(describe(e)),
        other => open_error("making a Vulkan instance", describe(other)),
    })
}
