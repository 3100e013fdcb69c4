//! CuPy's hooks on memory resources such as driver pools, in place of `cupy.cuda.MemoryAsyncPool`.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::allocator::{self, HOOK, Target};
use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{ForebayResource, output};
use crate::abi::core::status::ForebayStatus;
use crate::error::Error;
use crate::resource::stream_tracking::StreamTracking;
use crate::units::{Address, GRANULE, StreamHandle};

/// A pool for CuPy: one resource for each device, at the index of the device, since one Python object serves all
/// devices.
pub struct ForebayCupyPool {
    devices: Box<[Arc<StreamTracking>]>,
}

impl ForebayCupyPool {
    /// The resource of `device`.
    ///
    /// # Safety
    /// `object` is NULL or came from `forebay_cupy_pool_create`, and outlives the returned reference.
    unsafe fn get<'a>(object: *const Self, device: c_int) -> Result<&'a StreamTracking, Fault> {
        // SAFETY: not NULL after the check, and alive as the caller promises.
        let Self { devices } = unsafe { object.as_ref() }.ok_or(Fault::Null("pool"))?;
        let found = usize::try_from(device).ok().and_then(|device| devices.get(device));
        found.map(Arc::as_ref).ok_or_else(|| {
            let count = devices.len();
            Error::invalid(format_args!("device is {device}; the pool has {count} devices, counted from 0")).into()
        })
    }
}

impl Target for StreamTracking {
    fn allocate(&self, bytes: u64, device: i32, stream: StreamHandle) -> Result<Address, Fault> {
        // CuPy's own pool rounds up the same way, so that both use a driver pool alike.
        let bytes = bytes.checked_next_multiple_of(GRANULE).unwrap_or(bytes);
        guard::result(|| Ok(self.malloc(bytes, device, stream)?))
    }

    fn free(&self, at: Address, stream: StreamHandle) {
        guard::without_status(
            || Ok(StreamTracking::free(self, at, stream)?),
            |why| tracing::warn!(hook = HOOK, address = %at, %stream, "{why}"),
        );
    }

    fn live_and_held(&self, _device: i32) -> (u64, u64) {
        (self.used().unwrap_or(0), self.held().unwrap_or(0))
    }

    fn size(&self, at: Address) -> u64 {
        self.size_of(at).unwrap_or(0)
    }
}

/// Creates a pool for CuPy from `count` resources, one for each device: `resources[0]` for device 0, and so on. The
/// pool keeps the resources alive. The caller owns the object and frees it with `forebay_cupy_pool_destroy`. Any
/// thread.
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

/// Frees the object. Free everything that was allocated from it before. NULL does nothing. Any thread, but no other
/// call may use the object.
///
/// # Safety
/// `pool` is NULL or came from `forebay_cupy_pool_create`, is not used after this call, and no other call on it is
/// under way.
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

/// Sets the limit of the resource of `device` in bytes; 0, the initial value: no limit. An allocation of CuPy's fails
/// if it would raise the bytes in use of that resource's pool, by all its users, above the limit. All pools for CuPy on
/// one resource share its limit. Any thread.
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

/// Gives the limit of the resource of `device` in bytes; 0 for none. Any thread.
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

/// Allocates `size` bytes, rounded up to 512, from the resource of `device` in the order of CuPy's current stream.
/// `param` is a forebay_cupy_pool, which must live until everything allocated from it is freed. The caller holds the
/// GIL. Fails as `forebay_cupy_malloc` does.
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

/// Frees a block in the order of CuPy's current stream. If the block was allocated on another stream, which may be
/// destroyed by now, CuPy's current stream first waits for all work of the device. A pointer that no pool for CuPy on
/// the same resource allocated goes to the log and changes nothing. The caller holds the GIL. Never raises.
///
/// # Safety
/// Called as CuPy does, with the `param` of the allocation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_cupy_pool_free(param: *mut c_void, ptr: *mut c_void, device: c_int) {
    // SAFETY: as the caller promises.
    allocator::free(|| unsafe { ForebayCupyPool::get(param.cast(), device) }, ptr, device);
}
