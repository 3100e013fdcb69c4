//! The pool: its life, its blocks, streams, limits and figures.

pub mod create;
pub mod host;
pub mod limits;
pub mod memory;
pub mod private;
pub mod snapshot;
pub mod stats;
pub mod streams;
pub mod try_memory;
