//! Memory resources, buffers, tensors and sharing at the C boundary, through the exported functions.
//!
//! Runs on the host driver, or on CUDA with `FOREBAY_DRIVER=cuda` and `--test-threads=1`. Data is judged by copying it to
//! the program's memory behind the work that wrote it. What a driver lacks is said and left out.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one reason for all: the tests pass objects of their own, or the NULL and wrong addresses that they test"
)]
#![allow(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

#[path = "../kit/mod.rs"]
mod kit;

mod attributes;
mod buffers;
mod cuda_layer;
mod cupy_pool;
mod descriptors;
mod device;
mod dlpack;
mod host;
mod ipc;
mod managed;
mod misuse;
mod other;
mod own_pinned;
mod pinned;
mod pool_resource;
mod virtual_memory;
