//! Private pools and their live blocks.

use std::collections::HashMap;
use std::sync::Arc;

use super::id::{is_captured, unknown};
use crate::arena::{Arena, Owner};
use crate::block::Table;
use crate::driver;
use crate::error::Result;
use crate::pool::order::deferred::Deferred;
use crate::pool::order::fence::Fence;

/// One private pool of one device.
#[derive(Debug, Default)]
struct Private {
    /// Captures that allocate from it now.
    active: u32,
    /// References: begins and holds less releases.
    references: u32,
    /// Owners of its free memory, by stream slot: within a capture memory is reused in stream order.
    owners: HashMap<u16, Owner>,
    /// Blocks freed during a capture while further streams used them. Inside the capture nothing proves those uses
    /// over; after it their fences do.
    held: Vec<Deferred>,
}

/// All private pools of a device. Protected by the arena's lock.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    pools: HashMap<u128, Private>,
    /// The pool that each live block came from, by the block's start.
    blocks: HashMap<u64, u128>,
}

/// What happens to a freed block of a private pool.
pub(crate) enum Freed {
    /// It returns to the pool.
    Give(Owner),
    /// It returns to the pool once its fences have passed.
    Defer(Deferred),
    /// It waits for the end of the capture.
    Hold,
    /// Its pool was released; the last replay may still be running.
    Quarantine,
}

/// What a released private pool leaves behind.
pub(crate) struct Released {
    /// Owners of its free memory.
    pub owners: Vec<Owner>,
    /// Blocks that wait for the end of a capture.
    pub held: Vec<Deferred>,
}

impl Graphs {
    /// Begins a capture that allocates from the pool, and adds a reference. Makes the pool if there is none.
    pub fn begin(&mut self, id: u128) {
        let private = self.pools.entry(id).or_default();
        private.active += 1;
        private.references += 1;
    }

    /// The same for an unannounced capture, whose end is not reported either: a block that is freed here while other
    /// streams of the capture use it is not reused.
    pub fn begin_unannounced(&mut self, id: u128) {
        self.pools.entry(id).or_insert_with(|| Private { active: 1, references: 1, ..Private::default() });
    }

    /// Ends a capture. Returns the blocks that waited for it.
    pub fn end(&mut self, id: u128) -> Vec<Deferred> {
        let Some(private) = self.pools.get_mut(&id) else { return Vec::new() };
        private.active = private.active.saturating_sub(1);
        if private.active == 0 { std::mem::take(&mut private.held) } else { Vec::new() }
    }

    /// Adds a reference. Makes the pool if there is none.
    pub fn hold(&mut self, id: u128) {
        self.pools.entry(id).or_default().references += 1;
    }

    /// The number of references; 0 for an unknown pool.
    pub fn holds(&self, id: u128) -> u32 {
        self.pools.get(&id).map_or(0, |private| private.references)
    }

    /// Drops a reference. With the last, the pool ends.
    pub fn release(&mut self, id: u128) -> Result<Option<Released>> {
        let private = self.pools.get_mut(&id).ok_or_else(|| unknown(id))?;
        private.references = private.references.saturating_sub(1);
        if private.references > 0 {
            return Ok(None);
        }
        let private = self.pools.remove(&id).unwrap_or_default();
        Ok(Some(Released { owners: private.owners.into_values().collect(), held: private.held }))
    }

    /// Whether any pool takes the allocations of an announced capture.
    pub fn is_any_active(&self) -> bool {
        self.pools.iter().any(|(&id, private)| private.active > 0 && !is_captured(id))
    }

    /// The pools of unannounced captures.
    pub fn unannounced(&self) -> Vec<u128> {
        self.pools.keys().copied().filter(|&id| is_captured(id)).collect()
    }

    /// The owner of a stream's memory in a pool.
    pub fn owner(&mut self, id: u128, slot: u16, arena: &mut Arena) -> Result<Owner> {
        let private = self.pools.get_mut(&id).ok_or_else(|| unknown(id))?;
        Ok(*private.owners.entry(slot).or_insert_with(|| arena.owner_add(true)))
    }

