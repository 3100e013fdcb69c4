//! From an offset to its block, without a lock and without hashing.
//!
//! Blocks longer than a *window* of grains need one cell for a window only, which says at which of its grains the block starts: two
//! of them cannot start in one. Cells so lie close together where blocks are long, and a free finds its own in the cache; a cell for
//! each grain would be a page of its own for each block. So the zone of large blocks has windows as long as its shortest
//! block. The zone of small ones has a cell for each grain, in leaves that come into being when first touched, and shorter
//! windows for the *middling* blocks that are longer than these: which of the two a block has, its length says when it is given
//! out, and later the cell that knows it.
//!
//! A cell says something only for the first grain of a block that is live or in a stream cache. Caches and the arena both read
//! it; the compare-and-swap on a cell is what makes a second free of the same block lose.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::header::{Header, State};

/// The index that the arena has for a block.
pub type BlockId = u32;

/// No block. Its place in the arena's slab may be written, so that who links blocks need not ask whether there is one: an unforeseeable
/// branch costs more than a store. Nothing that is read there means anything, but that it is never free.
pub(crate) const NONE: BlockId = 0;

/// The zones that a table is for. Lengths in grains.
#[derive(Clone, Copy, Debug)]
pub struct TableShape {
    /// All of it.
    pub grains: u64,
    /// The first so many are the zone of small blocks.
    pub small_zone: u64,
    /// Blocks of up to so many are small.
    pub small_grains: u64,
}

/// Grains per leaf: 1 GiB of the zone of small blocks.
const LEAF: u64 = 1 << 21;

/// The longest window has two to the power of this grains: 256 KiB.
const WINDOW_BITS: u32 = 9;
/// The windows of middling blocks are shorter by this power of two: 64 KiB.
const SHORTER_BITS: u32 = 2;

#[derive(Debug, Default, bytemuck::Zeroable)]
#[repr(C)]
struct Cell {
    header: AtomicU64,
    block: AtomicU32,
    /// Bytes of the block's last grain that its caller did not ask for.
    unasked: AtomicU32,
}

const _: () = assert!(Header::PLACE + WINDOW_BITS == u64::BITS);

/// The header of one grain, looked up once to be read and then written.
#[derive(Clone, Copy, Debug)]
pub struct Place<'table> {
    cell: &'table Cell,
    /// The bits that say which grain of the cell's it is: the last ones of its number, which no other grain of a window has.
    bits: u64,
}

impl<'table> Place<'table> {
    #[inline(always)]
    const fn new(cell: &'table Cell, grain: u64) -> Self {
        Self { cell, bits: grain << Header::PLACE }
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
        // 0 is absent, more than these bits another grain's.
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
    pub fn unasked(self) -> u32 {
        self.cell.unasked.load(Ordering::Relaxed)
    }

    #[inline]
    fn block(self) -> BlockId {
        self.cell.block.load(Ordering::Relaxed)
    }

    /// Notes that, before anybody else knows of the block.
    #[inline]
    pub fn set_unasked(self, bytes: u32) {
        self.cell.unasked.store(bytes, Ordering::Relaxed);
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
    /// As [`Table::place_near`], for the cell of a block that has one of its own.
    #[inline(always)]
    #[must_use]
    pub fn place(&self, grain: u64) -> Option<Place<'_>> {
        if self.number != grain / LEAF {
            return None;
        }
        self.leaf.0.get((grain % LEAF) as usize).map(|cell| Place::new(cell, grain))
    }
}

/// Cells for a whole arena.
#[derive(Debug)]
pub struct Table {
    /// Of the zone of small blocks; `small` is its length in grains.
    leaves: Box<[OnceLock<Arc<Leaf>>]>,
    small: u64,
    /// Of the same zone; for blocks of more than `short` grains.
    middling: Windows,
    short: u64,
    /// Of the rest.
    large: Windows,
}

/// A cell for each window of a zone. The kernel backs only what is touched.
#[derive(Debug)]
struct Windows {
    /// The zone's first grain.
    from: u64,
    /// A window has two to the power of this grains.
    bits: u32,
    cells: Box<[Cell]>,
}

impl Windows {
    fn new(from: u64, to: u64, bits: u32) -> Self {
        let windows = (to - from).div_ceil(1 << bits);
        Self { from, bits, cells: bytemuck::allocation::zeroed_slice_box(windows as usize) }
    }

