//! The arena: blocks in address order, indexed by owner, length and kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::chunk::{Chunks, RETIRING};
use super::free_set::FreeSet;
use super::page_index::PageIndex;
use super::slab::{Block, BlockId, IDLE, Kind, NONE, Owner, Slab};
use crate::block::{Table, TableShape};

/// The shape of an arena. Lengths in granules and pages.
#[derive(Clone, Copy, Debug)]
pub struct ArenaOptions {
    /// Granules per page.
    pub page_granules: u64,
    /// Pages of address space.
    pub pages: u64,
    /// Pages of the zone of small requests, which comes first.
    pub small_pages: u64,
    /// Requests up to this many granules are small.
    pub small_granules: u64,
}

impl ArenaOptions {
    /// The shape of the table for such an arena.
    #[must_use]
    pub fn table_shape(&self) -> TableShape {
        let granules = |pages| pages * self.page_granules;
        TableShape {
            granules: granules(self.pages),
            small_zone: granules(self.small_pages),
            small_granules: self.small_granules,
        }
    }
}

/// The old place of a chunk that moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retired {
    /// For [`Arena::unmapped`].
    pub block: BlockId,
    /// First page.
    pub page: u64,
    /// Pages.
    pub pages: u64,
    /// Whether every use is over already, so that no fence is needed before unmapping.
    pub idle: bool,
}

/// Free blocks of one owner.
#[derive(Debug, Default)]
pub(crate) struct OwnerState {
    pub alive: bool,
    /// Whether the owner is a private pool's: its memory is never moved, transferred or given back.
    pub private: bool,
    pub sets: [FreeSet; 2],
    pub free: u64,
    /// Blocks freed before this epoch do not merge with blocks freed later (`merge_barrier.rs`); 0: no barrier.
    pub merge_barrier: u64,
}

/// One device's addresses and the memory mapped into them.
#[derive(Debug)]
pub struct Arena {
    pub(crate) options: ArenaOptions,
    pub(crate) table: Arc<Table>,
    pub(crate) slab: Slab,
    pub(crate) chunks: Chunks,
    pub(crate) owners: Vec<OwnerState>,
    vacant_owners: Vec<Owner>,
    /// Holes of each zone, in address order.
    pub(crate) holes: [BTreeMap<u64, BlockId>; 2],
    /// Free blocks of at least a page.
    pub(crate) big: PageIndex,
    pub(crate) live: u64,
    /// Live blocks of at least a page.
    pub(crate) long_live: u64,
    /// Granules per page, as a power of two.
    pub(crate) page_bits: u32,
    /// The granule where the zone of large requests begins.
    boundary: u64,
}

impl Arena {
    /// An arena with nothing mapped. pre: `table` has the shape of these options.
    #[must_use]
    pub fn new(options: ArenaOptions, table: Arc<Table>) -> Self {
        debug_assert!(options.page_granules.is_power_of_two());
        let mut arena = Self {
            options,
            table,
            slab: Slab::default(),
            chunks: Chunks::new(options.small_pages),
            owners: Vec::new(),
            vacant_owners: Vec::new(),
            holes: [BTreeMap::new(), BTreeMap::new()],
            big: PageIndex::new(options.pages),
            live: 0,
            long_live: 0,
            page_bits: options.page_granules.ilog2(),
            boundary: options.small_pages * options.page_granules,
        };
        let idle = arena.owner_add(false);
        debug_assert_eq!(idle, IDLE);
        let boundary = arena.boundary;
        let small = arena.add_hole(0, boundary, NONE);
        if options.pages > options.small_pages {
            let large = arena.add_hole(boundary, options.pages * options.page_granules - boundary, small);
            if small != NONE {
                arena.slab[small].next = large;
            }
        }
        arena
    }

    /// An arena without addresses: every request fails, and no address belongs to it.
    #[must_use]
    pub fn closed() -> Self {
        let options = ArenaOptions { page_granules: 1, pages: 0, small_pages: 0, small_granules: 0 };
        Self::new(options, Arc::new(Table::new(&options.table_shape())))
    }

