//! Opening or creating the driver pool of a resource.

use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

use super::ipc::name;
use super::{DriverPool, Shared, Status};
use crate::driver::{Access, Driver, ErrorKind, Place, PoolHandle, PoolOptions};
use crate::error::{Error, Result};
use crate::resource::host::{HostKind, HostResource};
use crate::resource::memory_resource::{Kind, MemoryResource, check_device, device_or_current};
use crate::resource::pointers::Pointers;
use crate::resource::pool_resource::PoolResource;
use crate::units::DeviceId;

/// The pool that a resource uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// A new pool, which the resource owns.
    New,
    /// The current pool. Not owned.
    #[default]
    Current,
    /// The driver's default pool. Not owned.
    Default,
    /// A pool that the program created. Not owned.
    Handle(u64),
}

/// Options of [`device`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceOptions {
    /// The pool. The other options apply to new pools.
    pub source: Source,
    /// Whether it can be shared with other processes.
    pub ipc: bool,
    /// The most bytes that the pool may hold; 0: the driver's limit.
    pub max_size: u64,
}

/// Options of [`pinned`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinnedOptions {
    /// The pool. The other options apply to new pools.
    pub source: Source,
    /// The device in whose context calls are made; `None`: the current device.
    pub device: Option<i32>,
    /// Whether it can be shared with other processes.
    pub ipc: bool,
    /// The NUMA node of the memory; `None`: with IPC the node nearest to the device, otherwise chosen by the system.
    pub numa_node: Option<u32>,
    /// The most bytes that the pool may hold; 0: the driver's limit.
    pub max_size: u64,
    /// Forebay's own pinned pool, even if the driver has host pools.
    pub own: bool,
}

/// Options of [`managed`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManagedOptions {
    /// The pool. The other options apply to new pools.
    pub source: Source,
    /// The device in whose context calls are made; `None`: the current device.
    pub device: Option<i32>,
    /// The preferred location of its memory.
    pub preferred: Option<Place>,
}

/// A stream-ordered pool of a device.
///
/// # Errors
/// [`Error::BadDevice`], [`Error::Unsupported`] if the driver has no pools or cannot share them, the driver's.
pub fn device(driver: Arc<dyn Driver>, device: i32, options: DeviceOptions) -> Result<Arc<dyn MemoryResource>> {
    let device = check_device(driver.as_ref(), device)?;
    let place = Place::Device(device);
    let new = PoolOptions { place: Some(place), managed: false, share: options.ipc, max_size: options.max_size };
    Ok(Arc::new(open(driver, device, Kind::Device, options.source, new)?))
}

/// A stream-ordered pool of pinned host memory, or Forebay's own pinned pool if the driver has none.
///
/// # Errors
/// [`Error::BadDevice`], [`Error::Unsupported`] for a node or a handle type that the device lacks, the driver's.
pub fn pinned(driver: Arc<dyn Driver>, options: PinnedOptions) -> Result<Arc<dyn MemoryResource>> {
    let device = device_or_current(driver.as_ref(), options.device)?;
    let capabilities = driver.capabilities(device)?;
    let numa_node = match options.numa_node {
        None if options.ipc => Some(capabilities.numa_node.ok_or_else(|| {
            Error::Unsupported(
                format!("the driver does not say which NUMA node is nearest to device {device}: name one (numa_id)")
                    .into(),
            )
        })?),
        node => node,
    };
    if options.own || (!capabilities.host_pools && !matches!(options.source, Source::Handle(_))) {
        return match options.source {
            Source::Current | Source::Default if !options.own => shared_pinned_pool(&driver, device.0 as i32),
            _ => {
                let own = PoolResource::pinned(&driver, device.0 as i32, numa_node, options.max_size, options.ipc)?;
                Ok(Arc::new(own))
            }
        };
    }
    let place = numa_node.map_or(Place::Host, Place::HostNuma);
    let new = PoolOptions { place: Some(place), managed: false, share: options.ipc, max_size: options.max_size };
    let pool = open(driver, device, Kind::Pinned, options.source, new)?;
    pool.grant_default_access()?;
    Ok(Arc::new(pool))
}

