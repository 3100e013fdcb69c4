//! PyTorch's hooks, and queries of Forebay's allocator class for PyTorch.

pub mod allocator;
pub mod blocks;
pub mod pools;