    fn add_hole(&mut self, start: u64, len: u64, prev: BlockId) -> BlockId {
        if len == 0 {
            return NONE;
        }
        let block = Block {
            start,
            len,
            prev,
            next: NONE,
            kind: Kind::Hole,
            owner: IDLE,
            epoch: 0,
            list: 0,
            link_prev: NONE,
            link_next: NONE,
        };
        let id = self.slab.add(block);
        self.attach(id);
        id
    }

    // ---- owners --------------------------------------------------------------------------------------

    /// Adds an owner. Only the owner uses its `private` memory, until [`Arena::promote`] ends that.
    pub fn owner_add(&mut self, private: bool) -> Owner {
        let state = OwnerState { alive: true, private, ..OwnerState::default() };
        if let Some(id) = self.vacant_owners.pop() {
            self.owners[id as usize] = state;
            return id;
        }
        self.owners.push(state);
        (self.owners.len() - 1) as Owner
    }

    /// Removes an owner. pre: it has no free memory.
    pub fn owner_remove(&mut self, owner: Owner) {
        debug_assert_eq!(self.owners[owner as usize].free, 0);
        self.owners[owner as usize].alive = false;
        self.vacant_owners.push(owner);
    }

    /// Free granules in this owner's order.
    #[must_use]
    pub fn owner_free(&self, owner: Owner) -> u64 {
        self.owners[owner as usize].free
    }

    // ---- malloc and free -----------------------------------------------------------------------------

    /// Allocates `granules` from the free memory of `owner` or from unowned memory. Returns the offset in granules.
    pub fn take(&mut self, owner: Owner, granules: u64) -> Option<u64> {
        let id = match self.best_fit(owner, granules) {
            Some(id) => id,
            None => self.refill_from_unowned(owner, granules)?,
        };
        Some(self.give_out(id, granules))
    }

    /// The same in both zones, however long the search takes: for a request that would otherwise fail.
    pub fn take_anywhere(&mut self, owner: Owner, granules: u64) -> Option<u64> {
        let zone = self.zone_for(granules);
        let other = self.min_in_zone(1 - zone, granules);
        let (id, granules) = [(zone, granules), (1 - zone, other)]
            .into_iter()
            .find_map(|(zone, granules)| Some((self.tightest(owner, zone, granules)?, granules)))?;
        Some(self.give_out(id, granules))
    }

    /// The granules that a request needs in a zone. The table has no cells for small blocks among large ones, so there
    /// they are longer than their headers say.
    pub(crate) fn min_in_zone(&self, zone: usize, granules: u64) -> u64 {
        if zone == 1 { granules.max(self.options.small_granules + 1) } else { granules }
    }

    /// The shortest free block of a zone that has `granules`, among the owner's and unowned ones.
    fn tightest(&self, owner: Owner, zone: usize, granules: u64) -> Option<BlockId> {
        let free =
            [owner, IDLE].into_iter().flat_map(|of| self.owners[of as usize].sets[zone].at_least(&self.slab, granules));
        free.filter(|&id| self.slab[id].len >= granules).min_by_key(|&id| self.slab[id].len)
    }

    /// Makes the first `granules` of a free block live. pre: it has that many.
    fn give_out(&mut self, id: BlockId, granules: u64) -> u64 {
        let block = &self.slab[id];
        let start = block.start;
        let taken = if block.len > granules {
            self.cut_front(id, granules)
        } else {
            self.detach_free(id);
            id
        };
        self.make_live(taken);
        start
    }

    /// Frees the live block that starts at `start`, in the order of `owner`. pre: there is one.
    pub fn give(&mut self, start: u64, owner: Owner, epoch: u64) {
        let id = self.known_live(start, self.table.clear(start));
        debug_assert_eq!((self.slab[id].start, self.slab[id].kind), (start, Kind::Live));
        let block = &mut self.slab[id];
        self.live -= block.len;
        self.long_live -= u64::from(block.len >= self.options.page_granules);
        (block.kind, block.owner, block.epoch) = (Kind::Free, owner, epoch);
        self.attach_merged(id);
    }

