//! Arenas for the tests of this folder.

use std::sync::Arc;

use super::{Arena, ArenaOptions, Owner};
use crate::block::Table;

/// An empty arena whose chunks can move. `small`: the pages of the zone of small blocks, and the longest of those in grains.
pub(crate) fn arena(page_grains: u64, pages: u64, small: (u64, u64)) -> Arena {
    let options = ArenaOptions { page_grains, pages, small_pages: small.0, small_grains: small.1 };
    Arena::new(options, Arc::new(Table::new(&options.table_shape())))
}

/// A block of new memory, live: where it starts. Its chunks have the handles 0, 1 and so on.
pub(crate) fn new_block(arena: &mut Arena, owner: Owner, grains: u64) -> u64 {
    let plan = arena.plan(owner, grains, 1).expect("there are addresses");
    let handles: Vec<u64> = (0..plan.fills.len() as u64).collect();
    arena.commit(&plan, owner, 0, &handles);
    plan.start
}
