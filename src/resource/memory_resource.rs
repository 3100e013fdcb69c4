//! What every memory resource offers, whatever is behind it: NVIDIA's model (`cuda.core.MemoryResource`).

use std::fmt::Debug;
use std::sync::Arc;

use uuid::Uuid;

use super::driver_pool::DriverPool;
use super::own_pool::OwnPool;
use super::virtual_memory::VirtualResource;
use super::{Error, Result};
use crate::driver::{Access, Driver, ErrorKind, Place, PoolAttribute};
use crate::units::{Address, DeviceId, StreamHandle};

/// What kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The driver's stream-ordered pool of a device.
    Device,
    /// A stream-ordered pool of pinned host memory.
    Pinned,
    /// Managed memory.
    Managed,
    /// Virtual memory: buffers that can grow.
    Virtual,
    /// Page-locked host memory without streams.
    Host,
    /// Forebay's own pool.
    Pool,
}

/// What can be asked of a resource at any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its kind.
    pub kind: Kind,
    /// The device that its memory belongs to; `None` for memory of the host.
    pub device_id: Option<DeviceId>,
    /// The NUMA node that its memory lies on; `None` where the system chooses, and for memory of devices.
    pub numa_id: Option<u32>,
    /// Whether closing the resource ends the pool behind it.
    pub is_handle_owned: bool,
    /// Whether kernels can use its memory.
    pub is_device_accessible: bool,
    /// Whether the host can use its memory.
    pub is_host_accessible: bool,
    /// Whether it is managed memory.
    pub is_managed: bool,
    /// Whether its memory can be shared with other processes.
    pub is_ipc_enabled: bool,
    /// Whether it is another process's pool: it then refuses to allocate.
    pub is_mapped: bool,
    /// Whether it was closed.
    pub is_closed: bool,
    /// Its name among processes, where it is shared.
    pub uuid: Option<Uuid>,
    /// The `CUmemoryPool`, or 0.
    pub handle: u64,
    /// Where managed memory lies by preference.
    pub preferred: Option<Place>,
}

impl Info {
    /// Memory of a device, not shared.
    pub(super) const fn new(kind: Kind) -> Self {
        Self {
            kind,
            device_id: None,
            numa_id: None,
            is_handle_owned: true,
            is_device_accessible: true,
            is_host_accessible: false,
            is_managed: false,
            is_ipc_enabled: false,
            is_mapped: false,
            is_closed: false,
            uuid: None,
            handle: 0,
            preferred: None,
        }
    }
}

/// Who can use memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The device that it belongs to; `None` for memory of the host.
    pub device: Option<DeviceId>,
    /// Whether kernels can use it.
    pub by_device: bool,
    /// Whether the host can use it.
    pub by_host: bool,
    /// Whether it is managed memory.
    pub managed: bool,
}

/// A source of memory. Any thread may call anything.
pub trait MemoryResource: Send + Sync + Debug {
    /// What is known of it.
    fn info(&self) -> Info;

    /// Who can use its memory, as [`MemoryResource::info`] says; asked for every buffer.
    fn reach(&self) -> Reach {
        let Info { device_id, is_device_accessible, is_host_accessible, is_managed, .. } = self.info();
        Reach { device: device_id, by_device: is_device_accessible, by_host: is_host_accessible, managed: is_managed }
    }

    /// The driver that its memory comes from.
    fn driver(&self) -> &Arc<dyn Driver>;

    /// The device in whose context its calls are made, and which orders its streams.
    fn context(&self) -> DeviceId;

    /// Allocates `bytes`, usable by work queued on `stream` from now on. 0 bytes give the null address.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::NotPermitted`] for another process's pool, [`Error::OutOfMemory`], the driver's.
    fn allocate(&self, bytes: u64, stream: StreamHandle) -> Result<Address>;

    /// How many bytes an allocation of `bytes` really has: what its user may use.
    fn usable(&self, bytes: u64) -> u64 {
        bytes
    }

    /// Takes memory back in the order of `stream`. The null address is fine.
    ///
    /// # Errors
    /// [`Error::BadFree`] where that can be told, the driver's. The memory is then still live.
    fn deallocate(&self, at: Address, bytes: u64, stream: StreamHandle) -> Result<()>;

