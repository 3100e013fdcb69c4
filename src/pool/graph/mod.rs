//! Private pools: memory that belongs to captured graphs.
//!
//! A graph replays whenever its owner likes, so what was given out during its capture is reused within the
//! pool alone, never moved, lent or given back, until the pool is released. `private` has the pools, `routes` tells which
//! allocations go to one, `id` how they are named.

pub(crate) mod id;
pub(crate) mod private;
pub(crate) mod routes;
