//! From an offset to its block, without a lock and without hashing.
//!
//! Blocks longer than a *window* of granules need one cell for a window only, which says at which of its granules the block starts: two
//! of them cannot start in one. Cells so lie close together where blocks are long, and a free finds its own in the cache; a cell for
//! each granule would be a page of its own for each block. So the zone of large blocks has windows as long as its shortest
//! block. The zone of small ones has a cell for each granule, in leaves that come into being when first touched, and shorter
//! windows for the *middling* blocks that are longer than these: which of the two a block has, its length says when it is given
//! out, and later the cell that knows it.
//!
//! A cell says something only for the first granule of a block that is live or in a stream cache. Caches and the arena both read
//! it; the compare-and-swap on a cell is what makes a second free of the same block lose.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::header::{Header, State};

/// The index that the arena has for a block.
pub type BlockId = u32;

/// No block. Its place in the arena's slab may be written, so that who links blocks need not ask whether there is one: an unforeseeable
/// branch costs more than a store. Nothing that is read there means anything, but that it is never free.
pub(crate) const NONE: BlockId = 0;

/// The zones that a table is for. Lengths in granules.
#[derive(Clone, Copy, Debug)]
pub struct TableShape {
    /// All of it.
    pub granules: u64,
    /// The first so many are the zone of small blocks.
    pub small_zone: u64,
    /// Blocks of up to so many are small.
    pub small_granules: u64,
}

/// Granules per leaf: 1 GiB of the zone of small blocks.
const LEAF: u64 = 1 << 21;

/// The longest window has two to the power of this granules: 256 KiB.
const WINDOW_BITS: u32 = 9;
/// The windows of middling blocks are shorter by this power of two: 64 KiB.
const SHORTER_BITS: u32 = 2;

#[derive(Debug, Default, bytemuck::Zeroable)]
#[repr(C)]
struct Cell {
    header: AtomicU64,
    block: AtomicU32,
    /// Bytes of the block's last granule that its caller did not ask for.
    slack: AtomicU32,
}

const _: () = assert!(Header::PLACE + WINDOW_BITS == u64::BITS);

/// The header of one granule, looked up once to be read and then written.
#[derive(Clone, Copy, Debug)]
pub struct Place<'table> {
    cell: &'table Cell,
    /// The bits that say which granule of the cell's it is: the last ones of its number, which no other granule of a window has.
    bits: u64,
}

impl<'table> Place<'table> {
    #[inline(always)]
    const fn new(cell: &'table Cell, granule: u64) -> Self {
        Self { cell, bits: granule << Header::PLACE }
    }

    /// What it says.
    #[inline]
    #[must_use]
    pub fn read(self) -> Header {
        let word = self.cell.header.load(Ordering::Acquire);
        if (word ^ self.bits) >> Header::PLACE == 0 { Header(word) } else { Header::ABSENT }
    }

    /// What it says, if that is a live block with the stream of `like`, whose free need not go the slow way. pre: `like` is one,
    /// of length and framework 0.
    #[inline(always)]
    #[must_use]
    pub fn read_like(self, like: Header) -> Option<Header> {
        let word = self.cell.header.load(Ordering::Acquire);
        ((word ^ like.0 ^ self.bits) & !Header::OWN == 0).then_some(Header(word))
    }

    /// Says that a stream cache has the block. pre: `header` was read here, and is a live block's.
    #[inline(always)]
    pub fn write_cached(self, header: Header) {
        self.cell
            .header
            .store(header.0 ^ ((State::Live as u64 ^ State::Cached as u64) << Header::STATE), Ordering::Release);
    }

    /// Whether somebody has a block that starts here.
    #[inline(always)]
    fn is_taken(self) -> bool {
        let word = self.cell.header.load(Ordering::Acquire) ^ self.bits;
        // 0 is absent, more than these bits another granule's.
        (word >> Header::STATE).wrapping_sub(1) < (1 << (Header::PLACE - Header::STATE)) - 1
    }

    /// Writes it: as [`Table::write`].
    #[inline]
    pub fn write(self, header: Header) {
        self.cell.header.store(header.0 | self.bits, Ordering::Release);
    }

