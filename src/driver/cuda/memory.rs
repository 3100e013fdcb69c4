//! Plain memory, data, and the driver's own pools.

use std::ptr;

use cudarc::driver::sys::CUmemoryPool;

use super::CudaDriver;
use super::error::forgive;
use super::stream::raw;
use crate::driver::{MemoryInfo, Result};
use crate::units::{Address, DeviceId, StreamHandle};

impl CudaDriver {
    pub(super) fn read_memory_info(&self, device: DeviceId) -> Result<MemoryInfo> {
        let _scope = self.enter_relaxed(device)?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two integers.
        let code = unsafe { (self.api.base.cuMemGetInfo_v2)(&raw mut free, &raw mut total) };
        self.api.check("cuMemGetInfo", code, || format!("device {device}"))?;
        Ok(MemoryInfo { free: free as u64, total: total as u64 })
    }

    pub(super) fn allocate_plain(&self, device: DeviceId, bytes: u64) -> Result<Address> {
        let _scope = self.enter_relaxed(device)?;
        let mut at = 0;
        // SAFETY: writes an address.
        let code = unsafe { (self.api.base.cuMemAlloc_v2)(&raw mut at, bytes as usize) };
        self.api.check("cuMemAlloc", code, || format!("asked for {bytes} bytes on device {device}"))?;
        Ok(Address(at))
    }

    pub(super) fn free_plain(&self, device: DeviceId, at: Address) -> Result<()> {
        forgive(self.enter_relaxed(device).and_then(|_scope| {
            // SAFETY: libcuda checks that the address is the start of an allocation of its own.
            let code = unsafe { (self.api.base.cuMemFree_v2)(at.0) };
            self.api.check("cuMemFree", code, || format!("address {at} on device {device}"))
        }))
    }

    pub(super) fn queue_copy(
        &self,
        device: DeviceId,
        to: Address,
        from: Address,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        // Relaxed: from pageable memory the copy may turn synchronous, which captures forbid.
        let _scope = self.enter_relaxed(device)?;
        // SAFETY: the caller vouches for both ranges and the stream, as for every copy.
        let code = unsafe { (self.api.base.cuMemcpyAsync)(to.0, from.0, bytes as usize, raw(stream)) };
        self.api.check("cuMemcpyAsync", code, || format!("{bytes} bytes from {from} to {to} on stream {stream}"))
    }

    pub(super) fn queue_fill(
        &self,
        device: DeviceId,
        to: Address,
        value: u8,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        let _scope = self.enter_relaxed(device)?;
        // SAFETY: the caller vouches for the range and the stream.
        let code = unsafe { (self.api.base.cuMemsetD8Async)(to.0, value, bytes as usize, raw(stream)) };
        self.api.check("cuMemsetD8Async", code, || format!("{bytes} bytes at {to} on stream {stream}"))
    }

    /// The default pool, and the one that the program may have put in its place.
    pub(super) fn trim_pools(&self, device: DeviceId) -> Result<()> {
        let pools = self.api.need(&self.api.pools, "cuMemPoolTrimTo", 11_020)?;
        let handle = self.device(device)?.handle;
        forgive(self.enter_relaxed(device).and_then(|_scope| {
            let (mut default, mut current): (CUmemoryPool, CUmemoryPool) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: writes a pool, which the driver keeps.
            let code = unsafe { (pools.cuDeviceGetDefaultMemPool)(&raw mut default, handle) };
            self.api.check("cuDeviceGetDefaultMemPool", code, || format!("device {device}"))?;
            // SAFETY: as above.
            let code = unsafe { (pools.cuDeviceGetMemPool)(&raw mut current, handle) };
            self.api.check("cuDeviceGetMemPool", code, || format!("device {device}"))?;
            let other = (current != default && !current.is_null()).then_some(current);
            for pool in std::iter::once(default).chain(other) {
                // SAFETY: a pool that is alive: it is the device's.
                let code = unsafe { (pools.cuMemPoolTrimTo)(pool, 0) };
                self.api.check("cuMemPoolTrimTo", code, || format!("device {device}"))?;
            }
            Ok(())
        }))
    }
}
