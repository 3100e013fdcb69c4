//! What the test programs share, by idea.
//!
//! | file | what it has |
//! |---|---|
//! | `abi` | the C ABI of pools, called from Rust: statuses, pools, blocks, streams |
//! | `resources` | the C ABI of resources and buffers |
//! | `driver` | host drivers with a given clock and capacity |
//! | `exports` | memory for other processes, and descriptors of nothing |
//! | `memory` | what a block holds, and how long it is |
//! | `pool` | pools on host drivers |
//! | `process` | this test program again, in a process of its own |
//! | `programs` | programs in C and Python, against the built library |
//! | `random` | numbers for generated programs; `src/` has them too |
//! | `standin` | a libcuda on RAM, or one that lacks functions |
//! | `streams` | reads that come late, and writes that come early |
//!
//! What one test program alone can use, since it knows the tests there, stays with it.

#![allow(dead_code, reason = "each test program uses its own part")]
#![allow(clippy::unwrap_used, reason = "in a test's helpers, too, a panic is the report")]

pub mod abi;
pub mod driver;
pub mod exports;
pub mod memory;
pub mod pool;
pub mod process;
pub mod programs;
pub mod random;
pub mod resources;
pub mod standin;
pub mod streams;
