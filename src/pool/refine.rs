//! Small chunks in place of large ones, where what live blocks pin of a chunk has come to count.

use super::arena::Arena;
use super::block::Owner;
use super::chunk::ChunkId;
use super::plan::{Plan, Source};

impl Arena {
    /// Has a plan give up free chunks of more than a page that it does not need, `pages` in all at most: a chunk cannot be cut,
    /// so they are to be released, and what is lacking later comes in single pages. Only where [`Arena::wants_single_pages`].
    pub fn refine(&self, plan: &mut Plan, owner: Owner, pages: u64) {
        if !self.wants_single_pages(plan.grains.div_ceil(self.options.page_grains)) || plan.new_pages() > 0 {
            return;
        }
        let taken: Vec<ChunkId> = plan
            .fills
            .iter()
            .filter_map(|fill| match fill.source {
                Source::Steal(chunk, _) => Some(chunk),
                Source::Create => None,
            })
            .collect();
        let mut left = pages;
        for (chunk, pages) in self.movable(owner, plan.start, plan.grains, u64::MAX) {
            if pages > 1 && pages <= left && !taken.contains(&chunk) {
                left -= pages;
                plan.replaced.push(chunk);
            }
        }
    }
}