    pub(crate) fn make_live(&mut self, id: BlockId) {
        let block = &mut self.slab[id];
        block.kind = Kind::Live;
        self.table.set_block(block.start, block.len, id);
        self.live += block.len;
        self.long_live += u64::from(block.len >= self.options.page_granules);
    }

    /// The live block that starts at `start`. pre: there is one.
    pub(crate) fn live_at(&self, start: u64) -> BlockId {
        self.known_live(start, self.table.block(start))
    }

    /// The same, where the table names `id`.
    fn known_live(&self, start: u64, id: BlockId) -> BlockId {
        let starts_here = |id: BlockId| {
            self.slab.get(id).is_some_and(|block| (block.start, block.kind) == (start, Kind::Live) && block.len > 0)
        };
        if starts_here(id) {
            return id;
        }
        // The block is freed before its header was written.
        self.table.blocks(start).into_iter().find(|&id| starts_here(id)).unwrap_or(id)
    }

    /// The best fit among the owner's and unowned blocks. A small request uses only the owner's, which are refilled
    /// from unowned memory.
    pub(crate) fn best_fit(&self, owner: Owner, granules: u64) -> Option<BlockId> {
        let zone = self.zone_for(granules);
        let own = self.owners[owner as usize].sets[zone].best_fit(&self.slab, granules);
        if owner == IDLE || zone == 0 {
            return own;
        }
        let idle = self.owners[IDLE as usize].sets[zone].best_fit(&self.slab, granules);
        match (own, idle) {
            (Some(a), Some(b)) if self.slab[b].len < self.slab[a].len => Some(b),
            (Some(a), _) => Some(a),
            (None, found) => found,
        }
    }

    // ---- moving and unmapping ------------------------------------------------------------------------

    /// The old place of a moved chunk was unmapped.
    pub fn unmapped(&mut self, retired: Retired) {
        self.chunks.set(retired.page, retired.pages, super::chunk::UNMAPPED);
        self.slab[retired.block].kind = Kind::Hole;
        self.attach_merged(retired.block);
    }

    // ---- statistics ----------------------------------------------------------------------------------

    /// Pages of all chunks.
    #[must_use]
    pub fn mapped_pages(&self) -> u64 {
        self.chunks.mapped
    }

    /// Live granules, those in stream caches included.
    #[must_use]
    pub fn live_granules(&self) -> u64 {
        self.live
    }

    /// Live blocks of at least a page, those in stream caches included.
    #[must_use]
    pub fn long_blocks(&self) -> u64 {
        self.long_live
    }

    /// Free granules of private pools.
    #[must_use]
    pub fn private_free(&self) -> u64 {
        self.owners.iter().filter(|owner| owner.alive && owner.private).map(|owner| owner.free).sum()
    }

    /// The longest free block, in granules.
    #[must_use]
    pub fn largest_free(&self) -> u64 {
        let sets = self.owners.iter().filter(|owner| owner.alive).flat_map(|owner| &owner.sets);
        sets.map(|set| set.longest(&self.slab)).max().unwrap_or(0)
    }

