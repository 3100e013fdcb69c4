//! What every memory resource offers, whatever is behind it: NVIDIA's model (`cuda.core.MemoryResource`).

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use uuid::Uuid;

use super::pointers::Pointers;
use crate::driver::{Access, Driver, ErrorKind, Place, PoolAttribute};
use crate::error::{Error, Result};
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
pub trait MemoryResource: Any + Send + Sync + Debug {
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

    /// What it gave as bare pointers.
    fn pointers(&self) -> &Pointers;

    /// Allocates as [`MemoryResource::allocate`] does, for a caller who keeps the bare pointer.
    ///
    /// # Errors
    /// As [`MemoryResource::allocate`].
    fn allocate_pointer(&self, bytes: u64, stream: StreamHandle) -> Result<Address> {
        let at = self.allocate(bytes, stream)?;
        if at.0 != 0 {
            self.pointers().add(at, stream);
        }
        Ok(at)
    }

    /// Takes such a pointer back in the order of `stream`; of the allocation's where none is named. The null address is fine.
    ///
    /// # Errors
    /// [`Error::BadFree`] for what was not given so, as the memory of a buffer, and what came back before; those of
    /// [`MemoryResource::deallocate`].
    fn deallocate_pointer(&self, at: Address, bytes: u64, stream: Option<StreamHandle>) -> Result<()> {
        if at.0 == 0 {
            return Ok(());
        }
        let own = self.pointers().take(at).ok_or_else(|| {
            Error::BadFree(
                format!(
                    "{at} is not the start of live memory that this {:?} resource gave as a pointer: memory of a buffer goes \
                     back when the buffer is closed",
                    self.info().kind
                )
                .into(),
            )
        })?;
        self.deallocate(at, bytes, stream.unwrap_or(own)).inspect_err(|_| self.pointers().add(at, own))
    }

    /// Allocates if that takes no wait, and no more of the driver than whether a registered stream is captured: never more than a short turn with a lock under which nobody waits
    /// for the GPU or calls back. `None` changed nothing, and [`MemoryResource::allocate`] may well succeed.
    fn try_allocate(&self, _bytes: u64, _stream: StreamHandle) -> Option<Address> {
        None
    }

    /// Takes memory back under the same condition. `false` changed nothing.
    fn try_deallocate(&self, _at: Address, _stream: StreamHandle) -> bool {
        false
    }

    /// Takes memory back behind everything that the device has now, whoever queued it. Names no stream, so none has to be
    /// alive. The null address is fine.
    ///
    /// # Errors
    /// As [`MemoryResource::deallocate`]; [`Error::Capturing`] while a stream of the device is being captured.
    fn deallocate_after_all(&self, at: Address, bytes: u64) -> Result<()> {
        hold_back(self.driver().as_ref(), self.context(), StreamHandle::LEGACY)?;
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
}

impl dyn MemoryResource {
    /// The resource as one of type `T`, where it is that: for what one kind alone can do.
    #[must_use]
    pub fn downcast_ref<T: MemoryResource>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }

    /// The same, to keep.
    #[must_use]
    pub fn downcast<T: MemoryResource>(self: Arc<Self>) -> Option<Arc<T>> {
        (self as Arc<dyn Any + Send + Sync>).downcast().ok()
    }
}

fn no_pool(kind: Kind, attribute: PoolAttribute) -> Error {
    Error::Unsupported(format!("a {kind:?} resource has no pool, and so no attribute {attribute:?}").into())
}

/// Orders a stream behind everything that its device has now.
pub(super) fn hold_back(driver: &dyn Driver, device: DeviceId, stream: StreamHandle) -> Result<()> {
    let event = driver.event_create(device)?;
    let held = driver.event_record_all(device, event).and_then(|()| driver.stream_wait(device, stream, event)).or_else(
        |error| match error.kind {
            ErrorKind::Unsupported => driver.synchronize(device),
            _ => Err(error),
        },
    );
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

/// The device of that ordinal; without one the current device, which is the first where no context is current, as for
/// CUDA's runtime.
///
/// # Errors
/// [`Error::BadDevice`].
pub fn device_or_current(driver: &dyn Driver, ordinal: Option<i32>) -> Result<DeviceId> {
    match ordinal {
        Some(ordinal) => check_device(driver, ordinal),
        None => Ok(driver.current_device().unwrap_or_default()),
    }
}

/// In whose context a call about a stream is made: the stream's own device's. A default stream is `device`'s.
pub fn device_of_stream(driver: &dyn Driver, device: DeviceId, stream: StreamHandle) -> DeviceId {
    match driver.device_count() {
        1 => device,
        _ => driver.stream_device(device, stream).unwrap_or(device),
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
