//! Blocks and the slab that holds them.

pub(crate) use crate::block::{BlockId, NONE};

/// The owner in whose order a free block may be reused. Made by [`super::Arena::owner_add`].
pub type Owner = u32;

/// The owner of unowned memory: every use is proven to be over.
pub const IDLE: Owner = 0;

/// The kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Allocated, by a caller or a stream cache.
    Live,
    /// Mapped and unused, in its owner's order.
    Free,
    /// The old place of a chunk that moved, mapped until its fence has passed.
    Retiring,
    /// Nothing is mapped.
    Hole,
}

/// A span of the arena, in granules. On one cache line, since the neighbours in a list lie anywhere.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Block {
    pub start: u64,
    pub len: u64,
    /// Neighbours in address order.
    pub prev: BlockId,
    pub next: BlockId,
    pub kind: Kind,
    /// For free blocks: the owner, and the epoch of the newest free.
    pub owner: Owner,
    pub epoch: u64,
    /// For free blocks: the list, and the links in it.
    pub list: u16,
    pub link_prev: BlockId,
    pub link_next: BlockId,
}

impl Block {
    pub fn end(&self) -> u64 {
        self.start + self.len
    }
}

/// All blocks; index 0 ([`NONE`]) is no block. An index stays valid until its block is removed, and is then reused.
#[derive(Debug)]
pub(crate) struct Slab {
    blocks: Vec<Block>,
    vacant: Vec<BlockId>,
}

impl Default for Slab {
    fn default() -> Self {
        let (start, len, epoch) = (0, 0, 0);
        let (prev, next, link_prev, link_next) = (NONE, NONE, NONE, NONE);
        let none =
            Block { start, len, prev, next, kind: Kind::Live, owner: IDLE, epoch, list: 0, link_prev, link_next };
        Self { blocks: vec![none], vacant: Vec::new() }
    }
}

impl Slab {
    pub fn add(&mut self, block: Block) -> BlockId {
        if let Some(id) = self.vacant.pop() {
            self.blocks[id as usize] = block;
            return id;
        }
        let id =
            BlockId::try_from(self.blocks.len()).expect("fewer than 2^32 blocks: an arena has fewer granules live");
        self.blocks.push(block);
        id
    }

    pub fn remove(&mut self, id: BlockId) {
        // A stale index must not match what is left.
        let left = &mut self[id];
        (left.kind, left.len) = (Kind::Live, 0);
        self.vacant.push(id);
    }

    pub fn len(&self) -> usize {
        self.blocks.len() - 1 - self.vacant.len()
    }

    /// Any block that is in the slab.
    pub fn any(&self) -> BlockId {
        self.blocks.iter().position(|block| block.len > 0).map_or(NONE, |place| place as BlockId)
    }

    /// The block at `id`, if that index was ever used.
    pub fn get(&self, id: BlockId) -> Option<&Block> {
        self.blocks.get(id as usize)
    }
}

impl std::ops::Index<BlockId> for Slab {
    type Output = Block;
    fn index(&self, id: BlockId) -> &Block {
        &self.blocks[id as usize]
    }
}

impl std::ops::IndexMut<BlockId> for Slab {
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id as usize]
    }
}
