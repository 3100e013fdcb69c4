//! Arenas for the tests of this folder.

use std::sync::Arc;

use super::{Arena, ArenaOptions, Owner};
use crate::block::Table;

/// An empty arena. `small`: the pages of the zone of small blocks, and the longest of those blocks in granules.
pub(crate) fn arena(page_granules: u64, pages: u64, small: (u64, u64)) -> Arena {
    let options = ArenaOptions { page_granules, pages, small_pages: small.0, small_granules: small.1 };
    Arena::new(options, Arc::new(Table::new(&options.table_shape())))
}

/// Makes a live block of new memory and returns where it starts. Its chunks have the handles 0, 1 and so on.
pub(crate) fn new_block(arena: &mut Arena, owner: Owner, granules: u64) -> u64 {
    let plan = arena.plan(owner, granules, 1).expect("there are addresses");
    let handles: Vec<u64> = (0..plan.fills.len() as u64).collect();
    arena.commit(&plan, owner, 0, &handles);
    plan.start
}
