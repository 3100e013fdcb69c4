//! Acting on fences: what has passed becomes anybody's memory, or is unmapped, or freed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::arena::IDLE;
use crate::driver::{Capture, DriverError, ErrorKind};
use crate::pool::cache::stream::Stream;
use crate::pool::device::DevicePool;
use crate::pool::device::state::Inner;
use crate::pool::order::event_pair::Rounds;
use crate::pool::order::fence::Fence;

impl DevicePool {
    /// Empties every front and looks at every fence, without waiting for any.
    pub(crate) fn settle(&self, inner: &mut Inner, asker: Option<&Arc<Stream>>) {
        // The asker may use its own memory as it is.
        self.settle_where(inner, |stream| asker.is_none_or(|asker| asker.slot != stream.slot));
    }

    /// The same from a thread of the pool's own, at a moment that no user chose.
    pub(crate) fn settle_quietly(&self, inner: &mut Inner) {
        // Only an event behind all work of the device could cover a bare block, and that could break a capture.
        self.settle_where(inner, |stream| stream.is_durable() || stream.hot.enter(None).bare.is_none());
    }

    fn settle_where(&self, inner: &mut Inner, may_look: impl Fn(&Stream) -> bool) {
        self.unmap_retired(inner);
        self.give_deferred(inner);
        // Who changes the list has the arena's lock too, so nobody waits for this one.
        let streams = self.streams.read();
        for stream in streams.all() {
            inner.drain(stream);
        }
        for stream in streams.all() {
            if inner.arena.owner_free(stream.owner) > 0 && may_look(stream) {
                self.look_at_fence(inner, stream);
            }
        }
        self.retry_orphans(inner);
    }

    /// Hands a stream's freed memory to everybody if its fence has passed; raises one where there is none.
    pub(crate) fn look_at_fence(&self, inner: &mut Inner, stream: &Stream) {
        let own = stream.own_fences();
        if let Some(fences) = own {
            if !self.cover_bare(stream) {
                return;
            }
            if fences.passed() {
                inner.arena.promote(stream.owner, u64::MAX);
                return inner.lowered(stream.slot);
            }
        }
        // At most: an old fence has passed, a new one is raised, and that has passed too.
        for _ in 0..3 {
            match inner.fence(stream.slot) {
                Some((fence, epoch)) if fence.passed() => {
                    inner.arena.promote(stream.owner, epoch);
                    inner.lowered(stream.slot);
                }
                // One pending fence at a time: raising it again and again would keep it from passing.
                Some((_, epoch)) => {
                    // Where each stream asks for what it frees, each has enough that joins as it may.
                    if inner.handed_over {
                        inner.arena.seal(stream.owner, epoch);
                    }
                    return;
                }
                None if inner.arena.owner_free(stream.owner) == 0 => return,
                None if !self.raise_next(inner, stream) => return,
                None => {}
            }
        }
    }

    /// A fence behind all work of a durable stream that is not asking itself, unless that could break a capture.
    pub(crate) fn fence_after(&self, stream: &Stream) -> crate::driver::Result<Arc<Fence>> {
        if self.may_be_captured(stream)? {
            let why = format!("no event can be recorded on stream {} during a capture", stream.handle);
            return Err(DriverError::new(ErrorKind::Capturing, "event record", why));
        }
        Fence::after(&self.events, stream.handle)
    }

    /// Whether an event on a living stream could break a capture, or become a part of one. The legacy stream answers for every
    /// stream that synchronises with it.
    pub(crate) fn may_be_captured(&self, stream: &Stream) -> crate::driver::Result<bool> {
        match self.driver.stream_capture(self.device, stream.handle) {
            Err(error) if error.kind == ErrorKind::Capturing => Ok(true),
            answer => Ok(answer? != Capture::None),
        }
    }

    /// Whether a living stream has nothing to do now. A driver that cannot tell counts as "no", and so does a capture.
    pub(crate) fn stands_idle(&self, stream: &Stream) -> bool {
        self.may_be_captured(stream).is_ok_and(|captured| !captured)
            && self.driver.stream_idle(self.device, stream.handle).unwrap_or(false)
    }

