//! The order of work on streams: events behind it, and what is freed without one.
//!
//! Imports nothing else of the pool.

pub(crate) mod deferred;
pub(crate) mod event_pair;
pub(crate) mod fence;
pub(crate) mod gpu;
pub(crate) mod unfenced;
