//! Decisions of the slow path: the next step, the size of a chunk, the time budget. Pure: no lock, no driver, no clock.
//!
//! `next` chooses the next step, `chunk` the size of a new chunk, `budget` the time that steps may cost; `history`
//! records what the pool needed. All constants of these decisions are in this folder: each is a cost, a fraction or a
//! bound, with its reason.

pub(crate) mod budget;
pub(crate) mod chunk;
pub(crate) mod history;
pub(crate) mod next;
