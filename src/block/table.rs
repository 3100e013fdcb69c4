//! The table from an offset to its block, without a lock and without hashing.
//!
//! Blocks longer than a *window* of granules need only one cell per window, since no two of them start in the same
//! window. The cell says at which granule of the window its block starts. So the cells of long blocks lie close
//! together, and a free finds its cell in the CPU's cache; with a cell per granule, each block would touch its own
//! page. The zone of large blocks has windows as long as its shortest block. The zone of small blocks has a cell per
//! granule, in leaves that are made when first touched, and shorter windows for *middling* blocks, which are longer
//! than these windows. A block's length decides between the two when it is allocated; later, the cell that has the
//! block does.
//!
//! A cell is valid only for the first granule of a block that is live or in a stream cache. Caches and the arena both
//! read it; of two frees of one block, the compare-and-swap on its cell makes the second fail.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::header::{Header, State};

/// The arena's index of a block.
pub type BlockId = u32;

/// No block. Its entry in the arena's slab may be written, so that links can be set without a branch: an unpredictable
/// branch costs more than a store. The entry's contents mean nothing, except that it is never free.
pub(crate) const NONE: BlockId = 0;

/// The zones of a table. Lengths in granules.
#[derive(Clone, Copy, Debug)]
pub struct TableShape {
    /// Granules in all.
    pub granules: u64,
    /// Granules of the zone of small blocks, which comes first.
    pub small_zone: u64,
    /// Blocks of up to this many granules are small.
    pub small_granules: u64,
}

/// Granules per leaf: 1 GiB of the zone of small blocks.
const LEAF: u64 = 1 << 21;

/// The longest window, as a power of two of granules: 256 KiB.
const WINDOW_BITS: u32 = 9;
/// The windows of middling blocks are shorter by this power of two: 64 KiB.
const SHORTER_BITS: u32 = 2;

#[derive(Debug, Default, bytemuck::Zeroable)]
#[repr(C)]
struct Cell {
    header: AtomicU64,
    block: AtomicU32,
    /// Bytes of the block beyond those requested.
    slack: AtomicU32,
}

const _: () = assert!(Header::OFFSET + WINDOW_BITS == u64::BITS);

/// A reference to the cell of one granule, for a read and then a write.
#[derive(Clone, Copy, Debug)]
pub struct CellRef<'table> {
    cell: &'table Cell,
    /// The last bits of the granule's number, which tell it from the other granules of a window.
    bits: u64,
}

impl<'table> CellRef<'table> {
    #[inline(always)]
    const fn new(cell: &'table Cell, granule: u64) -> Self {
        Self { cell, bits: granule << Header::OFFSET }
    }

    /// The header, if the cell is this granule's.
    #[inline]
    #[must_use]
    pub fn read(self) -> Header {
        let word = self.cell.header.load(Ordering::Acquire);
        if (word ^ self.bits) >> Header::OFFSET == 0 { Header(word) } else { Header::ABSENT }
    }

    /// The header, if it is that of a live block with the stream of `like` whose free needs no slow path. pre: `like`
    /// is the header of one, with length and framework 0.
    #[inline(always)]
    #[must_use]
    pub fn read_matching(self, like: Header) -> Option<Header> {
        let word = self.cell.header.load(Ordering::Acquire);
        ((word ^ like.0 ^ self.bits) & !Header::OWN == 0).then_some(Header(word))
    }

    /// Marks the block as being in a stream cache. pre: `header` was read here, and the block is live.
    #[inline(always)]
    pub fn write_cached(self, header: Header) {
        self.cell
            .header
            .store(header.0 ^ ((State::Live as u64 ^ State::Cached as u64) << Header::STATE), Ordering::Release);
    }

    /// Whether a live or cached block starts here.
    #[inline(always)]
    fn is_taken(self) -> bool {
        let word = self.cell.header.load(Ordering::Acquire) ^ self.bits;
        // 0 is absent; a larger value belongs to another granule.
        (word >> Header::STATE).wrapping_sub(1) < (1 << (Header::OFFSET - Header::STATE)) - 1
    }

    /// Writes the header, as [`Table::write`].
    #[inline]
    pub fn write(self, header: Header) {
        self.cell.header.store(header.0 | self.bits, Ordering::Release);
    }

    /// The slack of the live block here: its bytes beyond those requested.
    #[inline]
    #[must_use]
    pub fn slack(self) -> u32 {
        self.cell.slack.load(Ordering::Relaxed)
    }

    #[inline]
    fn block(self) -> BlockId {
        self.cell.block.load(Ordering::Relaxed)
    }

    /// Sets the slack. pre: no other thread knows the block yet.
    #[inline]
    pub fn set_slack(self, bytes: u32) {
        self.cell.slack.store(bytes, Ordering::Relaxed);
    }
}

