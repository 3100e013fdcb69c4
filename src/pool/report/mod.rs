//! What the pool says of itself: statistics, a snapshot, a report.

pub(crate) mod snapshot;
pub(crate) mod stats;
pub(crate) mod text;
