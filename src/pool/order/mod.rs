//! The order of work on streams: fences, and what is freed without one.

pub(crate) mod event_pair;
pub(crate) mod fence;
pub(crate) mod unfenced;
