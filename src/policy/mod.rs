//! What to do next, how large a chunk, how much time: pure decisions, without a lock and without a driver.

pub mod growth;
pub mod time_budget;
