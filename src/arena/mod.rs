//! The pool's algorithm: integers in, integers out. No CUDA, no locks, no `unsafe`.
//!
//! # Words
//!
//! - **granule**: 512 bytes, the unit of every offset and length here.
//! - **page**: the driver's granularity (2 MiB on current GPUs), the unit in which memory is mapped.
//! - **chunk**: one physical handle, one or more pages, mapped and unmapped whole.
//! - **arena**: one range of addresses per device, far larger than the device's memory. Offset 0 is its start.
//! - **block**: a span of the arena. Blocks cover the arena without gap or overlap.
//! - **owner**: the stream in whose order a free block may be reused, or a private pool's part for a stream; or none
//!   ([`IDLE`], unowned: every use is proven to be over).
//! - **epoch**: a count per owner; a fence that covers epoch `e` covers every free up to `e`.
//!
//! # Layout
//!
//! ```text
//!   chunk 7      chunk 3             chunk 9 (was here)      nothing mapped
//! |------------|--------------------|----------------------|--------------------- - - -
//! | live | free|   live  |  free    |      retiring        |        hole
//! |------|-----|---------|----------|----------------------|--------------------- - - -
//! ```
//!
//! A chunk that moves is mapped at its new place first. Its old place is **retiring** until the work that may still use
//! it is over; then it is unmapped and becomes a hole. Both mappings lead to the same memory, and the stream's order
//! keeps old and new uses apart, so no move waits for the GPU.
//!
//! # Equations ([`Arena::check`] verifies them)
//!
//! - live + free + retiring + hole = the arena, in address order, without gap.
//! - live + free = the pages of all chunks.
//! - Live and free blocks lie on mapped pages, holes on unmapped ones, retiring blocks on pages that a chunk left.
//! - No two neighbours can be merged: holes always merge, free blocks of one owner do unless a merge barrier lies
//!   between them.
//! - Each block is in exactly the index of its kind and owner.
//!
//! # Search order for an owner and a size ([`Arena::take`], then [`Arena::plan`])
//!
//! 1. Best fit among free blocks of the owner and of [`IDLE`]; ties go to the lowest address. Small requests take the
//!    owner's blocks first, then a piece of [`IDLE`] that becomes the owner's, so that owners do not share cache lines
//!    of the table.
//! 2. The run of free blocks and holes with the fewest missing pages, the tightest of several. It is filled with chunks
//!    that are wholly free, from the highest addresses down, the largest that fit first.
//! 3. New chunks for what is still missing, up to the size that the caller allows.
//!
//! Small and large requests have separate zones of the arena, so that no small block pins a page that a large one could
//! use.

#[expect(clippy::module_inception, reason = "the arena itself, beside its parts")]
mod arena;
mod check;
mod chunk;
mod commit;
mod free_blocks;
mod free_set;
#[cfg(test)]
mod kit;
mod merge_barrier;
#[cfg(test)]
mod model;
mod ownership;
mod page_index;
mod plan;
mod slab;
mod walk;

pub use arena::{Arena, ArenaOptions, Retired};
pub use check::Totals;
pub use chunk::ChunkId;
pub use commit::MappedChunk;
pub use plan::{Fill, Plan, Source};
pub use slab::{IDLE, Owner};
pub use walk::Span;