/// A stream-ordered pool of managed memory, or `cuMemAllocManaged` for each allocation if the driver has none.
///
/// # Errors
/// [`Error::BadDevice`], [`Error::Unsupported`] if the device has no managed memory, the driver's.
pub fn managed(driver: Arc<dyn Driver>, options: ManagedOptions) -> Result<Arc<dyn MemoryResource>> {
    let device = device_or_current(driver.as_ref(), options.device)?;
    if let Some(Place::Device(preferred)) = options.preferred {
        check_device(driver.as_ref(), preferred.0 as i32)?;
    }
    if !driver.capabilities(device)?.managed_pools && !matches!(options.source, Source::Handle(_)) {
        return Ok(Arc::new(HostResource::new(driver, Some(device.0 as i32), HostKind::Managed)?));
    }
    let new = PoolOptions { place: options.preferred, managed: true, share: false, max_size: 0 };
    Ok(Arc::new(open(driver, device, Kind::Managed, options.source, new)?))
}

fn open(driver: Arc<dyn Driver>, device: DeviceId, kind: Kind, source: Source, new: PoolOptions) -> Result<DriverPool> {
    let capabilities = driver.capabilities(device)?;
    if new.share && !capabilities.pool_fd {
        return Err(Error::Unsupported(
            format!("pools of device {device} cannot be shared as file descriptors by this driver").into(),
        ));
    }
    let handle = match source {
        Source::New => driver.pool_create(device, &new).map_err(|error| match new.place {
            // The node is the only option that can be invalid here.
            Some(Place::HostNuma(node)) if error.kind == ErrorKind::Invalid => {
                Error::invalid(format_args!("numa_id is {node}, and there is no pool on such a node ({error})"))
            }
            _ => error.into(),
        })?,
        Source::Current => driver.pool_current(device, new.place, new.managed)?,
        Source::Default => driver.pool_default(device, new.place, new.managed)?,
        Source::Handle(0) => return Err(Error::invalid("the handle of a pool is 0: pass a CUmemoryPool")),
        Source::Handle(handle) => PoolHandle(handle),
    };
    let owned = source == Source::New;
    Ok(DriverPool {
        driver,
        device,
        kind,
        place: new.place,
        handle,
        owned,
        ipc: owned && new.share,
        mapped: false,
        status: RwLock::new(Status::Open),
        live: AtomicI64::new(0),
        shared: Mutex::new(Shared { fd: None, uuid: (owned && new.share).then(|| name(new.place)) }),
        pointers: Pointers::default(),
    })
}

impl DriverPool {
    /// Grants every device access to a pool of host memory, and a device access to its own pool, in case the driver did
    /// not.
    pub(super) fn grant_default_access(&self) -> Result<()> {
        for device in (0..self.driver.device_count()).map(DeviceId) {
            let is_other = device != self.device;
            if is_other && (self.kind != Kind::Pinned || !self.driver.capabilities(device)?.host_pools) {
                continue;
            }
            self.open(|pool| {
                if self.driver.pool_access(self.device, pool, Place::Device(device))? == Access::ReadWrite {
                    return Ok(());
                }
                self.driver.pool_set_access(self.device, pool, Place::Device(device), Access::ReadWrite)
            })?;
        }
        Ok(())
    }
}

/// The pinned pool in place of the current pool of a driver without host pools: one for each driver and device, as long
/// as a reference to it lives.
fn shared_pinned_pool(driver: &Arc<dyn Driver>, device: i32) -> Result<Arc<dyn MemoryResource>> {
    type Known = (usize, i32, Weak<PoolResource>);
    static POOLS: Mutex<Vec<Known>> = Mutex::new(Vec::new());
    let mut pools = POOLS.lock();
    pools.retain(|(_, _, pool)| pool.strong_count() > 0);
    let known = pools.iter().find(|&&(memory, of, _)| (memory, of) == (driver.memory(), device));
    if let Some(pool) = known.and_then(|(_, _, pool)| pool.upgrade()) {
        return Ok(pool);
    }
    let pool = Arc::new(PoolResource::pinned(driver, device, None, 0, false)?.not_owned());
    pools.push((driver.memory(), device, Arc::downgrade(&pool)));
    Ok(pool)
}
