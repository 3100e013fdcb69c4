//! The streams that a device's pool knows: finding them, polling their fences, transferring memory between them.

pub(crate) mod live_peak;
pub(crate) mod ordered_arena;
pub(crate) mod polling;
pub(crate) mod registry;
pub(crate) mod transfer;
