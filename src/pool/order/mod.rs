//! The order of work on streams: the events behind it, and frees without an event.
//!
//! Imports nothing else of the pool.

pub(crate) mod deferred;
pub(crate) mod event_pair;
pub(crate) mod fence;
pub(crate) mod gpu;
pub(crate) mod unfenced;
