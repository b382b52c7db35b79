//! The pure engine.
pub mod command;
pub mod memory;
