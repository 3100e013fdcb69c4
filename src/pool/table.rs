//! From an offset to its block, without a lock and without hashing.
//!
//! In the zone of small blocks there is a cell for each grain, in leaves that come into being when first touched. Blocks of the other
//! zone are longer than a *window* of grains, so at most one starts in each window: one cell for a window does, and says at
//! which of its grains. Cells so lie close together where blocks are long, and a free finds its own in the cache.
//!
//! A cell says something only for the first grain of a block that is live or in a front cache. Fronts and the arena both read
//! it; the compare-and-swap on a cell is what makes a second free of the same block lose.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::arena::ArenaOptions;
use super::block::BlockId;

/// Grains per leaf: 1 GiB of the zone of small blocks.
const LEAF: u64 = 1 << 21;

const LEN_BITS: u32 = 33;
const STREAM_BITS: u32 = 16;
const TAG_BITS: u32 = 3;
/// The longest window has two to the power of this grains: 256 KiB.
const WINDOW_BITS: u32 = 9;

/// What the first grain of a block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No block that a caller could know starts here.
    Absent,
    /// A caller has it.
    Live,
    /// A front cache has it.
    Cached,
}

/// A cell's content, packed into one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header(u64);

impl Header {
    /// Nothing here.
    pub const ABSENT: Self = Self(0);

    const STREAM: u32 = LEN_BITS;
    const TAG: u32 = Self::STREAM + STREAM_BITS;
    const STATE: u32 = Self::TAG + TAG_BITS;
    const SPECIAL: u64 = 1 << (Self::STATE + 2);
    /// At which grain of its window the block starts.
    const PLACE: u32 = Self::STATE + 3;

    /// A live block of `len` grains, charged to stream slot `stream` and framework `tag`.
    /// `special` sends its free the slow way (used on further streams, or private).
    #[must_use]
    pub const fn live(len: u64, stream: u16, tag: u8, special: bool) -> Self {
        let word = len
            | (stream as u64) << Self::STREAM
            | ((tag & 7) as u64) << Self::TAG
            | (State::Live as u64) << Self::STATE;
        Self(if special { word | Self::SPECIAL } else { word })
    }

    /// The same block, in a front cache.
    #[must_use]
    pub const fn cached(self) -> Self {
        Self(self.0 & !(3 << Self::STATE) & !Self::SPECIAL | (State::Cached as u64) << Self::STATE)
    }

    /// The same block, whose free must go the slow way.
    #[must_use]
    pub const fn special(self) -> Self {
        Self(self.0 | Self::SPECIAL)
    }

    /// What is here.
    #[must_use]
    pub const fn state(self) -> State {
        match (self.0 >> Self::STATE) & 3 {
            1 => State::Live,
            2 => State::Cached,
            _ => State::Absent,
        }
    }

    /// Length in grains.
    #[must_use]
    pub const fn grains(self) -> u64 {
        self.0 & ((1 << LEN_BITS) - 1)
    }

    /// Slot of the stream that the block is charged to.
    #[must_use]
    pub const fn stream(self) -> u16 {
        (self.0 >> Self::STREAM) as u16
    }

    /// The framework that asked for it.
    #[must_use]
    pub const fn tag(self) -> u8 {
        (self.0 >> Self::TAG) as u8 & 7
    }

    /// Whether a free must go the slow way.
    #[must_use]
    pub const fn is_special(self) -> bool {
        self.0 & Self::SPECIAL != 0
    }
}

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
    /// The bits that say which grain of the window it is.
    bits: u64,
}

