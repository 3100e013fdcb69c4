//! The C ABI, the only place with exported symbols. It checks and translates arguments, catches panics, and decides
//! nothing.
//!
//! `include/forebay.h` is made from these files; `GROUPS` in `tests/header.rs` gives their order.

pub mod core;
pub mod pool;
pub mod resource;

pub mod cupy;
mod python;
pub mod torch;