    /// How many bytes of the block that is live here its caller did not ask for.
    #[inline]
    #[must_use]
    pub fn slack(self) -> u32 {
        self.cell.slack.load(Ordering::Relaxed)
    }

    #[inline]
    fn block(self) -> BlockId {
        self.cell.block.load(Ordering::Relaxed)
    }

    /// Notes that, before anybody else knows of the block.
    #[inline]
    pub fn set_slack(self, bytes: u32) {
        self.cell.slack.store(bytes, Ordering::Relaxed);
    }
}

/// The cells of a part of the zone of small blocks. The kernel backs only what is touched.
#[derive(Debug)]
struct Leaf(Box<[Cell]>);

/// The leaf that somebody used last. To him the way to a cell is a sum; through the list of leaves it is two loads more, of
/// which each waits for the one before.
#[derive(Debug)]
pub struct LastLeaf {
    number: u64,
    leaf: Arc<Leaf>,
}

impl Default for LastLeaf {
    /// None.
    fn default() -> Self {
        Self { number: u64::MAX, leaf: Arc::new(Leaf(Box::default())) }
    }
}

impl LastLeaf {
    /// As [`Table::place_cached`], for the cell of a block that has one of its own.
    #[inline(always)]
    #[must_use]
    pub fn place(&self, granule: u64) -> Option<Place<'_>> {
        if self.number != granule / LEAF {
            return None;
        }
        self.leaf.0.get((granule % LEAF) as usize).map(|cell| Place::new(cell, granule))
    }
}

/// Cells for a whole arena.
#[derive(Debug)]
pub struct Table {
    /// Of the zone of small blocks; `small` is its length in granules.
    leaves: Box<[OnceLock<Arc<Leaf>>]>,
    small: u64,
    /// Of the same zone; for blocks of more than `short` granules.
    middling: Windows,
    short: u64,
    /// Of the rest.
    large: Windows,
}

/// A cell for each window of a zone. The kernel backs only what is touched.
#[derive(Debug)]
struct Windows {
    /// The zone's first granule.
    from: u64,
    /// A window has two to the power of this granules.
    bits: u32,
    cells: Box<[Cell]>,
}

impl Windows {
    fn new(from: u64, to: u64, bits: u32) -> Self {
        let windows = (to - from).div_ceil(1 << bits);
        Self { from, bits, cells: bytemuck::allocation::zeroed_slice_box(windows as usize) }
    }

    /// pre: the granule is none before this zone.
    #[inline(always)]
    fn place(&self, granule: u64) -> Option<Place<'_>> {
        self.cells.get(((granule - self.from) >> self.bits) as usize).map(|cell| Place::new(cell, granule))
    }

    /// The cell of a granule where a block starts that somebody has. pre: as for [`Windows::place`].
    #[inline(always)]
    fn taken(&self, granule: u64) -> Option<Place<'_>> {
        self.place(granule).filter(|place| place.is_taken())
    }

    fn start(&self, granule: u64) -> u64 {
        self.from + ((granule - self.from) >> self.bits << self.bits)
    }
}

impl Table {
    /// For zones of that shape.
    #[must_use]
    pub fn new(shape: &TableShape) -> Self {
        let (granules, small) = (shape.granules, shape.small_zone);
        let bits = Self::window_bits(shape.small_granules);
        Self {
            leaves: (0..small.div_ceil(LEAF)).map(|_| OnceLock::new()).collect(),
            small,
            middling: Windows::new(0, small, bits.saturating_sub(SHORTER_BITS)),
            short: Self::short(shape.small_granules),
            large: Windows::new(small, granules, bits),
        }
    }

