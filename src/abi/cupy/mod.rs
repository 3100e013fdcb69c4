//! CuPy's hooks: functions for its C function allocator, its memory hooks, and pools on memory resources.

pub mod allocator;
pub mod hooks;
pub mod pool;
