//! The streams that a device's pool knows: finding them, polling their fences, moving memory from one to another.

pub(crate) mod live_peak;
pub(crate) mod ordered_arena;
pub(crate) mod polling;
pub(crate) mod registry;
pub(crate) mod transfer;
