//! The header of a block: one word in the table.

use std::sync::atomic::{AtomicU64, Ordering};

const LEN_BITS: u32 = 33;
const STREAM_BITS: u32 = 16;
const TAG_BITS: u32 = 3;

/// The state of a block, as the cell of its first granule has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No block that a caller could know starts here.
    Absent,
    /// A caller has the block.
    Live,
    /// A stream cache has the block.
    Cached,
}

/// The header of a block, packed into one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header(pub(crate) u64);

impl Header {
    /// No block.
    pub const ABSENT: Self = Self(0);

    /// The bits in which the live blocks of one stream differ: length and framework.
    pub(crate) const OWN: u64 = ((1 << LEN_BITS) - 1) | (7 << Self::TAG);

    const STREAM: u32 = LEN_BITS;
    const TAG: u32 = Self::STREAM + STREAM_BITS;
    pub(crate) const STATE: u32 = Self::TAG + TAG_BITS;
    const SPECIAL: u64 = 1 << (Self::STATE + 2);
    /// The last bits of the granule at which the block starts: its offset in its window.
    pub(crate) const OFFSET: u32 = Self::STATE + 3;

    /// A live block of `len` granules, charged to stream slot `stream` and framework `tag`. `special`: its free takes
    /// the slow path (it is private, exported or used on further streams).
    #[must_use]
    pub const fn live(len: u64, stream: u16, tag: u8, special: bool) -> Self {
        let word = len
            | (stream as u64) << Self::STREAM
            | ((tag & 7) as u64) << Self::TAG
            | (State::Live as u64) << Self::STATE;
        Self(if special { word | Self::SPECIAL } else { word })
    }

    /// The same block, in a stream cache.
    #[must_use]
    pub const fn cached(self) -> Self {
        Self(self.0 & !(3 << Self::STATE) & !Self::SPECIAL | (State::Cached as u64) << Self::STATE)
    }

    /// The same block; its free takes the slow path.
    #[must_use]
    pub const fn special(self) -> Self {
        Self(self.0 | Self::SPECIAL)
    }

    /// The block's state.
    #[must_use]
    pub const fn state(self) -> State {
        match (self.0 >> Self::STATE) & 3 {
            1 => State::Live,
            2 => State::Cached,
            _ => State::Absent,
        }
    }

    /// Length in granules.
    #[must_use]
    pub const fn granules(self) -> u64 {
        self.0 & ((1 << LEN_BITS) - 1)
    }

    /// Slot of the stream that the block is charged to.
    #[must_use]
    pub const fn stream(self) -> u16 {
        (self.0 >> Self::STREAM) as u16
    }

    /// The framework that the block is charged to.
    #[must_use]
    pub const fn tag(self) -> u8 {
        (self.0 >> Self::TAG) as u8 & 7
    }

    /// The same header with this length and framework. pre: its length and framework are 0.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, len: u64, tag: u8) -> Self {
        Self(self.0 | len | ((tag & 7) as u64) << Self::TAG)
    }

    /// Whether the block's free takes the slow path.
    #[must_use]
    pub const fn is_special(self) -> bool {
        self.0 & Self::SPECIAL != 0
    }
}

/// The header that live blocks of a stream have on the fast path, apart from length and framework; or none while the
/// fast path is closed. Any thread.
#[derive(Debug)]
pub struct FastHeader(AtomicU64);

impl FastHeader {
    /// Matches no header: no block has this [`State`].
    const NO_BLOCK: u64 = 3 << Header::STATE;

    /// A closed fast path.
    #[must_use]
    pub const fn closed() -> Self {
        Self(AtomicU64::new(Self::NO_BLOCK))
    }

    /// Opens the fast path for blocks of `stream`, or closes it.
    pub fn set(&self, stream: Option<u16>) {
        let word = stream.map_or(Self::NO_BLOCK, |stream| Header::live(0, stream, 0, false).0);
        self.0.store(word, Ordering::Release);
    }

    /// The header of a live block with length and framework 0; while the fast path is closed, one that no block
    /// matches.
    #[inline(always)]
    #[must_use]
    pub fn get(&self) -> Header {
        Header(self.0.load(Ordering::Acquire))
    }

    /// The same, or `None` while the fast path is closed.
    #[inline(always)]
    #[must_use]
    pub fn if_open(&self) -> Option<Header> {
        let header = self.get();
        // State bits of a live block: only the lower one is set.
        (header.0 & (2 << Header::STATE) == 0).then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_returns_its_fields() {
        let header = Header::live((1 << LEN_BITS) - 1, u16::MAX, 7, true);
        assert_eq!((header.granules(), header.stream(), header.tag()), ((1 << LEN_BITS) - 1, u16::MAX, 7));
        assert_eq!((header.state(), header.is_special()), (State::Live, true));
        let cached = Header::live(3, 9, 1, false).cached();
        assert_eq!((cached.granules(), cached.stream(), cached.tag(), cached.state()), (3, 9, 1, State::Cached));
        assert!(!cached.is_special() && cached.special().is_special());
    }
}
