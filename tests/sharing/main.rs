//! Memory between real processes: on the host driver, and without any.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one reason for all: system calls on locals, and words in memory that the test has mapped"
)]
#![allow(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

mod exchange;
mod import;
#[path = "../kit/mod.rs"]
mod kit;
mod process;
mod system;
