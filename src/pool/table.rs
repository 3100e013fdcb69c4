//! From an offset to its block, without a lock and without hashing.
//!
//! One cell for each grain, in leaves that come into being when first touched. A cell says something only
//! for the first grain of a block that is live or in a front cache. Fronts and the arena both read it; the
//! compare-and-swap on a cell is what makes a second free of the same block lose.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::block::BlockId;

/// Grains per leaf: 1 GiB of the arena.
const LEAF: u64 = 1 << 21;

const LEN_BITS: u32 = 36;
const STREAM_BITS: u32 = 16;
const TAG_BITS: u32 = 3;

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
    unused: u32,
}

/// The header of one grain, looked up once to be read and then written.
#[derive(Clone, Copy, Debug)]
pub struct Place<'table>(&'table AtomicU64);

impl Place<'_> {
    /// What it says.
    #[inline]
    #[must_use]
    pub fn read(self) -> Header {
        Header(self.0.load(Ordering::Acquire))
    }

    /// Writes it: as [`Table::write`].
    #[inline]
    pub fn write(self, header: Header) {
        self.0.store(header.0, Ordering::Release);
    }
}

/// Cells for a whole arena.
#[derive(Debug)]
pub struct Table {
    leaves: Box<[OnceLock<Box<[Cell]>>]>,
    /// Grains in the last, shorter leaf's stead: the arena's length.
    grains: u64,
}

impl Table {
    /// For an arena of `grains`.
    #[must_use]
    pub fn new(grains: u64) -> Self {
        Self { leaves: (0..grains.div_ceil(LEAF)).map(|_| OnceLock::new()).collect(), grains }
    }

    #[inline]
    fn existing(&self, grain: u64) -> Option<&Cell> {
        let leaf = self.leaves.get((grain / LEAF) as usize)?.get()?;
        leaf.get((grain % LEAF) as usize)
    }

    fn cell(&self, grain: u64) -> &Cell {
        let index = grain / LEAF;
        // Zeroed allocation: the kernel backs only the cells that are touched.
        let leaf = self.leaves[index as usize]
            .get_or_init(|| bytemuck::allocation::zeroed_slice_box((self.grains - index * LEAF).min(LEAF) as usize));
        &leaf[(grain % LEAF) as usize]
    }

    /// The cell of a grain that was written before.
    #[inline]
    #[must_use]
    pub fn place(&self, grain: u64) -> Option<Place<'_>> {
        self.existing(grain).map(|cell| Place(&cell.header))
    }

    /// What `grain` says; [`Header::ABSENT`] outside the arena.
    #[must_use]
    pub fn read(&self, grain: u64) -> Header {
        self.existing(grain).map_or(Header::ABSENT, |cell| Header(cell.header.load(Ordering::Acquire)))
    }

    /// Writes a cell that only the caller may write: its block is in no other hand.
    pub fn write(&self, grain: u64, header: Header) {
        self.cell(grain).header.store(header.0, Ordering::Release);
    }

    /// Writes `new` if the cell still says `old`. Of two frees of one block, one gets `true`.
    #[must_use]
    pub fn swap(&self, grain: u64, old: Header, new: Header) -> bool {
        self.existing(grain)
            .is_some_and(|cell| cell.header.compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Relaxed).is_ok())
    }

    pub(super) fn block(&self, grain: u64) -> BlockId {
        self.existing(grain).map_or(super::block::NONE, |cell| cell.block.load(Ordering::Relaxed))
    }

    pub(super) fn set_block(&self, grain: u64, block: BlockId) {
        self.cell(grain).block.store(block, Ordering::Relaxed);
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

    #[test]
    fn of_two_frees_one_wins() {
        let table = Table::new(100);
        let live = Header::live(2, 0, 0, false);
        table.write(7, live);
        assert!(table.swap(7, live, live.cached()));
        assert!(!table.swap(7, live, live.cached()));
        assert_eq!(table.read(1 << 40), Header::ABSENT);
    }
}
