//! Sharing of buffers between processes: a buffer of a driver pool as a pointer of the pool, physical memory through
//! the exchange, other allocations by a legacy handle. The importer can query the path.

use std::sync::{Arc, Weak};

use super::memory::{Hold, Home};
use super::{Buffer, Facts};
use crate::driver::{Access, Driver, Physical, Place, PointerKind, Share};
use crate::error::{Error, Result};
use crate::pool::{Export, Pool};
use crate::resource::driver_pool::{DriverPool, from_registry};
use crate::resource::ipc::{
    Descriptor, Exported, Form, Handle, Imported, Location, Path, Pieces, Route, fetch, offer, withdraw,
};
use crate::resource::memory_resource::{MemoryResource, Reach};
use crate::resource::pool_resource::PoolResource;
use crate::resource::virtual_memory::VirtualResource;
use crate::units::{Address, DeviceId, StreamHandle};

// ---- out ---------------------------------------------------------------------------------------------

impl Buffer {
    /// A descriptor that names the buffer for other processes of this user. The buffer must stay open until they have
    /// mapped it; mapped memory stays valid also after this process has ended. A second call gives the same descriptor.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for a resource without IPC, [`Error::Unsupported`] for memory that cannot be shared,
    /// [`Error::Closed`], the driver's.
    pub fn ipc_descriptor(&self) -> Result<Descriptor> {
        let mut known = self.exported.lock();
        if let Some(descriptor) = *known {
            self.open()?;
            return Ok(descriptor);
        }
        let memory = self.open()?;
        if memory.bytes == 0 {
            return Err(Error::invalid("a buffer of 0 bytes has no memory that could be shared"));
        }
        let descriptor = match &self.resource {
            None => export_foreign(self.home()?.0, memory.at, memory.bytes)?,
            Some(resource) => self.export_from(resource, memory.at, memory.bytes)?,
        };
        *known = Some(descriptor);
        Ok(descriptor)
    }

    fn export_from(&self, resource: &Arc<dyn MemoryResource>, at: Address, bytes: u64) -> Result<Descriptor> {
        if let Some(pool) = resource.downcast_ref::<DriverPool>() {
            let (blob, uuid) = pool.export_pointer(at)?;
            let place = resource.info().device_id.map_or(Place::Host, Place::Device);
            return Descriptor::new(
                Route::Pool { blob, pool: uuid },
                bytes,
                Location::of(&**resource.driver(), place)?,
            );
        }
        if !resource.info().is_ipc_enabled {
            return Err(Error::NotPermitted(
                format!("buffers of a {:?} resource like this one cannot be shared", resource.info().kind).into(),
            ));
        }
        if let Some(own) = resource.downcast_ref::<PoolResource>() {
            let (base, size) = own.pool().block_around(at)?;
            let inside = at.0 - base.0;
            return export_block(own.pool(), base, inside, bytes.min(size - inside));
        }
        let virtual_memory = resource
            .downcast_ref::<VirtualResource>()
            .ok_or_else(|| Error::Unsupported("this memory cannot be shared".into()))?;
        let ticket = offer(Arc::new(Region { resource: Arc::downgrade(resource), at }))?;
        virtual_memory.exported(at, Box::new(move || withdraw(ticket.key))).inspect_err(|_| withdraw(ticket.key))?;
        let fabric = virtual_memory.share() == Share::Fabric;
        Descriptor::new(
            Route::exchange(ticket, fabric),
            bytes,
            Location::of(&**resource.driver(), virtual_memory.place())?,
        )
    }
}

/// A descriptor, as of [`Buffer::ipc_descriptor`], for the memory from `at` to the end of its live block. Importers map
/// whole chunks, and so can reach other blocks in them.
///
/// # Errors
/// [`Error::BadFree`] for an address in no live block, [`Error::Unsupported`] if the driver has no file descriptors.
pub fn export_pointer(pool: &Arc<Pool>, at: Address) -> Result<Descriptor> {
    let (base, size) = pool.block_around(at)?;
    let inside = at.0 - base.0;
    export_block(pool, base, inside, size - inside)
}

fn export_block(pool: &Arc<Pool>, base: Address, inside: u64, bytes: u64) -> Result<Descriptor> {
    let fresh = offer(Arc::new(Block { pool: Arc::downgrade(pool), base, inside, bytes }))?;
    let withdraw_it = move || withdraw(fresh.key);
    let export = Export { part: (inside, bytes), ticket: fresh, on_free: Box::new(withdraw_it) };
    let (place, ticket) = pool.export(base, export).inspect_err(|_| withdraw_it())?;
    if ticket != fresh {
        withdraw_it();
    }
    Descriptor::new(Route::exchange(ticket, false), bytes, Location::of(&**pool.driver(), place)?)
}

