//! The fast malloc and the fast free.
//!
//! No driver call, no search in a hash table, one lock that only this stream's users take. Nothing here waits for the GPU, calls out of
//! the pool or can panic, so callers need no guard around it; where somebody has the lock, the slow path waits for it. A call that declines has changed nothing, and has not asked the driver: the
//! slow path looks at the same entry of the thread's cache again, and at nothing else twice.

use super::lock::CacheGuard;
use super::stream::{CacheState, Stream};
use super::stream_cache::{Cached, StreamCache};
use super::thread_cache;
use crate::block::{Header, Place, block_granules};
use crate::pool::order::unfenced::Unfenced;
use crate::units::{Address, GRANULE, StreamHandle};

/// How many bytes of a block of that length such a request does not ask for.
#[inline(always)]
pub(crate) const fn slack(granules: u64, bytes: u64) -> u32 {
    (granules * GRANULE).wrapping_sub(bytes) as u32
}

/// The stream of that name on a device, if this thread used it lately. As short-lived as [`thread_cache::Known::stream`].
#[inline(always)]
pub(crate) fn find<'a>(pool: u64, device: i32, handle: StreamHandle) -> Option<&'a Stream> {
    thread_cache::find(pool, handle.canonical(), |known| known.is_on(device)).map(|known| known.stream())
}

/// The same on the device that an address belongs to.
#[inline(always)]
pub(crate) fn find_for<'a>(pool: u64, at: Address, handle: StreamHandle) -> Option<&'a Stream> {
    let fits = |known: &thread_cache::Known| known.stream().layout.granule(at).is_some();
    thread_cache::find(pool, handle.canonical(), fits).map(|known| known.stream())
}

/// Why a block was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Declined {
    /// No live block of this stream's starts there, or one whose free takes more than a cache.
    Other,
    /// An event is to be recorded on the stream first.
    Event,
    /// The cache has no room.
    Full,
}

/// What a block that comes back changes, beside its header and the counts.
struct Kept<'a> {
    cache: &'a mut StreamCache,
    unfenced: &'a mut Unfenced,
    /// Blocks that are live then.
    live: u64,
}

impl Stream {
    /// Serves a request from the cache: to be called while the fast path is open to the stream. Not where the device's peak would
    /// have to be looked at.
    #[inline(always)]
    pub fn malloc(&self, bytes: u64, tag: u8) -> Option<Address> {
        self.beginning.of_some()?;
        // Sizes beyond all reason wrap to one that no cache has.
        let granules = bytes.wrapping_add(GRANULE - 1) / GRANULE;
        let mut held = self.cache_state.try_lock()?;
        let cache_state = &mut *held;
        let (newest, granules, place) = if granules.wrapping_sub(1) < StreamCache::SHORT {
            let newest = cache_state.cache.newest_short(granules)?;
            let place = cache_state.last_leaf.place(newest.start)?;
            (newest, granules, place)
        } else {
            let (newest, granules) = cache_state.cache.newest_longer(granules)?;
            let place = self.layout.table.place_in_windows(newest.start)?;
            (newest, granules, place)
        };
        if self.would_peak(granules) {
            return None;
        }
        let start = newest.take();
        place.set_slack(slack(granules, bytes));
        // The fast path may have been shut by now: then as if it had been after this.
        place.write(self.header.with(granules, tag));
        // Summed again: kept, the sum would cost a register more than there are.
        self.charge(&mut cache_state.counts, granules, tag);
        Some(self.layout.address(start))
    }

    /// Serves a request from the cache or else from what `refill` has. Returns also whether the device's peak has to be looked at. pre: the
    /// handle names the stream, which is not captured.
    pub fn malloc_or(&self, bytes: u64, tag: u8, refill: impl FnOnce(u64) -> Option<u64>) -> Option<(Address, bool)> {
        let granules = block_granules(bytes);
        let mut cache_state = self.cache_state.lock();
        let start = match cache_state.pop(granules) {
            Some(start) => start,
            None => {
                let start = refill(granules)?;
                cache_state.counts.missed += 1;
                start
            }
        };
        let header = Header::live(granules, self.slot, tag, false);
        self.layout.table.give_out(start, header, slack(granules, bytes));
        if granules <= StreamCache::SHORT {
            self.layout.table.cache_leaf(start, &mut cache_state.last_leaf);
        }
        let peak = self.charge(&mut cache_state.counts, granules, tag);
        Some((self.layout.address(start), peak))
    }

    /// Takes a block into the cache, if there is room: to be called while the fast path is open to the stream. `look` sees the block before,
    /// and refuses with `None`; its answer comes back where the block was taken.
    #[inline(always)]
    pub fn free<T>(&self, at: Address, look: impl FnOnce(&Self, Place<'_>, Header) -> Option<T>) -> Option<T> {
        // What is shut has no live block that begins so.
        let like = self.beginning.get();
        let keep = |cache_state: &mut Kept<'_>, block| {
            cache_state.cache.push_if_room(block).then_some(()).ok_or(Declined::Full)
        };
        self.take_back::<true, _, _>(self.cache_state.try_lock()?, at, like, look, keep).ok().map(|(seen, ())| seen)
    }

    /// The same of a stream to which the fast path may be shut; the cache makes room, and what it does not keep comes back. On a stream
    /// that is not durable an event was recorded for the block (`fenced`), or one unfenced block is allowed. pre: the handle names the
    /// stream, which is not captured.
    pub fn free_or_spill<T>(
        &self,
        at: Address,
        fenced: bool,
        look: impl FnOnce(&Self, Place<'_>, Header) -> Option<T>,
    ) -> Result<(T, Option<Cached>), Declined> {
        let unfenced = !fenced && !self.is_durable();
        self.take_back::<false, _, _>(self.cache_state.lock(), at, self.header, look, |cache_state, block| {
            if unfenced && !cache_state.unfenced.allows() {
                return Err(Declined::Event);
            }
            if unfenced {
                cache_state.unfenced.put(block.start);
            }
            Ok(cache_state.cache.push(block, cache_state.live))
        })
    }

    /// Takes back a block whose header begins like `like`, with what `keep` does with it. `CACHED_LEAF`: only where the header is found at one
    /// look.
    #[inline(always)]
    fn take_back<const CACHED_LEAF: bool, T, K>(
        &self,
        mut held: CacheGuard<'_, CacheState>,
        at: Address,
        like: Header,
        look: impl FnOnce(&Self, Place<'_>, Header) -> Option<T>,
        keep: impl FnOnce(&mut Kept<'_>, Cached) -> Result<K, Declined>,
    ) -> Result<(T, K), Declined> {
        let offset = at.0.wrapping_sub(self.layout.base.0);
        if !offset.is_multiple_of(GRANULE) {
            return Err(Declined::Other);
        }
        let start = offset / GRANULE;
        // Every change of a live block's header happens under this lock, of the stream it is charged to.
        let CacheState { cache, last_leaf, counts, unfenced, .. } = &mut *held;
        let table = &self.layout.table;
        let place =
            table.place_cached(start, last_leaf).or_else(|| if CACHED_LEAF { None } else { table.place(start) });
        let place = place.ok_or(Declined::Other)?;
        let header = place.read_like(like).ok_or(Declined::Other)?;
        let seen = look(self, place, header).ok_or(Declined::Other)?;
        // One less is live by now.
        let mut cache_state = Kept { cache, unfenced, live: counts.live().wrapping_sub(1) };
        let kept = keep(&mut cache_state, Cached { start, granules: header.granules() })?;
        place.write_cached(header);
        self.credit(counts, header.granules(), header.tag());
        Ok((seen, kept))
    }
}
