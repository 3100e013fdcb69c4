//! Statistics, snapshot and report of a pool.

pub(crate) mod snapshot;
pub(crate) mod stats;
pub(crate) mod text;
