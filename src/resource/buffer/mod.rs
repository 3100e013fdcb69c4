//! Buffers: memory, together with the way to free it, after cuda.core's `Buffer`:
//! <https://nvidia.github.io/cuda-python/cuda-core/latest/>.
//!
//! `memory` owns the memory, which exported tensors keep alive; `copy` copies and fills; `dlpack` exports and imports
//! tensors; `ipc` exports to other processes and imports from them.

mod copy;
mod dlpack;
mod ipc;
mod memory;

use std::sync::Arc;

use parking_lot::Mutex;

pub use dlpack::{Tensor, export, export_legacy};
pub use ipc::{export_foreign, export_pointer};
pub use memory::Owner;

use self::memory::{Hold, Memory};
use super::memory_resource::{MemoryResource, Reach, check_bytes};
use super::virtual_memory::{VirtualOptions, VirtualResource};
use crate::driver::{Driver, PointerKind};
use crate::error::{Error, Result};
use crate::resource::ipc::{Descriptor, Path};
use crate::units::{Address, DeviceId, StreamHandle};

/// Memory of a resource, of another owner, or without an owner. Any thread may call any method.
#[derive(Debug)]
pub struct Buffer {
    memory: Mutex<Option<Arc<Memory>>>,
    /// Its properties, also for after it was closed.
    facts: Mutex<Facts>,
    resource: Option<Arc<dyn MemoryResource>>,
    /// The descriptor that was exported to other processes.
    exported: Mutex<Option<Descriptor>>,
    /// For memory that is not of the resource: the driver, and the device in whose context calls are made.
    elsewhere: Option<(Arc<dyn Driver>, DeviceId)>,
}

#[derive(Clone, Copy, Debug)]
struct Facts {
    at: Address,
    bytes: u64,
    reach: Reach,
    path: Path,
}

/// Properties of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferInfo {
    /// Its address, also after it was closed.
    pub at: Address,
    /// Its size in bytes.
    pub bytes: u64,
    /// The stream in whose order its memory is freed.
    pub stream: StreamHandle,
    /// The device of `stream`, if that is a default stream.
    pub context: DeviceId,
    /// The device of the memory; `None` for host memory.
    pub device_id: Option<DeviceId>,
    /// Whether kernels can use it.
    pub is_device_accessible: bool,
    /// Whether the host can use it.
    pub is_host_accessible: bool,
    /// Whether it is managed memory.
    pub is_managed: bool,
    /// Whether it was closed.
    pub is_closed: bool,
    /// The path by which its memory came into this process.
    pub path: Path,
}

impl Buffer {
    /// Allocates from a resource, on `stream`. The buffer's size is [`MemoryResource::usable`].
    ///
    /// # Errors
    /// The resource's.
    pub fn allocate(resource: &Arc<dyn MemoryResource>, bytes: u64, stream: StreamHandle) -> Result<Self> {
        let at = resource.allocate(bytes, stream)?;
        Ok(Self::of_resource(resource, at, resource.usable(bytes), stream, Path::None))
    }

    /// Allocates without waiting; see [`MemoryResource::try_allocate`].
    #[must_use]
    pub fn try_allocate(resource: &Arc<dyn MemoryResource>, bytes: u64, stream: StreamHandle) -> Option<Self> {
        let at = resource.try_allocate(bytes, stream)?;
        Some(Self::of_resource(resource, at, resource.usable(bytes), stream, Path::None))
    }

    /// A buffer of existing memory. With a resource, closing frees the memory to it; with an owner, closing releases
    /// the owner; with neither, closing frees nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a size above `i64::MAX`, or for NULL with a size.
    pub fn from_handle(
        driver: &Arc<dyn Driver>,
        at: Address,
        bytes: u64,
        from: From,
        stream: StreamHandle,
    ) -> Result<Self> {
        check_bytes(bytes)?;
        if at.0 == 0 && bytes > 0 {
            return Err(Error::invalid(format_args!("{bytes} bytes at NULL: there is no memory there")));
        }
        let hold = match from {
            From::Resource(resource) => {
                // The buffer owns the memory from now on, so the pointer can no longer be freed by itself.
                resource.pointers().take(at);
                return Ok(Self::of_resource(&resource, at, bytes, stream, Path::None));
            }
            From::Owner(owner) => Hold::Owner(Some(owner)),
            From::Unowned => Hold::Unowned,
        };
        let info = driver.pointer(DeviceId(0), at)?;
        let reach = Reach {
            device: info.device.filter(|_| info.kind == PointerKind::Device),
            by_device: info.kind != PointerKind::Unknown,
            by_host: info.kind != PointerKind::Device,
            managed: info.kind == PointerKind::Managed,
        };
        let context = info.device.unwrap_or_default();
        let facts = Facts { at, bytes, reach, path: Path::None };
        Ok(Self::elsewhere(driver, context, None, hold, stream, facts))
    }

    fn of_resource(
        resource: &Arc<dyn MemoryResource>,
        at: Address,
        bytes: u64,
        stream: StreamHandle,
        path: Path,
    ) -> Self {
        let hold = Hold::Resource(Arc::clone(resource));
        let facts = Facts { at, bytes, reach: resource.reach(), path };
        Self::new(Some(Arc::clone(resource)), None, hold, stream, facts)
    }

