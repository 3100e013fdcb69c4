//! C in, C out: the only place with exported symbols. Checks, translates, guards; decides nothing.
//!
//! `include/forebay.h` is made from these files, in this order.

pub mod guard;
pub mod handle;
pub mod status;
pub mod version;
pub mod pool;
pub mod memory;
pub mod limits;
pub mod stats;
pub mod streams;
pub mod private;
pub mod torch;
pub mod cupy;
mod cxx;
mod python;