    /// pre: the grain is none before this zone.
    #[inline(always)]
    fn place(&self, grain: u64) -> Option<Place<'_>> {
        self.cells.get(((grain - self.from) >> self.bits) as usize).map(|cell| Place::new(cell, grain))
    }

    /// The cell of a grain where a block starts that somebody has. pre: as for [`Windows::place`].
    #[inline(always)]
    fn taken(&self, grain: u64) -> Option<Place<'_>> {
        self.place(grain).filter(|place| place.is_taken())
    }

    fn start(&self, grain: u64) -> u64 {
        self.from + ((grain - self.from) >> self.bits << self.bits)
    }
}

impl Table {
    /// For zones of that shape.
    #[must_use]
    pub fn new(shape: &TableShape) -> Self {
        let (grains, small) = (shape.grains, shape.small_zone);
        let bits = Self::window_bits(shape.small_grains);
        Self {
            leaves: (0..small.div_ceil(LEAF)).map(|_| OnceLock::new()).collect(),
            small,
            middling: Windows::new(0, small, bits.saturating_sub(SHORTER_BITS)),
            short: Self::short(shape.small_grains),
            large: Windows::new(small, grains, bits),
        }
    }

    /// The cell of the block that starts at a grain; of a grain where none starts that somebody has, one that says so.
    #[inline(always)]
    #[must_use]
    pub fn place(&self, grain: u64) -> Option<Place<'_>> {
        if grain >= self.small {
            return self.large.place(grain);
        }
        self.middling.taken(grain).or_else(|| self.place_of_small(grain))
    }

    #[inline(always)]
    fn place_of_small(&self, grain: u64) -> Option<Place<'_>> {
        let leaf = self.leaves.get((grain / LEAF) as usize)?.get()?;
        leaf.0.get((grain % LEAF) as usize).map(|cell| Place::new(cell, grain))
    }

    /// The same if it is near: `None` also where it is in another leaf than `last`, or nowhere. pre: `last` was used with this
    /// table alone.
    #[inline(always)]
    #[must_use]
    pub fn place_near<'a>(&'a self, grain: u64, last: &'a LastLeaf) -> Option<Place<'a>> {
        if grain >= self.small {
            return self.large.place(grain);
        }
        self.middling.taken(grain).or_else(|| last.place(grain))
    }

    /// The cell of a block that shares one with its window.
    #[inline(always)]
    #[must_use]
    pub fn place_in_windows(&self, grain: u64) -> Option<Place<'_>> {
        self.windows_at(grain).place(grain)
    }

    #[inline(always)]
    fn windows_at(&self, grain: u64) -> &Windows {
        if grain < self.small { &self.middling } else { &self.large }
    }

    /// Blocks of at most so many grains have a cell of their own, where requests of up to `small_grains` are small.
    #[must_use]
    pub const fn short(small_grains: u64) -> u64 {
        1 << Self::window_bits(small_grains).saturating_sub(SHORTER_BITS)
    }

    /// Every block of the zone of large ones is longer than such a window.
    const fn window_bits(small_grains: u64) -> u32 {
        match small_grains.checked_ilog2() {
            Some(bits) if bits < WINDOW_BITS => bits,
            Some(_) => WINDOW_BITS,
            None => 0,
        }
    }

    /// Makes the leaf of a grain the one that was used last, if it has one.
    #[inline]
    pub fn come_near(&self, grain: u64, last: &mut LastLeaf) {
        let number = grain / LEAF;
        if number != last.number
            && let Some(leaf) = self.leaves.get(number as usize).and_then(OnceLock::get)
        {
            *last = LastLeaf { number, leaf: Arc::clone(leaf) };
        }
    }

    /// The windows that a block of `grains` that starts at `grain` has its cell in, if not one for each grain.
    #[inline(always)]
    fn windows_for(&self, grain: u64, grains: u64) -> Option<&Windows> {
        (grains > self.short || grain >= self.small).then(|| self.windows_at(grain))
    }

    /// The cell for a block of `grains` that starts at `grain`.
    #[inline]
    fn place_for(&self, grain: u64, grains: u64) -> Place<'_> {
        let known = match self.windows_for(grain, grains) {
            Some(windows) => windows.place(grain),
            None => self.place_of_small(grain),
        };
        known.unwrap_or_else(|| self.fresh(grain))
    }

    #[cold]
    fn fresh(&self, grain: u64) -> Place<'_> {
        let index = grain / LEAF;
        let cells = (self.small - index * LEAF).min(LEAF) as usize;
        let fresh = || Arc::new(Leaf(bytemuck::allocation::zeroed_slice_box(cells)));
        let leaf = self.leaves[index as usize].get_or_init(fresh);
        Place::new(&leaf.0[(grain % LEAF) as usize], grain)
    }

    /// What `grain` says; [`Header::ABSENT`] outside the arena.
    #[must_use]
    pub fn read(&self, grain: u64) -> Header {
        self.place(grain).map_or(Header::ABSENT, Place::read)
    }

    /// Writes the cell of a block that only the caller has.
    #[inline]
    pub fn write(&self, grain: u64, header: Header) {
        self.place_for(grain, header.grains()).write(header);
    }

    /// Says that nobody has the block any more that starts there, and answers as [`Table::block`] did before. pre: only the caller
    /// has it.
    #[inline]
    pub(crate) fn clear(&self, grain: u64) -> BlockId {
        let Some(place) = self.place(grain) else { return NONE };
        place.write(Header::ABSENT);
        place.block()
    }

    /// Writes the cell of a block that is given out, and how many of its bytes were not asked for.
    #[inline]
    pub fn give_out(&self, grain: u64, header: Header, unasked: u32) {
        let place = self.place_for(grain, header.grains());
        place.set_unasked(unasked);
        place.write(header);
    }

    /// Writes `new` if the cell still says `old`. Of two frees of one block, one gets `true`.
    #[must_use]
    pub fn swap(&self, grain: u64, old: Header, new: Header) -> bool {
        self.place(grain).is_some_and(|Place { cell, bits }| {
            let (old, new) = (old.0 | bits, new.0 | bits);
            cell.header.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    }

    /// The block that starts at a grain, if somebody has it; else any.
    #[inline]
    pub(crate) fn block(&self, grain: u64) -> BlockId {
        self.place(grain).map_or(NONE, Place::block)
    }

    /// Blocks that may be the one which starts last in the window of `grain`, up to there: any are possible besides.
    pub(crate) fn blocks(&self, grain: u64) -> [BlockId; 2] {
        let block = |place: Option<Place<'_>>| place.map_or(NONE, Place::block);
        if grain >= self.small {
            return [block(self.large.place(grain)), NONE];
        }
        [block(self.place_of_small(grain)), block(self.middling.place(grain))]
    }

    /// Notes which block of `grains` starts at `grain`, before it is given out.
    pub(crate) fn set_block(&self, grain: u64, grains: u64, block: BlockId) {
        self.place_for(grain, grains).cell.block.store(block, Ordering::Relaxed);
    }

    /// The first grain for which [`Table::blocks`] answers the same.
    pub(crate) fn window(&self, grain: u64) -> u64 {
        if grain < self.small { grain } else { self.large.start(grain) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 128 grains of small blocks of up to 9, the longer of them in windows of 2, and as many of longer ones: windows of 8.
    fn table() -> Table {
        Table::new(&TableShape { grains: 256, small_zone: 128, small_grains: 9 })
    }

    #[test]
    fn a_window_says_at_which_grain_its_block_starts() {
        let table = table();
        for start in [128, 133, 135, 255] {
            let live = Header::live(11, 4, 2, false);
            table.write(start, live);
            table.set_block(start, 11, start as BlockId);
            assert_eq!((table.read(start).grains(), table.read(start).state()), (11, State::Live));
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
    fn a_middling_and_a_small_block_may_start_in_one_window_and_one_after_the_other_at_one_grain() {
        let table = table();
        let says = |grain| (table.read(grain).grains(), table.read(grain).state());
        let (small, middling) = (Header::live(1, 4, 2, false), Header::live(7, 5, 3, false));
        for (first, second) in [(small, middling), (middling, small)] {
            table.write(6, small);
            table.set_block(7, first.grains(), 70);
            table.write(7, first);
            assert_eq!((says(6), says(7), table.block(7)), ((1, State::Live), (first.grains(), State::Live), 70));
            assert!(table.swap(7, table.read(7), table.read(7).cached()));
            assert_eq!((says(6), says(7)), ((1, State::Live), (first.grains(), State::Cached)));
            table.clear(7);
            assert_eq!((says(6), says(7).1), ((1, State::Live), State::Absent));
            table.set_block(7, second.grains(), 71);
            table.write(7, second);
            assert_eq!((says(6), says(7), table.block(7)), ((1, State::Live), (second.grains(), State::Live), 71));
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
