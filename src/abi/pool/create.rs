//! Creating and destroying pools.

use std::ffi::{CStr, c_char, c_void};

use crate::abi::core::enums::ForebayLocation;
use crate::abi::core::guard::{self, Fault};
use crate::abi::core::handle::{ForebayPool, output};
use crate::abi::core::log::shared;
use crate::abi::core::status::ForebayStatus;
use crate::abi::core::versioned::node;
use crate::abi::python::exception;
use crate::driver::Choice;
use crate::error::Error;
use crate::log;
use crate::pool::{Location, Options, Pool, configure};

/// Version of the layout of `forebay_pool_options`.
pub const FOREBAY_POOL_OPTIONS_VERSION: u32 = 1;

/// Options of a pool. Fill them with `forebay_pool_options_init`, then change single fields. The variable at the end of
/// a field's text sets its default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForebayPoolOptions {
    /// sizeof(forebay_pool_options) as the caller was compiled.
    pub size: u32,
    /// FOREBAY_POOL_OPTIONS_VERSION.
    pub version: u32,
    /// "cuda", "host", or NULL for the value of FOREBAY_DRIVER, or "cuda" if that is not set. Read during the call
    /// only; the caller owns the string.
    pub driver: *const c_char,
    /// The most physical memory that the pool may hold on each device, in bytes; 0: the device's memory. FOREBAY_LIMIT.
    pub limit: u64,
    /// The same limit as a share of the device's memory, above 0 and up to 1; 0: none. The smaller limit applies.
    /// FOREBAY_FRACTION.
    pub fraction: f64,
    /// Largest chunk of physical memory in bytes, a power of two of 2 MiB or more; 0: chosen by the pool's size.
    /// FOREBAY_MAX_CHUNK.
    pub max_chunk: u64,
    /// FOREBAY_LOCATION_DEVICE for memory of the devices, or FOREBAY_LOCATION_HOST_NUMA for pinned host memory.
    pub location: u32,
    /// For pinned memory: the NUMA node; -1: the node nearest to each device, if the driver reports it.
    pub numa_id: i32,
    /// 1: the pool grows rather than make a stream wait for memory that another stream freed. 0 or 1.
    /// FOREBAY_GROW_FIRST.
    pub grow_first: u32,
    /// Milliseconds after which a thread of the pool gives idle memory back to the driver; 0: no such thread.
    /// FOREBAY_GIVE_BACK_MS.
    pub give_back_ms: u32,
    /// Zero.
    pub reserved: [u64; 7],
}

/// # Safety
/// `options` is NULL or points to a readable `forebay_pool_options` of the size it names.
unsafe fn read(options: *const ForebayPoolOptions) -> Result<Options, Fault> {
    log::start()?;
    if options.is_null() {
        return Ok(Options::from_environment()?);
    }
    // SAFETY: the first two words are there in every version of the struct.
    let (size, version) = unsafe { ((*options).size, (*options).version) };
    let expected = size_of::<ForebayPoolOptions>() as u32;
    if (size, version) != (expected, FOREBAY_POOL_OPTIONS_VERSION) {
        return Err(Error::invalid(format_args!(
            "options have size {size} and version {version}; this library takes size {expected} and version \
             {FOREBAY_POOL_OPTIONS_VERSION}: fill them with forebay_pool_options_init"
        ))
        .into());
    }
    // SAFETY: its size was just checked.
    let options = unsafe { &*options };
    if options.reserved != [0; 7] {
        return Err(
            Error::invalid("reserved words of options are not zero: fill them with forebay_pool_options_init").into()
        );
    }
    let driver = if options.driver.is_null() {
        None
    } else {
        // SAFETY: the caller passes NULL or a C string.
        let name = unsafe { CStr::from_ptr(options.driver) };
        Some(Choice::parse(&name.to_string_lossy())?)
    };
    let grow_first = match options.grow_first {
        0 => false,
        1 => true,
        other => return Err(Error::invalid(format_args!("grow_first is {other}; it takes 0 or 1")).into()),
    };
    let location = match ForebayLocation::read(options.location)? {
        ForebayLocation::Device => Location::Device,
        ForebayLocation::HostNuma => Location::Host { numa_node: node("numa_id", options.numa_id)? },
        _ => {
            return Err(Error::invalid(format_args!(
                "location is {}; a pool takes {} (device) or {} (pinned memory of the host)",
                options.location,
                ForebayLocation::Device as u32,
                ForebayLocation::HostNuma as u32
            ))
            .into());
        }
    };
    let read = Options {
        driver,
        limit: options.limit,
        fraction: options.fraction,
        max_chunk: options.max_chunk,
        location,
        grow_first,
        give_back_ms: options.give_back_ms,
    };
    read.validate()?;
    Ok(read)
}

/// Fills `options` with the defaults and the values of the FOREBAY_* variables. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT if the value of a variable is invalid, or if a FOREBAY_* variable is
/// unknown; `options` is then not written.
///
/// # Safety
/// `options` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_options_init(options: *mut ForebayPoolOptions) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let out = unsafe { output(options, "options")? };
        log::start()?;
        let read = Options::from_environment()?;
        out.write(ForebayPoolOptions {
            size: size_of::<ForebayPoolOptions>() as u32,
            version: FOREBAY_POOL_OPTIONS_VERSION,
            driver: std::ptr::null(),
            limit: read.limit,
            fraction: read.fraction,
            max_chunk: read.max_chunk,
            location: ForebayLocation::Device as u32,
            numa_id: -1,
            grow_first: read.grow_first.into(),
            give_back_ms: read.give_back_ms,
            reserved: [0; 7],
        });
        Ok(())
    })
}

