//! Stream-ordered pools.

use std::ffi::{c_int, c_void};

use forebay::driver::{Access, Place, PoolAttribute, PoolHandle, PoolOptions, Pools};
use forebay::units::{Address, DeviceId};

use crate::devices::version;
use crate::state::{device_of, host};
use crate::streams::{handle, owner};
use crate::virtual_memory::{FD, give, taken};
use crate::{AccessDescriptor, Answer, INVALID_VALUE, Location, functions, put, said};

const MANAGED: u32 = 2;

/// Attributes of a pool, from 13.1.
const LOCATION_ID: u32 = 11;
const LOCATION_TYPE: u32 = 12;

/// `CUmemPoolProps`.
#[repr(C)]
pub struct Properties {
    kind: u32,
    handles: u32,
    location: Location,
    win32: *mut c_void,
    max_size: usize,
    usage: u16,
    reserved: [u8; 54],
}

/// The place of a pool and whether it is managed.
fn kind(location: Location, kind: u32) -> Answer<(Option<Place>, bool)> {
    if kind != 1 && kind != MANAGED {
        return Err(INVALID_VALUE);
    }
    Ok((location.place()?, kind == MANAGED))
}

impl Properties {
    fn read(&self) -> Answer<PoolOptions> {
        let is_plain = self.win32.is_null() && self.usage == 0 && self.reserved == [0; 54] && self.handles <= FD;
        if !is_plain {
            return Err(INVALID_VALUE);
        }
        let (place, managed) = kind(self.location, self.kind)?;
        Ok(PoolOptions { place, managed, share: self.handles == FD, max_size: self.max_size as u64 })
    }
}

fn named(pool: *mut c_void) -> PoolHandle {
    PoolHandle(pool.addr() as u64)
}

fn raw(pool: PoolHandle) -> *mut c_void {
    std::ptr::without_provenance_mut(pool.0 as usize)
}

/// The attribute, and whether it is an `int`.
fn attribute(number: u32) -> Answer<(PoolAttribute, bool)> {
    use PoolAttribute as A;
    let attribute = match number {
        1 => A::ReuseFollowEventDependencies,
        2 => A::ReuseAllowOpportunistic,
        3 => A::ReuseAllowInternalDependencies,
        4 => A::ReleaseThreshold,
        5 => A::ReservedCurrent,
        6 => A::ReservedHigh,
        7 => A::UsedCurrent,
        8 => A::UsedHigh,
        _ => return Err(INVALID_VALUE),
    };
    Ok((attribute, number <= 3))
}

functions! {
    always cuDeviceGetDefaultMemPool(pool: *mut *mut c_void, device: c_int) |_here| {
        let device = device_of(device)?;
        put(pool, raw(said(host()?.pool_default(device, Some(Place::Device(device)), false))?))
    }

    always cuDeviceGetMemPool(pool: *mut *mut c_void, device: c_int) |_here| {
        let device = device_of(device)?;
        put(pool, raw(said(host()?.pool_current(device, Some(Place::Device(device)), false))?))
    }

    always cuMemGetDefaultMemPool(pool: *mut *mut c_void, location: *const Location, of: u32) |_here| {
        let (place, managed) = kind(unsafe { location.read() }, of)?;
        put(pool, raw(said(host()?.pool_default(DeviceId(0), place, managed))?))
    }

    always cuMemGetMemPool(pool: *mut *mut c_void, location: *const Location, of: u32) |_here| {
        let (place, managed) = kind(unsafe { location.read() }, of)?;
        put(pool, raw(said(host()?.pool_current(DeviceId(0), place, managed))?))
    }

    uncaptured cuMemPoolCreate(pool: *mut *mut c_void, properties: *const Properties) |here| {
        let options = unsafe { &*properties }.read()?;
        put(pool, raw(said(host()?.pool_create(here, &options))?))
    }

    uncaptured cuMemPoolDestroy(pool: *mut c_void) |here| {
        said(host()?.pool_destroy(here, named(pool)))
    }

    uncaptured cuMemPoolGetAttribute(pool: *mut c_void, number: u32, to: *mut c_void) |here| {
        if (LOCATION_ID..=LOCATION_TYPE).contains(&number) && version() >= 13_010 {
            let location = said(host()?.pool_place(here, named(pool)))?.map(Location::of).ok_or(INVALID_VALUE)?;
            return put(to.cast(), if number == LOCATION_ID { location.id as u32 } else { location.kind });
        }
        let (attribute, is_int) = attribute(number)?;
        let value = said(host()?.pool_attribute(here, named(pool), attribute))?;
        if is_int { put(to.cast(), value as c_int) } else { put(to.cast(), value) }
    }

    uncaptured cuMemPoolSetAttribute(pool: *mut c_void, number: u32, from: *mut c_void) |here| {
        let (attribute, is_int) = attribute(number)?;
        let value = unsafe { if is_int { from.cast::<c_int>().read() as u64 } else { from.cast::<u64>().read() } };
        said(host()?.pool_set_attribute(here, named(pool), attribute, value))
    }

    uncaptured cuMemPoolGetAccess(flags: *mut u32, pool: *mut c_void, location: *mut Location) |here| {
        let place = unsafe { location.read() }.place()?.ok_or(INVALID_VALUE)?;
        let access = said(host()?.pool_access(here, named(pool), place))?;
        put(flags, match access {
            Access::None => 0,
            Access::Read => 1,
            Access::ReadWrite => 3,
        })
    }

    uncaptured cuMemPoolSetAccess(pool: *mut c_void, access: *const AccessDescriptor, count: usize) |here| {
        let access = unsafe { std::slice::from_raw_parts(access, count) };
        access.iter().try_for_each(|each| {
            let (place, access) = each.read()?;
            said(host()?.pool_set_access(here, named(pool), place, access))
        })
    }

    uncaptured cuMemPoolTrimTo(pool: *mut c_void, keep: usize) |here| {
        said(host()?.pool_trim(here, named(pool), keep as u64))
    }

    context cuMemAllocFromPoolAsync(at: *mut u64, bytes: usize, pool: *mut c_void, stream: *mut c_void) |here| {
        let device = owner(here, stream)?;
        put(at, said(host()?.pool_allocate(device, named(pool), bytes as u64, handle(stream)))?.0)
    }

    context cuMemFreeAsync(at: u64, stream: *mut c_void) |here| {
        said(host()?.pool_free(owner(here, stream)?, Address(at), handle(stream)))
    }

    uncaptured cuMemPoolExportToShareableHandle(to: *mut c_void, pool: *mut c_void, kind: u32, flags: u64) |here| {
        if kind != FD || flags != 0 {
            return Err(INVALID_VALUE);
        }
        give(said(host()?.pool_export_fd(here, named(pool)))?, to)
    }

    uncaptured cuMemPoolImportFromShareableHandle(
        pool: *mut *mut c_void,
        from: *mut c_void,
        kind: u32,
        flags: u64,
    ) |here| {
        if kind != FD || flags != 0 {
            return Err(INVALID_VALUE);
        }
        put(pool, raw(said(host()?.pool_import_fd(here, taken(from)?))?))
    }

    uncaptured cuMemPoolExportPointer(blob: *mut [u8; 64], at: u64) |here| {
        put(blob, said(host()?.pool_export_pointer(here, Address(at)))?)
    }

    uncaptured cuMemPoolImportPointer(at: *mut u64, pool: *mut c_void, blob: *mut [u8; 64]) |here| {
        put(at, said(host()?.pool_import_pointer(here, named(pool), &unsafe { blob.read() }))?.0)
    }
}
