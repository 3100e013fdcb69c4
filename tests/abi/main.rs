//! Everything at the C boundary, through the exported functions: what each call answers, right and wrong.
//!
//! Runs on the host driver, or on CUDA with `FOREBAY_TEST_DRIVER=cuda`. Data is written and read by work on streams.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one reason for all: the tests pass objects of their own, or the NULL and wrong addresses that they test"
)]
#![allow(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

#[path = "../kit/mod.rs"]
mod kit;

mod cuda_layer;
mod cupy;
mod errors;
mod limits;
mod memory;
mod plugins;
mod pools;
mod pressure;
mod private;
mod process;
mod snapshot;
mod stats;
mod streams;
mod threads;
mod torch;
mod try_calls;