/// A descriptor, with a legacy handle, for memory of `cuMemAlloc` that this library did not allocate.
///
/// # Errors
/// [`Error::Unsupported`] for memory that has no such handle, [`Error::Invalid`] for a range beyond the allocation.
pub fn export_foreign(driver: &Arc<dyn Driver>, at: Address, bytes: u64) -> Result<Descriptor> {
    let info = driver.pointer(DeviceId(0), at)?;
    let usable = info.kind == PointerKind::Device && info.legacy_ipc;
    let (Some(device), Some((base, size)), true) = (info.device, info.range, usable) else {
        return Err(Error::Unsupported(
            format!("the memory at {at} has no legacy IPC handle: it is not plain device memory (cuMemAlloc)").into(),
        ));
    };
    let offset = at.0 - base.0;
    if bytes > size - offset {
        return Err(Error::invalid(format_args!("{bytes} bytes at {at} go beyond the allocation {base}+{size}")));
    }
    let blob = driver.ipc_export(device, base)?;
    Descriptor::new(Route::Legacy { blob, offset }, bytes, Location::of(&**driver, Place::Device(device))?)
}

/// A block of one of Forebay's own pools.
struct Block {
    pool: Weak<Pool>,
    base: Address,
    inside: u64,
    bytes: u64,
}

impl Exported for Block {
    fn pieces(&self) -> Result<Pieces> {
        let (base, inside, bytes) = (self.base, self.inside, self.bytes);
        let pool = self.pool.upgrade().ok_or_else(gone)?;
        let (device, cut) =
            pool.extent(base, |extent| (extent.device, cut(extent.offset + inside, bytes, &extent.chunks)))?;
        let first = cut.first;
        Pieces::lazy(cut.offset, bytes, Form::Fd, cut.sizes, move |index| {
            // Under the arena's lock again, since the block may be freed between two pieces.
            let fd = pool.extent(base, |extent| {
                let chunk = extent.chunks.get(first + index).map(|&(physical, _)| physical);
                chunk.map(|physical| pool.driver().export_fd(device, physical))
            })?;
            Ok(Handle::Fd(fd.ok_or_else(gone)??))
        })
    }
}

/// An allocation of virtual memory.
struct Region {
    resource: Weak<dyn MemoryResource>,
    at: Address,
}

impl Exported for Region {
    fn pieces(&self) -> Result<Pieces> {
        let at = self.at;
        let resource = self.resource.upgrade().ok_or_else(gone)?;
        let virtual_memory = resource.downcast_ref::<VirtualResource>().ok_or_else(gone)?;
        let (cut, bytes) = virtual_memory.pieces(at, |pieces, bytes| (cut(0, bytes, pieces), bytes))?;
        let form = if virtual_memory.share() == Share::Fabric { Form::Fabric } else { Form::Fd };
        Pieces::lazy(0, bytes, form, cut.sizes, move |index| {
            let (driver, device) = (resource.driver(), resource.context());
            let virtual_memory = resource.downcast_ref::<VirtualResource>().ok_or_else(gone)?;
            let handle = virtual_memory.pieces(at, |pieces, _| {
                let physical = pieces.get(index).map(|&(physical, _)| physical)?;
                Some(match form {
                    Form::Fd => driver.export_fd(device, physical).map(Handle::Fd),
                    Form::Fabric => driver.export_fabric(device, physical).map(Handle::Fabric),
                })
            })?;
            Ok(handle.ok_or_else(gone)??)
        })
    }
}

/// The pieces that hold `bytes` bytes from `offset`.
struct Cut {
    /// The first piece's index.
    first: usize,
    /// Offset in that piece.
    offset: u64,
    sizes: Vec<u64>,
}

fn cut(mut offset: u64, bytes: u64, pieces: &[(Physical, u64)]) -> Cut {
    let mut first = 0;
    while let Some(&(_, size)) = pieces.get(first)
        && offset >= size
    {
        offset -= size;
        first += 1;
    }
    let mut reached = 0;
    let sizes = pieces.iter().skip(first).map(|&(_, size)| size).take_while(|&size| {
        let needed = reached < offset + bytes;
        reached += size;
        needed
    });
    Cut { first, offset, sizes: sizes.collect() }
}

fn gone() -> Error {
    Error::NotFound("the exported memory was freed".into())
}

// ---- in ----------------------------------------------------------------------------------------------

