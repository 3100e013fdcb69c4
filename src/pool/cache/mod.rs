//! The fast path, whole: a stream's cache of freed blocks, the thread's index of streams, the lock, a malloc and a free.
//!
//! Knows the order of work (`order/`) and nothing of a device's pool: what a cache lacks is handed to it.

pub(crate) mod fast;
pub(crate) mod lock;
pub(crate) mod stream;
pub(crate) mod stream_cache;
pub(crate) mod stream_fences;
pub(crate) mod thread_cache;
