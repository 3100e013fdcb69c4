//! What Forebay's own allocator class for PyTorch asks about blocks, so that it keeps no list of its own. All of it is
//! about the shared pool and the blocks that PyTorch has of it.

use std::ffi::c_void;

use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{address, output, pointer, stream as handle};
use crate::abi::core::status::ForebayStatus;
use crate::abi::pool::memory::ForebayFramework;
use crate::error::Error;
use crate::pool::{BlockInfo, Pool, existing};
use crate::units::{Address, StreamHandle};

/// A block that PyTorch has.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForebayTorchBlock {
    /// Its size in bytes.
    pub bytes: u64,
    /// How many bytes were asked for.
    pub requested: u64,
    /// The stream of its allocation; NULL in what `forebay_torch_free_while` answers, which does not look for it.
    pub stream: *mut c_void,
    /// The device it is on.
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

/// The live block that starts at `ptr`. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE unless one starts there that PyTorch has.
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

/// Frees a block in the order of the stream of its allocation, and, unless `has_current` is 0, behind what stream
/// `current` has now: the one that is current where a program frees it, and may have used it. A block of a private pool
/// stays in the order of its own stream, and a `current` that is being captured is not asked. `out` learns what the
/// block was. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE, and changes nothing, unless a live block starts at `ptr` that PyTorch has.
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
