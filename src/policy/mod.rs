//! What the slow path does next, how large a chunk, how much time: pure decisions, without a lock, a driver or a clock.
//!
//! `next` says what to do, `chunk` how large a new chunk is, `budget` what all of it may cost, `history` what was seen of the
//! pool's need. Every constant of these decisions is in this folder: each is a cost, a fraction or a bound, with its reason.

pub(crate) mod budget;
pub(crate) mod chunk;
pub(crate) mod history;
pub(crate) mod next;
