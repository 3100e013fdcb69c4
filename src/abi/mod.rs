//! C in, C out: the only place with exported symbols. Checks, translates, guards; decides nothing.
//!
//! `include/forebay.h` is made from these files, in this order.

pub mod cupy;
mod cxx;
pub mod guard;
pub mod handle;
pub mod limits;
pub mod memory;
pub mod pool;
pub mod private;
mod python;
pub mod stats;
pub mod status;
pub mod streams;
pub mod torch;
pub mod version;