    /// pre: the memory was not allocated from `resource`.
    fn elsewhere(
        driver: &Arc<dyn Driver>,
        context: DeviceId,
        resource: Option<Arc<dyn MemoryResource>>,
        hold: Hold,
        stream: StreamHandle,
        facts: Facts,
    ) -> Self {
        Self::new(resource, Some((Arc::clone(driver), context)), hold, stream, facts)
    }

    fn new(
        resource: Option<Arc<dyn MemoryResource>>,
        elsewhere: Option<(Arc<dyn Driver>, DeviceId)>,
        hold: Hold,
        stream: StreamHandle,
        facts: Facts,
    ) -> Self {
        Self {
            memory: Mutex::new(Some(Arc::new(Memory::new(facts.at, facts.bytes, hold, stream)))),
            facts: Mutex::new(facts),
            resource,
            exported: Mutex::new(None),
            elsewhere,
        }
    }

    /// The driver of its memory, and the device in whose context its calls are made.
    fn home(&self) -> Result<(&Arc<dyn Driver>, DeviceId)> {
        let of_resource = || self.resource.as_ref().map(|resource| (resource.driver(), resource.context()));
        let elsewhere = self.elsewhere.as_ref().map(|(driver, context)| (driver, *context));
        elsewhere.or_else(of_resource).ok_or_else(closed)
    }

    /// Its properties.
    #[must_use]
    pub fn info(&self) -> BufferInfo {
        let facts = *self.facts.lock();
        let memory = self.memory.lock();
        BufferInfo {
            at: facts.at,
            bytes: facts.bytes,
            stream: memory.as_ref().map_or(StreamHandle::LEGACY, |memory| memory.stream()),
            context: self.home().map_or(DeviceId(0), |(_, context)| context),
            device_id: facts.reach.device,
            is_device_accessible: facts.reach.by_device,
            is_host_accessible: facts.reach.by_host,
            is_managed: facts.reach.managed,
            is_closed: memory.is_none(),
            path: facts.path,
        }
    }

    /// Its resource.
    #[must_use]
    pub fn resource(&self) -> Option<&Arc<dyn MemoryResource>> {
        self.resource.as_ref()
    }

    /// Frees the memory in the order of `stream`; `None`: of the stream of the allocation. A second call does nothing.
    /// While exported tensors are alive the memory stays, and is freed with the last of them. Memory that was exported
    /// as a tensor is freed after all work that the device has then, since the streams that used the tensor are
    /// unknown.
    ///
    /// # Errors
    /// The resource's. The buffer is then still open.
    pub fn close(&self, stream: Option<StreamHandle>) -> Result<()> {
        let Some(memory) = self.memory.lock().take() else { return Ok(()) };
        let before = memory.stream();
        if let Some(stream) = stream {
            memory.set_stream(stream);
        }
        match Arc::try_unwrap(memory) {
            Ok(mut alone) => alone.end().inspect_err(|_| {
                alone.set_stream(before);
                *self.memory.lock() = Some(Arc::new(alone));
            }),
            // A tensor shares the memory: its deleter frees it.
            Err(_shared) => Ok(()),
        }
    }

    /// Closes without waiting; see [`MemoryResource::try_deallocate`]. Returns whether the buffer is closed.
    #[must_use]
    pub fn try_close(&self) -> bool {
        // A change of the buffer's size waits for a stream under this lock.
        let Some(mut place) = self.memory.try_lock() else { return false };
        match place.as_mut() {
            None => true,
            Some(memory) => {
                let ended = Arc::get_mut(memory).is_some_and(Memory::try_end);
                if ended {
                    *place = None;
                }
                ended
            }
        }
    }

    /// Changes its size, and its address if it has to move.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless it is virtual memory, [`Error::Invalid`] for a buffer of another resource,
    /// [`Error::Busy`] while exported tensors are alive, [`Error::Closed`], the driver's. Nothing changed then.
    pub fn modify(
        &self,
        resource: &Arc<dyn MemoryResource>,
        bytes: u64,
        options: Option<&VirtualOptions>,
        stream: StreamHandle,
    ) -> Result<()> {
        let virtual_memory = resource.downcast_ref::<VirtualResource>().ok_or_else(|| {
            Error::Unsupported("only buffers of a virtual memory resource can change their size".into())
        })?;
        if !self.resource.as_ref().is_some_and(|own| Arc::ptr_eq(own, resource)) {
            return Err(Error::invalid("the buffer belongs to another resource: pass that one"));
        }
        let mut place = self.memory.lock();
        let memory = place.as_mut().ok_or_else(closed)?;
        let memory = Arc::get_mut(memory).ok_or_else(|| {
            Error::Busy("the buffer cannot change while tensors made of it (DLPack) are alive".into())
        })?;
        let (at, bytes) = virtual_memory.modify(memory.at, bytes, options, stream)?;
        memory.moved(at, bytes);
        *self.exported.lock() = None;
        let mut facts = self.facts.lock();
        (facts.at, facts.bytes) = (at, bytes);
        Ok(())
    }

    /// The memory, which stays alive as long as the result.
    fn open(&self) -> Result<Arc<Memory>> {
        self.memory.lock().clone().ok_or_else(closed)
    }
}

/// The owner of memory that was not allocated for the buffer.
#[derive(Debug)]
pub enum From {
    /// A resource, to which the memory is freed.
    Resource(Arc<dyn MemoryResource>),
    /// An owner, which is released when the buffer is closed.
    Owner(Owner),
    /// No owner: closing frees nothing.
    Unowned,
}

fn closed() -> Error {
    Error::Closed("the buffer is closed".into())
}
