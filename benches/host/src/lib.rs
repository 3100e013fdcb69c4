//! What the benches share: a pool on the host driver through the C functions, and the loops that are measured.

use std::ffi::c_void;
use std::ptr;

use forebay::abi::core::handle::ForebayPool;
use forebay::abi::core::status::ForebayStatus;
use forebay::abi::pool::create::{
    ForebayPoolOptions, forebay_pool_create, forebay_pool_destroy, forebay_pool_options_init,
};
use forebay::abi::pool::memory::{forebay_pool_free, forebay_pool_malloc};
use forebay::abi::pool::streams::{forebay_stream_create, forebay_stream_destroy};

const DEVICE: i32 = 0;

/// A stream of a [`Pool`], or its default stream.
#[derive(Clone, Copy, Debug)]
pub struct Stream(*mut c_void);

impl Stream {
    /// The legacy default stream.
    pub const DEFAULT: Self = Self(ptr::null_mut());
}

/// A block of a [`Pool`].
#[derive(Clone, Copy, Debug)]
pub struct Block(*mut c_void);

/// A pool of its own on the host driver.
#[derive(Debug)]
pub struct Pool(*mut ForebayPool);

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Pool {
    /// A pool that holds nothing yet.
    ///
    /// # Panics
    /// The host driver does not open.
    #[must_use]
    pub fn new() -> Self {
        let mut options = std::mem::MaybeUninit::<ForebayPoolOptions>::uninit();
        let mut pool = ptr::null_mut();
        // SAFETY: the outputs may be written; the options are filled by the first call; the name is a C string.
        unsafe {
            assert_eq!(forebay_pool_options_init(options.as_mut_ptr()), ForebayStatus::Ok);
            let mut options = options.assume_init();
            options.driver = c"host".as_ptr();
            assert_eq!(forebay_pool_create(&raw const options, &raw mut pool), ForebayStatus::Ok);
        }
        Self(pool)
    }

    /// A new stream, registered or not; it lives until [`Pool::end_stream`].
    ///
    /// # Panics
    /// The driver refuses.
    #[must_use]
    pub fn stream(&self) -> Stream {
        let mut stream = ptr::null_mut();
        // SAFETY: the pool lives, the output may be written.
        assert_eq!(unsafe { forebay_stream_create(self.0, DEVICE, &raw mut stream) }, ForebayStatus::Ok);
        Stream(stream)
    }

    /// Destroys a stream of [`Pool::stream`].
    pub fn end_stream(&self, stream: Stream) {
        // SAFETY: the pool lives and made the stream.
        unsafe { forebay_stream_destroy(self.0, DEVICE, stream.0) };
    }

    /// A block.
    ///
    /// # Panics
    /// The pool refuses.
    #[inline]
    #[must_use]
    pub fn take(&self, bytes: u64, stream: Stream) -> Block {
        let mut block = ptr::null_mut();
        // SAFETY: the pool and the stream live, the output may be written.
        let status = unsafe { forebay_pool_malloc(self.0, bytes, DEVICE, stream.0, &raw mut block) };
        assert_eq!(status, ForebayStatus::Ok);
        Block(block)
    }

    /// Frees it.
    ///
    /// # Panics
    /// It is no block of this pool.
    #[inline]
    pub fn give(&self, block: Block, stream: Stream) {
        // SAFETY: the pool and the stream live.
        let status = unsafe { forebay_pool_free(self.0, block.0, stream.0) };
        assert_eq!(status, ForebayStatus::Ok);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: made by forebay_pool_create, and not used after this.
        unsafe { forebay_pool_destroy(self.0) };
    }
}

/// One block and its free, so many times.
#[inline(never)]
pub fn pairs(pool: &Pool, bytes: u64, stream: Stream, count: u32) {
    for _ in 0..count {
        pool.give(pool.take(bytes, stream), stream);
    }
}

/// 64 blocks of 64 sizes, from 512 bytes to 2 MiB, allocated and then freed, so many times.
#[inline(never)]
pub fn mixed(pool: &Pool, stream: Stream, count: u32) {
    let mut blocks = [Block(ptr::null_mut()); 64];
    for _ in 0..count {
        for (index, block) in blocks.iter_mut().enumerate() {
            *block = pool.take((index as u64 + 1) * 32_749, stream);
        }
        for &block in &blocks {
            pool.give(block, stream);
        }
    }
}

/// Allocations and frees in no order: the shape of RMM's `RANDOM_ALLOCATIONS`. Sizes are uniform up to a bound; three of
/// four steps allocate, until so much is live that one has to be freed first.
#[derive(Debug)]
pub struct Random {
    /// Largest request in bytes.
    largest: u64,
    /// Most bytes live.
    most: u64,
    live: u64,
    blocks: Vec<(Block, u64)>,
    state: u64,
}

impl Random {
    /// Nothing live yet.
    #[must_use]
    pub fn new(largest: u64, most: u64) -> Self {
        Self { largest, most, live: 0, blocks: Vec::with_capacity(1 << 17), state: 0x9e37_79b9_7f4a_7c15 }
    }

    fn next(&mut self) -> u64 {
        // xorshift64*: the loop must cost little beside what it measures.
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// How many blocks are live.
    #[must_use]
    pub fn live(&self) -> usize {
        self.blocks.len()
    }

    /// So many steps, each an allocation or a free.
    #[inline(never)]
    pub fn steps(&mut self, pool: &Pool, stream: Stream, count: u32) {
        for _ in 0..count {
            let bytes = 1 + self.next() % self.largest;
            let allocates = self.next() % 100 < 73 && self.live + bytes <= self.most;
            if allocates || self.blocks.is_empty() {
                self.blocks.push((pool.take(bytes, stream), bytes));
                self.live += bytes;
            } else {
                let index = (self.next() % self.blocks.len() as u64) as usize;
                let (block, bytes) = self.blocks.swap_remove(index);
                pool.give(block, stream);
                self.live -= bytes;
            }
        }
    }

    /// Frees what is left.
    pub fn end(&mut self, pool: &Pool, stream: Stream) {
        for (block, _) in self.blocks.drain(..) {
            pool.give(block, stream);
        }
        self.live = 0;
    }
}
