//! The Vulkan device of vkactor: everything that calls the driver, and the only unsafe code of the project.
//!
//! [`list`] finds devices, [`Vulkan`] opens one, and its actor drives it through the port of `vkactor-actors`. The
//! way of a command is `port` → `recorder` → `queue` → the device → `watcher` → an event in the actor's mailbox.
//!
//! # What keeps it sound
//! Each unsafe block says which of these it rests on:
//!
//! - **V1** A parent outlives its children: every owner holds an `Arc` of the device, and fields drop in the order
//!   written.
//! - **V2** What Vulkan wants synchronised by its user is reached through `&mut`, or belongs to the thread of the
//!   device.
//! - **V3** What a pending submission names is neither destroyed nor reset.
//! - **V4** The host touches a mapped range only when no pending submission may, of any device that reaches it.
//! - **V5** What a structure points to outlives the call: both are made in one function.
//! - **V6** A feature or an extension is used only where the plan has enabled it.
//! - **V7** Ids lead to living objects: the engine resolves them before it makes a command.
//! - **V8** Ranges lie inside their pages: the engine checks, the recorder asserts.
#![expect(unsafe_code, reason = "calling Vulkan is the purpose of this crate")]

mod binding;
mod cache;
mod calibration;
mod command_pool;
mod compiler;
mod counts;
mod device;
mod error;
mod exit;
mod extensions;
mod features;
mod graph;
mod host_memory;
mod info;
mod instance;
mod inventory;
mod messages;
mod page;
mod pipeline;
mod plan;
mod port;
mod properties;
mod query;
mod queue;
mod recorder;
mod retire;
mod server;
mod shader;
mod snapshot;
mod stages;
mod timeline;
mod watcher;

pub use compiler::VulkanCompiler;
pub use host_memory::lend;
pub use info::{DeviceInfo, DeviceKind, Listing, RefusedDevice};
pub use inventory::{DeviceInventory, MemoryHeap, QueueFamily};
pub use messages::{validation_error_count, validation_errors};
pub use pipeline::Pipeline;
pub use port::VulkanDevice;
pub use server::{VULKAN_TYPE, Vulkan, VulkanOptions, VulkanResource, VulkanStorage, inventory, list, listing};
