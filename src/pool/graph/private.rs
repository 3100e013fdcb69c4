//! Private pools: memory that belongs to captured graphs.
//!
//! A graph replays whenever its owner likes, so what was given out during its capture is reused within the
//! pool alone, never stolen, lent or given back, until the pool is released.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::arena::Owner;
use crate::block::Header;
use crate::driver::{DriverError, ErrorKind};
use crate::error::{Error, Result};
use crate::pool::cache::stream::Stream;
use crate::pool::cache::stream_cache::Front;
use crate::pool::device::slow_path::Asker;
use crate::pool::device::state::{Deferred, Inner};
use crate::pool::device::{Behind, DevicePool, Freeing};
use crate::pool::order::fence::Fence;
use crate::pool::streams::registry::Standing;
use crate::units::{Address, StreamHandle};

/// Tells whether a stream's allocations go to a private pool.
pub type Filter = Box<dyn Fn(StreamHandle) -> bool + Send + Sync>;

/// One private pool of one device.
#[derive(Debug, Default)]
pub(crate) struct Private {
    /// Captures that allocate from it now.
    active: u32,
    /// Begins less releases.
    pub references: u32,
    /// Its free memory, by stream slot: reuse within a capture follows the stream.
    pub owners: HashMap<u16, Owner>,
    /// Freed during a capture while further streams used them: inside of it nothing can prove those uses over. After it
    /// they have their fences.
    held: Vec<Deferred>,
}

impl Private {
    /// One whose capture nobody will end.
    pub fn never_ending() -> Self {
        Self { active: 1, references: 1, ..Self::default() }
    }

    /// Whether it takes allocations now.
    pub fn is_taking(&self) -> bool {
        self.active > 0
    }

    /// Blocks that wait for the capture's end.
    pub fn held(&self) -> impl Iterator<Item = u64> + '_ {
        self.held.iter().map(|block| block.start)
    }

    /// Takes a block out of those that wait, if it does and is the one meant.
    pub fn take_held(&mut self, meant: impl Fn(&Deferred) -> bool) -> bool {
        let found = self.held.iter().position(meant);
        found.map(|place| self.held.swap_remove(place)).is_some()
    }
}

/// A private pool that takes allocations now.
pub(crate) struct Route {
    id: u128,
    takes: Filter,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("id", &self.id).finish_non_exhaustive()
    }
}

impl DevicePool {
    /// From now on, allocations on streams that `takes` accepts come from private pool `id`, until
    /// [`DevicePool::private_end`]. Holds the pool until [`DevicePool::private_release`].
    pub(crate) fn private_begin(&self, id: u128, takes: Filter) {
        {
            let mut inner = self.inner.lock();
            // A capture wants idle memory: what is proven idle by now can serve it.
            self.settle(&mut inner, None);
            let private = inner.privates.entry(id).or_default();
            private.active += 1;
            private.references += 1;
        }
        self.routes.write().push(Route { id, takes });
        self.routing.fetch_add(1, Ordering::Release);
        self.open_or_shut();
    }

    /// Ends the newest [`DevicePool::private_begin`] of this id.
    pub(crate) fn private_end(&self, id: u128) -> Result<()> {
        let route = {
            let mut routes = self.routes.write();
            let found = routes.iter().rposition(|route| route.id == id).ok_or_else(|| unknown(id))?;
            routes.remove(found)
        };
        self.routing.fetch_sub(1, Ordering::Release);
        self.open_or_shut();
        // The filter belongs to somebody else; dropping it may call him.
        drop(route);
        let mut inner = self.inner.lock();
        let held = match inner.privates.get_mut(&id) {
            Some(private) => {
                private.active = private.active.saturating_sub(1);
                if private.active == 0 { std::mem::take(&mut private.held) } else { Vec::new() }
            }
            None => Vec::new(),
        };
        if !held.is_empty() {
            inner.deferred.extend(held);
            self.give_deferred(&mut inner);
        }
        Ok(())
    }

