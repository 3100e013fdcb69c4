//! Memory of another stream, behind a wait on the device: the asker's stream waits for what the lender's has, the host goes on.

use std::sync::Arc;

use crate::driver::Result;
use crate::pool::cache::stream::Stream;
use crate::pool::device::DevicePool;
use crate::pool::device::slow_path::Asker;
use crate::pool::device::state::Inner;
use crate::pool::order::fence::Fence;
use crate::units::GRAIN;

impl DevicePool {
    /// The streams whose free memory helps the asker, richest first; none if all of them have fewer than `wanted` bytes together.
    pub(crate) fn lenders(&self, inner: &Inner, asker: Asker<'_>, grains: u64, wanted: u64) -> Vec<Arc<Stream>> {
        if asker.private {
            return Vec::new();
        }
        let mut lenders: Vec<Arc<Stream>> = self.streams.read().all().cloned().collect();
        let (slot, owner) = (asker.stream.slot, asker.stream.owner);
        lenders.retain(|lender| lender.slot != slot && inner.arena.has_to_lend(lender.owner, owner, grains));
        let offered: u64 = lenders.iter().map(|lender| inner.arena.owner_free(lender.owner) * GRAIN).sum();
        if offered < wanted {
            return Vec::new();
        }
        lenders.sort_by_key(|lender| std::cmp::Reverse(inner.arena.owner_free(lender.owner)));
        lenders
    }

    /// Makes the asker's stream wait for the fence of the first that can lend, and hands it what of that stream's free memory helps.
    /// Returns whether anything changed hands.
    pub(crate) fn borrow(&self, inner: &mut Inner, asker: Asker<'_>, grains: u64, lenders: &[Arc<Stream>]) -> bool {
        lenders.iter().any(|lender| self.borrow_from(inner, asker.stream, lender, grains).unwrap_or(false))
    }

    fn borrow_from(&self, inner: &mut Inner, to: &Stream, lender: &Stream, grains: u64) -> Result<bool> {
        let before = inner.fence(lender.slot).filter(|&(_, epoch)| inner.arena.has_up_to(lender.owner, epoch, grains));
        let covered = match (before, lender.own_fences()) {
            // No need to wait for what the lender was given since.
            (Some((fence, epoch)), _) => {
                fence.hold_back(to.handle)?;
                epoch
            }
            (None, Some(fences)) => {
                if !self.cover_bare(lender) {
                    return Ok(false);
                }
                fences.hold_back(to.handle)?;
                u64::MAX
            }
            (None, None) => {
                let (fence, epoch) = self.raise_fence_of(inner, lender)?;
                fence.hold_back(to.handle)?;
                epoch
            }
        };
        // What is borrowed is free only behind the wait that was just queued.
        self.raise_own(to, false)?;
        let epoch = inner.epoch(to.slot);
        // Where blocks are handed over, the lender's are freed one by one: so they can be waited for, one by one.
        let whole = !inner.handed_over;
        let lent = inner.arena.lend(lender.owner, to.owner, covered, epoch, grains, whole);
        inner.figures.waits += 1;
        inner.growth.waited();
        if !whole && !inner.arena.has_up_to(lender.owner, covered, grains) {
            // The next to ask waits for what the lender has now, not for what it gets until then. It can do without.
            let _ = self.raise_next(inner, lender);
        }
        tracing::debug!(device = %self.device, from = %lender.handle, to = %to.handle, bytes = lent * GRAIN, "memory lent");
        Ok(lent > 0)
    }

    /// A fence behind all that a stream has now, if that can be.
    pub(crate) fn raise_next(&self, inner: &mut Inner, stream: &Stream) -> bool {
        match stream.own_fences() {
            Some(rounds) => inner.end_round(stream, rounds),
            None => self.raise_fence_of(inner, stream).is_ok(),
        }
    }

    /// The same for a durable stream, and the epoch that it covers.
    pub(crate) fn raise_fence_of(&self, inner: &mut Inner, stream: &Stream) -> Result<(Arc<Fence>, u64)> {
        let fence = self.fence_after(stream)?;
        let epoch = inner.raised_for_others(stream, Arc::clone(&fence));
        Ok((fence, epoch))
    }
}
