//! The size of new chunks.
//!
//! The two ends of a live block pin about one chunk together. With `B` long blocks live in a pool of `P` pages, chunks
//! of `c` pages lose about `B·c/2` pages, which is the share `B·c/(2·P)` of the pool, and cost `P/c` driver calls. The
//! minimum of both together, at a fixed rate of exchange between shares and calls, is `c = P/(R·√B)`. `R` is larger
//! where memory counts for more (`budget`).

/// Pages of the largest chunk: it costs the driver hardly more than a small one, and a larger one saves nothing.
const LARGEST: u64 = 32;

/// Pages of the largest chunk for a pool of `pages` with this many blocks of at least a page: a power of two.
pub(crate) fn largest_chunk(pages: u64, long_blocks: u64, rate: f64) -> u64 {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a size need not be exact, and is bounded before it is cast"
    )]
    let chunk = (pages as f64 / (rate * (long_blocks.max(1) as f64).sqrt())).clamp(1.0, LARGEST as f64) as u64;
    1 << chunk.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 512;

    #[test]
    fn chunks_grow_with_the_pool_and_shrink_with_the_number_of_blocks() {
        for (pages, blocks, rate, largest) in [
            (0, 0, 40.0, 1),
            (GIB, 1, 40.0, 8),
            (GIB, 16, 40.0, 2),
            (20 * GIB, 16, 40.0, 32),
            (20 * GIB, 400, 40.0, 8),
            (20 * GIB, 400, 160.0, 2),
            (1 << 40, 1, 20.0, 32),
            (20 * GIB, u64::MAX, 20.0, 1),
        ] {
            assert_eq!(largest_chunk(pages, blocks, rate), largest, "{pages} pages, {blocks} blocks, {rate}");
        }
    }
}
