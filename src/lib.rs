//! Forebay: one GPU memory pool that every framework in a process shares.
//!
//! Calls go down only; `tests/architecture.rs` fails on one that goes up.
//!
//! ```text
//!   torch  cupy  numba  cuda.core  C/C++
//!       \    |     |       |      /
//!        v   v     v       v     v
//!   abi        C in, C out; checks and translates, decides nothing
//!    |
//!    v
//!   resource   the shared pool: locks, limits, fences, the out-of-memory ladder
//!    v
//!   pool       the algorithm: integers in, integers out
//!    v
//!   driver     cuda (through cudarc) or host (RAM)
//! ```
//!
//! C programs use `include/forebay.h`, which is made from [`abi`]. Rust programs can use [`resource::Pool`].

pub mod abi;
mod cpu;
pub mod driver;
pub mod pool;
pub mod resource;
pub mod units;
