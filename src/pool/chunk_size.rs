//! How large the chunks are that a pool takes.
//!
//! A live block pins every chunk that it lies in, so what is lost is lost at the borders of live blocks, and the more, the larger
//! the chunks are there. But each costs the driver 37 µs, whatever its size. So chunks are small where that loses most: in small pools,
//! for short needs, and at the end of a run, where the next block will begin.
//!
//! The figures are from replaying real traces, and the same traces with every size scaled by 0.7 to 1.5 (`docs/performance.md`).

use super::arena::Arena;

/// The last part of a run: the next block there may be somewhat shorter, and where it would end, chunks are small again.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// One part in so many of the run.
    pub share: u64,
    /// Pages of the largest chunk there.
    pub largest: u64,
}

/// A pool is cut into at least so many chunks, a long need into at least eight.
const CHUNKS_IN_POOL: u64 = 512;
const CHUNKS_IN_NEED: u64 = 8;
/// Pages of the largest chunk that is chosen without being asked for, but for the longest needs.
const LARGEST_CHUNK: u64 = 16;

/// Below so many pages, 8 GiB, what one block pins of a chunk counts for more than the price of chunks, but for needs so long, 512 MiB,
/// that small chunks would cost milliseconds.
const SMALL_POOL: u64 = 4096;
const LARGEST_IN_SMALL_POOL: u64 = 2;
const LONG_NEED: u64 = 256;
/// Below 4.5 GiB it counts for most: chunks of one page, where the caller has time for them.
const TINY_POOL: u64 = 2304;

/// Where a pool gets to 36 GiB, needs of 1 GiB are cut into chunks of 64 MiB: few blocks, few borders.
const POOL_OF_LONG_BLOCKS: u64 = 18432;
const LONGEST_NEED: u64 = 512;
const LARGEST_OF_ALL: u64 = 32;

const END: End = End { share: 4, largest: 2 };
/// From so many pages on, 20 GiB, what the end of a run may lose is little of the pool.
const LARGE_POOL: u64 = 10240;
const END_IN_LARGE_POOL: End = End { share: 16, largest: 16 };

impl Arena {
    /// Pages of the largest chunk worth creating for `needed` pages.
    pub(super) fn chunk_pages(&self, needed: u64) -> u64 {
        if self.options.max_chunk_pages > 0 {
            return self.options.max_chunk_pages;
        }
        let pool = self.chunks.mapped + needed;
        let largest = match needed {
            ..LONG_NEED if pool < TINY_POOL && self.many_chunks => 1,
            ..LONG_NEED if pool < SMALL_POOL => LARGEST_IN_SMALL_POOL,
            LONGEST_NEED.. if pool >= POOL_OF_LONG_BLOCKS => return LARGEST_OF_ALL,
            _ => LARGEST_CHUNK,
        };
        let wanted = (self.chunks.mapped / CHUNKS_IN_POOL).max(needed / CHUNKS_IN_NEED);
        1 << wanted.clamp(1, largest).ilog2()
    }

    /// How a run ends that is created now.
    pub(super) fn end_of_run(&self) -> End {
        if self.chunks.mapped < LARGE_POOL { END } else { END_IN_LARGE_POOL }
    }
}
