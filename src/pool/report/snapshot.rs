//! The snapshot: every block of a device's pool in address order.

use std::collections::{HashMap, HashSet};

use crate::arena::Owner;
use crate::block::{CellRef, State};
use crate::pool::device::device_pool::DevicePool;
use crate::units::{Address, GRANULE, StreamHandle};

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// Allocated.
    Live,
    /// Freed, and free for requests in its order.
    Free,
    /// Freed, and waiting for work that may still use it.
    Pending,
}

/// A block at one moment.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotBlock {
    /// Address of its first byte.
    pub address: Address,
    /// Length in bytes.
    pub bytes: u64,
    /// The bytes requested; 0 unless it is live.
    pub requested: u64,
    /// Its state.
    pub state: BlockState,
    /// The framework that it is charged to; 0 for a free block.
    pub tag: u8,
    /// The stream of its allocation, or the one in whose order it is free; `None` if it is unowned.
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
        let cell = pool.layout.table.cell(span.start);
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
        let requested = || header.granules() * GRANULE - u64::from(cell.map_or(0, CellRef::slack));
        let requested = if state == BlockState::Live { requested() } else { 0 };
        SnapshotBlock { address, bytes, requested, state, tag, stream, private }
    });
    seen.collect()
}
