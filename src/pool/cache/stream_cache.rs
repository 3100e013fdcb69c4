//! The blocks that a stream freed last, ready for its next request of the same length.
//!
//! To the arena these blocks are still given out: they neither join their neighbours nor serve other
//! lengths. So it keeps few long ones, and of the others more only for a stream that has many blocks; and it is emptied before the
//! pool takes more memory.

use crate::block::{BINS, EXACT, bin, block_length, length, lengths, longer_bin};

/// A block in a stream cache: offset and length in granules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cached {
    /// Offset in granules.
    pub start: u64,
    /// Length in granules.
    pub granules: u64,
}

/// The last blocks of one length. Two on a cache line.
#[derive(Debug, Default)]
#[repr(align(32))]
struct Bin {
    /// As many as it has room for; the first `count` are held.
    starts: Box<[u64]>,
    count: u32,
}

/// Blocks that a bin of a short length has room for at once, and of a longer one: whole cache lines.
const FIRST_SHORT: usize = 16;
const FIRST: usize = 8;
/// Where more blocks than this are live, each bin gets more room, up to one in so many of those beyond. Programs that train have fewer, and
/// lose memory where many of their blocks are kept from their neighbours.
const USUAL: u64 = 4096;
const SHARE: u64 = 64;

impl Bin {
    /// Gets as much room more as it has.
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

    /// The block that was put in last.
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

/// The last blocks that are longer than any bin's, oldest first: only these, since they would split the arena's free memory.
#[derive(Clone, Copy, Debug, Default)]
struct Long {
    blocks: [Cached; LONG],
    count: u32,
}

impl Long {
    /// The block that was put in last, if it is of that length.
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

    /// Keeps a block; the oldest comes back. pre: there are as many as may be.
    fn replace_oldest(&mut self, block: Cached) -> Cached {
        let [oldest, newer] = self.blocks;
        self.blocks = [newer, block];
        oldest
    }

    fn held(&self) -> &[Cached] {
        &self.blocks[..self.count as usize]
    }
}

/// A block that a cache would give out next for its length.
#[derive(Debug)]
pub struct Newest<'cache> {
    /// Offset in granules.
    pub start: u64,
    count: &'cache mut u32,
}

impl Newest<'_> {
    /// Gives it out: its offset.
    #[inline(always)]
    pub fn take(self) -> u64 {
        *self.count -= 1;
        self.start
    }
}

const WORDS: usize = BINS.div_ceil(64);

/// A bin for each length.
#[derive(Debug)]
struct Bins {
    all: [Bin; BINS],
    /// Bit `i` of word `w`: bin `64 w + i` has room. No other is looked at to empty the cache: a stream uses few lengths.
    used: [u64; WORDS],
}

/// One stream's cache. Only a bin that is full allocates, and then for as many blocks more as it had.
#[derive(Debug)]
pub struct StreamCache {
    bins: Box<Bins>,
    long: Long,
    /// Something may be held.
    filled: bool,
}

impl Default for StreamCache {
    fn default() -> Self {
        let bins = Bins { all: std::array::from_fn(|_| Bin::default()), used: [0; WORDS] };
        Self { bins: Box::new(bins), long: Long::default(), filled: false }
    }
}

impl StreamCache {
    /// Blocks of up to so many granules are short.
    pub const SHORT: u64 = EXACT;

    /// Whether a block of so many granules is longer than any bin's.
    #[must_use]
    pub fn is_long(granules: u64) -> bool {
        bin(granules) >= BINS
    }