/// The cells of a part of the zone of small blocks. The kernel backs only touched pages.
#[derive(Debug)]
struct Leaf(Box<[Cell]>);

/// The leaf that a stream used last. With it a cell's address is a sum; through the list of leaves it takes two more
/// loads, one after the other.
#[derive(Debug)]
pub struct LastLeaf {
    number: u64,
    leaf: Arc<Leaf>,
}

impl Default for LastLeaf {
    /// No leaf.
    fn default() -> Self {
        Self { number: u64::MAX, leaf: Arc::new(Leaf(Box::default())) }
    }
}

impl LastLeaf {
    /// As [`Table::cell_cached`], for a block with its own cell.
    #[inline(always)]
    #[must_use]
    pub fn cell(&self, granule: u64) -> Option<CellRef<'_>> {
        if self.number != granule / LEAF {
            return None;
        }
        self.leaf.0.get((granule % LEAF) as usize).map(|cell| CellRef::new(cell, granule))
    }
}

/// The cells of a whole arena.
#[derive(Debug)]
pub struct Table {
    /// The zone of small blocks; `small` is its length in granules.
    leaves: Box<[OnceLock<Arc<Leaf>>]>,
    small: u64,
    /// The same zone, for blocks of more than `short` granules.
    middling: Windows,
    short: u64,
    /// The zone of large blocks.
    large: Windows,
}

/// A cell per window of a zone. The kernel backs only touched pages.
#[derive(Debug)]
struct Windows {
    /// The zone's first granule.
    from: u64,
    /// Granules per window, as a power of two.
    bits: u32,
    cells: Box<[Cell]>,
}

impl Windows {
    fn new(from: u64, to: u64, bits: u32) -> Self {
        let windows = (to - from).div_ceil(1 << bits);
        Self { from, bits, cells: bytemuck::allocation::zeroed_slice_box(windows as usize) }
    }

    /// pre: the granule is in this zone or behind it.
    #[inline(always)]
    fn cell(&self, granule: u64) -> Option<CellRef<'_>> {
        self.cells.get(((granule - self.from) >> self.bits) as usize).map(|cell| CellRef::new(cell, granule))
    }

    /// The cell of a granule where a live or cached block starts. pre: as for [`Windows::cell`].
    #[inline(always)]
    fn taken(&self, granule: u64) -> Option<CellRef<'_>> {
        self.cell(granule).filter(|cell| cell.is_taken())
    }

    fn start(&self, granule: u64) -> u64 {
        self.from + ((granule - self.from) >> self.bits << self.bits)
    }
}

impl Table {
    /// A table for zones of this shape.
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

