//! The driver's own stream-ordered pools: see [`Pools`].

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use cudarc::driver::sys::{CUmemPoolPtrExportData, CUmemoryPool};

use super::CudaDriver;
use super::error::{SUCCESS, forgive, invalid};
use super::pool_kinds::{Wanted, asked};
use super::sharing::{FD, as_pointer, own};
use super::stream::raw;
use crate::driver::{
    Access, Blob, DriverError, ErrorKind, Place, PoolAttribute, PoolHandle, PoolOptions, Pools, Result,
};
use crate::units::{Address, DeviceId, StreamHandle};

fn raw_pool(pool: PoolHandle) -> CUmemoryPool {
    pool.0 as CUmemoryPool
}

fn named(pool: PoolHandle) -> String {
    format!("pool {:#x}", pool.0)
}

/// The first three attributes are an `int` to libcuda, the others 64 bits.
fn is_switch(attribute: PoolAttribute) -> bool {
    matches!(
        attribute,
        PoolAttribute::ReuseFollowEventDependencies
            | PoolAttribute::ReuseAllowOpportunistic
            | PoolAttribute::ReuseAllowInternalDependencies
    )
}

/// Refuses attributes and values that libcuda would refuse, and values that it would truncate.
fn writable(attribute: PoolAttribute, value: u64) -> std::result::Result<(), &'static str> {
    match attribute {
        PoolAttribute::ReservedCurrent | PoolAttribute::UsedCurrent => Err("it is read only"),
        PoolAttribute::ReservedHigh | PoolAttribute::UsedHigh if value != 0 => Err("it can only be set to 0"),
        switch if is_switch(switch) && value > 1 => Err("it is 0 or 1"),
        _ => Ok(()),
    }
}

impl Pools for CudaDriver {
    fn pool_default(&self, device: DeviceId, place: Option<Place>, managed: bool) -> Result<PoolHandle> {
        self.find_pool(device, place, managed, Wanted::Default)
    }

    fn pool_current(&self, device: DeviceId, place: Option<Place>, managed: bool) -> Result<PoolHandle> {
        self.find_pool(device, place, managed, Wanted::Current)
    }

    fn pool_create(&self, device: DeviceId, options: &PoolOptions) -> Result<PoolHandle> {
        const CALL: &str = "cuMemPoolCreate";
        let group = self.pools(device, CALL)?;
        let properties = self.pool_properties(CALL, device, options)?;
        let _scope = self.enter_relaxed(device)?;
        let mut pool: CUmemoryPool = ptr::null_mut();
        // SAFETY: reads the properties, writes a pool.
        let code = unsafe { (group.cuMemPoolCreate)(&raw mut pool, &raw const properties) };
        self.api.check(CALL, code, || asked(options.place, options.managed))?;
        Ok(PoolHandle(pool as u64))
    }

    fn pool_destroy(&self, device: DeviceId, pool: PoolHandle) -> Result<()> {
        let group = self.pools(device, "cuMemPoolDestroy")?;
        forgive(self.enter_relaxed(device).and_then(|_scope| {
            // SAFETY: the caller vouches that the pool is its own and alive.
            let code = unsafe { (group.cuMemPoolDestroy)(raw_pool(pool)) };
            self.api.check("cuMemPoolDestroy", code, || named(pool))
        }))
    }

    /// Two attributes of libcuda from 13.1 on; older ones refuse them.
    fn pool_place(&self, device: DeviceId, pool: PoolHandle) -> Result<Option<Place>> {
        const LOCATION_ID: c_uint = 11;
        const LOCATION_TYPE: c_uint = 12;
        let group = self.pools(device, "cuMemPoolGetAttribute")?;
        let _scope = self.enter_relaxed(device)?;
        let read = |attribute: c_uint| {
            let mut value = 0_u64;
            // SAFETY: writes an `int` into 64 bits; the caller vouches for the pool.
            let code = unsafe { (group.cuMemPoolGetAttribute)(raw_pool(pool), attribute, (&raw mut value).cast()) };
            (code == SUCCESS).then_some(value as u32)
        };
        Ok(read(LOCATION_TYPE).zip(read(LOCATION_ID)).and_then(|(kind, id)| self.place_of(kind, id)))
    }

