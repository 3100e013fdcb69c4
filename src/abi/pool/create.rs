//! Making and ending pools.

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

/// Layout of `forebay_pool_options`.
pub const FOREBAY_POOL_OPTIONS_VERSION: u32 = 1;

/// How a pool behaves. Fill with `forebay_pool_options_init`, then change what you want changed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForebayPoolOptions {
    /// sizeof(forebay_pool_options), as the caller was compiled.
    pub size: u32,
    /// FOREBAY_POOL_OPTIONS_VERSION.
    pub version: u32,
    /// "cuda", "host", or NULL: the variable FOREBAY_DRIVER, else cuda. Read during the call only.
    pub driver: *const c_char,
    /// Most physical memory to hold per device, in bytes; 0: no limit but the device's. FOREBAY_LIMIT.
    pub limit: u64,
    /// The same as a share of the device's memory, above 0 and up to 1; 0: none. FOREBAY_FRACTION.
    pub fraction: f64,
    /// Largest chunk of physical memory in bytes, a power of two of 2 MiB or more; 0: follows the pool.
    /// FOREBAY_MAX_CHUNK.
    pub max_chunk: u64,
    /// Where the memory lies: FOREBAY_LOCATION_DEVICE, or FOREBAY_LOCATION_HOST_NUMA for pinned memory of the host.
    pub location: u32,
    /// For pinned memory: the NUMA node; -1: the one nearest to each device, as far as the driver knows.
    pub numa_id: i32,
    /// 1: take new memory rather than make a stream wait for another stream's. FOREBAY_GROW_FIRST.
    pub grow_first: u32,
    /// Memory that was not needed for so many milliseconds goes back to the driver, by a thread of the pool; 0: only
    /// when asked for. FOREBAY_GIVE_BACK_MS.
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

/// Fills `options` with the defaults, changed by the FOREBAY_* variables. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT if a variable cannot be read, or means nothing; `options` is then not
/// written.
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

/// Says how the shared pool is to be made, before its first use. NULL: from the environment, as without this call.
///
/// Returns FOREBAY_STATUS_BUSY once the shared pool exists. Any thread.
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

/// The shared pool of the process, which the hooks of PyTorch and CuPy use. Made on first use; lives until the
/// process ends. Every call gives a new object: the caller owns it and frees it with `forebay_pool_destroy`,
/// which leaves the shared pool itself alone. Any thread.
///
/// Returns FOREBAY_STATUS_NO_DRIVER where there is no usable driver; the message says what is missing.
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

/// Makes a pool of your own. Takes no memory before its first allocation. The caller owns the object and frees
/// it with `forebay_pool_destroy`. NULL options: the defaults, changed by the FOREBAY_* variables. Any thread.
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

/// Frees the object. With the last object of a pool made by `forebay_pool_create` the pool ends: it waits for the
/// device and gives everything back, blocks that are still live included. NULL is fine.
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

/// "cuda" or "host"; NULL for a NULL pool. Static. Any thread.
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

/// How many devices the pool's driver has. Any thread.
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

/// Memory of a device as the driver sees it, in bytes: free to everybody, and all there is. Any thread.
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

/// A destructor for Python capsules that hold a pool object and are named "forebay_pool": frees the object, with
/// Python's lock given up. Python's cycle collector calls what is written in Python before it ends anything, and
/// capsules when their last reference is gone: who keeps the capsule keeps the pool. Pass its address to PyCapsule_New.
///
/// # Safety
/// `capsule` is a Python capsule, and Python's lock is held.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pool_capsule_delete(capsule: *mut c_void) {
    // SAFETY: as the caller promises.
    let pool = unsafe { exception::capsule(capsule, c"forebay_pool") };
    // SAFETY: a capsule of this name owns a pool object.
    exception::without_lock(|| unsafe { forebay_pool_destroy(pool.cast()) });
}