    /// Lets go of one hold on private pool `id`. With the last, its free memory goes back to everybody, once
    /// the device is done with it.
    pub(crate) fn private_release(&self, id: u128) -> Result<()> {
        {
            let mut inner = self.inner.lock();
            let private = inner.privates.get_mut(&id).ok_or_else(|| unknown(id))?;
            private.references = private.references.saturating_sub(1);
            if private.references > 0 {
                return Ok(());
            }
            let private = inner.privates.remove(&id).unwrap_or_default();
            // The wait for the device proves what their fences would.
            let (of_this, others) = std::mem::take(&mut inner.deferred)
                .into_iter()
                .partition::<Vec<_>, _>(|block| private.owners.values().any(|&owner| owner == block.owner));
            inner.deferred = others;
            for block in private.held.into_iter().chain(of_this) {
                inner.arena.give(block.start, block.owner, 0);
            }
            inner.released.extend(private.owners.values());
        }
        self.clear_quarantine();
        Ok(())
    }

    /// The private pool that an allocation on this stream belongs to now.
    pub(crate) fn route_of(&self, stream: StreamHandle) -> Option<u128> {
        if self.routing.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.routes.read().iter().rev().find(|route| (route.takes)(stream)).map(|route| route.id)
    }

    pub(crate) fn allocate_private(&self, id: u128, stream: &Arc<Stream>, grains: u64, tag: u8) -> Result<Address> {
        let owner = {
            let mut inner = self.inner.lock();
            let known = inner.privates.get(&id).ok_or_else(|| unknown(id))?.owners.get(&stream.slot).copied();
            known.unwrap_or_else(|| {
                let owner = inner.arena.owner_add(true);
                if let Some(private) = inner.privates.get_mut(&id) {
                    private.owners.insert(stream.slot, owner);
                }
                owner
            })
        };
        let start = self.room_for(Asker { stream, owner, private: true }, grains)?;
        self.inner.lock().private_blocks.insert(start, id);
        self.table.write(start, Header::live(grains, stream.slot, tag, true));
        self.book(stream, grains, tag, false);
        Ok(self.address(start))
    }

    // ---- frees that need more than a front cache -----------------------------------------------------

    /// Notes that a live block is used on a further stream, which must live until the block is freed.
    pub(crate) fn record_use(&self, stream: &Arc<Stream>, at: Address) -> Result<()> {
        loop {
            let (start, header) = self.find_live(at)?;
            let mut inner = self.inner.lock();
            if !self.change_header(start, header, header.special()) {
                // Another thread recorded a use just now, or freed the block: that shows in the next round.
                continue;
            }
            // Also where it is the stream of the allocation: the block may be freed on another one.
            let uses = inner.uses.entry(start).or_default();
            if !uses.iter().any(|known| known.slot == stream.slot) {
                uses.push(Arc::clone(stream));
            }
            return Ok(());
        }
    }

    /// Takes back a block that is private, or used on further streams: those recorded, and where asked for
    /// the one it was allocated on.
    #[cold]
    pub(crate) fn free_special(&self, stream: &Arc<Stream>, start: u64, header: Header, how: Freeing) -> Result<()> {
        let mut inner = self.inner.lock();
        if !self.take(start, header) {
            drop(inner);
            // Another thread freed the block, or recorded a use of it.
            let (start, header) = self.find_live(self.address(start))?;
            return self.free_special(stream, start, header, how);
        }
        for export in inner.exports.remove(&start).unwrap_or_default() {
            (export.on_free)();
        }
        let uses = inner.uses.remove(&start).unwrap_or_default();
        if let Some(id) = inner.private_blocks.remove(&start) {
            // It goes back to the stream of its allocation, and only that stream's uses are in that order.
            let home = header.stream();
            let users: Vec<&Arc<Stream>> = uses.iter().chain([stream]).filter(|user| user.slot != home).collect();
            let everything = (how.behind == Behind::Everything).then(|| self.fence_behind_everything());
            let fences = users.iter().map(|user| self.fence_for_user(user)).chain(everything).collect();
            self.free_private(&mut inner, id, start, home, fences);
            return Ok(());
        }
        let fences = self.raise_own(stream, how.captured).and_then(|()| {
            // What the freeing stream itself has queued comes first anyway.
            let recorded = uses.iter().filter(|user| user.slot != stream.slot).map(|user| self.fence_for_user(user));
            let further = match how.behind {
                Behind::Stream => None,
                Behind::Allocation => Some(self.fence_behind(header.stream())),
                Behind::Everything => Some(self.fence_behind_everything()),
            };
            recorded.chain(further).collect::<crate::driver::Result<Vec<_>>>()
        });
        match fences {
            Ok(fences) if fences.is_empty() => inner.give(start, stream.slot, stream.owner),
            Ok(fences) => inner.deferred.push(Deferred { start, owner: stream.owner, slot: stream.slot, fences }),
            // Being captured, or gone: only a wait for the whole device will tell.
            Err(_) => inner.quarantine.push((start, stream.owner)),
        }
        if header.stream() != stream.slot && Front::is_long(header.grains()) {
            self.hand_back_in_time(&mut inner, stream);
        }
        Ok(())
    }