    fn pool_attribute(&self, device: DeviceId, pool: PoolHandle, attribute: PoolAttribute) -> Result<u64> {
        let group = self.pools(device, "cuMemPoolGetAttribute")?;
        let _scope = self.enter_relaxed(device)?;
        let (mut switch, mut bytes): (c_int, u64) = (0, 0);
        let value: *mut c_void = if is_switch(attribute) { (&raw mut switch).cast() } else { (&raw mut bytes).cast() };
        // SAFETY: writes an `int` for a switch and 64 bits for the others; the caller vouches for the pool.
        let code = unsafe { (group.cuMemPoolGetAttribute)(raw_pool(pool), attribute as c_uint, value) };
        self.api.check("cuMemPoolGetAttribute", code, || format!("{attribute:?} of {}", named(pool)))?;
        Ok(if is_switch(attribute) { u64::from(switch != 0) } else { bytes })
    }

    fn pool_set_attribute(
        &self,
        device: DeviceId,
        pool: PoolHandle,
        attribute: PoolAttribute,
        value: u64,
    ) -> Result<()> {
        const CALL: &str = "cuMemPoolSetAttribute";
        let group = self.pools(device, CALL)?;
        writable(attribute, value).map_err(|reason| invalid(CALL, format!("{attribute:?} to {value}: {reason}")))?;
        let _scope = self.enter_relaxed(device)?;
        let (mut switch, mut bytes) = (c_int::from(value != 0), value);
        let from: *mut c_void = if is_switch(attribute) { (&raw mut switch).cast() } else { (&raw mut bytes).cast() };
        // SAFETY: reads an `int` for a switch and 64 bits for the others; the caller vouches for the pool.
        let code = unsafe { (group.cuMemPoolSetAttribute)(raw_pool(pool), attribute as c_uint, from) };
        self.api.check(CALL, code, || format!("{attribute:?} of {} to {value}", named(pool)))
    }

    fn pool_access(&self, device: DeviceId, pool: PoolHandle, place: Place) -> Result<Access> {
        const CALL: &str = "cuMemPoolGetAccess";
        let group = self.pools(device, CALL)?;
        let mut location = self.location(CALL, place)?;
        let _scope = self.enter_relaxed(device)?;
        let mut flags: c_uint = 0;
        // SAFETY: reads the location, writes an integer; the caller vouches for the pool.
        let code = unsafe { (group.cuMemPoolGetAccess)(&raw mut flags, raw_pool(pool), &raw mut location) };
        self.api.check(CALL, code, || format!("{} from {place}", named(pool)))?;
        match flags {
            0 => Ok(Access::None),
            1 => Ok(Access::Read),
            3 => Ok(Access::ReadWrite),
            other => {
                let detail = format!("{} from {place}: access {other}, which this library does not know", named(pool));
                Err(DriverError::new(ErrorKind::Failed, CALL, detail))
            }
        }
    }

    fn pool_set_access(&self, device: DeviceId, pool: PoolHandle, place: Place, access: Access) -> Result<()> {
        const CALL: &str = "cuMemPoolSetAccess";
        let group = self.pools(device, CALL)?;
        let descriptor = self.descriptor(CALL, place, access)?;
        let _scope = self.enter_relaxed(device)?;
        // SAFETY: reads one descriptor; the caller vouches for the pool.
        let code = unsafe { (group.cuMemPoolSetAccess)(raw_pool(pool), &raw const descriptor, 1) };
        self.api.check(CALL, code, || format!("{access:?} for {place} to {}", named(pool)))
    }

    fn pool_trim(&self, device: DeviceId, pool: PoolHandle, keep: u64) -> Result<()> {
        let group = self.pools(device, "cuMemPoolTrimTo")?;
        forgive(self.enter_relaxed(device).and_then(|_scope| {
            // SAFETY: the caller vouches for the pool.
            let code = unsafe { (group.cuMemPoolTrimTo)(raw_pool(pool), keep as usize) };
            self.api.check("cuMemPoolTrimTo", code, || format!("{} to {keep} bytes", named(pool)))
        }))
    }

