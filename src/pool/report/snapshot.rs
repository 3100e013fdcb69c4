//! What lies where: every block of a device's pool in address order, and word of memory that is mapped and unmapped.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::arena::Owner;
use crate::block::State;
use crate::error::Result;
use crate::pool::device::DevicePool;
use crate::pool::pool::Pool;
use crate::units::{Address, GRAIN, StreamHandle};

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// Given out.
    Live,
    /// Given back, and free for requests in its order.
    Free,
    /// Given back, and waiting for work that may still use it.
    Pending,
}

/// A block, as it was at one moment.
#[derive(Clone, Copy, Debug)]
pub struct BlockInfo {
    /// Where it begins.
    pub address: Address,
    /// Its length.
    pub bytes: u64,
    /// How many bytes its user asked for; 0 unless it is live.
    pub requested: u64,
    /// What it is.
    pub state: BlockState,
    /// The framework that has it; 0 for a free one.
    pub tag: u8,
    /// The stream it was allocated on, or in whose order it is free; `None` for nobody's.
    pub stream: Option<StreamHandle>,
    /// The private pool it belongs to.
    pub private: Option<u128>,
}

/// What happened to a range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// It has memory now.
    Mapped,
    /// It has none any more.
    Unmapped,
}

/// Told of each range that is mapped or unmapped, under the arena's lock: must not call the pool.
pub type Observer = Box<dyn Fn(Mapping, Address, u64) + Send + Sync>;

/// Somebody to tell, or nobody.
#[derive(Default)]
pub(crate) struct Observed(pub Option<Observer>);

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observed").field(&self.0.is_some()).finish()
    }
}

impl DevicePool {
    /// Every block that has memory, in address order.
    pub(crate) fn blocks(&self) -> Vec<BlockInfo> {
        let inner = self.inner.lock();
        let streams = self.streams.read();
        let by_slot = |slot: u16| streams.slots.get(slot as usize).and_then(Option::as_ref).map(|stream| stream.handle);
        let mut orders: HashMap<Owner, (Option<StreamHandle>, Option<u128>)> =
            streams.all().map(|stream| (stream.owner, (Some(stream.handle), None))).collect();
        for (&id, private) in &inner.privates {
            orders.extend(private.owners.iter().map(|(&slot, &owner)| (owner, (by_slot(slot), Some(id)))));
        }
        let deferred = inner.deferred.iter().map(|block| block.start);
        let quarantined = inner.quarantine.iter().map(|&(start, _)| start);
        let held = inner.privates.iter().flat_map(|(&id, private)| private.held().map(move |start| (start, id)));
        let owned = inner.deferred.iter().filter_map(|block| Some((block.start, orders.get(&block.owner)?.1?)));
        let held: HashMap<u64, u128> = held.chain(owned).collect();
        let waiting: HashSet<u64> = deferred.chain(quarantined).chain(held.keys().copied()).collect();
        let seen = inner.arena.spans().map(|span| {
            let header = self.table.read(span.start);
            let (state, tag, stream, private) = match span.free {
                Some(owner) => {
                    let (stream, private) = orders.get(&owner).copied().unwrap_or_default();
                    (BlockState::Free, 0, stream, private)
                }
                None if waiting.contains(&span.start) => {
                    (BlockState::Pending, 0, by_slot(header.stream()), held.get(&span.start).copied())
                }
                None if header.state() == State::Live => {
                    let private = inner.private_blocks.get(&span.start).copied();
                    (BlockState::Live, header.tag(), by_slot(header.stream()), private)
                }
                // In a front cache, or on its way from the arena to a caller.
                None => (BlockState::Free, 0, by_slot(header.stream()), None),
            };
            let address = self.address(span.start);
            let bytes = span.grains * GRAIN;
            let asked = || header.grains() * GRAIN - u64::from(self.unasked(span.start));
            let requested = if state == BlockState::Live { asked() } else { 0 };
            BlockInfo { address, bytes, requested, state, tag, stream, private }
        });
        seen.collect()
    }
}

impl Pool {
    /// Every block of a device that has memory, in address order, as of one moment. A device that was not used has none,
    /// and stays unused.
    ///
    /// # Errors
    /// See [`crate::error::Error`].
    pub fn blocks(&self, device: i32) -> Result<Vec<BlockInfo>> {
        Ok(self.device_if_used(device)?.map_or_else(Vec::new, |home| home.blocks()))
    }

    /// Tells `observer` of every range of a device's pool that is mapped or unmapped from now on; `None` ends that.
    ///
    /// # Errors
    /// See [`crate::error::Error`].
    pub fn observe(&self, device: i32, observer: Option<Observer>) -> Result<()> {
        self.device(device)?.backing.observe(observer);
        Ok(())
    }
}