/// Sets the options of the shared pool, before its first use. NULL: the defaults and the FOREBAY_* variables, as
/// without this call.
///
/// Returns FOREBAY_STATUS_BUSY if the shared pool exists, FOREBAY_STATUS_INVALID_ARGUMENT for an option out of range.
/// Any thread.
///
/// # Safety
/// `options` is NULL or points to options filled by `forebay_pool_options_init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_configure_shared(options: *const ForebayPoolOptions) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let options = unsafe { read(options)? };
        Ok(configure(options)?)
    })
}

/// Gives the shared pool of the process, which the hooks of PyTorch and CuPy use. The first use creates it; it lives
/// until the process ends. Each call gives a new object, which the caller owns and frees with `forebay_pool_destroy`;
/// that does not affect the shared pool itself. Any thread.
///
/// Returns FOREBAY_STATUS_NO_DRIVER if there is no usable driver; the message says what is missing.
///
/// # Safety
/// `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_shared(out: *mut *mut ForebayPool) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let out = unsafe { output(out, "out")? };
        out.write(ForebayPool::into_raw(shared()?.clone()));
        Ok(())
    })
}

/// Creates a pool separate from the shared one. It takes no memory before its first allocation. NULL options: the
/// defaults and the values of the FOREBAY_* variables. The caller owns the object and frees it with
/// `forebay_pool_destroy`. Any thread.
///
/// Returns FOREBAY_STATUS_NO_DRIVER if there is no usable driver, FOREBAY_STATUS_INVALID_ARGUMENT for an option or
/// variable out of range.
///
/// # Safety
/// `options` is NULL or points to options filled by `forebay_pool_options_init`; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_create(
    options: *const ForebayPoolOptions,
    out: *mut *mut ForebayPool,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let out = unsafe { output(out, "out")? };
        // SAFETY: as the caller promises.
        let options = unsafe { read(options)? };
        out.write(ForebayPool::into_raw(Pool::new(options)?));
        Ok(())
    })
}

/// Frees the object. When the last object of a pool from `forebay_pool_create` is freed, and no resource holds the
/// pool, the pool ends: it waits on the host for the devices, then frees all its memory, live blocks included. NULL
/// does nothing. Any thread, but no other call may use the object.
///
/// # Safety
/// `pool` is NULL or came from this library, is not used after this call, and no other call on it is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_destroy(pool: *mut ForebayPool) {
    let _ = guard::status(|| {
        if !pool.is_null() {
            // SAFETY: as the caller promises.
            unsafe { ForebayPool::drop_raw(pool) };
        }
        Ok(())
    });
}

/// The name of the pool's driver: "cuda" or "host"; NULL for a NULL pool. Static. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_driver_name(pool: *const ForebayPool) -> *const c_char {
    let name = guard::result(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        Ok(if pool.driver_name() == "host" { c"host" } else { c"cuda" })
    });
    name.map_or(std::ptr::null(), CStr::as_ptr)
}

/// Gives the number of devices of the pool's driver. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_device_count(pool: *const ForebayPool, out: *mut i32) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let (pool, out) = unsafe { (ForebayPool::get(pool)?, output(out, "out")?) };
        out.write(pool.device_count() as i32);
        Ok(())
    })
}

/// Gives the free and the total memory of `device` in bytes, as the driver reports them (cuMemGetInfo). Memory that the
/// pool holds is not free. Any thread.
///
/// # Safety
/// `pool` is NULL or a live pool object; the outputs are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_memory_info(
    pool: *const ForebayPool,
    device: i32,
    free_bytes: *mut u64,
    total_bytes: *mut u64,
) -> ForebayStatus {
    guard::status(|| {
        // SAFETY: as the caller promises.
        let pool = unsafe { ForebayPool::get(pool)? };
        // SAFETY: as the caller promises.
        let (free, total) = unsafe { (output(free_bytes, "free_bytes")?, output(total_bytes, "total_bytes")?) };
        let info = pool.driver().memory_info(pool.device(device)?.device())?;
        free.write(info.free);
        total.write(info.total);
        Ok(())
    })
}

/// Destructor of Python capsules that hold a pool object and are named "forebay_pool"; pass its address to
/// PyCapsule_New. It frees the object with the GIL released. Python calls it when the capsule's last reference is gone,
/// also in a cycle collection after all finalizers, so a reference to the capsule keeps the pool alive.
///
/// # Safety
/// `capsule` is a Python capsule, and the GIL is held.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_capsule_delete(capsule: *mut c_void) {
    // SAFETY: as the caller promises.
    let pool = unsafe { exception::capsule(capsule, c"forebay_pool") };
    // SAFETY: a capsule of this name owns a pool object.
    exception::without_gil(|| unsafe { forebay_pool_destroy(pool.cast()) });
}
