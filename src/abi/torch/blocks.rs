//! Queries and frees of blocks for Forebay's allocator class for PyTorch, which so needs no list of blocks. All concern
//! the shared pool and the blocks that PyTorch allocated from it.

use std::ffi::c_void;

use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{address, output, pointer, stream as handle};
use crate::abi::core::status::ForebayStatus;
use crate::abi::pool::memory::ForebayFramework;
use crate::error::Error;
use crate::pool::{BlockInfo, Pool, existing};
use crate::units::{Address, StreamHandle};

/// A live block that PyTorch allocated.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForebayTorchBlock {
    /// Its size in bytes.
    pub bytes: u64,
    /// The bytes that were requested.
    pub requested: u64,
    /// The stream of its allocation. NULL from `forebay_torch_free_while`, which does not look it up.
    pub stream: *mut c_void,
    /// Its device.
    pub device: i32,
    /// Zero.
    pub reserved: u32,
}

impl ForebayTorchBlock {
    #[inline]
    fn new(info: BlockInfo, stream: StreamHandle) -> Self {
        let BlockInfo { device, bytes, requested } = info;
        Self { bytes, requested, stream: pointer(Address(stream.0)), device, reserved: 0 }
    }
}

/// Gives the live block that starts at `ptr`. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE unless a live block that PyTorch allocated starts at `ptr`.
///
/// # Safety
/// `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_torch_block_at(ptr: *const c_void, out: *mut ForebayTorchBlock) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let out = unsafe { output(out, "out")? };
        let (info, stream) = pool(ptr)?.block_info(address(ptr), ForebayFramework::Torch as u8)?;
        out.write(ForebayTorchBlock::new(info, stream));
        Ok(())
    })
}

/// Frees a block in the order of the stream of its allocation and, unless `has_current` is 0, after the work that
/// stream `current` has now. `current` is the stream that is current where the program frees the block, and that may
/// have used it. A block of a private pool stays in the order of its own stream, and a `current` that is being captured
/// is ignored. `out` receives the block as it was. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE, and changes nothing, unless a live block that PyTorch allocated starts at `ptr`.
///
/// # Safety
/// The stream of the allocation is alive, and so is `current`; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_torch_free_while(
    ptr: *mut c_void,
    has_current: u32,
    current: *mut c_void,
    out: *mut ForebayTorchBlock,
) -> ForebayStatus {
    let (tag, at) = (ForebayFramework::Torch as u8, address(ptr));
    // SAFETY: as the caller promises.
    let out = match unsafe { output(out, "out") } {
        Ok(out) => out,
        Err(fault) => return guard::status(|| Err(fault)),
    };
    let current = (has_current != 0).then(|| handle(current));
    let freed = existing().zip(current).and_then(|(pool, current)| pool.free_fast(at, current, BlockInfo::of_tag(tag)));
    let info = match freed {
        Some(info) => Ok(info),
        None => guard::result(|| Ok(pool(ptr)?.free_slow_while(at, current, tag)?)),
    };
    match info {
        Ok(info) => {
            out.write(ForebayTorchBlock::new(info, StreamHandle::LEGACY));
            ForebayStatus::Ok
        }
        Err(fault) => fault.status(),
    }
}

fn pool(ptr: *const c_void) -> Result<&'static Pool, Fault> {
    let nothing = || Error::BadFree(format!("{} is not live: nothing was allocated yet", address(ptr)).into());
    Ok(&**existing().ok_or_else(nothing)?)
}
