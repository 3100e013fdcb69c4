//! The trait of every memory resource, after cuda.core's `MemoryResource`:
//! <https://nvidia.github.io/cuda-python/cuda-core/latest/>.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use uuid::Uuid;

use super::pointers::Pointers;
use crate::driver::{Access, Driver, ErrorKind, Place, PoolAttribute};
use crate::error::{Error, Result};
use crate::units::{Address, DeviceId, StreamHandle};

/// The kind of a resource.
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

/// Properties of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its kind.
    pub kind: Kind,
    /// The device of its memory; `None` for host memory.
    pub device_id: Option<DeviceId>,
    /// The NUMA node of its memory; `None` if the system chooses it, and for device memory.
    pub numa_id: Option<u32>,
    /// Whether closing the resource ends its pool.
    pub is_handle_owned: bool,
    /// Whether kernels can use its memory.
    pub is_device_accessible: bool,
    /// Whether the host can use its memory.
    pub is_host_accessible: bool,
    /// Whether it is managed memory.
    pub is_managed: bool,
    /// Whether its memory can be shared with other processes.
    pub is_ipc_enabled: bool,
    /// Whether it is a mapped pool of another process, which cannot allocate.
    pub is_mapped: bool,
    /// Whether it was closed.
    pub is_closed: bool,
    /// The uuid that names a shared pool in all processes.
    pub uuid: Option<Uuid>,
    /// The `CUmemoryPool`, or 0.
    pub handle: u64,
    /// The preferred location of managed memory.
    pub preferred: Option<Place>,
}

impl Info {
    /// The properties of device memory that is not shared.
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

/// The devices and processors that can use memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The device of the memory; `None` for host memory.
    pub device: Option<DeviceId>,
    /// Whether kernels can use it.
    pub by_device: bool,
    /// Whether the host can use it.
    pub by_host: bool,
    /// Whether it is managed memory.
    pub managed: bool,
}

/// A memory resource. Any thread may call any method.
pub trait MemoryResource: Any + Send + Sync + Debug {
    /// Its properties.
    fn info(&self) -> Info;

    /// The part of [`MemoryResource::info`] that each new buffer needs, without its cost.
    fn reach(&self) -> Reach {
        let Info { device_id, is_device_accessible, is_host_accessible, is_managed, .. } = self.info();
        Reach { device: device_id, by_device: is_device_accessible, by_host: is_host_accessible, managed: is_managed }
    }

    /// The driver that its memory comes from.
    fn driver(&self) -> &Arc<dyn Driver>;

    /// The device in whose context its calls are made, and whose default streams it uses.
    fn context(&self) -> DeviceId;

    /// Allocates `bytes` bytes that work queued on `stream` from now on may use. 0 bytes give the null address.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::NotPermitted`] for another process's pool, [`Error::OutOfMemory`], the driver's.
    fn allocate(&self, bytes: u64, stream: StreamHandle) -> Result<Address>;

    /// The bytes that the user of an allocation of `bytes` bytes may use: its rounded size.
    fn usable(&self, bytes: u64) -> u64 {
        bytes
    }

    /// Frees memory in the order of `stream`. The null address does nothing.
    ///
    /// # Errors
    /// [`Error::BadFree`] if the resource knows its live memory, the driver's. The memory is then still live.
    fn deallocate(&self, at: Address, bytes: u64, stream: StreamHandle) -> Result<()>;

    /// The live allocations that it gave as pointers.
    fn pointers(&self) -> &Pointers;

    /// [`MemoryResource::allocate`] for a caller that keeps the pointer, not a buffer.
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

    /// Frees a pointer from [`MemoryResource::allocate_pointer`] in the order of `stream`; `None`: of the stream of the
    /// allocation. The null address does nothing.
    ///
    /// # Errors
    /// [`Error::BadFree`] for other memory, such as that of a buffer, and for a pointer that was freed before; those of
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

    /// Allocates without waiting: takes only locks that are held briefly, and makes no driver call but queries of the
    /// stream. `None` means that nothing changed; [`MemoryResource::allocate`] may still succeed.
    fn try_allocate(&self, _bytes: u64, _stream: StreamHandle) -> Option<Address> {
        None
    }

    /// Frees memory under the same conditions. `false` means that nothing changed.
    fn try_deallocate(&self, _at: Address, _stream: StreamHandle) -> bool {
        false
    }