    /// A fence behind all work of a stream that was recorded as a user.
    fn fence_for_user(&self, user: &Stream) -> crate::driver::Result<Arc<Fence>> {
        let why = match self.standing(user) {
            Standing::Current => return self.fence_after(user),
            Standing::Captured => format!("stream {} is being captured", user.handle),
            // On this thread the handle names another stream: an event on it would stand for that one's work.
            Standing::Stale => format!("stream {} is another thread's", user.handle),
        };
        Err(DriverError::new(ErrorKind::Invalid, "record_use", why))
    }

    /// A fence behind all work of the stream in a slot, without touching a handle that may be dead.
    fn fence_behind(&self, slot: u16) -> crate::driver::Result<Arc<Fence>> {
        let known = self.streams.read().slots.get(slot as usize).cloned().flatten();
        match known.filter(|stream| stream.is_durable()) {
            Some(stream) => self.fence_after(&stream),
            None => self.fence_behind_everything(),
        }
    }

    /// A fence behind all work of the device.
    fn fence_behind_everything(&self) -> crate::driver::Result<Arc<Fence>> {
        if self.routing.load(Ordering::Acquire) != 0 {
            // An event over the whole device would break the capture.
            let why = "a graph is being captured";
            return Err(DriverError::new(ErrorKind::Capturing, "event over the whole device", why));
        }
        Fence::after_everything(&self.events)
    }

    /// `fences` are behind the uses on other streams; an error where those are part of a capture.
    fn free_private(
        &self,
        inner: &mut Inner,
        id: u128,
        start: u64,
        slot: u16,
        fences: crate::driver::Result<Vec<Arc<Fence>>>,
    ) {
        let Some(private) = inner.privates.get_mut(&id) else {
            // Its pool was released; the last replay may still be running.
            inner.quarantine.push((start, crate::arena::IDLE));
            return;
        };
        let Some(&owner) = private.owners.get(&slot) else {
            inner.quarantine.push((start, crate::arena::IDLE));
            return;
        };
        match fences {
            Ok(fences) if fences.is_empty() => inner.arena.give(start, owner, 0),
            Ok(fences) if private.active == 0 => inner.deferred.push(Deferred { start, owner, slot, fences }),
            // What is part of a capture runs with its graph, in whose order the pool's memory is used again.
            fences => private.held.push(Deferred { start, owner, slot, fences: fences.unwrap_or_default() }),
        }
    }
}

/// The id of a private pool that a C caller numbered. PyTorch's are pairs of which one half is 0: with all bits of one
/// half set, these never meet them.
#[must_use]
pub const fn own_private_id(id: u64) -> u128 {
    (u64::MAX as u128) << 64 | id as u128
}

/// The id of the private pool of a capture, by the driver's number of it. Apart from the others in the same way.
pub(crate) const fn captured_id(number: u64) -> u128 {
    CAPTURED << 64 | number as u128
}

pub(crate) const fn is_captured(id: u128) -> bool {
    id >> 64 == CAPTURED
}

const CAPTURED: u128 = u64::MAX as u128 - 1;

pub(crate) fn unknown(id: u128) -> Error {
    let (first, second) = ((id >> 64) as u64, id as u64);
    let name = if first == u64::MAX { second.to_string() } else { format!("({first}, {second})") };
    Error::NotFound(format!("there is no private pool {name}: it was never begun, or was released before").into())
}
