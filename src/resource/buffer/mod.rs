//! A piece of memory with what it takes to give it back (document 001, `cuda.core.Buffer`).
//!
//! `memory` is the piece itself, which tensors made of it keep alive; `copy` moves data, `dlpack` exchanges tensors,
//! `ipc` goes to other processes and comes from them.

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

/// Memory of a resource, of an owner elsewhere, or of nobody that this library knows. Any thread may call anything.
#[derive(Debug)]
pub struct Buffer {
    memory: Mutex<Option<Arc<Memory>>>,
    /// What it was, for after it was closed.
    facts: Mutex<Facts>,
    resource: Option<Arc<dyn MemoryResource>>,
    /// What other processes were told of it.
    exported: Mutex<Option<Descriptor>>,
    /// For memory that did not come from the resource: the driver, and the device in whose context its calls are made.
    elsewhere: Option<(Arc<dyn Driver>, DeviceId)>,
}

#[derive(Clone, Copy, Debug)]
struct Facts {
    at: Address,
    bytes: u64,
    reach: Reach,
    path: Path,
}

/// What can be asked of a buffer at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferInfo {
    /// Where it begins; also after it was closed.
    pub at: Address,
    /// Its size in bytes.
    pub bytes: u64,
    /// The stream that its memory goes back on.
    pub stream: StreamHandle,
    /// The device whose stream that is if it is a default one.
    pub context: DeviceId,
    /// The device that it belongs to; `None` for memory of the host.
    pub device_id: Option<DeviceId>,
    /// Whether kernels can use it.
    pub is_device_accessible: bool,
    /// Whether the host can use it.
    pub is_host_accessible: bool,
    /// Whether it is managed memory.
    pub is_managed: bool,
    /// Whether it was closed.
    pub is_closed: bool,
    /// How its memory came into this process.
    pub path: Path,
}

impl Buffer {
    /// Allocates from a resource, on `stream`. A size that comes in granules is the buffer's size rounded up.
    ///
    /// # Errors
    /// The resource's.
    pub fn allocate(resource: &Arc<dyn MemoryResource>, bytes: u64, stream: StreamHandle) -> Result<Self> {
        let at = resource.allocate(bytes, stream)?;
        Ok(Self::of_resource(resource, at, resource.usable(bytes), stream, Path::None))
    }

    /// Allocates if the resource can at once; see [`MemoryResource::try_allocate`].
    #[must_use]
    pub fn try_allocate(resource: &Arc<dyn MemoryResource>, bytes: u64, stream: StreamHandle) -> Option<Self> {
        let at = resource.try_allocate(bytes, stream)?;
        Some(Self::of_resource(resource, at, resource.usable(bytes), stream, Path::None))
    }

    /// A buffer around memory that is there already. With a resource, closing gives it back through that; with an owner,
    /// closing lets go of the owner; with neither, closing does nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a size that no memory has, or for NULL with a size.
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
                // It is the buffer's from now on, and no bare pointer any more.
                resource.pointers().take(at);
                return Ok(Self::of_resource(&resource, at, bytes, stream, Path::None));
            }
            From::Owner(owner) => Hold::Owner(Some(owner)),
            From::Nobody => Hold::Nobody,
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

    /// pre: the resource, if any, did not give the memory.
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

    /// What is known of it.
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

    /// The resource that it is of.
    #[must_use]
    pub fn resource(&self) -> Option<&Arc<dyn MemoryResource>> {
        self.resource.as_ref()
    }

    /// Gives the memory back in the order of `stream`; of the allocation's stream where none is named. Twice is
    /// harmless. While tensors made of the buffer are alive the memory stays, and goes back with the last of them. Memory
    /// of which tensors were made goes back behind everything that the device has then, and no stream is touched: nobody
    /// says which streams used them.
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
            // A tensor has it too: its deleter ends the memory.
            Err(_shared) => Ok(()),
        }
    }

    /// The same if the resource can at once; see [`MemoryResource::try_deallocate`]. Says whether the buffer is closed.
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

    /// Changes its size, and its address where it has to move.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless it is of virtual memory, [`Error::Invalid`] for a buffer of another resource,
    /// [`Error::Busy`] while tensors made of it are alive, [`Error::Closed`], the driver's. Nothing was changed then.
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
            return Err(Error::invalid("the buffer is of another resource: ask that one to change it"));
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

    /// The memory, as long as the answer is held.
    fn open(&self) -> Result<Arc<Memory>> {
        self.memory.lock().clone().ok_or_else(closed)
    }
}

/// Whom memory comes from that was not allocated for the buffer.
#[derive(Debug)]
pub enum From {
    /// A resource, which takes it back.
    Resource(Arc<dyn MemoryResource>),
    /// Somebody who is told when the buffer is closed.
    Owner(Owner),
    /// Nobody.
    Nobody,
}

fn closed() -> Error {
    Error::Closed("the buffer was closed".into())
}
