//! C in, C out: the only place with exported symbols. Checks, translates, guards; decides nothing.
//!
//! `include/forebay.h` is made from these files; `GROUPS` in `tests/header.rs` says in which order.

pub mod core;
pub mod pool;
pub mod resource;

pub mod cupy;
mod python;
pub mod torch;
