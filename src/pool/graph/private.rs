//! Private pools, and which live blocks are theirs.

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
    /// Begins less releases.
    references: u32,
    /// Its free memory, by stream slot: reuse within a capture follows the stream.
    owners: HashMap<u16, Owner>,
    /// Freed during a capture while further streams used them: inside of it nothing can prove those uses over. After it
    /// they have their fences.
    held: Vec<Deferred>,
}

/// All private pools of a device. Behind the arena's lock.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    pools: HashMap<u128, Private>,
    /// Which pool a live block came from, by its start.
    blocks: HashMap<u64, u128>,
}

/// What becomes of a block of a private pool that is freed.
pub(crate) enum Freed {
    /// It is the pool's again.
    Give(Owner),
    /// It is, once its uses on other streams are over.
    Defer(Deferred),
    /// It waits for the end of the capture.
    Hold,
    /// Its pool was released; the last replay may still be running.
    Quarantine,
}

/// What a private pool leaves behind.
pub(crate) struct Left {
    /// In whose order its free memory is.
    pub owners: Vec<Owner>,
    /// Blocks that wait for the end of a capture.
    pub held: Vec<Deferred>,
}

impl Graphs {
    /// A capture allocates from the pool from now on, and holds it; it is made if there is none.
    pub fn begin(&mut self, id: u128) {
        let private = self.pools.entry(id).or_default();
        private.active += 1;
        private.references += 1;
    }

    /// The same for a capture that nobody announced, and whose end nobody tells: what is freed here while other streams of the capture
    /// use it is not used again.
    pub fn begin_unannounced(&mut self, id: u128) {
        self.pools.entry(id).or_insert_with(|| Private { active: 1, references: 1, ..Private::default() });
    }

    /// A capture is over. Returns the blocks that waited for its end.
    pub fn end(&mut self, id: u128) -> Vec<Deferred> {
        let Some(private) = self.pools.get_mut(&id) else { return Vec::new() };
        private.active = private.active.saturating_sub(1);
        if private.active == 0 { std::mem::take(&mut private.held) } else { Vec::new() }
    }

    /// Takes one more hold; the pool is made if there is none.
    pub fn hold(&mut self, id: u128) {
        self.pools.entry(id).or_default().references += 1;
    }

    /// How many holds there are; 0 for an unknown pool.
    pub fn holds(&self, id: u128) -> u32 {
        self.pools.get(&id).map_or(0, |private| private.references)
    }

    /// Lets go of one hold. With the last, the pool ends.
    pub fn release(&mut self, id: u128) -> Result<Option<Left>> {
        let private = self.pools.get_mut(&id).ok_or_else(|| unknown(id))?;
        private.references = private.references.saturating_sub(1);
        if private.references > 0 {
            return Ok(None);
        }
        let private = self.pools.remove(&id).unwrap_or_default();
        Ok(Some(Left { owners: private.owners.into_values().collect(), held: private.held }))
    }

    /// Whether any pool takes allocations whose capture was announced.
    pub fn is_any_taking(&self) -> bool {
        self.pools.iter().any(|(&id, private)| private.active > 0 && !is_captured(id))
    }

    /// The pools of captures that nobody announced.
    pub fn unannounced(&self) -> Vec<u128> {
        self.pools.keys().copied().filter(|&id| is_captured(id)).collect()
    }

    /// In whose order a stream's memory of a pool is.
    pub fn owner(&mut self, id: u128, slot: u16, arena: &mut Arena) -> Result<Owner> {
        let private = self.pools.get_mut(&id).ok_or_else(|| unknown(id))?;
        Ok(*private.owners.entry(slot).or_insert_with(|| arena.owner_add(true)))
    }

    /// Every owner, with the pool and the slot of its stream.
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

    /// Whether a pool keeps memory in the order of the stream in that slot.
    pub fn is_bound(&self, slot: u16) -> bool {
        self.pools.values().any(|private| private.owners.contains_key(&slot))
    }

    // ---- blocks --------------------------------------------------------------------------------------

    /// The block that starts there was given out by a pool.
    pub fn gave(&mut self, start: u64, id: u128) {
        self.blocks.insert(start, id);
    }

    /// The pool that a live block came from.
    pub fn pool_of(&self, start: u64) -> Option<u128> {
        self.blocks.get(&start).copied()
    }

    /// The same of a block that is freed.
    pub fn take(&mut self, start: u64) -> Option<u128> {
        self.blocks.remove(&start)
    }

    /// What becomes of a block that a pool gave out on the stream in `slot`. `fences` are behind its uses on other streams; an error
    /// where those are part of a capture.
    pub fn free(&mut self, id: u128, start: u64, slot: u16, fences: driver::Result<Vec<Arc<Fence>>>) -> Freed {
        let Some(private) = self.pools.get_mut(&id) else { return Freed::Quarantine };
        let Some(&owner) = private.owners.get(&slot) else { return Freed::Quarantine };
        match fences {
            Ok(fences) if fences.is_empty() => Freed::Give(owner),
            Ok(fences) if private.active == 0 => Freed::Defer(Deferred { start, owner, slot, fences }),
            // What is part of a capture runs with its graph, in whose order the pool's memory is used again.
            fences => {
                private.held.push(Deferred { start, owner, slot, fences: fences.unwrap_or_default() });
                Freed::Hold
            }
        }
    }

    /// Takes a block out of what a pool has free or waiting, at its own place, and notes it as given out. Returns the slot of its
    /// stream, if the pool has all of that memory. `slot`: of the stream that asks; one that was first seen while it was being captured may have another now.
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
        // What waits for the capture's end, or for a fence, was never handed on: it is still the block it was.
        let whole = |block: &Deferred| block.start == start && table.read(start).granules() == granules;
        let its = |block: &Deferred| whole(block) && owners.iter().any(|&(_, owner)| owner == block.owner);
        let waits = take_out(waiting, its) || take_out(&mut private.held, whole);
        let home = if waits {
            Some(table.read(start).stream())
        } else {
            owners.into_iter().find(|&(_, owner)| arena.take_at(owner, start, granules)).map(|(slot, _)| slot)
        };
        if home.is_some() {
            self.blocks.insert(start, id);
        }
        Ok(home)
    }
}

/// Takes the first that is meant out of a list. Returns whether there was one.
fn take_out(list: &mut Vec<Deferred>, meant: impl Fn(&Deferred) -> bool) -> bool {
    let found = list.iter().position(meant);
    found.map(|place| list.swap_remove(place)).is_some()
}
