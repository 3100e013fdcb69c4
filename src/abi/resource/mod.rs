//! Memory resources, buffers, DLPack, and sharing between processes.

pub mod buffer;
pub mod create;
pub mod dlpack;
pub mod ipc;
pub mod object;
pub mod options;
