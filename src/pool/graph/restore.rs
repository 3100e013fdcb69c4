//! What PyTorch asks of a private pool beyond captures: holds, who a block belongs to, and a block put back as it was.

use std::sync::Arc;

use super::private::unknown;
use crate::arena::Owner;
use crate::block::{Header, block_grains};
use crate::error::{Error, Result};
use crate::pool::cache::stream::Stream;
use crate::pool::device::DevicePool;
use crate::pool::device::state::Deferred;
use crate::pool::pool::Pool;
use crate::units::{Address, GRAIN, StreamHandle};

impl Pool {
    /// Takes one more hold on private pool `id`, which is made if there is none.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn private_hold(&self, device: i32, id: u128) -> Result<()> {
        self.device(device)?.inner.lock().privates.entry(id).or_default().references += 1;
        Ok(())
    }

    /// How many holds there are on private pool `id`; 0 for an unknown one.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn private_holds(&self, device: i32, id: u128) -> Result<u32> {
        Ok(self.device(device)?.inner.lock().privates.get(&id).map_or(0, |private| private.references))
    }

    /// The private pool that a live block came from, if any.
    ///
    /// # Errors
    /// [`Error::BadFree`] if no live block starts at `at`.
    pub fn private_of(&self, at: Address) -> Result<Option<u128>> {
        let home = self.device(self.device_of(at)?)?;
        let (start, _) = home.find_live(at)?;
        Ok(home.inner.lock().private_blocks.get(&start).copied())
    }

    /// Makes a block live again that private pool `id` gave out on `stream` before, at its own address.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an unknown pool; [`Error::Busy`] if the pool has not all of that memory free.
    pub fn private_restore(&self, id: u128, at: Address, bytes: u64, stream: StreamHandle, tag: u8) -> Result<()> {
        let device = self.device_of(at)?;
        self.on_stream(device, stream, |home, stream, _| home.private_restore(id, at, bytes, stream, tag))
    }
}

impl DevicePool {
    fn private_restore(&self, id: u128, at: Address, bytes: u64, stream: &Arc<Stream>, tag: u8) -> Result<()> {
        let grains = block_grains(bytes);
        let start =
            self.grain(at).filter(|_| grains > 0 && at.0.is_multiple_of(GRAIN)).ok_or_else(|| self.bad_free(at))?;
        let mut inner = self.inner.lock();
        let private = inner.privates.get(&id).ok_or_else(|| unknown(id))?;
        // A stream that was first seen while it was being captured may have another slot now.
        let mut owners: Vec<(u16, Owner)> = private.owners.iter().map(|(&slot, &owner)| (slot, owner)).collect();
        owners.sort_by_key(|&(slot, _)| slot != stream.slot);
        // What waits for the capture's end, or for a fence, was never handed on: it is still the block it was.
        let whole = |block: &Deferred| block.start == start && self.table.read(start).grains() == grains;
        let its = |block: &Deferred| whole(block) && owners.iter().any(|&(_, owner)| owner == block.owner);
        let deferred = inner.deferred.iter().position(its);
        let waits = deferred.map(|place| inner.deferred.swap_remove(place)).is_some();
        let waits = waits || inner.privates.get_mut(&id).is_some_and(|private| private.take_held(whole));
        let home = if waits {
            Some(self.table.read(start).stream())
        } else {
            owners.into_iter().find(|&(_, owner)| inner.arena.take_at(owner, start, grains)).map(|(slot, _)| slot)
        };
        let home = home.ok_or_else(|| {
            let why = "free what lies there before";
            Error::Busy(format!("{bytes} bytes at {at} are not free in this private pool: {why}").into())
        })?;
        let known = self.streams.read().slots.get(home as usize).cloned().flatten();
        let stream = known.as_ref().unwrap_or(stream);
        inner.private_blocks.insert(start, id);
        self.table.write(start, Header::live(grains, stream.slot, tag, true));
        drop(inner);
        self.book(stream, grains, tag, false);
        self.asked(bytes, at);
        Ok(())
    }
}
