//! What the pool knows of one stream: its cache and its share of the figures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::lock::CacheLock;
use super::stream_cache::{Cached, StreamCache};
use crate::arena::Owner;
use crate::block::{Beginning, Header, LastLeaf, Table};
use crate::pool::order::event_pair::{EventPair, Turn};
use crate::pool::order::gpu::Gpu;
use crate::pool::order::unfenced::Unfenced;
use crate::units::{Address, GRANULE, StreamHandle};

/// How many frameworks are told apart.
pub const TAGS: usize = 8;

/// One stream of one device. On cache lines of its own: other threads' streams are none of its business.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Stream {
    /// Its place in the device's list; block headers name it by this.
    pub slot: u16,
    pub handle: StreamHandle,
    /// What no other stream ever has, where the driver can tell.
    pub identity: u64,
    pub gpu: Arc<Gpu>,
    /// Whether the handle is known to live: a default stream, or a registered one. Then nothing is
    /// recorded when it frees; else its fence is recorded in its frees, while the handle is alive (but see `order/unfenced.rs`).
    durable: AtomicBool,
    /// How the headers of its live blocks begin, while the fast path is open: to durable streams, as long as nothing is allocated
    /// into private pools.
    pub beginning: Beginning,
    pub layout: Layout,
    /// Of a block that is live here, of length and framework 0.
    pub header: Header,
    /// In whose order its free blocks are.
    pub owner: Owner,
    /// Of a stream that need not be durable: behind everything it freed, but the block that is unfenced.
    pub fences: Option<EventPair>,
    pub cache_state: CacheLock<CacheState>,
    /// Bytes live, written under `cache_state`, read by anybody.
    pub live: AtomicU64,
    /// Up to here `live` may rise without the device's peak having to be looked at.
    pub mark: AtomicU64,
}

/// Where a device's blocks lie, and what tells of them.
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

    /// The granule at an address of this device's pool, whatever is there.
    #[inline]
    pub fn granule(&self, at: Address) -> Option<u64> {
        let offset = at.0.wrapping_sub(self.base.0);
        (offset < self.span).then_some(offset / GRANULE)
    }
}

/// What the fast path changes.
#[derive(Debug)]
pub(crate) struct CacheState {
    pub cache: StreamCache,
    /// Of the device's table.
    pub last_leaf: LastLeaf,
    pub counts: Counts,
    /// Of a stream that was not registered.
    pub unfenced: Unfenced,
    /// Likewise: which of its fences a free moves.
    pub turn: Turn,
    /// Whether an event was recorded in this turn.
    pub has_own_event: bool,
}

/// One stream's share of the figures. Bytes.
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

    /// Blocks live.
    pub fn live(&self) -> u64 {
        self.allocations.wrapping_sub(self.frees)
    }
}

impl CacheState {
    /// Keeps a block in the cache. What that does not keep comes back.
    #[must_use]
    pub fn push(&mut self, block: Cached) -> Option<Cached> {
        self.cache.push(block, self.counts.live())
    }

    /// A block from the cache.
    #[inline]
    pub fn pop(&mut self, granules: u64) -> Option<u64> {
        let start = self.cache.pop(granules)?;
        self.unfenced.popped(start);
        Some(start)
    }
}

impl Stream {
    /// The fast path is shut to it.
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
            beginning: Beginning::of_none(),
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

    /// Whether it may be captured without the pool's having been told: registered, and no default stream.
    pub fn is_registered(&self) -> bool {
        self.fences.is_some() && self.is_durable()
    }

    /// Its fences, if its handle may be dead.
    pub fn own_fences(&self) -> Option<&EventPair> {
        self.fences.as_ref().filter(|_| !self.is_durable())
    }

    /// Opens the fast path to it if it may be open, else shuts it. `routed`: private pools take allocations.
    pub fn open_or_shut(&self, routed: bool) {
        let open = self.is_durable() && !routed;
        self.beginning.set(open.then_some(self.slot));
    }

    /// Whether more bytes would be live with a block of that length than may go unnoticed.
    #[inline(always)]
    pub fn would_peak(&self, granules: u64) -> bool {
        // A size beyond all reason comes here unchecked, outside of any guard; no cache has such a block.
        self.live.load(Ordering::Relaxed).wrapping_add(granules * GRANULE) > self.mark.load(Ordering::Relaxed)
    }

    /// Books a block as live. Returns whether the device's peak has to be looked at.
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

    /// Books a block as freed.
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
