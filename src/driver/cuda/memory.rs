//! Allocations of `cuMemAlloc`, copies and fills.

use super::CudaDriver;
use super::error::{forgive, invalid};
use super::stream::raw;
use super::vmm::PLAIN_GRANULARITY;
use crate::driver::{ErrorKind, MemoryInfo, Result};
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
            // SAFETY: libcuda checks that the address is the start of one of its allocations.
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
        // Relaxed, since a copy from pageable memory may be synchronous, which captures forbid.
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
        self.queue_pattern(device, to, u32::from(value), 1, bytes, stream)
    }

    pub(super) fn queue_pattern(
        &self,
        device: DeviceId,
        to: Address,
        value: u32,
        width: u32,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        let call = match width {
            1 => "cuMemsetD8Async",
            2 => "cuMemsetD16Async",
            4 => "cuMemsetD32Async",
            _ => return Err(invalid("cuMemset", format!("a pattern of {width} bytes; 1, 2 and 4 are possible"))),
        };
        if !(to.0 | bytes).is_multiple_of(u64::from(width)) {
            let detail = format!("{bytes} bytes at {to}: not multiples of the pattern's {width} bytes");
            return Err(invalid(call, detail));
        }
        let base = &self.api.base;
        let set = |to: Address, bytes: u64| {
            let count = (bytes / u64::from(width)) as usize;
            // SAFETY: the caller vouches for the range and the stream; width and alignment were checked.
            let code = unsafe {
                match width {
                    1 => (base.cuMemsetD8Async)(to.0, value as u8, count, raw(stream)),
                    2 => (base.cuMemsetD16Async)(to.0, value as u16, count, raw(stream)),
                    _ => (base.cuMemsetD32Async)(to.0, value, count, raw(stream)),
                }
            };
            self.api.check(call, code, || format!("{bytes} bytes at {to} on stream {stream}"))
        };
        let _scope = self.enter_relaxed(device)?;
        let granule = PLAIN_GRANULARITY;
        match set(to, bytes) {
            // Copies cross from one physical handle of host memory to the next, memsets do not (driver 580). Handles
            // begin and end at multiples of this.
            Err(error) if error.kind == ErrorKind::Invalid && to.0 / granule != (to.0 + bytes - 1) / granule => {
                let mut at = to.0;
                while at < to.0 + bytes {
                    let end = (at / granule + 1).saturating_mul(granule).min(to.0 + bytes);
                    set(Address(at), end - at)?;
                    at = end;
                }
                Ok(())
            }
            result => result,
        }
    }
}
