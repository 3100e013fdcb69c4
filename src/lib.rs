//! Forebay: one GPU memory pool that every framework in a process shares.
//!
//! The public interface is the C ABI, `include/forebay.h`, which is made from `src/abi`. All Rust modules are internal:
//! they are `pub` for the tests, tools and benchmarks of this repository, hidden here, and may change at any time.
//!
//! Calls go down only, and modules form no circle: `tests/architecture.rs` fails on violations.
//!
//! ```text
//!   torch  cupy  numba  cuda.core  C/C++
//!       \    |     |       |      /
//!        v   v     v       v     v
//!   abi        the C ABI: checks and translates, decides nothing
//!    |
//!    v
//!   resource   memory resources; buffers; sharing between processes
//!    v
//!   pool       one process's pool: the fast path, fences, the slow path, graphs, reports
//!    v
//!   arena, policy, block      the algorithm, the decisions, the table: pure
//!   driver     cuda (through cudarc) or host (RAM)
//! ```

#[doc(hidden)]
pub mod abi;
#[doc(hidden)]
pub mod arena;
#[doc(hidden)]
pub mod block;
mod cpu;
#[doc(hidden)]
pub mod driver;
#[doc(hidden)]
pub mod error;
#[doc(hidden)]
pub mod log;
mod policy;
#[doc(hidden)]
pub mod pool;
#[cfg(test)]
#[path = "../tests/kit/random.rs"]
mod random;
#[doc(hidden)]
pub mod resource;
mod ticket;
#[doc(hidden)]
pub mod units;
