//! Snapshots: the blocks of a pool, and changes of its mappings.

use std::ffi::c_void;

use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{ForebayPool, pointer};
use crate::abi::core::status::ForebayStatus;
use crate::pool::{BlockState, Mapping, Observer, SnapshotBlock};

/// Version of the layout of `forebay_block`.
pub const FOREBAY_BLOCK_VERSION: u32 = 1;

/// The state of a block.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayBlockState {
    /// Free and mapped.
    Free = 0,
    /// Allocated.
    Live = 1,
    /// Freed, while queued work may still use it.
    Pending = 2,
}

/// A block in a snapshot of a pool.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForebayBlock {
    /// sizeof(forebay_block) as the library was compiled.
    pub size: u32,
    /// FOREBAY_BLOCK_VERSION.
    pub version: u32,
    /// Its first address.
    pub address: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// A FOREBAY_BLOCK_STATE_*.
    pub state: u32,
    /// A FOREBAY_FRAMEWORK_*: the framework that allocated it; 0 unless it is live.
    pub framework: u32,
    /// The stream of its allocation, or, for a free block, the stream in whose order it may be reused.
    pub stream: u64,
    /// 1: `stream` is valid. 0: the block is unowned, so any stream may use it.
    pub has_stream: u32,
    /// 1: it belongs to the private pool of the ids below.
    pub is_private: u32,
    /// First half of the private pool's id as PyTorch's hooks pass it; all bits 1 for `forebay_pool_private_begin`.
    pub private_first: u64,
    /// Second half of the id.
    pub private_second: u64,
    /// The bytes that were requested; 0 unless it is live.
    pub requested: u64,
    /// Zero.
    pub reserved: u64,
}

/// Receives one block, valid during the call only. May use the pool; must not throw.
pub type ForebayBlockFn = Option<unsafe extern "C" fn(context: *mut c_void, block: *const ForebayBlock)>;

/// A change of the mapping of a range of addresses.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayMapping {
    /// The range was mapped to physical memory.
    Mapped = 0,
    /// The range was unmapped.
    Unmapped = 1,
}

/// Reports that `bytes` bytes at `ptr` were mapped or unmapped: `what` is a FOREBAY_MAPPING_*. Called under the pool's
/// locks: it must not call this library, wait for a thread that may be inside this library, or throw.
pub type ForebayMappingFn =
    Option<unsafe extern "C" fn(user: *mut c_void, device: i32, what: u32, ptr: *mut c_void, bytes: u64)>;

/// Calls `visit` with every mapped block of the pool on `device`, in address order; addresses between two blocks are
/// not mapped. All blocks are of one moment, before the first call of `visit`. `visit` runs on the calling thread,
/// without a lock. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; `visit` may be called with `context` as said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_snapshot(
    pool: *const ForebayPool,
    device: i32,
    visit: ForebayBlockFn,
    context: *mut c_void,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        let visit = visit.ok_or(Fault::Null("visit"))?;
        for block in pool.blocks(device)? {
            let block = ForebayBlock::from(block);
            // SAFETY: as the caller promises; the block outlives the call.
            unsafe { visit(context, &raw const block) };
        }
        Ok(())
    })
}

/// Sets the observer that is called for every range of the pool on `device` that is mapped or unmapped from now on, in
/// place of the one before; NULL removes it. A chunk that moves is mapped at its new place before it is unmapped at the
/// old one. `user` must stay valid until the observer is replaced. On a device without virtual memory management the
/// driver maps memory itself, and the observer is never called. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; `observer` may be called with `user` as said, on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_set_mapping_observer(
    pool: *mut ForebayPool,
    device: i32,
    observer: ForebayMappingFn,
    user: *mut c_void,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        // An integer, so that the closure is Send: the caller promised that any thread may pass it.
        let user = user.expose_provenance();
        let observer = observer.map(|observer| -> Observer {
            Box::new(move |what, at, bytes| {
                let what = match what {
                    Mapping::Mapped => ForebayMapping::Mapped,
                    Mapping::Unmapped => ForebayMapping::Unmapped,
                };
                let user = std::ptr::with_exposed_provenance_mut(user);
                // SAFETY: as the caller promised.
                unsafe { observer(user, device, what as u32, pointer(at), bytes) }
            })
        });
        Ok(pool.observe(device, observer)?)
    })
}

impl From<SnapshotBlock> for ForebayBlock {
    fn from(block: SnapshotBlock) -> Self {
        let state = match block.state {
            BlockState::Free => ForebayBlockState::Free,
            BlockState::Live => ForebayBlockState::Live,
            BlockState::Pending => ForebayBlockState::Pending,
        };
        let private = block.private.unwrap_or_default();
        Self {
            size: size_of::<Self>() as u32,
            version: FOREBAY_BLOCK_VERSION,
            address: block.address.0,
            bytes: block.bytes,
            state: state as u32,
            framework: block.tag.into(),
            stream: block.stream.map_or(0, |stream| stream.0),
            has_stream: block.stream.is_some().into(),
            is_private: block.private.is_some().into(),
            private_first: (private >> 64) as u64,
            private_second: private as u64,
            requested: block.requested,
            reserved: 0,
        }
    }
}
