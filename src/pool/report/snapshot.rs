//! What lies where: every block of a device's pool in address order, and word of memory that is mapped and unmapped.

use std::collections::{HashMap, HashSet};

use crate::arena::Owner;
use crate::block::{Place, State};
use crate::pool::device::device_pool::DevicePool;
use crate::units::{Address, GRANULE, StreamHandle};

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
pub struct SnapshotBlock {
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

/// Every block that has memory, in address order.
pub(crate) fn blocks(pool: &DevicePool) -> Vec<SnapshotBlock> {
    let state = pool.state.lock();
    let streams = pool.streams.read();
    let by_slot = |slot: u16| streams.by_slot(slot).map(|stream| stream.handle);
    let mut orders: HashMap<Owner, (Option<StreamHandle>, Option<u128>)> =
        streams.all().map(|stream| (stream.owner, (Some(stream.handle), None))).collect();
    orders.extend(state.graphs.owners().map(|(owner, id, slot)| (owner, (by_slot(slot), Some(id)))));
    let deferred = state.deferred.iter().map(|block| block.start);
    let quarantined = state.quarantine.iter().map(|&(start, _)| start);
    let held = state.graphs.held().map(|(id, start)| (start, id));
    let owned = state.deferred.iter().filter_map(|block| Some((block.start, orders.get(&block.owner)?.1?)));
    let held: HashMap<u64, u128> = held.chain(owned).collect();
    let waiting: HashSet<u64> = deferred.chain(quarantined).chain(held.keys().copied()).collect();
    let seen = state.memory.arena.spans().map(|span| {
        let place = pool.layout.table.place(span.start);
        let header = pool.layout.table.read(span.start);
        let (state, tag, stream, private) = match span.free {
            Some(owner) => {
                let (stream, private) = orders.get(&owner).copied().unwrap_or_default();
                (BlockState::Free, 0, stream, private)
            }
            None if waiting.contains(&span.start) => {
                (BlockState::Pending, 0, by_slot(header.stream()), held.get(&span.start).copied())
            }
            None if header.state() == State::Live => {
                (BlockState::Live, header.tag(), by_slot(header.stream()), state.graphs.pool_of(span.start))
            }
            // In a stream's cache, or on its way from the arena to a caller.
            None => (BlockState::Free, 0, by_slot(header.stream()), None),
        };
        let address = pool.layout.address(span.start);
        let bytes = span.granules * GRANULE;
        let asked = || header.granules() * GRANULE - u64::from(place.map_or(0, Place::slack));
        let requested = if state == BlockState::Live { asked() } else { 0 };
        SnapshotBlock { address, bytes, requested, state, tag, stream, private }
    });
    seen.collect()
}
