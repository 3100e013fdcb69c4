//! PyTorch's hooks.

pub mod allocator;
pub mod blocks;
pub mod pools;