    fn pool_allocate(&self, device: DeviceId, pool: PoolHandle, bytes: u64, stream: StreamHandle) -> Result<Address> {
        let group = self.pools(device, "cuMemAllocFromPoolAsync")?;
        let _scope = self.enter_relaxed(device)?;
        let mut at = 0;
        // SAFETY: writes an address; the caller vouches that the pool and the stream are alive.
        let code = unsafe { (group.cuMemAllocFromPoolAsync)(&raw mut at, bytes as usize, raw_pool(pool), raw(stream)) };
        self.api.check("cuMemAllocFromPoolAsync", code, || {
            format!("asked for {bytes} bytes of {} on stream {stream}", named(pool))
        })?;
        Ok(Address(at))
    }

    fn pool_free(&self, device: DeviceId, at: Address, stream: StreamHandle) -> Result<()> {
        let group = self.pools(device, "cuMemFreeAsync")?;
        forgive(self.enter_relaxed(device).and_then(|_scope| {
            // SAFETY: the caller vouches that the memory is its own and the stream alive.
            let code = unsafe { (group.cuMemFreeAsync)(at.0, raw(stream)) };
            self.api.check("cuMemFreeAsync", code, || format!("address {at} on stream {stream}"))
        }))
    }

    fn pool_export_fd(&self, device: DeviceId, pool: PoolHandle) -> Result<OwnedFd> {
        const CALL: &str = "cuMemPoolExportToShareableHandle";
        let group = self.pools(device, CALL)?;
        let _scope = self.enter_relaxed(device)?;
        let mut fd: c_int = -1;
        // SAFETY: writes an integer for this type of handle; the caller vouches for the pool.
        let code = unsafe { (group.cuMemPoolExportToShareableHandle)((&raw mut fd).cast(), raw_pool(pool), FD, 0) };
        self.api.check(CALL, code, || named(pool))?;
        own(CALL, fd)
    }

    fn pool_import_fd(&self, device: DeviceId, fd: BorrowedFd<'_>) -> Result<PoolHandle> {
        const CALL: &str = "cuMemPoolImportFromShareableHandle";
        let group = self.pools(device, CALL)?;
        let _scope = self.enter_relaxed(device)?;
        let mut pool: CUmemoryPool = ptr::null_mut();
        // SAFETY: writes a pool; for this type the handle is the descriptor's number, which stays open during the call.
        let code = unsafe { (group.cuMemPoolImportFromShareableHandle)(&raw mut pool, as_pointer(fd), FD, 0) };
        self.api.check(CALL, code, || format!("descriptor {}", fd.as_raw_fd()))?;
        Ok(PoolHandle(pool as u64))
    }

    fn pool_export_pointer(&self, device: DeviceId, at: Address) -> Result<Blob> {
        let group = self.pools(device, "cuMemPoolExportPointer")?;
        let _scope = self.enter_relaxed(device)?;
        let mut data = CUmemPoolPtrExportData { reserved: [0; 64] };
        // SAFETY: writes 64 bytes; libcuda checks the address.
        let code = unsafe { (group.cuMemPoolExportPointer)(&raw mut data, at.0) };
        self.api.check("cuMemPoolExportPointer", code, || format!("address {at}"))?;
        Ok(data.reserved)
    }

    fn pool_import_pointer(&self, device: DeviceId, pool: PoolHandle, blob: &Blob) -> Result<Address> {
        let group = self.pools(device, "cuMemPoolImportPointer")?;
        let _scope = self.enter_relaxed(device)?;
        let mut data = CUmemPoolPtrExportData { reserved: *blob };
        let mut at = 0;
        // SAFETY: reads 64 bytes, which libcuda checks, and writes an address; the caller vouches for the pool.
        let code = unsafe { (group.cuMemPoolImportPointer)(&raw mut at, raw_pool(pool), &raw mut data) };
        self.api.check("cuMemPoolImportPointer", code, || named(pool))?;
        Ok(Address(at))
    }
}