    /// The cell of the block that starts at a granule; if none does, a cell that says so.
    #[inline(always)]
    #[must_use]
    pub fn cell(&self, granule: u64) -> Option<CellRef<'_>> {
        if granule >= self.small {
            return self.large.cell(granule);
        }
        self.middling.taken(granule).or_else(|| self.cell_of_small(granule))
    }

    #[inline(always)]
    fn cell_of_small(&self, granule: u64) -> Option<CellRef<'_>> {
        let leaf = self.leaves.get((granule / LEAF) as usize)?.get()?;
        leaf.0.get((granule % LEAF) as usize).map(|cell| CellRef::new(cell, granule))
    }

    /// The same if the cell is in a window or in the leaf `last`, else `None`. pre: `last` was used with this table
    /// only.
    #[inline(always)]
    #[must_use]
    pub fn cell_cached<'a>(&'a self, granule: u64, last: &'a LastLeaf) -> Option<CellRef<'a>> {
        if granule >= self.small {
            return self.large.cell(granule);
        }
        self.middling.taken(granule).or_else(|| last.cell(granule))
    }

    /// The cell of a block that shares one with its window.
    #[inline(always)]
    #[must_use]
    pub fn cell_in_windows(&self, granule: u64) -> Option<CellRef<'_>> {
        self.windows_at(granule).cell(granule)
    }

    #[inline(always)]
    fn windows_at(&self, granule: u64) -> &Windows {
        if granule < self.small { &self.middling } else { &self.large }
    }

    /// Blocks of at most this many granules have their own cell. Requests of up to `small_granules` are small.
    #[must_use]
    pub const fn short(small_granules: u64) -> u64 {
        1 << Self::window_bits(small_granules).saturating_sub(SHORTER_BITS)
    }

    /// The windows of the zone of large blocks: every block there is longer.
    const fn window_bits(small_granules: u64) -> u32 {
        match small_granules.checked_ilog2() {
            Some(bits) if bits < WINDOW_BITS => bits,
            Some(_) => WINDOW_BITS,
            None => 0,
        }
    }

    /// Stores the leaf of a granule, if it has one, as the one used last.
    #[inline]
    pub fn cache_leaf(&self, granule: u64, last: &mut LastLeaf) {
        let number = granule / LEAF;
        if number != last.number
            && let Some(leaf) = self.leaves.get(number as usize).and_then(OnceLock::get)
        {
            *last = LastLeaf { number, leaf: Arc::clone(leaf) };
        }
    }

    /// The windows with the cell of a block of `granules` at `granule`; `None` if the block has its own cell.
    #[inline(always)]
    fn windows_for(&self, granule: u64, granules: u64) -> Option<&Windows> {
        (granules > self.short || granule >= self.small).then(|| self.windows_at(granule))
    }

    /// The cell for a block of `granules` that starts at `granule`.
    #[inline]
    fn cell_for(&self, granule: u64, granules: u64) -> CellRef<'_> {
        let known = match self.windows_for(granule, granules) {
            Some(windows) => windows.cell(granule),
            None => self.cell_of_small(granule),
        };
        known.unwrap_or_else(|| self.add_leaf(granule))
    }

    #[cold]
    fn add_leaf(&self, granule: u64) -> CellRef<'_> {
        let index = granule / LEAF;
        let cells = (self.small - index * LEAF).min(LEAF) as usize;
        let fresh = || Arc::new(Leaf(bytemuck::allocation::zeroed_slice_box(cells)));
        let leaf = self.leaves[index as usize].get_or_init(fresh);
        CellRef::new(&leaf.0[(granule % LEAF) as usize], granule)
    }

    /// The header at `granule`; [`Header::ABSENT`] outside the arena.
    #[must_use]
    pub fn read(&self, granule: u64) -> Header {
        self.cell(granule).map_or(Header::ABSENT, CellRef::read)
    }

    /// Writes the header of a block. pre: only the caller knows the block.
    #[inline]
    pub fn write(&self, granule: u64, header: Header) {
        self.cell_for(granule, header.granules()).write(header);
    }

    /// Marks the block at `granule` as absent. Returns what [`Table::block`] returned before. pre: only the caller
    /// knows the block.
    #[inline]
    pub(crate) fn clear(&self, granule: u64) -> BlockId {
        let Some(cell) = self.cell(granule) else { return NONE };
        cell.write(Header::ABSENT);
        cell.block()
    }

    /// Writes the header of a block that is given out, and its slack.
    #[inline]
    pub fn give_out(&self, granule: u64, header: Header, slack: u32) {
        let cell = self.cell_for(granule, header.granules());
        cell.set_slack(slack);
        cell.write(header);
    }

    /// Writes `new` if the cell still has `old`. Of two frees of one block, one gets `true`.
    #[must_use]
    pub fn swap(&self, granule: u64, old: Header, new: Header) -> bool {
        self.cell(granule).is_some_and(|CellRef { cell, bits }| {
            let (old, new) = (old.0 | bits, new.0 | bits);
            cell.header.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    }

    /// The block that starts at a granule, if it is live or cached; else any block.
    #[inline]
    pub(crate) fn block(&self, granule: u64) -> BlockId {
        self.cell(granule).map_or(NONE, CellRef::block)
    }

    /// Candidates for the last block that starts in the window of `granule`, at or before it. They may be any other
    /// blocks.
    pub(crate) fn blocks(&self, granule: u64) -> [BlockId; 2] {
        let block = |cell: Option<CellRef<'_>>| cell.map_or(NONE, CellRef::block);
        if granule >= self.small {
            return [block(self.large.cell(granule)), NONE];
        }
        [block(self.cell_of_small(granule)), block(self.middling.cell(granule))]
    }

    /// Records the block of `granules` that starts at `granule`, before it is given out.
    pub(crate) fn set_block(&self, granule: u64, granules: u64, block: BlockId) {
        self.cell_for(granule, granules).cell.block.store(block, Ordering::Relaxed);
    }

    /// The first granule for which [`Table::blocks`] returns the same.
    pub(crate) fn window(&self, granule: u64) -> u64 {
        if granule < self.small { granule } else { self.large.start(granule) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 128 granules for small blocks of up to 9, the longer of them in windows of 2; and 128 for large blocks, in
    /// windows of 8.
    fn table() -> Table {
        Table::new(&TableShape { granules: 256, small_zone: 128, small_granules: 9 })
    }

    #[test]
    fn a_window_finds_only_the_granule_of_its_block() {
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
    fn middling_and_small_blocks_share_windows_and_granules() {
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
    fn of_two_frees_one_succeeds() {
        let table = table();
        let live = Header::live(2, 0, 0, false);
        table.write(7, live);
        assert!(table.swap(7, live, live.cached()));
        assert!(!table.swap(7, live, live.cached()));
        assert_eq!(table.read(1 << 40), Header::ABSENT);
    }
}