impl Buffer {
    /// Maps the memory that a descriptor of another process names. Closing the buffer unmaps it in this process only.
    ///
    /// `resource` is the mapped pool for a buffer of a driver pool, or `None` if that pool is registered. For physical
    /// memory it may be a virtual memory resource, whose device and peers then get the access in its options. Otherwise
    /// it is `None`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for bytes that are no descriptor or do not fit the resource or the memory,
    /// [`Error::NotFound`] for memory that was freed and for a pool that is not mapped, [`Error::Peer`] if the
    /// exporting process has ended, [`Error::NotPermitted`] if it is of another user, the driver's.
    pub fn from_ipc_descriptor(
        driver: &Arc<dyn Driver>,
        resource: Option<&Arc<dyn MemoryResource>>,
        descriptor: &Descriptor,
        stream: StreamHandle,
    ) -> Result<Self> {
        match descriptor.route() {
            Route::Pool { blob, pool } => {
                let resource = match (resource, pool) {
                    (Some(resource), _) => Arc::clone(resource),
                    (None, Some(uuid)) => from_registry(uuid)?,
                    (None, None) => return Err(Error::invalid("the buffer is of a pool: pass the mapped resource")),
                };
                let mapped = resource.downcast_ref::<DriverPool>().ok_or_else(|| {
                    Error::invalid("the buffer is of a pool of the driver: pass that pool's mapped resource")
                })?;
                if let (Some(given), Some(named)) = (resource.info().uuid, pool)
                    && given != named
                {
                    return Err(Error::invalid(format_args!("the buffer is of pool {named}, the resource is {given}")));
                }
                let at = mapped.import_pointer(&blob)?;
                let buffer = Self::of_resource(&resource, at, descriptor.bytes(), stream, Path::Pool);
                fits(driver, resource.context(), at, descriptor.bytes())?;
                Ok(buffer)
            }
            Route::Exchange { .. } => Self::take_pieces(driver, resource, descriptor, stream),
            Route::Legacy { blob, offset } => {
                let place = descriptor.location().place(&**driver)?;
                let Place::Device(device) = place else {
                    return Err(Error::invalid(format_args!(
                        "legacy handles are of device memory, and not on {place}"
                    )));
                };
                let base = driver.ipc_open(device, &blob)?;
                let reach = Reach { device: Some(device), by_device: true, by_host: false, managed: false };
                let (at, bytes) = (base.plus(offset), descriptor.bytes());
                let facts = Facts { at, bytes, reach, path: Path::Legacy };
                let home = Home { driver: Arc::clone(driver), context: device };
                let buffer = Self::elsewhere(driver, device, None, Hold::Opened(base, home), stream, facts);
                // Checked from the base: an address beyond the allocation could lie in another one that is large
                // enough.
                fits(driver, device, base, offset + bytes)?;
                Ok(buffer)
            }
        }
    }

    fn take_pieces(
        driver: &Arc<dyn Driver>,
        resource: Option<&Arc<dyn MemoryResource>>,
        descriptor: &Descriptor,
        stream: StreamHandle,
    ) -> Result<Self> {
        let place = descriptor.location().place(&**driver)?;
        let device = if let Place::Device(device) = place { device } else { DeviceId(0) };
        let own = resource.map(|resource| {
            resource.downcast_ref::<VirtualResource>().ok_or_else(|| {
                Error::invalid("the memory comes in pieces: pass a virtual memory resource for it, or none")
            })
        });
        let own = own.transpose()?;
        let access = own.map_or_else(|| default_access(&**driver, place), |own| own.access().to_vec());
        let device = resource.map_or(device, |resource| resource.context());
        let imported = Imported::map(driver, device, descriptor, fetch(descriptor)?, &access)?;
        let may = |who: Place| access.iter().any(|&(place, _)| place == who);
        let reach = Reach {
            device: if let Place::Device(device) = place { Some(device) } else { None },
            by_device: may(Place::Device(device)),
            by_host: place.is_host() && may(place),
            managed: false,
        };
        let facts = Facts { at: imported.address(), bytes: imported.bytes(), reach, path: imported.path() };
        let home = Home { driver: Arc::clone(driver), context: device };
        Ok(Self::elsewhere(driver, device, resource.cloned(), Hold::Imported(imported, home), stream, facts))
    }
}

/// The default access to imported memory: its device, or for host memory the host and every device.
fn default_access(driver: &dyn Driver, place: Place) -> Vec<(Place, Access)> {
    let devices = (0..driver.device_count()).map(|device| Place::Device(DeviceId(device)));
    let others = devices.filter(|_| place.is_host());
    std::iter::once(place).chain(others).map(|place| (place, Access::ReadWrite)).collect()
}

/// Checks that the memory is as long as the descriptor says.
fn fits(driver: &Arc<dyn Driver>, device: DeviceId, at: Address, bytes: u64) -> Result<()> {
    match driver.pointer(device, at)?.range {
        Some((base, size)) if at.0 - base.0 > size || bytes > size - (at.0 - base.0) => Err(Error::invalid(
            format_args!("the descriptor says {bytes} bytes at {at}, the memory there is {base}+{size}"),
        )),
        _ => Ok(()),
    }
}
