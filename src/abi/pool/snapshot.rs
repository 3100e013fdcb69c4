//! What lies where in a pool.

use std::ffi::c_void;

use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{ForebayPool, pointer};
use crate::abi::core::status::ForebayStatus;
use crate::pool::{BlockState, Mapping, Observer, SnapshotBlock};

/// Layout of `forebay_block`.
pub const FOREBAY_BLOCK_VERSION: u32 = 1;

/// What a block is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayBlockState {
    /// Mapped, and not given out.
    Free = 0,
    /// Given out.
    Live = 1,
    /// Given back, and waiting for work that may still use it.
    Pending = 2,
}

/// A block of a pool, as it was at one moment.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForebayBlock {
    /// sizeof(forebay_block), as the library was compiled.
    pub size: u32,
    /// FOREBAY_BLOCK_VERSION.
    pub version: u32,
    /// Where it begins.
    pub address: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// A FOREBAY_BLOCK_STATE_*.
    pub state: u32,
    /// A FOREBAY_FRAMEWORK_*: who has it; 0 unless it is live.
    pub framework: u32,
    /// The stream that it was allocated on, or in whose order it is free.
    pub stream: u64,
    /// 1: `stream` says something. 0: it is nobody's, any stream can have it.
    pub has_stream: u32,
    /// 1: it belongs to the private pool of the ids below.
    pub is_private: u32,
    /// First part of the private pool's id, as PyTorch's hooks have it; all ones for `forebay_pool_private_begin`.
    pub private_first: u64,
    /// Second part.
    pub private_second: u64,
    /// How many bytes its user asked for; 0 unless it is live.
    pub requested: u64,
    /// Zero.
    pub reserved: u64,
}

/// Takes one block. Must not throw; may use the pool.
pub type ForebayBlockFn = Option<unsafe extern "C" fn(context: *mut c_void, block: *const ForebayBlock)>;

/// What became of a range of addresses.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForebayMapping {
    /// It has memory of the device now.
    Mapped = 0,
    /// It has none any more.
    Unmapped = 1,
}

/// Told that a range was mapped or unmapped: `what` is a FOREBAY_MAPPING_*. Called under the pool's locks: must not
/// call this library, wait for anybody who may be in it, or throw.
pub type ForebayMappingFn =
    Option<unsafe extern "C" fn(user: *mut c_void, device: i32, what: u32, ptr: *mut c_void, bytes: u64)>;

/// Calls `visit` with every block of a device's pool that has memory, in address order; memory between two blocks that
/// do not touch is not mapped. All blocks are of one moment; they may have changed by the time of the call. Any thread.
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

/// Tells `observer` of every range of a device's pool that is mapped or unmapped from now on, until another one is set;
/// NULL ends it. A moved chunk is mapped at its new place before it is unmapped at the old one. `user` must stay valid
/// until then. On a device without virtual memory management the driver maps, and `observer` is never called. Any
/// thread.
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
        // The caller promised that it may be passed from any thread.
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
