//! CuPy's hooks on memory resources, as pools of the driver are: what `cupy.cuda.MemoryAsyncPool` does.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::allocator::{self, HOOK, Target};
use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{ForebayResource, output};
use crate::abi::core::status::ForebayStatus;
use crate::error::Error;
use crate::resource::stream_tracking::StreamTracking;
use crate::units::{Address, GRANULE, StreamHandle};

/// What CuPy allocates from: a resource for each device, by the device's number, since one Python object serves every
/// device.
pub struct ForebayCupyPool {
    devices: Box<[Arc<StreamTracking>]>,
}

impl ForebayCupyPool {
    /// The part of `device`.
    ///
    /// # Safety
    /// `object` is NULL or came from `forebay_cupy_pool_create`, and outlives the returned reference.
    unsafe fn get<'a>(object: *const Self, device: c_int) -> Result<&'a StreamTracking, Fault> {
        // SAFETY: not NULL after the check, and alive as the caller promises.
        let Self { devices } = unsafe { object.as_ref() }.ok_or(Fault::Null("pool"))?;
        let part = usize::try_from(device).ok().and_then(|device| devices.get(device));
        part.map(Arc::as_ref).ok_or_else(|| {
            let count = devices.len();
            Error::invalid(format_args!("device is {device}; the pool has {count} devices, counted from 0")).into()
        })
    }
}

impl Target for StreamTracking {
    fn allocate(&self, bytes: u64, device: i32, stream: StreamHandle) -> Result<Address, Fault> {
        // As CuPy's own pool asks for it, so that both fill the driver's in the same way.
        let bytes = bytes.checked_next_multiple_of(GRANULE).unwrap_or(bytes);
        guard::result(|| Ok(self.malloc(bytes, device, stream)?))
    }

    fn free(&self, at: Address, stream: StreamHandle) {
        guard::unanswered(
            || Ok(StreamTracking::free(self, at, stream)?),
            |why| tracing::warn!(hook = HOOK, address = %at, %stream, "{why}"),
        );
    }

    fn figures(&self, _device: i32) -> (u64, u64) {
        (self.used().unwrap_or(0), self.held().unwrap_or(0))
    }

    fn size(&self, at: Address) -> u64 {
        self.size_of(at).unwrap_or(0)
    }
}

/// A pool for CuPy on a resource for each device: `resources[0]` is device 0's, and so on. It holds the resources. The
/// caller owns the object and frees it with `forebay_cupy_pool_destroy`. Any thread.
///
/// # Safety
/// `resources` is NULL or `count` resource objects, each NULL or alive; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_cupy_pool_create(
    resources: *const *const ForebayResource,
    count: u32,
    out: *mut *mut ForebayCupyPool,
) -> ForebayStatus {
    guard::status(|| {
        if resources.is_null() {
            return Err(Fault::Null("resources"));
        }
        // SAFETY: as the caller promises.
        let (given, out) = unsafe { (std::slice::from_raw_parts(resources, count as usize), output(out, "out")?) };
        let devices = given
            .iter()
            // SAFETY: as the caller promises.
            .map(|&resource| Ok(StreamTracking::of(unsafe { ForebayResource::get(resource)? })?))
            .collect::<Result<_, Fault>>()?;
        out.write(Box::into_raw(Box::new(ForebayCupyPool { devices })));
        Ok(())
    })
}

/// Frees the object. Everything that was allocated from it is back by then. NULL is fine.
///
/// # Safety
/// `pool` is NULL or came from `forebay_cupy_pool_create`, is not used after this call, and no other call on it is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_cupy_pool_destroy(pool: *mut ForebayCupyPool) {
    let _ = guard::status(|| {
        if !pool.is_null() {
            // SAFETY: as the caller promises.
            drop(unsafe { Box::from_raw(pool) });
        }
        Ok(())
    });
}

/// Sets the most bytes that may be in use of the resource of `device`, whoever uses it, when a pool for CuPy allocates
/// from it; 0, as at first: no limit. All pools for CuPy on that resource have one limit. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_cupy_pool_set_limit(
    pool: *mut ForebayCupyPool,
    device: i32,
    bytes: u64,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        unsafe { ForebayCupyPool::get(pool, device)? }.set_limit(bytes);
        Ok(())
    })
}

/// That limit; 0 for none. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_cupy_pool_get_limit(
    pool: *const ForebayCupyPool,
    device: i32,
    out: *mut u64,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (pool, out) = unsafe { (ForebayCupyPool::get(pool, device)?, output(out, "out")?) };
        out.write(pool.limit());
        Ok(())
    })
}

/// Allocates `size` bytes, rounded up to 512, of the resource of `device` in the order of CuPy's current stream.
/// `param` is a forebay_cupy_pool. Fails as `forebay_cupy_malloc` does.
///
/// # Safety
/// Called as CuPy does, holding the GIL. `param` is such an object that lives as long as what was allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn forebay_cupy_pool_malloc(
    param: *mut c_void,
    size: usize,
    device: c_int,
) -> *mut c_void {
    // SAFETY: as the caller promises.
    allocator::malloc(|| unsafe { ForebayCupyPool::get(param.cast(), device) }, size, device)
}

/// Frees a block in the order of CuPy's current stream, so that whoever waits for that stream has its memory. If that
/// is not the stream it was allocated on, which may be gone, CuPy's current stream waits for everything the device has.
/// A pointer that was not allocated on `device` by a pool for CuPy on the same resource is refused. Never raises.
///
/// # Safety
/// Called as CuPy does, with the `param` of the allocation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_cupy_pool_free(param: *mut c_void, ptr: *mut c_void, device: c_int) {
    // SAFETY: as the caller promises.
    allocator::free(|| unsafe { ForebayCupyPool::get(param.cast(), device) }, ptr, device);
}
