//! How large the chunks are that a pool takes.
//!
//! A live block pins every chunk that it lies in, so what is lost is lost at the borders of live blocks, and the more, the larger
//! the chunks are there. But each costs the driver 37 µs, whatever its size. So chunks are small where that loses most: in small pools,
//! and towards the end of a run, where the block that comes next will end: each chunk fills at most half of what is left of its run.
//!
//! The figures are from replaying real traces, and the same traces with every size scaled by 0.8 to 1.3 (`docs/performance.md`).

use super::arena::Arena;

/// What the arena cannot know of its pool, when it plans.
#[derive(Clone, Copy, Debug)]
pub struct Chunking {
    /// Pages of the largest chunk for a short need in a tiny pool. `None` while the pool is being filled, say with weights: smaller chunks
    /// than others would not pay.
    pub tiny: Option<u64>,
    /// Pages that the pool may come to.
    pub most_pages: u64,
}

impl Default for Chunking {
    fn default() -> Self {
        Self { tiny: None, most_pages: u64::MAX }
    }
}

/// Pages of the largest chunk that is chosen without being asked for, but for the longest needs.
const LARGEST_CHUNK: u64 = 16;
/// The same in a pool below 20 GiB, where what one block pins counts for more than the price of chunks.
const LARGEST_IN_SMALL_POOL: u64 = 4;
const LARGE_POOL: u64 = 10240;
/// A long need is worth larger ones even there: small ones would cost milliseconds.
const CHUNKS_IN_NEED: u64 = 32;
/// A pool below 2 GiB is cut into so many at least. One with a limit counts as no larger than a quarter of it: every page that is pinned
/// there may be the one that is missing.
const CHUNKS_IN_POOL: u64 = 256;
const SHARE_OF_LIMIT: u64 = 4;

/// Below 8 GiB what is pinned counts for most, and needs below 512 MiB have chunks of a page or two, as the caller says.
const TINY_POOL: u64 = 4096;
const LONG_NEED: u64 = 256;

/// Where a pool gets to 36 GiB, needs of 1 GiB are cut into chunks of 64 MiB: few blocks, few borders.
const POOL_OF_LONG_BLOCKS: u64 = 18432;
const LONGEST_NEED: u64 = 512;
const LARGEST_OF_ALL: u64 = 32;

impl Arena {
    /// Pages of the next chunk worth creating, for a run of `run` pages of which `left` are still without any.
    pub(crate) fn chunk_pages(&self, run: u64, left: u64, chunking: Chunking) -> u64 {
        let half = 1 << (left / 2).max(1).ilog2();
        self.largest_chunk(run, chunking).min(half)
    }

    fn largest_chunk(&self, run: u64, chunking: Chunking) -> u64 {
        if self.options.max_chunk_pages > 0 {
            return self.options.max_chunk_pages;
        }
        let pool = self.chunks.mapped + run;
        if let (..LONG_NEED, ..TINY_POOL, Some(pages)) = (run, pool, chunking.tiny) {
            return pages;
        }
        let usual = match run {
            LONGEST_NEED.. if pool >= POOL_OF_LONG_BLOCKS => return LARGEST_OF_ALL,
            _ if pool < LARGE_POOL => {
                let pool = pool.min(chunking.most_pages / SHARE_OF_LIMIT);
                (pool / CHUNKS_IN_POOL).min(LARGEST_IN_SMALL_POOL)
            }
            _ => LARGEST_CHUNK,
        };
        1 << usual.max(run / CHUNKS_IN_NEED).clamp(1, LARGEST_CHUNK).ilog2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 512;

    /// An arena with so many pages mapped, as far as sizes are concerned.
    fn arena(mapped: u64) -> Arena {
        let mut arena = Arena::closed();
        arena.chunks.mapped = mapped;
        arena
    }

    #[test]
    fn a_run_ends_in_ever_smaller_chunks() {
        let arena = arena(40 * GIB);
        let mut left = 75;
        let sizes = std::iter::from_fn(|| {
            let pages = (left > 0).then(|| arena.chunk_pages(75, left, Chunking::default()))?;
            left -= pages;
            Some(pages)
        });
        assert_eq!(sizes.collect::<Vec<_>>(), [16, 16, 16, 8, 8, 4, 2, 2, 1, 1, 1]);
    }

    #[test]
    fn the_largest_follow_the_pool_the_need_the_limit_and_the_time() {
        let usual = Chunking::default();
        let in_use = |pages| Chunking { tiny: Some(pages), ..usual };
        let limited = |most_pages| Chunking { most_pages, ..usual };
        for (mapped, run, chunking, largest) in [
            (0, 8, usual, 1),
            (GIB / 2, 8, usual, 1),
            (GIB, 8, usual, 2),
            (2 * GIB, 8, usual, 4),
            (2 * GIB, 300, usual, 8),
            (2 * GIB, 4 * GIB, usual, 16),
            (2 * GIB, 8, limited(GIB), 1),
            (2 * GIB, 8, limited(8 * GIB), 4),
            (2 * GIB, 255, in_use(2), 2),
            (2 * GIB, 255, in_use(1), 1),
            (2 * GIB, 256, in_use(1), 8),
            (7 * GIB, 8, in_use(1), 1),
            (8 * GIB, 8, in_use(1), 4),
            (20 * GIB, 8, usual, 16),
            (20 * GIB, 600, usual, 16),
            (36 * GIB, 511, usual, 16),
            (36 * GIB, 512, usual, 32),
        ] {
            assert_eq!(arena(mapped).largest_chunk(run, chunking), largest, "{mapped} pages, {run}, {chunking:?}");
        }
    }
}