    /// The block for a short request of so many granules that was put in last.
    #[inline(always)]
    pub fn newest_short(&mut self, granules: u64) -> Option<Newest<'_>> {
        self.short_bin(granules)?.newest()
    }

    #[inline(always)]
    fn short_bin(&mut self, granules: u64) -> Option<&mut Bin> {
        // 0 wraps to a bin that is not there.
        self.bins.all[..EXACT as usize].get_mut((granules as usize).wrapping_sub(1))
    }

    /// The block for a request longer than [`StreamCache::SHORT`], or of nothing, that was put in last, and its length; of those longer
    /// than any bin's, if that is the length.
    #[inline(always)]
    pub fn newest_longer(&mut self, granules: u64) -> Option<(Newest<'_>, u64)> {
        match longer_bin(granules) {
            Some(bin) => Some((self.bins.all.get_mut(bin)?.newest()?, length(bin)?)),
            None => Some((self.long.newest(granules)?, granules)),
        }
    }

    /// The block of exactly this length that was put in last.
    #[inline]
    pub fn pop(&mut self, granules: u64) -> Option<u64> {
        match self.bins.all.get_mut(bin(granules)) {
            Some(bin) => bin.newest().map(Newest::take),
            None => self.long.pop(granules),
        }
    }

    /// Keeps a block of a stream that has so many `live`. What the cache does not keep comes back, for the arena: this block or an
    /// older one.
    #[must_use]
    pub fn push(&mut self, block: Cached, live: u64) -> Option<Cached> {
        let Cached { start, granules } = block;
        debug_assert_eq!(block_length(granules), granules, "a bin does not say how long its blocks are");
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

    /// Keeps a block if no other has to go for it. Returns whether it did.
    #[inline(always)]
    pub fn push_if_room(&mut self, block: Cached) -> bool {
        let kept = if let Some(bin) = self.short_bin(block.granules) {
            bin.push_if_room(block.start)
        } else if let Some(bin) = longer_bin(block.granules) {
            self.bins.all.get_mut(bin).is_some_and(|bin| bin.push_if_room(block.start))
        } else {
            self.long.push_if_room(block)
        };
        self.filled |= kept;
        kept
    }

    /// Granules held. For checks: adds up.
    #[must_use]
    pub fn granules(&self) -> u64 {
        let binned = self.bins.all.iter().zip(lengths()).map(|(bin, granules)| u64::from(bin.count) * granules);
        binned.chain(self.long.held().iter().map(|block| block.granules)).sum()
    }

    /// Blocks held. Adds up.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.bins.all.iter().map(|bin| bin.count).chain([self.long.count]).map(u64::from).sum()
    }

    /// Empties the cache into `take`, which sees for each block also the offsets of some that come next.
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
    fn gives_back_the_last_of_the_same_length_only() {
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
    fn a_longer_request_gets_a_block_of_its_length() {
        let mut cache = StreamCache::default();
        assert_eq!(cache.push(Cached { start: 7, granules: 1024 + 16 }, 0), None);
        assert!(cache.newest_longer(1024).is_none() && cache.newest_longer(1024 + 17).is_none());
        let (newest, length) = cache.newest_longer(1024 + 1).expect("between two lengths");
        assert_eq!((newest.take(), length, cache.blocks()), (7, 1024 + 16, 0));
        assert!(cache.newest_longer(0).is_none() && cache.newest_longer(u64::MAX).is_none());
        assert!(cache.newest_short(0).is_none() && cache.newest_short(EXACT + 1).is_none());
    }

    #[test]
    fn keeps_more_of_a_length_where_more_is_live() {
        let mut cache = StreamCache::default();
        assert_eq!((filled(&mut cache, 1, 0), filled(&mut cache, LONGEST, 0)), (FIRST_SHORT, FIRST));
        cache.drain(|_, _| ());
        assert_eq!(filled(&mut cache, LONGEST, USUAL + SHARE * (FIRST as u64 + 1) - 1), FIRST);
        cache.drain(|_, _| ());
        assert_eq!(filled(&mut cache, LONGEST, USUAL + SHARE * 17), 4 * FIRST);
        assert_eq!(cache.pop(LONGEST), Some(4 * FIRST as u64 - 1));
    }

    #[test]
    fn keeps_two_that_are_longer() {
        let mut cache = StreamCache::default();
        let long = |start| Cached { start, granules: 5000 + start };
        assert_eq!((cache.push(long(0), 0), cache.push(long(1), 0)), (None, None));
        assert_eq!((cache.push(long(2), 0), cache.push(long(3), 0)), (Some(long(0)), Some(long(1))));
        assert_eq!((cache.pop(5002), cache.pop(5000)), (Some(2), None));
        assert_eq!((cache.blocks(), cache.granules()), (1, 5003));
    }

    #[test]
    fn says_what_comes_next() {
        let mut cache = StreamCache::default();
        for start in 0..3 {
            assert_eq!(cache.push(Cached { start, granules: 9 }, 0), None);
        }
        let mut seen = Vec::new();
        cache.drain(|block, coming| seen.push((block.start, coming.to_vec())));
        assert_eq!(seen, [(0, vec![1, 2]), (1, vec![2]), (2, vec![])]);
    }
}
