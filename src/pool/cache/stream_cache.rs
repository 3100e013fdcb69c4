//! The stream cache: the blocks that a stream freed last, for its next requests of the same length.
//!
//! The arena counts these blocks as live: they neither merge with their neighbours nor serve other lengths. So a cache
//! keeps few long blocks, keeps more short ones only for a stream with many live blocks, and is emptied before the pool
//! takes new memory.

use crate::block::{BINS, EXACT, bin, block_length, length, lengths, longer_bin};

/// A block in a stream cache: offset and length in granules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cached {
    /// Offset in granules.
    pub start: u64,
    /// Length in granules.
    pub granules: u64,
}

/// The last freed blocks of one length. Two bins share a cache line.
#[derive(Debug, Default)]
#[repr(align(32))]
struct Bin {
    /// Room for blocks; the first `count` are in use.
    starts: Box<[u64]>,
    count: u32,
}

/// Initial room of a bin for short blocks and of one for longer blocks: whole cache lines.
const FIRST_SHORT: usize = 16;
const FIRST: usize = 8;
/// Beyond this many live blocks a bin may grow, to one `SHARE`th of those above. Training programs have fewer live
/// blocks, and lose memory if many blocks cannot merge with their neighbours.
const USUAL: u64 = 4096;
const SHARE: u64 = 64;

impl Bin {
    /// Doubles the room; `first` if there is none yet.
    fn grow(&mut self, first: usize) {
        let mut starts = vec![0; (2 * self.starts.len()).max(first)];
        starts[..self.starts.len()].copy_from_slice(&self.starts);
        self.starts = starts.into_boxed_slice();
    }

    #[inline(always)]
    fn push_if_room(&mut self, start: u64) -> bool {
        let Some(place) = self.starts.get_mut(self.count as usize) else { return false };
        *place = start;
        self.count += 1;
        true
    }

    /// The block that was added last.
    #[inline(always)]
    fn newest(&mut self) -> Option<Newest<'_>> {
        let start = *self.starts.get(self.count.wrapping_sub(1) as usize)?;
        Some(Newest { start, count: &mut self.count })
    }

    fn held(&self) -> &[u64] {
        &self.starts[..self.count as usize]
    }
}

/// Blocks over 1 MiB that a cache keeps.
const LONG: usize = 2;

/// The last blocks too long for any bin, oldest first. Only these few, since they fragment the arena's free memory.
#[derive(Clone, Copy, Debug, Default)]
struct Long {
    blocks: [Cached; LONG],
    count: u32,
}

impl Long {
    /// The block that was added last, if it has that length.
    #[inline(always)]
    fn newest(&mut self, granules: u64) -> Option<Newest<'_>> {
        let newest = self.blocks.get(self.count.wrapping_sub(1) as usize)?;
        (newest.granules == granules).then_some(Newest { start: newest.start, count: &mut self.count })
    }

    fn pop(&mut self, granules: u64) -> Option<u64> {
        let found = self.held().iter().rposition(|block| block.granules == granules)?;
        let start = self.blocks[found].start;
        self.blocks.copy_within(found + 1.., found);
        self.count -= 1;
        Some(start)
    }

    #[inline(always)]
    fn push_if_room(&mut self, block: Cached) -> bool {
        let Some(place) = self.blocks.get_mut(self.count as usize) else { return false };
        *place = block;
        self.count += 1;
        true
    }

    /// Stores a block and returns the oldest. pre: there is no room left.
    fn replace_oldest(&mut self, block: Cached) -> Cached {
        let [oldest, newer] = self.blocks;
        self.blocks = [newer, block];
        oldest
    }

    fn held(&self) -> &[Cached] {
        &self.blocks[..self.count as usize]
    }
}

/// The block that a cache would give out next for a length.
#[derive(Debug)]
pub struct Newest<'cache> {
    /// Offset in granules.
    pub start: u64,
    count: &'cache mut u32,
}

impl Newest<'_> {
    /// Removes the block from the cache and returns its offset.
    #[inline(always)]
    pub fn take(self) -> u64 {
        *self.count -= 1;
        self.start
    }
}

const WORDS: usize = BINS.div_ceil(64);

