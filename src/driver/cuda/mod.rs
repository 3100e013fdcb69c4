//! The driver on NVIDIA GPUs, through libcuda. The only files of the crate that name cudarc.
//!
//! Nothing links to libcuda: [`CudaDriver::open`] finds it and loads the functions listed in `api.rs`. Every method
//! makes the device's primary context current for the length of the call, where it is not already, and calls that a
//! capture forbids also switch the thread to the relaxed capture mode.

mod api;
mod capabilities;
mod context;
mod device;
mod error;
mod host_memory;
mod memory;
mod place;
mod pool_kinds;
mod pools;
mod sharing;
mod stream;
mod virtual_memory;
mod vmm;

use std::ffi::c_int;
use std::fmt;
use std::time::{Duration, Instant};

use self::api::{Api, no_driver};
use self::device::Device;
use self::error::SUCCESS;
use super::{Capabilities, Capture, Driver, Event, MemoryInfo, Physical, Result};
use crate::units::{Address, DeviceId, StreamHandle};

/// The CUDA driver. Open it once in a process: it keeps the primary contexts that it used.
pub struct CudaDriver {
    api: Api,
    devices: Vec<Device>,
    opened: Instant,
}

impl CudaDriver {
    /// Finds libcuda, initialises it and lists the devices; makes no context.
    /// errors: [`super::ErrorKind::NoDriver`] with what is missing.
    pub fn open() -> Result<Self> {
        let mut api = Api::load()?;
        let failed = |api: &Api, call, code| no_driver(call, code, &format!("{call} answered {}", api.name(code)));
        // SAFETY: the first call to libcuda; 0 is the only flag there is.
        let code = unsafe { (api.base.cuInit)(0) };
        if code != SUCCESS {
            return Err(failed(&api, "cuInit", code));
        }
        let mut version: c_int = 0;
        // SAFETY: writes an integer.
        let code = unsafe { (api.base.cuDriverGetVersion)(&raw mut version) };
        if code != SUCCESS {
            return Err(failed(&api, "cuDriverGetVersion", code));
        }
        api.version = u32::try_from(version).unwrap_or(0);
        let mut count: c_int = 0;
        // SAFETY: writes an integer.
        let code = unsafe { (api.base.cuDeviceGetCount)(&raw mut count) };
        if code != SUCCESS {
            return Err(failed(&api, "cuDeviceGetCount", code));
        }
        if count < 1 {
            let missing = "libcuda sees no device (is CUDA_VISIBLE_DEVICES empty?)";
            return Err(no_driver("cuDeviceGetCount", 0, missing));
        }
        let devices = (0..count).map(|ordinal| Device::find(&api, ordinal)).collect::<Result<_>>()?;
        Ok(Self { api, devices, opened: Instant::now() })
    }
}

impl fmt::Debug for CudaDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaDriver")
            .field("version", &self.api.version)
            .field("devices", &self.devices.len())
            .finish_non_exhaustive()
    }
}

/// The methods are implemented in the files named by their nouns, the traits that `Driver` extends in the files of
/// their names.
impl Driver for CudaDriver {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn memory(&self) -> usize {
        0
    }

    fn now(&self) -> Duration {
        self.opened.elapsed()
    }

    fn device_count(&self) -> u32 {
        self.devices.len() as u32
    }

    fn capabilities(&self, device: DeviceId) -> Result<Capabilities> {
        self.read_capabilities(device)
    }

    fn current_device(&self) -> Option<DeviceId> {
        self.find_current_device()
    }

    fn stream_device(&self, device: DeviceId, stream: StreamHandle) -> Option<DeviceId> {
        self.find_stream_device(device, stream)
    }

    fn device_uuid(&self, device: DeviceId) -> Result<[u8; 16]> {
        self.read_uuid(device)
    }

    fn memory_info(&self, device: DeviceId) -> Result<MemoryInfo> {
        self.read_memory_info(device)
    }