impl Place<'_> {
    /// What it says.
    #[inline]
    #[must_use]
    pub fn read(self) -> Header {
        let word = self.cell.header.load(Ordering::Acquire);
        if (word ^ self.bits) >> Header::PLACE == 0 { Header(word) } else { Header::ABSENT }
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
#[derive(Debug, Default)]
pub struct LastLeaf {
    number: u64,
    leaf: Option<Arc<Leaf>>,
}

/// Cells for a whole arena.
#[derive(Debug)]
pub struct Table {
    /// Of the zone of small blocks; `small` is its length in grains.
    leaves: Box<[OnceLock<Arc<Leaf>>]>,
    small: u64,
    /// A cell for each window of the rest. The kernel backs only what is touched.
    windows: Box<[Cell]>,
    window_bits: u32,
}

impl Table {
    /// For an arena of that shape.
    #[must_use]
    pub fn new(options: &ArenaOptions) -> Self {
        let (grains, small) = (options.pages * options.page_grains, options.small_pages * options.page_grains);
        // Every block of the other zone is longer than `small_grains`.
        let window_bits = options.small_grains.checked_ilog2().unwrap_or(0).min(WINDOW_BITS);
        let windows = (grains - small).div_ceil(1 << window_bits);
        Self {
            leaves: (0..small.div_ceil(LEAF)).map(|_| OnceLock::new()).collect(),
            small,
            windows: bytemuck::allocation::zeroed_slice_box(windows as usize),
            window_bits,
        }
    }

    /// The cell of a grain that was written before.
    #[inline(always)]
    #[must_use]
    pub fn place(&self, grain: u64) -> Option<Place<'_>> {
        let Some(beyond) = grain.checked_sub(self.small) else {
            let leaf = self.leaves.get((grain / LEAF) as usize)?.get()?;
            return leaf.0.get((grain % LEAF) as usize).map(|cell| Place { cell, bits: 0 });
        };
        let cell = self.windows.get((beyond >> self.window_bits) as usize)?;
        Some(Place { cell, bits: (beyond & ((1 << self.window_bits) - 1)) << Header::PLACE })
    }

    /// The same for somebody who mostly asks for cells of one leaf. pre: `last` was used with this table alone.
    #[inline(always)]
    #[must_use]
    pub fn place_near<'a>(&'a self, grain: u64, last: &'a mut LastLeaf) -> Option<Place<'a>> {
        if grain >= self.small {
            return self.place(grain);
        }
        if last.number != grain / LEAF || last.leaf.is_none() {
            self.find_leaf(grain, last);
        }
        let cell = last.leaf.as_ref()?.0.get((grain % LEAF) as usize)?;
        Some(Place { cell, bits: 0 })
    }

    #[cold]
    fn find_leaf(&self, grain: u64, last: &mut LastLeaf) {
        let number = grain / LEAF;
        let leaf = self.leaves.get(number as usize).and_then(OnceLock::get);
        *last = LastLeaf { number, leaf: leaf.cloned() };
    }

    #[inline]
    fn place_to_write(&self, grain: u64) -> Place<'_> {
        match self.place(grain) {
            Some(place) => place,
            None => self.fresh(grain),
        }
    }

    #[cold]
    fn fresh(&self, grain: u64) -> Place<'_> {
        let index = grain / LEAF;
        let cells = (self.small - index * LEAF).min(LEAF) as usize;
        let fresh = || Arc::new(Leaf(bytemuck::allocation::zeroed_slice_box(cells)));
        let leaf = self.leaves[index as usize].get_or_init(fresh);
        Place { cell: &leaf.0[(grain % LEAF) as usize], bits: 0 }
    }

    /// What `grain` says; [`Header::ABSENT`] outside the arena.
    #[must_use]
    pub fn read(&self, grain: u64) -> Header {
        self.place(grain).map_or(Header::ABSENT, Place::read)
    }

    /// Writes a cell that only the caller may write: its block is in no other hand.
    #[inline]
    pub fn write(&self, grain: u64, header: Header) {
        self.place_to_write(grain).write(header);
    }

    /// Writes the cell of a block that is given out, and how many of its bytes were not asked for.
    #[inline]
    pub fn give_out(&self, grain: u64, header: Header, unasked: u32) {
        let place = self.place_to_write(grain);
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

    /// The block that was given out last of those that start in the window of `grain`.
    pub(super) fn block(&self, grain: u64) -> BlockId {
        self.place(grain).map_or(super::block::NONE, |place| place.cell.block.load(Ordering::Relaxed))
    }

    pub(super) fn set_block(&self, grain: u64, block: BlockId) {
        self.place_to_write(grain).cell.block.store(block, Ordering::Relaxed);
    }

    /// The first grain of the window of `grain`.
    pub(super) fn window(&self, grain: u64) -> u64 {
        match grain.checked_sub(self.small) {
            None => grain,
            Some(beyond) => self.small + (beyond >> self.window_bits << self.window_bits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_keeps_what_was_put_in() {
        let header = Header::live((1 << LEN_BITS) - 1, u16::MAX, 7, true);
        assert_eq!((header.grains(), header.stream(), header.tag()), ((1 << LEN_BITS) - 1, u16::MAX, 7));
        assert_eq!((header.state(), header.is_special()), (State::Live, true));
        let cached = Header::live(3, 9, 1, false).cached();
        assert_eq!((cached.grains(), cached.stream(), cached.tag(), cached.state()), (3, 9, 1, State::Cached));
        assert!(!cached.is_special() && cached.special().is_special());
    }

    /// 128 grains of small blocks of up to 9, and as many of longer ones: windows of 8.
    fn table() -> Table {
        Table::new(&ArenaOptions {
            page_grains: 16,
            pages: 16,
            small_pages: 8,
            small_grains: 9,
            max_chunk_pages: 0,
            movable: true,
        })
    }

    #[test]
    fn a_window_says_at_which_grain_its_block_starts() {
        let table = table();
        for start in [128, 133, 135, 255] {
            let live = Header::live(11, 4, 2, false);
            table.write(start, live);
            table.set_block(start, start as BlockId);
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
            table.write(start, Header::ABSENT);
        }
        assert_eq!(table.read(256), Header::ABSENT);
        assert_eq!((table.window(127), table.window(5)), (127, 5));
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