    /// Unmaps the old places of moved chunks, oldest first, as far as their fences have passed.
    pub(crate) fn unmap_retired(&self, inner: &mut Inner) {
        while let Some((fence, old)) = inner.retiring.front() {
            if fence.as_ref().is_some_and(|fence| !fence.passed()) {
                return;
            }
            let old = *old;
            if let Err(error) = self.backing.unmap(self.page_address(old.page), self.page_bytes(old.pages)) {
                tracing::warn!(device = %self.device, %error, "an old mapping could not be removed; it is tried again");
                return;
            }
            inner.retiring.pop_front();
            inner.arena.unmapped(old);
        }
    }

    /// The deferred blocks that came first, as far as their fences have passed: there may be thousands behind them that wait.
    pub(crate) fn give_first_deferred(inner: &mut Inner) {
        let done = inner.deferred.iter().take_while(|block| block.is_over()).count();
        for block in inner.deferred.drain(..done).collect::<Vec<_>>() {
            inner.give(block.start, block.slot, block.owner);
        }
    }

    pub(crate) fn give_deferred(&self, inner: &mut Inner) {
        let mut waiting = std::mem::take(&mut inner.deferred);
        waiting.retain(|block| {
            let done = block.is_over();
            if done {
                inner.give(block.start, block.slot, block.owner);
            }
            !done
        });
        inner.deferred = waiting;
    }

    fn retry_orphans(&self, inner: &mut Inner) {
        // What could be unmapped and is not may be theirs: they are held, and counted, until it is.
        if inner.retiring.iter().any(|(fence, _)| fence.is_none()) {
            return;
        }
        inner.orphans.retain(|&(physical, _)| self.backing.release(physical).is_err());
    }

    // ---- waiting, without the lock -------------------------------------------------------------------

    /// Waits on the host until everything freed so far is proven unused. Returns whether there was anything
    /// to wait for.
    pub(crate) fn wait_for_pending(&self) -> bool {
        let fences = {
            let mut inner = self.inner.lock();
            self.settle(&mut inner, None);
            self.pending(&mut inner)
        };
        if fences.is_empty() {
            return false;
        }
        for fence in &fences {
            if let Err(error) = fence.wait() {
                tracing::warn!(device = %self.device, %error, "a fence could not be waited for");
            }
        }
        let mut inner = self.inner.lock();
        self.settle(&mut inner, None);
        true
    }

    /// Every fence that is waited for now.
    fn pending(&self, inner: &mut Inner) -> Vec<Arc<Fence>> {
        let mut fences: Vec<Arc<Fence>> = inner.retiring.iter().filter_map(|(fence, _)| fence.clone()).collect();
        fences.extend(inner.deferred.iter().flat_map(|block| block.fences.iter().cloned()));
        for stream in self.streams.read().all() {
            if inner.arena.owner_free(stream.owner) == 0 {
                continue;
            }
            if stream.is_durable() {
                fences.extend(inner.fence(stream.slot).map(|(fence, _)| fence));
            } else if self.cover_bare(stream) {
                fences.extend(stream.fences.iter().flat_map(Rounds::both).cloned());
            }
        }
        fences
    }

    /// Waits for the whole device where nothing else proves memory unused: what released private pools held,
    /// and blocks freed on a capturing stream. Returns whether that freed anything.
    pub(crate) fn clear_quarantine(&self) -> bool {
        let (blocks, owners) = {
            let inner = self.inner.lock();
            (inner.quarantine.clone(), inner.released.clone())
        };
        // A wait for the whole device would break a capture.
        if blocks.is_empty() && owners.is_empty() || self.routing.load(Ordering::Acquire) != 0 {
            return false;
        }
        if let Err(error) = self.driver.synchronize(self.device) {
            tracing::debug!(device = %self.device, %error, "the device cannot be waited for now");
            return false;
        }
        let mut inner = self.inner.lock();
        // Only what was there before the wait is covered by it.
        let mut cleared = Vec::new();
        inner.quarantine.retain(|block| {
            !blocks.contains(block) || {
                cleared.push(*block);
                false
            }
        });
        for &(start, _) in &cleared {
            inner.arena.give(start, IDLE, 0);
        }
        for owner in owners {
            if inner.released.remove(&owner) {
                inner.arena.promote(owner, u64::MAX);
                inner.arena.owner_remove(owner);
            }
        }
        true
    }
}