    /// Every owner, with its pool and the slot of its stream.
    pub fn owners(&self) -> impl Iterator<Item = (Owner, u128, u16)> + '_ {
        let of = |(&id, private): (&u128, &'_ Private)| {
            private.owners.iter().map(|(&slot, &owner)| (owner, id, slot)).collect::<Vec<_>>()
        };
        self.pools.iter().flat_map(of)
    }

    /// Every block that waits for the end of a capture: its pool and its start.
    pub fn held(&self) -> impl Iterator<Item = (u128, u64)> + '_ {
        self.pools.iter().flat_map(|(&id, private)| private.held.iter().map(move |block| (id, block.start)))
    }

    /// Whether a pool has memory in the order of the stream in `slot`.
    pub fn is_bound(&self, slot: u16) -> bool {
        self.pools.values().any(|private| private.owners.contains_key(&slot))
    }

    // ---- blocks --------------------------------------------------------------------------------------

    /// Records that the pool gave out the block at `start`.
    pub fn add_block(&mut self, start: u64, id: u128) {
        self.blocks.insert(start, id);
    }

    /// The pool that a live block came from.
    pub fn pool_of(&self, start: u64) -> Option<u128> {
        self.blocks.get(&start).copied()
    }

    /// The same; the block is freed.
    pub fn remove_block(&mut self, start: u64) -> Option<u128> {
        self.blocks.remove(&start)
    }

    /// Frees a block that a pool gave out on the stream in `slot`, and returns what happens to it. `fences`: those
    /// behind its uses on other streams, or an error if these are part of a capture.
    pub fn free(&mut self, id: u128, start: u64, slot: u16, fences: driver::Result<Vec<Arc<Fence>>>) -> Freed {
        let Some(private) = self.pools.get_mut(&id) else { return Freed::Quarantine };
        let Some(&owner) = private.owners.get(&slot) else { return Freed::Quarantine };
        match fences {
            Ok(fences) if fences.is_empty() => Freed::Give(owner),
            Ok(fences) if private.active == 0 => Freed::Defer(Deferred { start, owner, slot, fences }),
            // Captured work runs with its graph, and the pool's memory is reused in the graph's order.
            fences => {
                private.held.push(Deferred { start, owner, slot, fences: fences.unwrap_or_default() });
                Freed::Hold
            }
        }
    }

    /// Takes a block at its own place out of a pool's free or waiting memory, and records it as given out. Returns the
    /// slot of its stream, if all of that memory is the pool's. `slot`: that of the requesting stream, which is tried
    /// first; a stream that was first seen during its capture may have another slot now.
    pub fn restore(
        &mut self,
        id: u128,
        (start, granules, slot): (u64, u64, u16),
        waiting: &mut Vec<Deferred>,
        arena: &mut Arena,
        table: &Table,
    ) -> Result<Option<u16>> {
        let private = self.pools.get_mut(&id).ok_or_else(|| unknown(id))?;
        let mut owners: Vec<(u16, Owner)> = private.owners.iter().map(|(&slot, &owner)| (slot, owner)).collect();
        owners.sort_by_key(|&(of, _)| of != slot);
        // A block that waits was never reused, so it is still whole.
        let whole = |block: &Deferred| block.start == start && table.read(start).granules() == granules;
        let its = |block: &Deferred| whole(block) && owners.iter().any(|&(_, owner)| owner == block.owner);
        let waits = take_out(waiting, its) || take_out(&mut private.held, whole);
        let found = if waits {
            Some(table.read(start).stream())
        } else {
            owners.into_iter().find(|&(_, owner)| arena.take_at(owner, start, granules)).map(|(slot, _)| slot)
        };
        if found.is_some() {
            self.blocks.insert(start, id);
        }
        Ok(found)
    }
}

/// Removes the first match from a list. Returns whether there was one.
fn take_out(list: &mut Vec<Deferred>, meant: impl Fn(&Deferred) -> bool) -> bool {
    let found = list.iter().position(meant);
    found.map(|place| list.swap_remove(place)).is_some()
}
