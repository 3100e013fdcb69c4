//! The fast malloc and the fast free.
//!
//! No driver call, no search in a hash table, one lock that only this stream's users take; memory of the host only when a full bin
//! of the cache doubles its room. Nothing here waits for the GPU, calls out of the pool or can panic, so callers need no guard around
//! it. Where a call declines, it says why, and what it knows by then.

use super::stream::{Hot, Stream};
use super::stream_cache::{Cached, StreamCache};
use super::thread_cache;
use crate::block::{Header, Place, block_grains};
use crate::units::{Address, GRAIN, StreamHandle};

/// Why a request was not served.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Miss<'a> {
    /// This thread did not use such a stream lately.
    Unknown,
    /// The stream is not registered, or private pools take allocations: the driver and they are to be asked first.
    Shut(&'a Stream),
    /// Its cache has no such block.
    Empty(&'a Stream),
    /// It was served, and more is live than the stream's mark allows: the device's peak is to be looked at.
    Peak(&'a Stream, Address),
}

/// Why a block was not taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Declined<'a> {
    /// This thread did not use such a stream of that block's device lately.
    Unknown,
    /// The stream is not registered, or private pools take allocations.
    Shut(&'a Stream),
    /// No live block of this stream's starts there, or one whose free takes more than a cache.
    Other(&'a Stream),
    /// An event is to be recorded on the stream first.
    Event(&'a Stream),
}

/// What the cache of a stream did not keep of what it took: for the arena.
pub(crate) type Left<'a> = Option<(&'a Stream, Cached)>;

/// How many bytes of a block of that length such a request does not ask for.
#[inline(always)]
pub(crate) const fn unasked(grains: u64, bytes: u64) -> u32 {
    (grains * GRAIN).wrapping_sub(bytes) as u32
}

/// Serves a request from the cache of a stream that the thread used lately.
#[inline(always)]
pub(crate) fn malloc<'a>(
    pool: u64,
    bytes: u64,
    device: i32,
    handle: StreamHandle,
    tag: u8,
) -> Result<Address, Miss<'a>> {
    let known = thread_cache::find(pool, handle.canonical(), |known| known.is_on(device)).ok_or(Miss::Unknown)?;
    let stream = known.stream();
    if stream.beginning.of_some().is_none() {
        return Err(Miss::Shut(stream));
    }
    stream.malloc(bytes, tag)
}

/// Takes a block into the cache of a stream that the thread used lately. `look` sees it before, and refuses with `None`; its answer
/// comes back where the block was taken, with what the cache does not keep of it, for the arena.
#[inline(always)]
pub(crate) fn free<'a, T>(
    pool: u64,
    at: Address,
    handle: StreamHandle,
    look: impl FnOnce(&Stream, Place<'_>, Header) -> Option<T>,
) -> Result<(T, Left<'a>), Declined<'a>> {
    let fits = |known: &thread_cache::Known| known.stream().layout.grain(at).is_some();
    let known = thread_cache::find(pool, handle.canonical(), fits).ok_or(Declined::Unknown)?;
    let stream = known.stream();
    match stream.take_back(at, stream.beginning.get(), false, look) {
        Err(Declined::Other(stream)) if stream.beginning.of_some().is_none() => Err(Declined::Shut(stream)),
        other => other,
    }
}

impl Stream {
    /// Serves a request from the cache. pre: the handle names the stream, which is not captured.
    #[inline(always)]
    pub fn malloc<'a>(&'a self, bytes: u64, tag: u8) -> Result<Address, Miss<'a>> {
        // Sizes beyond all reason wrap to one that no cache has.
        let grains = bytes.wrapping_add(GRAIN - 1) / GRAIN;
        let mut held = self.hot.lock();
        let hot = &mut *held;
        let (newest, grains, place) = if grains.wrapping_sub(1) < StreamCache::SHORT {
            let newest = hot.cache.newest_short(grains).ok_or(Miss::Empty(self))?;
            let place = hot.last_leaf.place(newest.start).ok_or(Miss::Empty(self))?;
            (newest, grains, place)
        } else {
            let (newest, grains) = hot.cache.newest_longer(grains).ok_or(Miss::Empty(self))?;
            let place = self.layout.table.place_in_windows(newest.start).ok_or(Miss::Empty(self))?;
            (newest, grains, place)
        };
        let start = newest.take();
        hot.unfenced.popped(start);
        place.set_unasked(unasked(grains, bytes));
        // The fast path may have been shut by now: then as if it had been after this.
        place.write(self.header.with(grains, tag));
        let peak = self.charge(hot, grains, tag);
        let at = self.layout.address(start);
        if peak { Err(Miss::Peak(self, at)) } else { Ok(at) }
    }

    /// Serves a request that the cache may lack from what `refill` has. pre: as for [`Stream::malloc`].
    #[inline]
    pub fn malloc_or<'a>(
        &'a self,
        bytes: u64,
        tag: u8,
        refill: impl FnOnce(u64) -> Option<u64>,
    ) -> Result<Address, Miss<'a>> {
        let grains = block_grains(bytes);
        let mut held = self.hot.lock();
        let hot = &mut *held;
        let start = match hot.pop(grains) {
            Some(start) => start,
            None => {
                let start = refill(grains).ok_or(Miss::Empty(self))?;
                hot.counts.missed += 1;
                start
            }
        };
        let peak =
            self.give_out(hot, start, grains, Header::live(grains, self.slot, tag, false), unasked(grains, bytes));
        let at = self.layout.address(start);
        if peak { Err(Miss::Peak(self, at)) } else { Ok(at) }
    }

    /// Writes a block's header and books it as live. Returns whether the device's peak has to be looked at.
    #[inline]
    fn give_out(&self, hot: &mut Hot, start: u64, grains: u64, header: Header, unasked: u32) -> bool {
        self.layout.table.give_out(start, header, unasked);
        if grains <= StreamCache::SHORT {
            self.layout.table.come_near(start, &mut hot.last_leaf);
        }
        self.charge(hot, grains, header.tag())
    }

    /// Takes a block into the cache whose header begins like `like`, which is of this stream. On a stream that is not durable an event
    /// was recorded for it (`fenced`), or one unfenced block is allowed. pre: the handle names the stream, which is not captured.
    #[inline(always)]
    pub fn take_back<'a, T>(
        &'a self,
        at: Address,
        like: Header,
        fenced: bool,
        look: impl FnOnce(&Self, Place<'_>, Header) -> Option<T>,
    ) -> Result<(T, Left<'a>), Declined<'a>> {
        let offset = at.0.wrapping_sub(self.layout.base.0);
        if !offset.is_multiple_of(GRAIN) {
            return Err(Declined::Other(self));
        }
        let start = offset / GRAIN;
        // Every change of a live block's header happens under this lock, of the stream it is charged to.
        let mut held = self.hot.lock();
        let hot = &mut *held;
        let place = self.layout.table.place_near(start, &hot.last_leaf).or_else(|| self.layout.table.place(start));
        let place = place.ok_or(Declined::Other(self))?;
        let header = place.read_like(like).ok_or(Declined::Other(self))?;
        let unfenced = !fenced && !self.is_durable();
        if unfenced && !hot.unfenced.allows() {
            return Err(Declined::Event(self));
        }
        let seen = look(self, place, header).ok_or(Declined::Other(self))?;
        if unfenced {
            hot.unfenced.put(start);
        }
        place.write_cached(header);
        self.credit(hot, header.grains(), header.tag());
        let left = hot.push(Cached { start, grains: header.grains() });
        Ok((seen, left.map(|block| (self, block))))
    }
}
