//! The fast malloc and the fast free.
//!
//! It makes no driver call, searches no hash table, and takes one lock that only this stream's users take. Nothing here
//! waits for the GPU, calls user code or can panic, so callers need no guard; if another thread holds the lock, the
//! slow path waits for it. A call that declines has changed nothing and made no driver call. The slow path repeats only
//! the look-up in the thread cache.

use super::lock::CacheGuard;
use super::stream::{CacheState, Stream};
use super::stream_cache::{Cached, StreamCache};
use super::thread_cache;
use crate::block::{CellRef, Header, block_granules};
use crate::pool::order::unfenced::Unfenced;
use crate::units::{Address, GRANULE, StreamHandle};

/// The bytes of a block of `granules` beyond the `bytes` requested.
#[inline(always)]
pub(crate) const fn slack(granules: u64, bytes: u64) -> u32 {
    (granules * GRANULE).wrapping_sub(bytes) as u32
}

/// The stream of that handle on a device, if this thread used it lately. Valid as long as
/// [`thread_cache::CachedStream::stream`].
#[inline(always)]
pub(crate) fn find<'a>(pool: u64, device: i32, handle: StreamHandle) -> Option<&'a Stream> {
    thread_cache::find(pool, handle.canonical(), |known| known.is_on(device)).map(|known| known.stream())
}

/// The same on the device that an address belongs to.
#[inline(always)]
pub(crate) fn find_for<'a>(pool: u64, at: Address, handle: StreamHandle) -> Option<&'a Stream> {
    let fits = |known: &thread_cache::CachedStream| known.stream().layout.granule(at).is_some();
    thread_cache::find(pool, handle.canonical(), fits).map(|known| known.stream())
}

/// Why a free was declined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Declined {
    /// No live block of this stream starts there, or its free needs the slow path.
    Other,
    /// An event has to be recorded on the stream first.
    Event,
    /// The cache is full.
    Full,
}

/// The state that takes in a freed block.
struct CacheParts<'a> {
    cache: &'a mut StreamCache,
    unfenced: &'a mut Unfenced,
    /// Live blocks after the free.
    live: u64,
}

impl Stream {
    /// Serves a request from the cache. Declines if it would raise the device's live peak. The fast path must be open
    /// to the stream.
    #[inline(always)]
    pub fn malloc(&self, bytes: u64, tag: u8) -> Option<Address> {
        self.fast_header.if_open()?;
        // Huge sizes wrap to a length that no cache holds.
        let granules = bytes.wrapping_add(GRANULE - 1) / GRANULE;
        let mut held = self.cache_state.try_lock()?;
        let cache_state = &mut *held;
        let (newest, granules, cell) = if granules.wrapping_sub(1) < StreamCache::SHORT {
            let newest = cache_state.cache.newest_short(granules)?;
            let cell = cache_state.last_leaf.cell(newest.start)?;
            (newest, granules, cell)
        } else {
            let (newest, granules) = cache_state.cache.newest_longer(granules)?;
            let cell = self.layout.table.cell_in_windows(newest.start)?;
            (newest, granules, cell)
        };
        if self.would_peak(granules) {
            return None;
        }
        let start = newest.take();
        cell.set_slack(slack(granules, bytes));
        // If the fast path was closed meanwhile, this request counts as earlier.
        cell.write(self.header.with(granules, tag));
        // The sum is computed again: keeping it would need one register more than there is.
        self.charge(&mut cache_state.counts, granules, tag);
        Some(self.layout.address(start))
    }

    /// Serves a request from the cache, else from `refill`. Also returns whether the live peak has to be updated. pre:
    /// the handle names the stream, which is not captured.
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

    /// Puts a block into the cache if it has room. The fast path must be open to the stream. `inspect` sees the block
    /// first: `None` declines the free, any other result is returned.
    #[inline(always)]
    pub fn free<T>(&self, at: Address, inspect: impl FnOnce(&Self, CellRef<'_>, Header) -> Option<T>) -> Option<T> {
        // While the fast path is closed no live block's header begins like this.
        let like = self.fast_header.get();
        let store = |cache_state: &mut CacheParts<'_>, block| {
            cache_state.cache.push_if_room(block).then_some(()).ok_or(Declined::Full)
        };
        self.take_back::<true, _, _>(self.cache_state.try_lock()?, at, like, inspect, store).ok().map(|(seen, ())| seen)
    }

    /// Puts a block into the cache even while the fast path is closed to the stream. The cache grows if it may; a block
    /// that it does not store is returned. On a stream that is not durable, either an event was recorded for the block
    /// (`fenced`), or one unfenced block is allowed. pre: the handle names the stream, which is not captured.
    pub fn free_or_spill<T>(
        &self,
        at: Address,
        fenced: bool,
        inspect: impl FnOnce(&Self, CellRef<'_>, Header) -> Option<T>,
    ) -> Result<(T, Option<Cached>), Declined> {
        let unfenced = !fenced && !self.is_durable();
        self.take_back::<false, _, _>(self.cache_state.lock(), at, self.header, inspect, |cache_state, block| {
            if unfenced && !cache_state.unfenced.allows() {
                return Err(Declined::Event);
            }
            if unfenced {
                cache_state.unfenced.put(block.start);
            }
            Ok(cache_state.cache.push(block, cache_state.live))
        })
    }

    /// Frees a block whose header begins like `like`; `store` stores it. `CACHED_LEAF`: decline unless the header is in
    /// the cached leaf.
    #[inline(always)]
    fn take_back<const CACHED_LEAF: bool, T, K>(
        &self,
        mut held: CacheGuard<'_, CacheState>,
        at: Address,
        like: Header,
        inspect: impl FnOnce(&Self, CellRef<'_>, Header) -> Option<T>,
        store: impl FnOnce(&mut CacheParts<'_>, Cached) -> Result<K, Declined>,
    ) -> Result<(T, K), Declined> {
        let offset = at.0.wrapping_sub(self.layout.base.0);
        if !offset.is_multiple_of(GRANULE) {
            return Err(Declined::Other);
        }
        let start = offset / GRANULE;
        // A live block's header changes only under this lock, that of the stream it is charged to.
        let CacheState { cache, last_leaf, counts, unfenced, .. } = &mut *held;
        let table = &self.layout.table;
        let cell = table.cell_cached(start, last_leaf).or_else(|| if CACHED_LEAF { None } else { table.cell(start) });
        let cell = cell.ok_or(Declined::Other)?;
        let header = cell.read_matching(like).ok_or(Declined::Other)?;
        let seen = inspect(self, cell, header).ok_or(Declined::Other)?;
        // Without this block.
        let mut cache_state = CacheParts { cache, unfenced, live: counts.live().wrapping_sub(1) };
        let stored = store(&mut cache_state, Cached { start, granules: header.granules() })?;
        cell.write_cached(header);
        self.credit(counts, header.granules(), header.tag());
        Ok((seen, stored))
    }
}