    /// The cell of the block that starts at a granule; of a granule where none starts that somebody has, one that says so.
    #[inline(always)]
    #[must_use]
    pub fn place(&self, granule: u64) -> Option<Place<'_>> {
        if granule >= self.small {
            return self.large.place(granule);
        }
        self.middling.taken(granule).or_else(|| self.place_of_small(granule))
    }

    #[inline(always)]
    fn place_of_small(&self, granule: u64) -> Option<Place<'_>> {
        let leaf = self.leaves.get((granule / LEAF) as usize)?.get()?;
        leaf.0.get((granule % LEAF) as usize).map(|cell| Place::new(cell, granule))
    }

    /// The same if it is near: `None` also where it is in another leaf than `last`, or nowhere. pre: `last` was used with this
    /// table alone.
    #[inline(always)]
    #[must_use]
    pub fn place_cached<'a>(&'a self, granule: u64, last: &'a LastLeaf) -> Option<Place<'a>> {
        if granule >= self.small {
            return self.large.place(granule);
        }
        self.middling.taken(granule).or_else(|| last.place(granule))
    }

    /// The cell of a block that shares one with its window.
    #[inline(always)]
    #[must_use]
    pub fn place_in_windows(&self, granule: u64) -> Option<Place<'_>> {
        self.windows_at(granule).place(granule)
    }

    #[inline(always)]
    fn windows_at(&self, granule: u64) -> &Windows {
        if granule < self.small { &self.middling } else { &self.large }
    }

    /// Blocks of at most so many granules have a cell of their own, where requests of up to `small_granules` are small.
    #[must_use]
    pub const fn short(small_granules: u64) -> u64 {
        1 << Self::window_bits(small_granules).saturating_sub(SHORTER_BITS)
    }

    /// Every block of the zone of large ones is longer than such a window.
    const fn window_bits(small_granules: u64) -> u32 {
        match small_granules.checked_ilog2() {
            Some(bits) if bits < WINDOW_BITS => bits,
            Some(_) => WINDOW_BITS,
            None => 0,
        }
    }

    /// Makes the leaf of a granule the one that was used last, if it has one.
    #[inline]
    pub fn cache_leaf(&self, granule: u64, last: &mut LastLeaf) {
        let number = granule / LEAF;
        if number != last.number
            && let Some(leaf) = self.leaves.get(number as usize).and_then(OnceLock::get)
        {
            *last = LastLeaf { number, leaf: Arc::clone(leaf) };
        }
    }

    /// The windows that a block of `granules` that starts at `granule` has its cell in, if not one for each granule.
    #[inline(always)]
    fn windows_for(&self, granule: u64, granules: u64) -> Option<&Windows> {
        (granules > self.short || granule >= self.small).then(|| self.windows_at(granule))
    }

    /// The cell for a block of `granules` that starts at `granule`.
    #[inline]
    fn place_for(&self, granule: u64, granules: u64) -> Place<'_> {
        let known = match self.windows_for(granule, granules) {
            Some(windows) => windows.place(granule),
            None => self.place_of_small(granule),
        };
        known.unwrap_or_else(|| self.fresh(granule))
    }

    #[cold]
    fn fresh(&self, granule: u64) -> Place<'_> {
        let index = granule / LEAF;
        let cells = (self.small - index * LEAF).min(LEAF) as usize;
        let fresh = || Arc::new(Leaf(bytemuck::allocation::zeroed_slice_box(cells)));
        let leaf = self.leaves[index as usize].get_or_init(fresh);
        Place::new(&leaf.0[(granule % LEAF) as usize], granule)
    }

    /// What `granule` says; [`Header::ABSENT`] outside the arena.
    #[must_use]
    pub fn read(&self, granule: u64) -> Header {
        self.place(granule).map_or(Header::ABSENT, Place::read)
    }

    /// Writes the cell of a block that only the caller has.
    #[inline]
    pub fn write(&self, granule: u64, header: Header) {
        self.place_for(granule, header.granules()).write(header);
    }

    /// Says that nobody has the block any more that starts there, and answers as [`Table::block`] did before. pre: only the caller
    /// has it.
    #[inline]
    pub(crate) fn clear(&self, granule: u64) -> BlockId {
        let Some(place) = self.place(granule) else { return NONE };
        place.write(Header::ABSENT);
        place.block()
    }

    /// Writes the cell of a block that is given out, and how many of its bytes were not asked for.
    #[inline]
    pub fn give_out(&self, granule: u64, header: Header, slack: u32) {
        let place = self.place_for(granule, header.granules());
        place.set_slack(slack);
        place.write(header);
    }

    /// Writes `new` if the cell still says `old`. Of two frees of one block, one gets `true`.
    #[must_use]
    pub fn swap(&self, granule: u64, old: Header, new: Header) -> bool {
        self.place(granule).is_some_and(|Place { cell, bits }| {
            let (old, new) = (old.0 | bits, new.0 | bits);
            cell.header.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    }

    /// The block that starts at a granule, if somebody has it; else any.
    #[inline]
    pub(crate) fn block(&self, granule: u64) -> BlockId {
        self.place(granule).map_or(NONE, Place::block)
    }

    /// Blocks that may be the one which starts last in the window of `granule`, up to there: any are possible besides.
    pub(crate) fn blocks(&self, granule: u64) -> [BlockId; 2] {
        let block = |place: Option<Place<'_>>| place.map_or(NONE, Place::block);
        if granule >= self.small {
            return [block(self.large.place(granule)), NONE];
        }
        [block(self.place_of_small(granule)), block(self.middling.place(granule))]
    }

    /// Notes which block of `granules` starts at `granule`, before it is given out.
    pub(crate) fn set_block(&self, granule: u64, granules: u64, block: BlockId) {
        self.place_for(granule, granules).cell.block.store(block, Ordering::Relaxed);
    }

    /// The first granule for which [`Table::blocks`] answers the same.
    pub(crate) fn window(&self, granule: u64) -> u64 {
        if granule < self.small { granule } else { self.large.start(granule) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 128 granules of small blocks of up to 9, the longer of them in windows of 2, and as many of longer ones: windows of 8.
    fn table() -> Table {
        Table::new(&TableShape { granules: 256, small_zone: 128, small_granules: 9 })
    }

    #[test]
    fn a_window_says_at_which_granule_its_block_starts() {
        let table = table();
        for start in [128, 133, 135, 255] {
            let live = Header::live(11, 4, 2, false);
            table.write(start, live);
            table.set_block(start, 11, start as BlockId);
            assert_eq!((table.read(start).granules(), table.read(start).state()), (11, State::Live));
            let window = table.window(start);
            assert!(window <= start && start < window + 8 && (window - 128).is_multiple_of(8));
            for other in (window..window + 8).filter(|&other| other != start) {
                assert_eq!(table.read(other), Header::ABSENT, "{other} beside {start}");
                assert!(!table.swap(other, live, live.cached()), "{other} beside {start}");
            }
            assert_eq!(table.block(window), start as BlockId);
            assert!(table.swap(start, table.read(start), table.read(start).cached()));
            assert_eq!(table.read(start).state(), State::Cached);
            table.clear(start);
            assert_eq!(table.read(start).state(), State::Absent);
        }
        assert_eq!(table.read(256), Header::ABSENT);
        assert_eq!((table.window(127), table.window(5)), (127, 5));
    }

    #[test]
    fn a_middling_and_a_small_block_may_start_in_one_window_and_one_after_the_other_at_one_granule() {
        let table = table();
        let says = |granule| (table.read(granule).granules(), table.read(granule).state());
        let (small, middling) = (Header::live(1, 4, 2, false), Header::live(7, 5, 3, false));
        for (first, second) in [(small, middling), (middling, small)] {
            table.write(6, small);
            table.set_block(7, first.granules(), 70);
            table.write(7, first);
            assert_eq!((says(6), says(7), table.block(7)), ((1, State::Live), (first.granules(), State::Live), 70));
            assert!(table.swap(7, table.read(7), table.read(7).cached()));
            assert_eq!((says(6), says(7)), ((1, State::Live), (first.granules(), State::Cached)));
            table.clear(7);
            assert_eq!((says(6), says(7).1), ((1, State::Live), State::Absent));
            table.set_block(7, second.granules(), 71);
            table.write(7, second);
            assert_eq!((says(6), says(7), table.block(7)), ((1, State::Live), (second.granules(), State::Live), 71));
            assert!(table.blocks(7).contains(&71));
            table.clear(7);
            table.clear(6);
        }
    }

    #[test]
    fn of_two_frees_one_wins() {
        let table = table();
        let live = Header::live(2, 0, 0, false);
        table.write(7, live);
        assert!(table.swap(7, live, live.cached()));
        assert!(!table.swap(7, live, live.cached()));
        assert_eq!(table.read(1 << 40), Header::ABSENT);
    }
}