    /// The number of free blocks.
    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        let sets = self.owners.iter().filter(|owner| owner.alive).flat_map(|owner| &owner.sets);
        sets.map(|set| set.len() as u64).sum()
    }

    /// The live block that contains `granule`: its start and length. Slow: searches backwards over the block's length.
    #[must_use]
    pub fn containing(&self, granule: u64) -> Option<(u64, u64)> {
        let page_granules = self.options.page_granules;
        let mut at = granule;
        loop {
            if self.chunks.at(at / page_granules) >= RETIRING {
                return None;
            }
            // A stale index may name any block; it counts only if that block is live and contains `at`.
            let here = |block: &&Block| block.kind == Kind::Live && block.start <= at && at < block.end();
            if let Some(block) = self.table.blocks(at).into_iter().filter_map(|id| self.slab.get(id)).find(here) {
                return (granule < block.end()).then_some((block.start, block.len));
            }
            at = self.table.window(at).checked_sub(1)?;
        }
    }

    // ---- the indices ---------------------------------------------------------------------------------

    pub(crate) fn zone_for(&self, granules: u64) -> usize {
        usize::from(granules > self.options.small_granules)
    }

    pub(crate) fn zone_at(&self, start: u64) -> usize {
        usize::from(start >= self.boundary)
    }

    /// Adds a block to the index of its kind and owner.
    pub(crate) fn attach(&mut self, id: BlockId) {
        let Block { start, kind, .. } = self.slab[id];
        match kind {
            Kind::Free => self.attach_free(id),
            Kind::Hole => {
                self.holes[self.zone_at(start)].insert(start, id);
            }
            Kind::Live | Kind::Retiring => {}
        }
    }

    pub(crate) fn detach(&mut self, id: BlockId) {
        let Block { start, kind, .. } = self.slab[id];
        match kind {
            Kind::Free => self.detach_free(id),
            Kind::Hole => {
                self.holes[self.zone_at(start)].remove(&start);
            }
            Kind::Live | Kind::Retiring => {}
        }
    }

    /// Cuts a detached block at `at`. The right part becomes its `next`, detached as well.
    pub(crate) fn cut(&mut self, id: BlockId, at: u64) {
        let block = self.slab[id];
        debug_assert!(block.start < at && at < block.end());
        let right = Block { start: at, len: block.end() - at, prev: id, ..block };
        let right = self.slab.add(right);
        if block.next != NONE {
            self.slab[block.next].prev = right;
        }
        self.slab[id].next = right;
        self.slab[id].len = at - block.start;
    }

    /// Cuts `start..end` out of a block and returns it detached. The rest on either side is attached.
    pub(crate) fn carve(&mut self, id: BlockId, start: u64, end: u64) -> BlockId {
        self.detach(id);
        let mut middle = id;
        if self.slab[id].start < start {
            self.cut(id, start);
            middle = self.slab[id].next;
            self.attach(id);
        }
        if end < self.slab[middle].end() {
            self.cut(middle, end);
            let right = self.slab[middle].next;
            self.attach(right);
        }
        middle
    }

    /// Merges a detached block with its neighbours where possible, and attaches it.
    pub(crate) fn attach_merged(&mut self, id: BlockId) {
        let Block { prev, next, kind, .. } = self.slab[id];
        let sides = (self.can_join(prev, id), self.can_join(id, next));
        if kind == Kind::Free {
            return self.merge_free(id, sides);
        }
        let mut id = id;
        if sides.0 {
            self.detach(prev);
            self.merge_next(prev);
            id = prev;
        }
        if sides.1 {
            self.detach(next);
            self.merge_next(id);
        }
        self.attach(id);
    }

    /// Whether two neighbours can be merged. [`NONE`] merges with no free block or hole.
    #[inline]
    pub(crate) fn can_join(&self, left: BlockId, right: BlockId) -> bool {
        let (left, right) = (&self.slab[left], &self.slab[right]);
        left.kind == right.kind
            && match left.kind {
                Kind::Free => {
                    left.owner == right.owner && {
                        let merge_barrier = self.owners[left.owner as usize].merge_barrier;
                        (left.epoch < merge_barrier) == (right.epoch < merge_barrier)
                    }
                }
                Kind::Hole => true,
                Kind::Live | Kind::Retiring => false,
            }
            && self.zone_at(left.start) == self.zone_at(right.start)
    }

    /// Merges a detached block with its detached right neighbour, and keeps the left index.
    pub(crate) fn merge_next(&mut self, id: BlockId) {
        let right_id = self.slab[id].next;
        let right = self.slab[right_id];
        let left = &mut self.slab[id];
        left.len += right.len;
        left.epoch = left.epoch.max(right.epoch);
        left.next = right.next;
        if right.next != NONE {
            self.slab[right.next].prev = id;
        }
        self.slab.remove(right_id);
    }
}
