//! What the pool knows of one stream: its front cache and its share of the figures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::bare::Bare;
use super::biased::Biased;
use super::fence::Fence;
use crate::pool::{Cached, Front, LastLeaf, Owner};
use crate::units::{GRAIN, StreamHandle};

/// How many frameworks are told apart.
pub const TAGS: usize = 8;

/// Grains that the bins of one front cache hold at most: 64 MiB.
const FRONT_GRAINS: u64 = (64 << 20) / GRAIN;

/// One stream of one device. On cache lines of its own: other threads' streams are none of its business.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Stream {
    /// Its place in the device's list; block headers name it by this.
    pub slot: u16,
    pub handle: StreamHandle,
    /// What no other stream ever has, where the driver can tell.
    pub identity: u64,
    /// Whether the handle is known to live: a default stream, or a registered one. Then nothing is
    /// recorded when it frees; else its fence is raised in its frees, while the handle is alive (but see `bare.rs`).
    pub durable: AtomicBool,
    /// In whose order its free blocks are.
    pub owner: Owner,
    /// Of a stream that is not durable: behind everything it freed, but the block that is bare.
    pub fence: Option<Arc<Fence>>,
    pub hot: Biased<Hot>,
    /// Bytes live, written under `hot`, read by anybody.
    pub live: AtomicU64,
    /// Up to here `live` may rise without the device's peak having to be looked at.
    pub mark: AtomicU64,
}

/// What a hit changes.
#[derive(Debug)]
pub(super) struct Hot {
    pub front: Front,
    /// Of the device's table.
    pub last_leaf: LastLeaf,
    pub counts: Counts,
    /// Of a stream that was not registered.
    pub bare: Bare,
}

/// One stream's share of the figures. Bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub live_peak: u64,
    pub allocations: u64,
    pub frees: u64,
    pub hits: u64,
    pub live_by_tag: [u64; TAGS],
}

impl Stream {
    pub fn new(slot: u16, handle: StreamHandle, identity: u64, owner: Owner, fence: Option<Arc<Fence>>) -> Arc<Self> {
        Arc::new(Self {
            slot,
            handle,
            identity,
            durable: AtomicBool::new(fence.is_none()),
            owner,
            fence,
            hot: Biased::new(Hot {
                front: Front::new(FRONT_GRAINS),
                last_leaf: LastLeaf::default(),
                counts: Counts::default(),
                bare: Bare::default(),
            }),
            live: AtomicU64::new(0),
            mark: AtomicU64::new(0),
        })
    }

    pub fn is_durable(&self) -> bool {
        self.durable.load(Ordering::Acquire)
    }

    /// Whether a block of that length would be more than may go unnoticed.
    #[inline]
    pub fn would_peak(&self, grains: u64) -> bool {
        // Not a sum that can overflow: a size beyond all reason comes here unchecked, outside of any guard.
        self.live.load(Ordering::Relaxed).saturating_add(grains * GRAIN) > self.mark.load(Ordering::Relaxed)
    }

    /// Books a block as live. Returns whether the device's peak has to be looked at.
    #[inline]
    pub fn charge(&self, hot: &mut Hot, grains: u64, tag: u8) -> bool {
        let bytes = grains * GRAIN;
        let live = self.live.load(Ordering::Relaxed) + bytes;
        self.live.store(live, Ordering::Relaxed);
        hot.counts.allocations += 1;
        hot.counts.live_by_tag[tag as usize % TAGS] += bytes;
        if live > hot.counts.live_peak {
            hot.counts.live_peak = live;
        }
        live > self.mark.load(Ordering::Relaxed)
    }

    /// Books a block as freed.
    #[inline]
    pub fn credit(&self, hot: &mut Hot, grains: u64, tag: u8) {
        let bytes = grains * GRAIN;
        self.live.store(self.live.load(Ordering::Relaxed).wrapping_sub(bytes), Ordering::Relaxed);
        hot.counts.frees += 1;
        let by_tag = &mut hot.counts.live_by_tag[tag as usize % TAGS];
        *by_tag = by_tag.wrapping_sub(bytes);
    }

    /// Empties the front cache.
    pub fn drain(&self, take: impl FnMut(Cached)) {
        self.hot.lock().front.drain(take);
    }

    /// How many blocks were asked for on this stream.
    pub fn requests(&self) -> u64 {
        self.hot.lock().counts.allocations
    }
}
