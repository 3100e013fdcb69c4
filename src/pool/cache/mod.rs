//! The fast path: a stream's cache of freed blocks, the thread's index of streams, the lock of a cache.

pub(crate) mod hit;
pub(crate) mod lock;
pub(crate) mod quick;
pub(crate) mod stream;
pub(crate) mod stream_cache;
pub(crate) mod thread_cache;