    fn reserve(&self, device: DeviceId, bytes: u64) -> Result<Address> {
        self.reserve_addresses(device, bytes)
    }

    fn unreserve(&self, device: DeviceId, at: Address, bytes: u64) -> Result<()> {
        self.free_addresses(device, at, bytes)
    }

    fn create(&self, device: DeviceId, bytes: u64) -> Result<Physical> {
        self.create_physical(device, bytes)
    }

    fn release(&self, device: DeviceId, physical: Physical) -> Result<()> {
        self.release_physical(device, physical)
    }

    fn map(&self, device: DeviceId, at: Address, bytes: u64, physical: Physical) -> Result<()> {
        self.map_physical(device, at, bytes, physical)
    }

    fn grant(&self, device: DeviceId, at: Address, bytes: u64) -> Result<()> {
        self.set_access(device, at, bytes)
    }

    fn unmap(&self, device: DeviceId, at: Address, bytes: u64) -> Result<()> {
        self.unmap_range(device, at, bytes)
    }

    fn allocate(&self, device: DeviceId, bytes: u64) -> Result<Address> {
        self.allocate_plain(device, bytes)
    }

    fn free(&self, device: DeviceId, at: Address) -> Result<()> {
        self.free_plain(device, at)
    }

    fn stream_create(&self, device: DeviceId) -> Result<StreamHandle> {
        self.create_stream(device)
    }

    fn stream_destroy(&self, device: DeviceId, stream: StreamHandle) -> Result<()> {
        self.destroy_stream(device, stream)
    }

    fn stream_synchronize(&self, device: DeviceId, stream: StreamHandle) -> Result<()> {
        self.wait_for_stream(device, stream)
    }

    fn stream_idle(&self, device: DeviceId, stream: StreamHandle) -> Result<bool> {
        self.query_stream(device, stream)
    }

    fn stream_identity(&self, device: DeviceId, stream: StreamHandle) -> Result<u64> {
        self.read_identity(device, stream)
    }

    fn stream_capture(&self, device: DeviceId, stream: StreamHandle) -> Result<Capture> {
        self.read_capture(device, stream)
    }

    fn event_create(&self, device: DeviceId) -> Result<Event> {
        self.create_event(device)
    }

    fn event_destroy(&self, device: DeviceId, event: Event) -> Result<()> {
        self.destroy_event(device, event)
    }

    fn event_record(&self, device: DeviceId, event: Event, stream: StreamHandle) -> Result<()> {
        self.record_event(device, event, stream)
    }

    fn event_record_all(&self, device: DeviceId, event: Event) -> Result<()> {
        self.record_context_event(device, event)
    }

    fn event_passed(&self, device: DeviceId, event: Event) -> Result<bool> {
        self.query_event(device, event)
    }

    fn event_wait(&self, device: DeviceId, event: Event) -> Result<()> {
        self.wait_for_event(device, event)
    }

    fn stream_wait(&self, device: DeviceId, stream: StreamHandle, event: Event) -> Result<()> {
        self.queue_wait(device, stream, event)
    }

    fn synchronize(&self, device: DeviceId) -> Result<()> {
        self.wait_for_device(device)
    }

    fn copy(&self, device: DeviceId, to: Address, from: Address, bytes: u64, stream: StreamHandle) -> Result<()> {
        self.queue_copy(device, to, from, bytes, stream)
    }

    fn fill(&self, device: DeviceId, to: Address, value: u8, bytes: u64, stream: StreamHandle) -> Result<()> {
        self.queue_fill(device, to, value, bytes, stream)
    }

    fn fill_pattern(
        &self,
        device: DeviceId,
        to: Address,
        value: u32,
        width: u32,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        self.queue_pattern(device, to, value, width, bytes, stream)
    }

    fn trim_driver_pools(&self, device: DeviceId) -> Result<()> {
        self.trim_pools(device)
    }
}
