//! What the pool knows of one stream: its cache and its share of the statistics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::lock::CacheLock;
use super::stream_cache::{Cached, StreamCache};
use crate::arena::Owner;
use crate::block::{FastHeader, Header, LastLeaf, Table};
use crate::pool::order::event_pair::{EventPair, Turn};
use crate::pool::order::gpu::Gpu;
use crate::pool::order::unfenced::Unfenced;
use crate::units::{Address, GRANULE, StreamHandle};

/// The number of framework tags.
pub const TAGS: usize = 8;

/// One stream of one device. On cache lines of its own, so that threads on other streams do not slow it down.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Stream {
    /// Index in the device's list; block headers name the stream by it.
    pub slot: u16,
    pub handle: StreamHandle,
    /// A number that no other stream ever has, if the driver can tell streams apart.
    pub identity: u64,
    pub gpu: Arc<Gpu>,
    /// Whether the handle is known to live, as that of a default or registered stream does. The frees of such a stream
    /// record no event. Those of any other do, while its handle is alive (but see `order/unfenced.rs`).
    durable: AtomicBool,
    /// How the headers of its live blocks begin while the fast path is open to it: the stream is durable, and no
    /// private pool takes allocations.
    pub fast_header: FastHeader,
    pub layout: Layout,
    /// The header of a live block of this stream, with length and tag 0.
    pub header: Header,
    /// The owner of its free blocks.
    pub owner: Owner,
    /// For a stream that may be unregistered: the fences behind everything it freed except the unfenced block.
    pub fences: Option<EventPair>,
    pub cache_state: CacheLock<CacheState>,
    /// Live bytes, written under `cache_state`, read by any thread.
    pub live: AtomicU64,
    /// Up to this many live bytes the device's peak need not be updated.
    pub mark: AtomicU64,
}

/// Where a device's blocks lie, and their headers.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub base: Address,
    /// Bytes of addresses.
    pub span: u64,
    pub table: Arc<Table>,
}

impl Layout {
    #[inline]
    pub fn address(&self, start: u64) -> Address {
        self.base.plus(start * GRANULE)
    }

    /// The granule at an address of this device's pool, live or not.
    #[inline]
    pub fn granule(&self, at: Address) -> Option<u64> {
        let offset = at.0.wrapping_sub(self.base.0);
        (offset < self.span).then_some(offset / GRANULE)
    }
}

/// The state that the fast path changes.
#[derive(Debug)]
pub(crate) struct CacheState {
    pub cache: StreamCache,
    /// The last leaf of the device's table that was used.
    pub last_leaf: LastLeaf,
    pub counts: Counts,
    /// The unfenced block of an unregistered stream.
    pub unfenced: Unfenced,
    /// The current turn of the event pair of an unregistered stream.
    pub turn: Turn,
    /// Whether an event was recorded in this turn.
    pub has_own_event: bool,
}

/// One stream's share of the statistics, in bytes and counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub live_peak: u64,
    pub allocations: u64,
    pub frees: u64,
    /// Allocations that the cache did not serve.
    pub missed: u64,
    pub live_by_tag: [u64; TAGS],
}

impl Counts {
    /// Allocations that the cache served.
    pub fn hits(&self) -> u64 {
        self.allocations - self.missed
    }

    /// Live blocks.
    pub fn live(&self) -> u64 {
        self.allocations.wrapping_sub(self.frees)
    }
}

impl CacheState {
    /// Stores a block in the cache. Returns a block that the cache has no room for.
    #[must_use]
    pub fn push(&mut self, block: Cached) -> Option<Cached> {
        self.cache.push(block, self.counts.live())
    }

    /// Takes a block from the cache.
    #[inline]
    pub fn pop(&mut self, granules: u64) -> Option<u64> {
        let start = self.cache.pop(granules)?;
        self.unfenced.popped(start);
        Some(start)
    }
}

impl Stream {
    /// A stream to which the fast path is closed.
    pub fn new(
        (slot, handle, identity): (u16, StreamHandle, u64),
        gpu: &Arc<Gpu>,
        owner: Owner,
        fences: Option<EventPair>,
        layout: Layout,
    ) -> Arc<Self> {
        Arc::new(Self {
            slot,
            handle,
            identity,
            gpu: Arc::clone(gpu),
            durable: AtomicBool::new(fences.is_none()),
            fast_header: FastHeader::closed(),
            layout,
            header: Header::live(0, slot, 0, false),
            owner,
            fences,
            cache_state: CacheLock::new(CacheState {
                cache: StreamCache::default(),
                last_leaf: LastLeaf::default(),
                counts: Counts::default(),
                unfenced: Unfenced::default(),
                turn: 0,
                has_own_event: false,
            }),
            live: AtomicU64::new(0),
            mark: AtomicU64::new(0),
        })
    }

    pub fn is_durable(&self) -> bool {
        self.durable.load(Ordering::Acquire)
    }

    pub fn set_durable(&self, durable: bool) {
        self.durable.store(durable, Ordering::Release);
    }

    /// Whether the stream may be captured without notice to the pool: it is registered, and no default stream.
    pub fn is_registered(&self) -> bool {
        self.fences.is_some() && self.is_durable()
    }

    /// The stream's fences, if its handle may be dead.
    pub fn own_fences(&self) -> Option<&EventPair> {
        self.fences.as_ref().filter(|_| !self.is_durable())
    }

    /// Opens the fast path if the stream is durable and private pools take no allocations (`routed`), else closes it.
    pub fn update_fast_path(&self, routed: bool) {
        let open = self.is_durable() && !routed;
        self.fast_header.set(open.then_some(self.slot));
    }

    /// Whether another live block of `granules` would require an update of the device's peak.
    #[inline(always)]
    pub fn would_peak(&self, granules: u64) -> bool {
        // Huge sizes come here unchecked, outside of any guard; no cache holds such a block.
        self.live.load(Ordering::Relaxed).wrapping_add(granules * GRANULE) > self.mark.load(Ordering::Relaxed)
    }

    /// Counts a block as live. Returns whether the device's peak has to be updated.
    #[inline]
    pub fn charge(&self, counts: &mut Counts, granules: u64, tag: u8) -> bool {
        let bytes = granules * GRANULE;
        let live = self.live.load(Ordering::Relaxed) + bytes;
        self.live.store(live, Ordering::Relaxed);
        counts.allocations += 1;
        counts.live_by_tag[tag as usize % TAGS] += bytes;
        if live > counts.live_peak {
            counts.live_peak = live;
        }
        live > self.mark.load(Ordering::Relaxed)
    }

    /// Counts a block as freed.
    #[inline]
    pub fn credit(&self, counts: &mut Counts, granules: u64, tag: u8) {
        let bytes = granules * GRANULE;
        self.live.store(self.live.load(Ordering::Relaxed).wrapping_sub(bytes), Ordering::Relaxed);
        counts.frees += 1;
        let by_tag = &mut counts.live_by_tag[tag as usize % TAGS];
        *by_tag = by_tag.wrapping_sub(bytes);
    }

    /// Empties the cache.
    pub fn drain(&self, take: impl FnMut(Cached, &[u64])) {
        self.cache_state.lock().cache.drain(take);
    }
}
