//! CuPy's hooks.

pub mod allocator;
pub mod hooks;
pub mod pool;
