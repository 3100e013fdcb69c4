//! Forebay: one GPU memory pool that every framework in a process shares.
//!
//! Calls go down only, and modules form no circle: `tests/architecture.rs` fails on what breaks this.
//!
//! ```text
//!   torch  cupy  numba  cuda.core  C/C++
//!       \    |     |       |      /
//!        v   v     v       v     v
//!   abi        C in, C out; checks and translates, decides nothing
//!    |
//!    v
//!   resource   what implements a memory resource; buffers; sharing between processes
//!    v
//!   pool       one process's pool: the fast path, fences, the slow path, graphs, reports
//!    v
//!   arena, policy, block      the algorithm, the decisions, the table: pure
//!   driver     cuda (through cudarc) or host (RAM)
//! ```
//!
//! C programs use `include/forebay.h`, which is made from [`abi`]. Rust programs can use [`pool::Pool`].

pub mod abi;
pub mod arena;
pub mod block;
mod cpu;
pub mod driver;
pub mod error;
pub mod log;
mod policy;
pub mod pool;
#[cfg(test)]
#[path = "../tests/kit/random.rs"]
mod random;
pub mod resource;
mod ticket;
pub mod units;
