//! The whole fast path: the cache of freed blocks of a stream, the thread cache, the lock, malloc and free.
//!
//! Imports `order/` and nothing of a device's pool: a refill is passed in as a function.

pub(crate) mod fast;
pub(crate) mod lock;
pub(crate) mod stream;
pub(crate) mod stream_cache;
pub(crate) mod stream_fences;
pub(crate) mod thread_cache;
