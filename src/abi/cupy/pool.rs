//! CuPy's hooks on memory resources, as pools of the driver are: what `cupy.cuda.MemoryAsyncPool` does.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::allocator::{self, HOOK, Target};
use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{ForebayResource, output};
use crate::abi::core::status::ForebayStatus;
use crate::error::Error;
use crate::resource::stream_tracking::Ordered;
use crate::units::{Address, GRAIN, StreamHandle};

/// A resource that CuPy allocates from.
pub struct ForebayCupyPool {
    memory: Arc<Ordered>,
}

impl ForebayCupyPool {
    /// # Safety
    /// `object` is NULL or came from `forebay_cupy_pool_create`, and outlives the returned reference.
    unsafe fn get<'a>(object: *const Self) -> Result<&'a Arc<Ordered>, Fault> {
        // SAFETY: not NULL after the check, and alive as the caller promises.
        unsafe { object.as_ref() }.map(|object| &object.memory).ok_or(Fault::Null("pool"))
    }
}

/// A pool for each device, by the device's number: one Python object serves every device, as CuPy's own does.
pub struct ForebayCupyPools {
    pools: Box<[Arc<Ordered>]>,
}

impl ForebayCupyPools {
    /// # Safety
    /// `object` is NULL or came from `forebay_cupy_pools_create`, and outlives the returned reference.
    unsafe fn get<'a>(object: *const Self, device: c_int) -> Result<&'a Ordered, Fault> {
        // SAFETY: not NULL after the check, and alive as the caller promises.
        let Self { pools } = unsafe { object.as_ref() }.ok_or(Fault::Null("pools"))?;
        let pool = usize::try_from(device).ok().and_then(|device| pools.get(device));
        pool.map(Arc::as_ref).ok_or_else(|| {
            Error::invalid(format_args!("device is {device}; there are pools of {} devices, from 0", pools.len()))
                .into()
        })
    }
}

impl Target for Ordered {
    fn allocate(&self, bytes: u64, device: i32, stream: StreamHandle) -> Result<Address, Fault> {
        // As CuPy's own pool asks for it, so that both fill the driver's in the same way.
        let bytes = bytes.checked_next_multiple_of(GRAIN).unwrap_or(bytes);
        guard::result(|| Ok(self.malloc(bytes, device, stream)?))
    }

    fn free(&self, at: Address, stream: StreamHandle) {
        guard::unanswered(
            || Ok(Ordered::free(self, at, stream)?),
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

/// A pool for CuPy on a resource of a device, without a limit. It holds the resource. The caller owns the object and frees
/// it with `forebay_cupy_pool_destroy`. Any thread.
///
/// # Safety
/// `resource` is NULL or a live resource object; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_cupy_pool_create(
    resource: *const ForebayResource,
    out: *mut *mut ForebayCupyPool,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (resource, out) = unsafe { (ForebayResource::get(resource)?, output(out, "out")?) };
        let memory = Arc::new(Ordered::new(Arc::clone(resource))?);
        out.write(Box::into_raw(Box::new(ForebayCupyPool { memory })));
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

/// Sets the most bytes that may be in use of the resource's pool, whoever uses them, when this pool allocates; 0: no
/// limit. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_cupy_pool_set_limit(pool: *mut ForebayCupyPool, bytes: u64) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        unsafe { ForebayCupyPool::get(pool)? }.set_limit(bytes);
        Ok(())
    })
}

/// That limit; 0 for none. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_cupy_pool_get_limit(pool: *const ForebayCupyPool, out: *mut u64) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (pool, out) = unsafe { (ForebayCupyPool::get(pool)?, output(out, "out")?) };
        out.write(pool.limit());
        Ok(())
    })
}

/// One object for CuPy of a pool for each device, `pools[0]` that of device 0 and so on: the `param` of the two hooks below.
/// It holds what the pools hold. The caller owns the object and frees it with `forebay_cupy_pools_destroy`. Any thread.
///
/// # Safety
/// `pools` is NULL or `count` pool objects, each NULL or alive; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_cupy_pools_create(
    pools: *const *const ForebayCupyPool,
    count: u32,
    out: *mut *mut ForebayCupyPools,
) -> ForebayStatus {
    guard::status(|| {
        if pools.is_null() {
            return Err(Fault::Null("pools"));
        }
        // SAFETY: as the caller promises.
        let (given, out) = unsafe { (std::slice::from_raw_parts(pools, count as usize), output(out, "out")?) };
        let pools = given
            .iter()
            // SAFETY: as the caller promises.
            .map(|&pool| unsafe { ForebayCupyPool::get(pool) }.cloned())
            .collect::<Result<_, Fault>>()?;
        out.write(Box::into_raw(Box::new(ForebayCupyPools { pools })));
        Ok(())
    })
}

/// Frees the object. Everything that was allocated from it is back by then. NULL is fine.
///
/// # Safety
/// `pools` is NULL or came from `forebay_cupy_pools_create`, is not used after this call, and no other call on it is under
/// way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_cupy_pools_destroy(pools: *mut ForebayCupyPools) {
    let _ = guard::status(|| {
        if !pools.is_null() {
            // SAFETY: as the caller promises.
            drop(unsafe { Box::from_raw(pools) });
        }
        Ok(())
    });
}

/// Allocates `size` bytes, rounded up to 512, of the pool of `device` in the order of CuPy's current stream. `param` is a
/// forebay_cupy_pools. Fails as `forebay_cupy_malloc` does.
///
/// # Safety
/// Called as CuPy does, holding the GIL. `param` is such an object that lives as long as what was allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn forebay_cupy_pools_malloc(
    param: *mut c_void,
    size: usize,
    device: c_int,
) -> *mut c_void {
    // SAFETY: as the caller promises.
    allocator::malloc(|| unsafe { ForebayCupyPools::get(param.cast(), device) }, size, device)
}

/// Frees a block in the order of CuPy's current stream, so that who waits for that stream has its memory. If that is not the
/// stream it was allocated on, which may be gone, CuPy's current stream waits for everything the device has. A pointer that the pool of `device` did not give is refused. Never raises.
///
/// # Safety
/// Called as CuPy does, with the `param` of the allocation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_cupy_pools_free(param: *mut c_void, ptr: *mut c_void, device: c_int) {
    // SAFETY: as the caller promises.
    allocator::free(|| unsafe { ForebayCupyPools::get(param.cast(), device) }, ptr, device);
}