    /// Frees memory after all work that the device has now, on any stream. Names no stream, so none needs to be alive.
    /// The null address does nothing.
    ///
    /// # Errors
    /// As [`MemoryResource::deallocate`]; [`Error::Capturing`] while a stream of the device is being captured.
    fn deallocate_after_all(&self, at: Address, bytes: u64) -> Result<()> {
        wait_for_device(self.driver().as_ref(), self.context(), StreamHandle::LEGACY)?;
        self.deallocate(at, bytes, StreamHandle::LEGACY)
    }

    /// Closes the resource: it no longer allocates; live memory can still be freed. A second call does nothing.
    ///
    /// # Errors
    /// The driver's.
    fn close(&self) -> Result<()>;

    /// An attribute of the resource's pool.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a resource without a pool.
    fn attribute(&self, attribute: PoolAttribute) -> Result<u64> {
        Err(no_pool(self.info().kind, attribute))
    }

    /// Sets an attribute of the resource's pool.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a resource without a pool, [`Error::Invalid`] for a read-only attribute or a value
    /// out of range.
    fn set_attribute(&self, attribute: PoolAttribute, _value: u64) -> Result<()> {
        Err(no_pool(self.info().kind, attribute))
    }

    /// The access of device `peer` to its memory.
    ///
    /// # Errors
    /// [`Error::BadDevice`], the driver's.
    fn peer_access(&self, peer: DeviceId) -> Result<Access>;

    /// Sets the access of device `peer` to its memory, live memory included.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the access cannot be changed.
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
    /// The resource as a `T`, if it is one.
    #[must_use]
    pub fn downcast_ref<T: MemoryResource>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }

    /// The resource as a counted `T`, if it is one.
    #[must_use]
    pub fn downcast<T: MemoryResource>(self: Arc<Self>) -> Option<Arc<T>> {
        (self as Arc<dyn Any + Send + Sync>).downcast().ok()
    }
}

fn no_pool(kind: Kind, attribute: PoolAttribute) -> Error {
    Error::Unsupported(format!("a {kind:?} resource has no pool, and so no attribute {attribute:?}").into())
}

/// Orders a stream after all work that the device has now.
pub(super) fn wait_for_device(driver: &dyn Driver, device: DeviceId, stream: StreamHandle) -> Result<()> {
    let event = driver.event_create(device)?;
    let held = driver.event_record_all(device, event).and_then(|()| driver.stream_wait(device, stream, event)).or_else(
        |error| match error.kind {
            ErrorKind::Unsupported => driver.synchronize(device),
            _ => Err(error),
        },
    );
    // Nothing retries this later, so it is tried twice.
    let destroy = || driver.event_destroy(device, event);
    if let Err(error) = destroy().or_else(|_| destroy()) {
        tracing::warn!(%device, %error, "an event could not be destroyed and leaks");
    }
    Ok(held?)
}

/// The device with this ordinal.
pub(super) fn check_device(driver: &dyn Driver, ordinal: i32) -> Result<DeviceId> {
    let count = driver.device_count();
    match u32::try_from(ordinal) {
        Ok(device) if device < count => Ok(DeviceId(device)),
        _ => Err(Error::BadDevice { asked: ordinal.into(), count }),
    }
}

/// The device with this ordinal. `None`: the current device, or device 0 if no context is current, as in CUDA's
/// runtime.
///
/// # Errors
/// [`Error::BadDevice`].
pub fn device_or_current(driver: &dyn Driver, ordinal: Option<i32>) -> Result<DeviceId> {
    match ordinal {
        Some(ordinal) => check_device(driver, ordinal),
        None => Ok(driver.current_device().unwrap_or_default()),
    }
}

/// The device in whose context calls on `stream` are made: the stream's own device. A default stream belongs to
/// `device`.
pub fn device_of_stream(driver: &dyn Driver, device: DeviceId, stream: StreamHandle) -> DeviceId {
    match driver.device_count() {
        1 => device,
        _ => driver.stream_device(device, stream).unwrap_or(device),
    }
}

/// Refuses sizes above `i64::MAX`, which are negative numbers of the caller.
pub(super) fn check_bytes(bytes: u64) -> Result<()> {
    if bytes > i64::MAX as u64 {
        return Err(Error::invalid(format_args!(
            "{bytes} bytes asked for; at most {} are possible (is the size negative?)",
            i64::MAX
        )));
    }
    Ok(())
}
