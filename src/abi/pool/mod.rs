//! The pool: creation, blocks, streams, limits, statistics and private pools.

pub mod create;
pub mod host;
pub mod limits;
pub mod memory;
pub mod private;
pub mod snapshot;
pub mod stats;
pub mod streams;
pub mod try_memory;
