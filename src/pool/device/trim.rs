//! Giving memory back to the driver.

use super::DevicePool;
use super::scavenger::Tidier;
use super::state::Inner;
use crate::driver::{DriverError, ErrorKind, Physical};
use crate::pool::graph::private::is_captured;
use crate::pool::order::event_pair::Rounds;
use crate::units::GRAIN;

impl DevicePool {
    /// Gives back what is not live until the pool holds at most `keep` bytes, or no more can be given back.
    /// Waits on the host for work that still uses freed memory. Returns the bytes given back.
    ///
    /// # Errors
    /// The driver's, if it refused; what was given back before stays so.
    pub(crate) fn trim(&self, keep: u64) -> crate::error::Result<u64> {
        if self.wait_for_pending() {
            // A fence that was up already covers what was freed before it; now one is up for the rest.
            self.wait_for_pending();
        }
        self.clear_quarantine();
        let (released, error) = self.release_down_to(keep);
        match error {
            Some(error) => Err(error.into()),
            None => Ok(released),
        }
    }

    /// The same, `part` bytes at a time, with the arena free for requests in between. Nothing while a capture is announced: a fence raised
    /// from another thread at the wrong moment would become a part of it.
    pub(crate) fn release_in_parts(&self, keep: u64, part: u64) -> u64 {
        let mut inner = self.inner.lock();
        if inner.privates.iter().any(|(&id, private)| private.is_taking() && !is_captured(id)) {
            return 0;
        }
        self.settle_quietly(&mut inner);
        let begun = self.physical(&inner);
        // Requests may take as much meanwhile, so this ends by count.
        for _ in 0..=begun / part {
            let held = self.physical(&inner);
            let released = self.release_chunks(&mut inner, keep.max(held.saturating_sub(part)));
            if released.is_err() || self.physical(&inner) == held {
                break;
            }
            inner.unlocked(std::thread::yield_now);
        }
        let gone = begun.saturating_sub(self.physical(&inner));
        if gone > 0 {
            self.note_release(&mut inner);
        }
        gone
    }

    fn release_down_to(&self, keep: u64) -> (u64, Option<DriverError>) {
        let mut inner = self.inner.lock();
        self.settle(&mut inner, None);
        let held = self.physical(&inner);
        let released = self.release_chunks(&mut inner, keep);
        self.note_release(&mut inner);
        (held - self.physical(&inner), released.err())
    }

    fn note_release(&self, inner: &mut Inner) {
        let (left, live) = (self.physical(inner), inner.arena.live_grains() * GRAIN);
        inner.growth.gave_back(self.driver.now(), live, left);
    }

    fn release_chunks(&self, inner: &mut Inner, keep: u64) -> crate::driver::Result<()> {
        let over = self.physical(inner).saturating_sub(keep).div_ceil(self.backing.granularity);
        let prepared = std::mem::take(&mut inner.prepared);
        self.release_all(inner, &prepared);
        for spare in inner.arena.spare(over) {
            if self.page_bytes(inner.arena.mapped_pages()) <= keep {
                break;
            }
            let bytes = self.page_bytes(spare.pages);
            self.backing.unmap(self.page_address(spare.page), bytes)?;
            inner.arena.forget(spare);
            inner.figures.releases += 1;
            let physical = Physical(spare.handle);
            self.backing.release(physical).inspect_err(|_| inner.orphans.push((physical, bytes)))?;
        }
        Ok(())
    }

    /// Gives everything back, blocks still live included.
    pub(crate) fn close(&self) {
        // It must not find the pool half taken down.
        let tidier = self.tidier.lock().take();
        tidier.into_iter().for_each(Tidier::end);
        let synchronize = || self.driver.synchronize(self.device);
        // At the end of the process the driver may be gone, and there is nothing to wait for.
        if let Err(error) = synchronize().or_else(|_| synchronize())
            && error.kind != ErrorKind::Deinitialized
        {
            tracing::warn!(device = %self.device, %error, "closing a pool without having waited for the device");
        }
        let mut inner = self.inner.lock();
        let exports = std::mem::take(&mut inner.exports);
        exports.into_values().flatten().for_each(|export| (export.on_free)());
        let retiring = std::mem::take(&mut inner.retiring);
        // Nobody comes back for what is left behind, so each call gets a second chance.
        let again = |what: &str, call: &dyn Fn() -> crate::driver::Result<()>| {
            if let Err(error) = call().or_else(|_| call()) {
                tracing::warn!(device = %self.device, %error, "{what} failed while closing a pool");
            }
        };
        let unmap = |page, pages| {
            again("unmap", &|| self.backing.unmap(self.page_address(page), self.page_bytes(pages)));
        };
        let release = |physical| again("release", &|| self.backing.release(physical));
        for (_, old) in retiring {
            unmap(old.page, old.pages);
        }
        for chunk in inner.arena.all_chunks() {
            unmap(chunk.page, chunk.pages);
            release(Physical(chunk.handle));
        }
        for &(physical, _) in inner.orphans.iter().chain(&inner.prepared) {
            release(physical);
        }
        again("unreserve", &|| self.backing.unreserve(self.base, self.span));
        *inner = Inner::new(crate::arena::Arena::closed(), self.driver.now());
        let streams = std::mem::take(&mut *self.streams.write());
        // Threads that used a stream lately keep it in memory; what it has of the driver goes now.
        for fence in streams.all().filter_map(|stream| stream.fences.as_ref()).flat_map(Rounds::both) {
            fence.end();
        }
        self.events.end();
    }
}
