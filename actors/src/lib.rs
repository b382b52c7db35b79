//! The actor runtime of vkactor, without Vulkan.

mod actor;
pub mod bytes;
mod ending;
pub mod engine;
pub mod error;
pub mod handle;
pub mod host;
pub mod id;
pub mod kernel;
pub mod mailbox;
pub mod message;
mod meter;
pub mod port;
pub mod presence;
pub mod profile;
pub mod properties;
pub mod region;
pub mod registry;
pub mod reply;
pub mod server;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
pub mod tensor;
#[cfg(test)]
mod tests;
pub mod trace;
pub mod wait;