/// One bin per length.
#[derive(Debug)]
struct Bins {
    all: [Bin; BINS],
    /// Bit `i` of word `w` is set if bin `64 w + i` has room. Draining visits only those: a stream uses few lengths.
    used: [u64; WORDS],
}

/// One stream's cache. Only a push to a full bin allocates, and then doubles the bin.
#[derive(Debug)]
pub struct StreamCache {
    bins: Box<Bins>,
    long: Long,
    /// Whether the cache may hold a block.
    filled: bool,
}

impl Default for StreamCache {
    fn default() -> Self {
        let bins = Bins { all: std::array::from_fn(|_| Bin::default()), used: [0; WORDS] };
        Self { bins: Box::new(bins), long: Long::default(), filled: false }
    }
}

impl StreamCache {
    /// Blocks of up to this many granules are short.
    pub const SHORT: u64 = EXACT;

    /// Whether a block of `granules` is too long for any bin.
    #[must_use]
    pub fn is_long(granules: u64) -> bool {
        bin(granules) >= BINS
    }

    /// The block that was added last for a short request of `granules`.
    #[inline(always)]
    pub fn newest_short(&mut self, granules: u64) -> Option<Newest<'_>> {
        self.short_bin(granules)?.newest()
    }

    #[inline(always)]
    fn short_bin(&mut self, granules: u64) -> Option<&mut Bin> {
        // 0 wraps to a bin that does not exist.
        self.bins.all[..EXACT as usize].get_mut((granules as usize).wrapping_sub(1))
    }

    /// The block that was added last for a request longer than [`StreamCache::SHORT`] or of 0 granules, and its length.
    /// Among blocks too long for any bin, only the one added last is considered.
    #[inline(always)]
    pub fn newest_longer(&mut self, granules: u64) -> Option<(Newest<'_>, u64)> {
        match longer_bin(granules) {
            Some(bin) => Some((self.bins.all.get_mut(bin)?.newest()?, length(bin)?)),
            None => Some((self.long.newest(granules)?, granules)),
        }
    }

    /// Takes the block of exactly this length that was added last.
    #[inline]
    pub fn pop(&mut self, granules: u64) -> Option<u64> {
        match self.bins.all.get_mut(bin(granules)) {
            Some(bin) => bin.newest().map(Newest::take),
            None => self.long.pop(granules),
        }
    }

    /// Stores a block of a stream with `live` live blocks. Returns a block that has no room, this one or an older one,
    /// for the arena.
    #[must_use]
    pub fn push(&mut self, block: Cached, live: u64) -> Option<Cached> {
        let Cached { start, granules } = block;
        debug_assert_eq!(block_length(granules), granules, "a bin holds only blocks of its length");
        if self.push_if_room(block) {
            return None;
        }
        let place = bin(granules);
        let Some(full) = self.bins.all.get_mut(place) else { return Some(self.long.replace_oldest(block)) };
        let first = if granules > EXACT { FIRST } else { FIRST_SHORT };
        let most = first.max((live.saturating_sub(USUAL) / SHARE) as usize);
        if full.starts.len() >= most {
            return Some(block);
        }
        full.grow(first);
        self.bins.used[place / 64] |= 1 << (place % 64);
        self.filled |= full.push_if_room(start);
        None
    }

    /// Stores a block if that replaces no other. Returns whether it did.
    #[inline(always)]
    pub fn push_if_room(&mut self, block: Cached) -> bool {
        let stored = if let Some(bin) = self.short_bin(block.granules) {
            bin.push_if_room(block.start)
        } else if let Some(bin) = longer_bin(block.granules) {
            self.bins.all.get_mut(bin).is_some_and(|bin| bin.push_if_room(block.start))
        } else {
            self.long.push_if_room(block)
        };
        self.filled |= stored;
        stored
    }

    /// Granules in the cache. Sums over all bins; for checks.
    #[must_use]
    pub fn granules(&self) -> u64 {
        let binned = self.bins.all.iter().zip(lengths()).map(|(bin, granules)| u64::from(bin.count) * granules);
        binned.chain(self.long.held().iter().map(|block| block.granules)).sum()
    }

    /// Blocks in the cache. Sums over all bins.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.bins.all.iter().map(|bin| bin.count).chain([self.long.count]).map(u64::from).sum()
    }

    /// Empties the cache into `take`, which also gets the offsets of some of the next blocks, for prefetching.
    pub fn drain(&mut self, mut take: impl FnMut(Cached, &[u64])) {
        if !std::mem::take(&mut self.filled) {
            return;
        }
        for (word, &bits) in self.bins.used.iter().enumerate() {
            let mut bits = bits;
            while bits != 0 {
                let place = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let Some((bin, granules)) = self.bins.all.get_mut(place).zip(length(place)) else { break };
                let held = bin.held();
                for (next, &start) in held.iter().enumerate() {
                    take(Cached { start, granules }, &held[next + 1..]);
                }
                bin.count = 0;
            }
        }
        self.long.held().iter().for_each(|&block| take(block, &[]));
        self.long.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BINNED as LONGEST;

    fn filled(cache: &mut StreamCache, granules: u64, live: u64) -> usize {
        (0..100).take_while(|&start| cache.push(Cached { start, granules }, live).is_none()).count()
    }

    #[test]
    fn pop_returns_the_newest_block_of_the_same_length() {
        let mut cache = StreamCache::default();
        let held = [1, EXACT, EXACT + 2, LONGEST, LONGEST + 7];
        for granules in held {
            assert_eq!(cache.push(Cached { start: granules * 10, granules }, 0), None);
            assert_eq!(cache.push(Cached { start: granules * 10 + 1, granules }, 0), None);
            assert_eq!(cache.pop(granules), Some(granules * 10 + 1));
            assert_eq!(cache.pop(granules + 3), None);
        }
        let mut left = Vec::new();
        cache.drain(|block, _| left.push(block.granules));
        assert_eq!((left.as_slice(), cache.granules()), (&held[..], 0));
        assert_eq!(cache.pop(1), None);
        assert_eq!(cache.pop(0), None);
    }

    #[test]
    fn a_longer_request_gets_a_block_of_its_length_class() {
        let mut cache = StreamCache::default();
        assert_eq!(cache.push(Cached { start: 7, granules: 1024 + 16 }, 0), None);
        assert!(cache.newest_longer(1024).is_none() && cache.newest_longer(1024 + 17).is_none());
        let (newest, length) = cache.newest_longer(1024 + 1).expect("between two lengths");
        assert_eq!((newest.take(), length, cache.blocks()), (7, 1024 + 16, 0));
        assert!(cache.newest_longer(0).is_none() && cache.newest_longer(u64::MAX).is_none());
        assert!(cache.newest_short(0).is_none() && cache.newest_short(EXACT + 1).is_none());
    }

    #[test]
    fn bins_grow_with_the_live_blocks() {
        let mut cache = StreamCache::default();
        assert_eq!((filled(&mut cache, 1, 0), filled(&mut cache, LONGEST, 0)), (FIRST_SHORT, FIRST));
        cache.drain(|_, _| ());
        assert_eq!(filled(&mut cache, LONGEST, USUAL + SHARE * (FIRST as u64 + 1) - 1), FIRST);
        cache.drain(|_, _| ());
        assert_eq!(filled(&mut cache, LONGEST, USUAL + SHARE * 17), 4 * FIRST);
        assert_eq!(cache.pop(LONGEST), Some(4 * FIRST as u64 - 1));
    }

    #[test]
    fn a_cache_keeps_two_long_blocks() {
        let mut cache = StreamCache::default();
        let long = |start| Cached { start, granules: 5000 + start };
        assert_eq!((cache.push(long(0), 0), cache.push(long(1), 0)), (None, None));
        assert_eq!((cache.push(long(2), 0), cache.push(long(3), 0)), (Some(long(0)), Some(long(1))));
        assert_eq!((cache.pop(5002), cache.pop(5000)), (Some(2), None));
        assert_eq!((cache.blocks(), cache.granules()), (1, 5003));
    }

    #[test]
    fn drain_passes_the_next_blocks() {
        let mut cache = StreamCache::default();
        for start in 0..3 {
            assert_eq!(cache.push(Cached { start, granules: 9 }, 0), None);
        }
        let mut seen = Vec::new();
        cache.drain(|block, coming| seen.push((block.start, coming.to_vec())));
        assert_eq!(seen, [(0, vec![1, 2]), (1, vec![2]), (2, vec![])]);
    }
}
