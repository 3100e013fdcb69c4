//! Private pools: memory that belongs to captured graphs.
//!
//! A graph can be replayed at any time. So memory that its capture allocated is reused only within the private pool,
//! and never moved, transferred or given back until the pool is released. `private` has the pools, `routes` finds the
//! pool of an allocation, `id` builds their ids.

pub(crate) mod id;
pub(crate) mod private;
pub(crate) mod routes;
