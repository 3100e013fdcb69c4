//! Memory between real processes: on the host driver, and without any.

#[path = "../common/mod.rs"]
mod common;
mod exchange;
mod import;
mod memory;
mod process;
mod system;
