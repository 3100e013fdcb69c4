//! Sharing of pools between processes: a file descriptor carries the pool, 64 bytes carry a pointer, and a registry
//! finds the pool of a pointer.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use parking_lot::{Mutex, RwLock};
use uuid::Uuid;

use super::{DriverPool, MAPPED, Shared, Status};
use crate::driver::{Blob, Driver, Place};
use crate::error::{Error, Result};
use crate::resource::memory_resource::{Kind, device_or_current};
use crate::resource::pointers::Pointers;
use crate::units::Address;

/// In the uuid of a pool on a NUMA node, the bytes before the number of the node.
const NODE_FOLLOWS: [u8; 2] = *b"NU";

/// A new uuid for a pool. Before 13.1 libcuda does not report the location of a mapped pool, so the uuid of a pool on a
/// NUMA node has the node: a custom UUID (version 8).
pub(super) fn name(place: Option<Place>) -> Uuid {
    let name = Uuid::new_v4();
    let Some(Place::HostNuma(node)) = place else { return name };
    let mut bytes = name.into_bytes();
    bytes[10..12].copy_from_slice(&NODE_FOLLOWS);
    bytes[12..].copy_from_slice(&node.to_le_bytes());
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// The NUMA node in a uuid from [`name`].
fn node_in(name: Uuid) -> Option<u32> {
    let bytes = name.into_bytes();
    let has_node = name.get_version() == Some(uuid::Version::Custom) && bytes[10..12] == NODE_FOLLOWS;
    has_node.then(|| u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]))
}

impl DriverPool {
    /// Calls `take` with the pool's file descriptor and uuid. The resource owns the file descriptor, and closes it when
    /// the resource is closed.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] unless the pool was created with IPC, [`Error::Closed`], the driver's.
    pub fn allocation_handle<T>(&self, take: impl FnOnce(BorrowedFd<'_>, Uuid) -> T) -> Result<T> {
        if !self.ipc || self.mapped {
            return Err(self.not_shared());
        }
        // The same order of locks as in `close`.
        self.open(|pool| {
            let mut shared = self.shared.lock();
            let fd = match shared.fd.take() {
                Some(fd) => fd,
                None => self.driver.pool_export_fd(self.device, pool)?,
            };
            let uuid = shared.uuid.unwrap_or_default();
            let fd: &OwnedFd = shared.fd.insert(fd);
            Ok(take(fd.as_fd(), uuid))
        })
    }

    /// The 64 bytes that name a live block for a process that has mapped this pool.
    pub(in crate::resource) fn export_pointer(&self, at: Address) -> Result<(Blob, Option<Uuid>)> {
        // CUDA exports pointers only of pools that were exported themselves.
        self.allocation_handle(|_, _| ())?;
        let blob = self.open(|_| self.driver.pool_export_pointer(self.device, at))?;
        Ok((blob, self.shared.lock().uuid))
    }

    /// The block that the exporting process named by these 64 bytes.
    pub(in crate::resource) fn import_pointer(&self, blob: &Blob) -> Result<Address> {
        if !self.mapped {
            return Err(Error::NotPermitted(
                "buffers are imported through the pool as it was mapped here (from_allocation_handle), not through a \
                 pool of this process"
                    .into(),
            ));
        }
        self.allocate_by(|pool| self.driver.pool_import_pointer(self.device, pool, blob))
    }

    fn not_shared(&self) -> Error {
        Error::NotPermitted(
            if self.mapped {
                "the pool belongs to another process, which alone can share it"
            } else {
                "the resource is not IPC-enabled: create it with ipc_enabled"
            }
            .into(),
        )
    }
}

/// Maps a pool of another process. The caller keeps the file descriptor. If a pool is registered under `uuid` already,
/// the result is that resource, and the file descriptor is not used.
///
/// # Errors
/// [`Error::BadDevice`], [`Error::Invalid`] for a kind other than device or pinned and for a file descriptor that is
/// not a pool's, the driver's.
pub fn from_allocation_handle(
    driver: Arc<dyn Driver>,
    kind: Kind,
    device: Option<i32>,
    fd: BorrowedFd<'_>,
    uuid: Option<Uuid>,
) -> Result<Arc<DriverPool>> {
    if !matches!(kind, Kind::Device | Kind::Pinned) {
        return Err(Error::invalid(format_args!("a {kind:?} resource is not shared as a pool")));
    }
    let device = device_or_current(driver.as_ref(), device)?;
    if let Some(known) = uuid.and_then(|uuid| MAPPED.find(uuid)) {
        return of_kind(known, kind);
    }
    let handle = driver.pool_import_fd(device, fd)?;
    let place = match kind {
        Kind::Device => Place::Device(device),
        _ => {
            let reported = driver.pool_place(device, handle).ok().flatten().filter(|place| place.is_host());
            reported.or_else(|| uuid.and_then(node_in).map(Place::HostNuma)).unwrap_or(Place::Host)
        }
    };
    let pool = Arc::new(DriverPool {
        driver,
        device,
        kind,
        place: Some(place),
        handle,
        owned: true,
        ipc: true,
        mapped: true,
        status: RwLock::new(Status::Open),
        live: AtomicI64::new(0),
        shared: Mutex::new(Shared { fd: None, uuid }),
        pointers: Pointers::default(),
    });
    // Each process grants access to the memory by itself.
    pool.grant_default_access()?;
    match uuid {
        Some(uuid) => of_kind(MAPPED.register(uuid, &pool), kind),
        None => Ok(pool),
    }
}

fn of_kind(pool: Arc<DriverPool>, kind: Kind) -> Result<Arc<DriverPool>> {
    if pool.kind == kind {
        return Ok(pool);
    }
    Err(Error::invalid(format_args!("a {:?} pool is registered under this uuid, not a {kind:?} one", pool.kind)))
}

/// Registers a mapped pool under its uuid. The result is the pool that is already registered under this uuid if it is
/// still alive, otherwise `pool`.
///
/// # Errors
/// [`Error::NotPermitted`] for a pool of this process, [`Error::Invalid`] for a pool that has another uuid.
pub fn register(pool: &Arc<DriverPool>, uuid: Uuid) -> Result<Arc<DriverPool>> {
    if !pool.mapped {
        return Err(Error::NotPermitted(
            "the pool belongs to this process: only mapped pools can be registered".into(),
        ));
    }
    if let Some(known) = MAPPED.find(uuid) {
        return Ok(known);
    }
    {
        let mut shared = pool.shared.lock();
        match shared.uuid {
            Some(own) if own != uuid => {
                return Err(Error::invalid(format_args!("the pool's uuid is {own}, not {uuid}")));
            }
            _ => shared.uuid = Some(uuid),
        }
    }
    Ok(MAPPED.register(uuid, pool))
}

/// The mapped pool that is registered under a uuid.
///
/// # Errors
/// [`Error::NotFound`].
pub fn from_registry(uuid: Uuid) -> Result<Arc<DriverPool>> {
    MAPPED.find(uuid).ok_or_else(|| {
        Error::NotFound(format!("no mapped pool is registered as {uuid}: map it with from_allocation_handle").into())
    })
}