    /// Allocates if that takes no wait, and no more of the driver than whether a registered stream is captured: never more than a short turn with a lock under which nobody waits
    /// for the GPU or calls back. `None` changed nothing, and [`MemoryResource::allocate`] may well succeed.
    fn allocate_at_once(&self, _bytes: u64, _stream: StreamHandle) -> Option<Address> {
        None
    }

    /// Takes memory back under the same condition. `false` changed nothing.
    fn deallocate_at_once(&self, _at: Address, _stream: StreamHandle) -> bool {
        false
    }

    /// Takes memory back behind everything that the device has now, whoever queued it. Names no stream, so none has to be
    /// alive. The null address is fine.
    ///
    /// # Errors
    /// As [`MemoryResource::deallocate`]; [`Error::Capturing`] while a stream of the device is being captured.
    fn deallocate_behind_everything(&self, at: Address, bytes: u64) -> Result<()> {
        hold_back_default_stream(self.driver().as_ref(), self.context())?;
        self.deallocate(at, bytes, StreamHandle::LEGACY)
    }

    /// Ends it: nothing can be allocated any more; what is live can still be given back. Twice is harmless.
    ///
    /// # Errors
    /// The driver's.
    fn close(&self) -> Result<()>;

    /// An attribute of the pool behind it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is no pool.
    fn attribute(&self, attribute: PoolAttribute) -> Result<u64> {
        Err(no_pool(self.info().kind, attribute))
    }

    /// Changes an attribute.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is no pool, [`Error::Invalid`] for what cannot be written.
    fn set_attribute(&self, attribute: PoolAttribute, _value: u64) -> Result<()> {
        Err(no_pool(self.info().kind, attribute))
    }

    /// What `peer` may do with its memory.
    ///
    /// # Errors
    /// [`Error::BadDevice`], the driver's.
    fn peer_access(&self, peer: DeviceId) -> Result<Access>;

    /// Says what `peer` may do with its memory, what is live included.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where that cannot be changed.
    fn set_peer_access(&self, peer: DeviceId, access: Access) -> Result<()>;

    /// Gives idle memory back to the system until at most `keep` bytes are held.
    ///
    /// # Errors
    /// The driver's.
    fn trim(&self, _keep: u64) -> Result<()> {
        Ok(())
    }

    /// The resource as a pool of the driver, where it is one.
    fn as_driver_pool(&self) -> Option<&DriverPool> {
        None
    }

    /// The same, to keep.
    fn into_driver_pool(self: Arc<Self>) -> Option<Arc<DriverPool>> {
        None
    }

    /// The resource as virtual memory, where it is that.
    fn as_virtual(&self) -> Option<&VirtualResource> {
        None
    }

    /// The resource as a pool of Forebay's own, where it is one.
    fn as_own_pool(&self) -> Option<&OwnPool> {
        None
    }
}

fn no_pool(kind: Kind, attribute: PoolAttribute) -> Error {
    Error::Unsupported(format!("a {kind:?} resource has no pool, and so no attribute {attribute:?}").into())
}

/// Orders the default stream behind everything that the device has now.
fn hold_back_default_stream(driver: &dyn Driver, device: DeviceId) -> Result<()> {
    let event = driver.event_create(device)?;
    let held = driver
        .event_record_all(device, event)
        .and_then(|()| driver.stream_wait(device, StreamHandle::LEGACY, event))
        .or_else(|error| match error.kind {
            ErrorKind::Unsupported => driver.synchronize(device),
            _ => Err(error),
        });
    // Nobody comes back for it, so it gets a second chance.
    let destroy = || driver.event_destroy(device, event);
    if let Err(error) = destroy().or_else(|_| destroy()) {
        tracing::warn!(%device, %error, "an event stays behind");
    }
    Ok(held?)
}

/// The device of that ordinal.
pub(super) fn check_device(driver: &dyn Driver, ordinal: i32) -> Result<DeviceId> {
    let count = driver.device_count();
    match u32::try_from(ordinal) {
        Ok(device) if device < count => Ok(DeviceId(device)),
        _ => Err(Error::BadDevice { asked: ordinal.into(), count }),
    }
}

/// Refuses sizes that no memory has.
pub(super) fn check_bytes(bytes: u64) -> Result<()> {
    if bytes > i64::MAX as u64 {
        return Err(Error::invalid(format_args!(
            "{bytes} bytes asked for: no size is that large; a negative number reads as one"
        )));
    }
    Ok(())
}
