//! One device's pool: its state, the slow path, reclaim, memory under pressure.
//!
//! `device_pool` composes the parts; the functions in the other files take the parts that they need.
//!
//! Lock order: the state (the arena), the list of streams, one stream's cache, the live peak. The fast path locks only
//! a stream's cache. A refill holds a stream's cache, so it only tries the state's lock and never waits for it. No code
//! waits for the GPU under the state's lock.

pub(crate) mod backing;
pub(crate) mod captures;
pub(crate) mod chunks;
pub(crate) mod device_pool;
pub(crate) mod export;
pub(crate) mod free;
pub(crate) mod malloc;
pub(crate) mod need;
pub(crate) mod observer;
pub(crate) mod peers;
pub(crate) mod pressure;
pub(crate) mod reclaim;
pub(crate) mod scavenger;
pub(crate) mod slow_path;
pub(crate) mod state;
pub(crate) mod trim;
