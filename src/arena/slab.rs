//! Blocks and the slab that holds them.

pub(crate) use crate::block::{BlockId, NONE};

/// Whose order a free block follows. Made by [`super::Arena::owner_add`].
pub type Owner = u32;

/// The owner of memory whose every use is proven to be over.
pub const IDLE: Owner = 0;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Given out (to a caller, or to a stream cache).
    Live,
    /// Mapped and unused; its owner says in whose order.
    Free,
    /// Left by a chunk that moved; still mapped until its fence has passed.
    Retiring,
    /// Nothing is mapped.
    Hole,
}

/// A span of the arena, in granules. On one cache line: neighbours in a list are anywhere.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Block {
    pub start: u64,
    pub len: u64,
    /// Neighbours in address order.
    pub prev: BlockId,
    pub next: BlockId,
    pub kind: Kind,
    /// For free blocks: whose order, and up to which epoch.
    pub owner: Owner,
    pub epoch: u64,
    /// The list that a free block is in, and its links there.
    pub list: u16,
    pub link_prev: BlockId,
    pub link_next: BlockId,
}

impl Block {
    pub fn end(&self) -> u64 {
        self.start + self.len
    }
}

/// All blocks, behind one that is none. An index stays valid until its block is removed; freed places are used again.
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
        // What is left must match nothing that a stale index could look for.
        let left = &mut self[id];
        (left.kind, left.len) = (Kind::Live, 0);
        self.vacant.push(id);
    }

    pub fn len(&self) -> usize {
        self.blocks.len() - 1 - self.vacant.len()
    }

    /// A block that was not removed.
    pub fn any(&self) -> BlockId {
        self.blocks.iter().position(|block| block.len > 0).map_or(NONE, |place| place as BlockId)
    }

    /// The block, if the index was ever given out.
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
