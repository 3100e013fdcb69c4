//! Reservations, physical memory, mappings; memory that leaves the process.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};

use forebay::driver::{Driver, Physical, PhysicalOptions, Share, Sharing, VirtualMemory};
use forebay::units::{Address, DeviceId};

use crate::state::host;
use crate::{AccessDescriptor, Answer, INVALID_VALUE, Location, functions, put, said};

/// A POSIX file descriptor and a fabric handle, as types of handle.
pub const FD: u32 = 1;
const FABRIC: u32 = 8;

/// `CUmemAllocationProp`.
#[repr(C)]
pub struct Properties {
    kind: u32,
    handles: u32,
    location: Location,
    win32: *mut c_void,
    compression: u8,
    rdma: u8,
    usage: u16,
    reserved: [u8; 4],
}

impl Properties {
    fn read(&self) -> Answer<PhysicalOptions> {
        let is_plain = self.win32.is_null() && self.compression == 0 && self.usage == 0 && self.reserved == [0; 4];
        if self.kind != 1 || !is_plain {
            return Err(INVALID_VALUE);
        }
        let share = match self.handles {
            0 => Share::None,
            FD => Share::Fd,
            FABRIC => Share::Fabric,
            _ => return Err(INVALID_VALUE),
        };
        let place = self.location.place()?.ok_or(INVALID_VALUE)?;
        Ok(PhysicalOptions { place, share, rdma: self.rdma != 0 })
    }
}

/// Hands a descriptor to the caller, open across exec as libcuda's are.
pub fn give(fd: OwnedFd, to: *mut c_void) -> Answer {
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0) };
    put(to.cast(), fd.into_raw_fd())
}

/// The descriptor that a handle of that type is.
pub fn taken<'a>(handle: *mut c_void) -> Answer<BorrowedFd<'a>> {
    let number = c_int::try_from(handle.addr()).map_err(|_| INVALID_VALUE)?;
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(INVALID_VALUE);
    }
    Ok(unsafe { BorrowedFd::borrow_raw(number) })
}

functions! {
    always cuMemGetAllocationGranularity(bytes: *mut usize, properties: *const Properties, which: u32) |_here| {
        let options = unsafe { &*properties }.read()?;
        put(bytes, said(host()?.granularity(DeviceId(0), &options, which == 1))? as usize)
    }

    uncaptured cuMemAddressReserve(at: *mut u64, bytes: usize, alignment: usize, hint: u64, flags: u64) |here| {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        put(at, said(host()?.reserve_at(here, bytes as u64, alignment as u64, Address(hint)))?.0)
    }

    uncaptured cuMemAddressFree(at: u64, bytes: usize) |here| {
        said(host()?.unreserve(here, Address(at), bytes as u64))
    }

    uncaptured cuMemCreate(handle: *mut u64, bytes: usize, properties: *const Properties, flags: u64) |here| {
        let options = unsafe { &*properties }.read()?;
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        put(handle, said(host()?.create_with(here, bytes as u64, &options))?.0)
    }

    uncaptured cuMemRelease(handle: u64) |here| {
        said(host()?.release(here, Physical(handle)))
    }

    context cuMemMap(at: u64, bytes: usize, offset: usize, handle: u64, flags: u64) |here| {
        if offset != 0 || flags != 0 {
            return Err(INVALID_VALUE);
        }
        said(host()?.map(here, Address(at), bytes as u64, Physical(handle)))
    }

    uncaptured cuMemUnmap(at: u64, bytes: usize) |here| {
        said(host()?.unmap(here, Address(at), bytes as u64))
    }

    uncaptured cuMemSetAccess(at: u64, bytes: usize, access: *const AccessDescriptor, count: usize) |here| {
        let access = unsafe { std::slice::from_raw_parts(access, count) };
        let access = access.iter().map(|each| each.read()).collect::<Answer<Vec<_>>>()?;
        said(host()?.grant_access(here, Address(at), bytes as u64, &access))
    }

    uncaptured cuMemExportToShareableHandle(to: *mut c_void, handle: u64, kind: u32, flags: u64) |here| {
        match kind {
            _ if flags != 0 => Err(INVALID_VALUE),
            FD => give(said(host()?.export_fd(here, Physical(handle)))?, to),
            FABRIC => put(to.cast(), said(host()?.export_fabric(here, Physical(handle)))?),
            _ => Err(INVALID_VALUE),
        }
    }

    uncaptured cuMemImportFromShareableHandle(handle: *mut u64, from: *mut c_void, kind: u32) |here| {
        let imported = match kind {
            FD => host()?.import_fd(here, taken(from)?),
            FABRIC => host()?.import_fabric(here, &unsafe { from.cast::<[u8; 64]>().read() }),
            _ => return Err(INVALID_VALUE),
        };
        put(handle, said(imported)?.0)
    }
}
