//! C in, C out: the only place with exported symbols. Checks, translates, guards; decides nothing.
//!
//! `include/forebay.h` is made from these files, in this order.

pub mod buffer;
pub mod choices;
pub mod cupy;
pub mod cupy_hooks;
pub mod cupy_pool;
mod cxx;
pub mod dlpack;
pub mod guard;
pub mod handle;
pub mod host;
pub mod ipc;
pub mod limits;
pub mod log;
pub mod memory;
pub mod memory_at_once;
pub mod pool;
pub mod private;
mod python;
mod python_thread;
pub mod resource;
pub mod resource_create;
pub mod resource_options;
pub mod snapshot;
pub mod stats;
pub mod status;
pub mod streams;
pub mod torch;
pub mod torch_blocks;
pub mod torch_pools;
pub mod version;
mod versioned;
