//! What the table says of a block: one word.

use std::sync::atomic::{AtomicU64, Ordering};

const LEN_BITS: u32 = 33;
const STREAM_BITS: u32 = 16;
const TAG_BITS: u32 = 3;

/// What the first granule of a block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No block that a caller could know starts here.
    Absent,
    /// A caller has it.
    Live,
    /// A stream cache has it.
    Cached,
}

/// A cell's content, packed into one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header(pub(crate) u64);

impl Header {
    /// Nothing here.
    pub const ABSENT: Self = Self(0);

    /// Where what differs between the live blocks of one stream is: length and framework.
    pub(crate) const OWN: u64 = ((1 << LEN_BITS) - 1) | (7 << Self::TAG);

    const STREAM: u32 = LEN_BITS;
    const TAG: u32 = Self::STREAM + STREAM_BITS;
    pub(crate) const STATE: u32 = Self::TAG + TAG_BITS;
    const SPECIAL: u64 = 1 << (Self::STATE + 2);
    /// At which granule of its window the block starts.
    pub(crate) const PLACE: u32 = Self::STATE + 3;

    /// A live block of `len` granules, charged to stream slot `stream` and framework `tag`.
    /// `special` sends its free the slow way (used on further streams, or private).
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

    /// The framework that asked for it.
    #[must_use]
    pub const fn tag(self) -> u8 {
        (self.0 >> Self::TAG) as u8 & 7
    }

    /// The same of another length and framework. pre: it has length and framework 0.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, len: u64, tag: u8) -> Self {
        Self(self.0 | len | ((tag & 7) as u64) << Self::TAG)
    }

    /// Whether a free must go the slow way.
    #[must_use]
    pub const fn is_special(self) -> bool {
        self.0 & Self::SPECIAL != 0
    }
}

/// How the headers of a stream's live blocks begin, while one may look for nothing else in them. Any thread.
#[derive(Debug)]
pub struct Beginning(AtomicU64);

impl Beginning {
    /// Says yes to [`State`]s that no block is in.
    const NO_BLOCK: u64 = 3 << Header::STATE;

    /// That no block's header begins so.
    #[must_use]
    pub const fn of_none() -> Self {
        Self(AtomicU64::new(Self::NO_BLOCK))
    }

    /// From now on the headers of that stream begin so, or none does.
    pub fn set(&self, stream: Option<u16>) {
        let word = stream.map_or(Self::NO_BLOCK, |stream| Header::live(0, stream, 0, false).0);
        self.0.store(word, Ordering::Release);
    }

    /// A live block of length and framework 0; one that no block is like, where none begins so.
    #[inline(always)]
    #[must_use]
    pub fn get(&self) -> Header {
        Header(self.0.load(Ordering::Acquire))
    }

    /// The same, where blocks begin so.
    #[inline(always)]
    #[must_use]
    pub fn of_some(&self) -> Option<Header> {
        let header = self.get();
        // Of a live block only the lower bit is set.
        (header.0 & (2 << Header::STATE) == 0).then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_keeps_what_was_put_in() {
        let header = Header::live((1 << LEN_BITS) - 1, u16::MAX, 7, true);
        assert_eq!((header.granules(), header.stream(), header.tag()), ((1 << LEN_BITS) - 1, u16::MAX, 7));
        assert_eq!((header.state(), header.is_special()), (State::Live, true));
        let cached = Header::live(3, 9, 1, false).cached();
        assert_eq!((cached.granules(), cached.stream(), cached.tag(), cached.state()), (3, 9, 1, State::Cached));
        assert!(!cached.is_special() && cached.special().is_special());
    }
}
