//! One device's pool: its state, the slow path, reclaim, memory under pressure.
//!
//! `device_pool` is the composition; the other files are functions on the parts that they need. Locks, always taken in this order: the
//! state (the arena), then the list of streams, then one stream's cache, then the peak of what is live. The fast path takes a stream's cache
//! alone; a request that the cache cannot serve tries for the state under it, and never waits for it there. Nothing waits for the GPU
//! under the state's lock.

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
