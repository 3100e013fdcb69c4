//! Chunks: physical memory and where it is mapped.

/// Index of a chunk.
pub type ChunkId = u32;

/// Page entry: not mapped.
pub(crate) const UNMAPPED: ChunkId = ChunkId::MAX;
/// Page entry: a chunk was mapped here and moved; the old mapping still exists.
pub(crate) const RETIRING: ChunkId = ChunkId::MAX - 1;

/// One physical handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    /// First page of the arena where it is mapped.
    pub page: u64,
    pub pages: u64,
    /// The driver's handle, opaque here.
    pub handle: u64,
    pub alive: bool,
}

impl Chunk {
    pub fn end(&self) -> u64 {
        self.page + self.pages
    }
}

/// All chunks, and the page table: which chunk is mapped where.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    chunks: Vec<Chunk>,
    vacant: Vec<ChunkId>,
    /// Chunk by page, per zone, as far as the zone was ever used.
    tables: [Vec<ChunkId>; 2],
    /// First page of the second zone.
    boundary: u64,
    /// Pages of all chunks.
    pub mapped: u64,
}

impl Chunks {
    pub fn new(boundary: u64) -> Self {
        Self { boundary, ..Self::default() }
    }

    fn slot(&self, page: u64) -> (usize, usize) {
        if page < self.boundary { (0, page as usize) } else { (1, (page - self.boundary) as usize) }
    }

    /// The page table's entry of `page`.
    pub fn at(&self, page: u64) -> ChunkId {
        let (zone, index) = self.slot(page);
        self.tables[zone].get(index).copied().unwrap_or(UNMAPPED)
    }

    pub fn set(&mut self, page: u64, pages: u64, value: ChunkId) {
        let (zone, index) = self.slot(page);
        let end = index + pages as usize;
        let table = &mut self.tables[zone];
        if table.len() < end {
            table.resize(end, UNMAPPED);
        }
        table[index..end].fill(value);
    }

    pub fn add(&mut self, page: u64, pages: u64, handle: u64) -> ChunkId {
        let chunk = Chunk { page, pages, handle, alive: true };
        let id = if let Some(id) = self.vacant.pop() {
            self.chunks[id as usize] = chunk;
            id
        } else {
            self.chunks.push(chunk);
            (self.chunks.len() - 1) as ChunkId
        };
        self.set(page, pages, id);
        self.mapped += pages;
        id
    }

    pub fn move_to(&mut self, id: ChunkId, page: u64) {
        let chunk = self.chunks[id as usize];
        self.set(chunk.page, chunk.pages, RETIRING);
        self.chunks[id as usize].page = page;
        self.set(page, chunk.pages, id);
    }

    /// Removes a chunk that was unmapped.
    pub fn remove(&mut self, id: ChunkId) {
        let chunk = self.chunks[id as usize];
        self.set(chunk.page, chunk.pages, UNMAPPED);
        self.chunks[id as usize].alive = false;
        self.vacant.push(id);
        self.mapped -= chunk.pages;
    }

    pub fn get(&self, id: ChunkId) -> Chunk {
        self.chunks[id as usize]
    }

    pub fn alive(&self) -> impl Iterator<Item = (ChunkId, Chunk)> + '_ {
        self.chunks.iter().enumerate().filter(|(_, chunk)| chunk.alive).map(|(id, chunk)| (id as ChunkId, *chunk))
    }
}
