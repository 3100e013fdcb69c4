//! The driver's stream-ordered pools (`cuMemPool*`) as memory resources: device, pinned host and managed memory. The
//! driver's calls: <https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__MALLOC__ASYNC.html>.
//!
//! `create` opens or creates the pool of a resource, `ipc` shares pools between processes.

mod create;
mod ipc;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::{Mutex, RwLock};
use uuid::Uuid;

pub use create::{DeviceOptions, ManagedOptions, PinnedOptions, Source, device, managed, pinned};
pub use ipc::{from_allocation_handle, from_registry, register};

use super::ipc::Registry;
use super::memory_resource::{Info, Kind, MemoryResource, Reach, check_bytes, check_device, device_of_stream};
use super::pointers::Pointers;
use crate::driver::{self, Access, Driver, ErrorKind, Place, PoolAttribute, PoolHandle};
use crate::error::{Error, Result};
use crate::units::{Address, DeviceId, StreamHandle};

/// Mapped pools of this process, by the uuid of the pool.
static MAPPED: Registry<DriverPool> = Registry::new();

/// A pool of the driver.
#[derive(Debug)]
pub struct DriverPool {
    driver: Arc<dyn Driver>,
    /// The device of its memory, or the device in whose context calls are made.
    device: DeviceId,
    kind: Kind,
    /// The location of its memory; `None` for managed memory without a preferred location.
    place: Option<Place>,
    handle: PoolHandle,
    owned: bool,
    ipc: bool,
    mapped: bool,
    /// Locked for reading while the pool is used, for writing to end it.
    status: RwLock<Status>,
    /// The number of live blocks.
    live: AtomicI64,
    shared: Mutex<Shared>,
    pointers: Pointers,
}

/// Whether a pool can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Open,
    /// No longer allocates, but not destroyed yet: CUDA allows destroying a pool with live blocks, but programs that
    /// did so crashed in a later synchronization (driver 580).
    Closed,
    /// Destroyed.
    Ended,
}

/// The handles for sharing the pool.
#[derive(Debug, Default)]
struct Shared {
    /// The pool's file descriptor, created on first use.
    fd: Option<OwnedFd>,
    /// The uuid that names a shared pool in all processes.
    uuid: Option<Uuid>,
}

impl DriverPool {
    fn closed(&self) -> Error {
        Error::Closed(format!("the {:?} resource of device {} was closed", self.kind, self.device).into())
    }

    /// The device in whose context a call with `stream` is made: a pool serves the streams of every device that has
    /// access.
    fn home_of(&self, stream: StreamHandle) -> DeviceId {
        device_of_stream(self.driver.as_ref(), self.device, stream)
    }

    /// Calls `work` with the pool, which is not destroyed during the call.
    fn open<T>(&self, work: impl FnOnce(PoolHandle) -> driver::Result<T>) -> Result<T> {
        let status = self.status.read();
        if *status != Status::Open {
            return Err(self.closed());
        }
        Ok(work(self.handle)?)
    }

    /// Calls `work`, which allocates a block, and counts the block.
    fn allocate_by(&self, work: impl FnOnce(PoolHandle) -> driver::Result<Address>) -> Result<Address> {
        self.open(|pool| {
            let at = work(pool)?;
            self.live.fetch_add(1, Ordering::Relaxed);
            Ok(at)
        })
    }

    /// Destroys a closed pool.
    fn end(&self, status: &mut Status) -> driver::Result<()> {
        self.driver.pool_destroy(self.device, self.handle)?;
        *status = Status::Ended;
        Ok(())
    }
}

impl MemoryResource for DriverPool {
    fn info(&self) -> Info {
        let Reach { device, by_host, managed, .. } = self.reach();
        Info {
            device_id: device,
            numa_id: if let (Kind::Pinned, Some(Place::HostNuma(node))) = (self.kind, self.place) {
                Some(node)
            } else {
                None
            },
            is_handle_owned: self.owned,
            is_host_accessible: by_host,
            is_managed: managed,
            is_ipc_enabled: self.ipc,
            is_mapped: self.mapped,
            is_closed: *self.status.read() != Status::Open,
            uuid: self.shared.lock().uuid,
            handle: self.handle.0,
            preferred: if managed { self.place } else { None },
            ..Info::new(self.kind)
        }
    }

    fn reach(&self) -> Reach {
        let device = if let Some(Place::Device(device)) = self.place { Some(device) } else { None };
        Reach { device, by_device: true, by_host: self.kind != Kind::Device, managed: self.kind == Kind::Managed }
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    fn pointers(&self) -> &Pointers {
        &self.pointers
    }

    fn context(&self) -> DeviceId {
        self.device
    }

    fn allocate(&self, bytes: u64, stream: StreamHandle) -> Result<Address> {
        check_bytes(bytes)?;
        if self.mapped {
            return Err(Error::NotPermitted(
                "the resource is a mapped pool of another process: only that process can allocate from it".into(),
            ));
        }
        let result = match bytes {
            0 => self.open(|_| Ok(Address(0))),
            _ => self.allocate_by(|pool| self.driver.pool_allocate(self.home_of(stream), pool, bytes, stream)),
        };
        match result {
            Err(Error::Driver(error)) if error.kind == ErrorKind::OutOfMemory => {
                Err(Error::OutOfMemory(self.report(bytes, &error).into()))
            }
            other => other,
        }
    }

    fn deallocate(&self, at: Address, _bytes: u64, stream: StreamHandle) -> Result<()> {
        if at.0 == 0 {
            return Ok(());
        }
        // Also after the pool was closed: freeing its last block destroys it.
        self.driver.pool_free(self.home_of(stream), at, stream)?;
        if self.live.fetch_sub(1, Ordering::AcqRel) == 1 && *self.status.read() == Status::Closed {
            let mut status = self.status.write();
            if *status == Status::Closed
                && let Err(error) = self.end(&mut status)
            {
                tracing::warn!(device = %self.device, %error, "a driver pool could not be destroyed yet; it is tried again when the resource is dropped");
            }
        }
        Ok(())
    }

    fn close(&self) -> Result<()> {
        if !self.owned {
            return Ok(());
        }
        let mut status = self.status.write();
        if *status != Status::Open {
            return Ok(());
        }
        if self.live.load(Ordering::Acquire) > 0 {
            *status = Status::Closed;
        } else {
            self.end(&mut status)?;
        }
        let mut shared = self.shared.lock();
        shared.fd = None;
        if let Some(uuid) = shared.uuid.filter(|_| self.mapped) {
            // The registry must not find a closed pool.
            MAPPED.remove(uuid, self);
        }
        Ok(())
    }

    fn attribute(&self, attribute: PoolAttribute) -> Result<u64> {
        self.open(|pool| self.driver.pool_attribute(self.device, pool, attribute))
    }

    fn set_attribute(&self, attribute: PoolAttribute, value: u64) -> Result<()> {
        let (fits, takes) = match attribute {
            PoolAttribute::ReuseFollowEventDependencies
            | PoolAttribute::ReuseAllowOpportunistic
            | PoolAttribute::ReuseAllowInternalDependencies => (value <= 1, "it takes 0 or 1"),
            PoolAttribute::ReleaseThreshold => (true, ""),
            PoolAttribute::ReservedHigh | PoolAttribute::UsedHigh => (value == 0, "it takes 0 only"),
            PoolAttribute::ReservedCurrent | PoolAttribute::UsedCurrent => (false, "it is read-only"),
        };
        if !fits {
            return Err(Error::invalid(format_args!("{attribute:?} cannot be set to {value}: {takes}")));
        }
        self.open(|pool| self.driver.pool_set_attribute(self.device, pool, attribute, value))
    }

    fn peer_access(&self, peer: DeviceId) -> Result<Access> {
        let peer = check_device(self.driver.as_ref(), peer.0 as i32)?;
        self.open(|pool| self.driver.pool_access(self.device, pool, Place::Device(peer)))
    }

    fn set_peer_access(&self, peer: DeviceId, access: Access) -> Result<()> {
        let peer = check_device(self.driver.as_ref(), peer.0 as i32)?;
        if self.place == Some(Place::Device(peer)) {
            if access == Access::ReadWrite {
                return Ok(());
            }
            return Err(Error::invalid(format_args!("device {peer} cannot lose access to its own pool")));
        }
        if let Some(Place::Device(device)) = self.place
            && !self.driver.can_access_peer(device, peer)?
        {
            let why = format!("device {peer} cannot reach memory of device {device}");
            return Err(Error::Unsupported(why.into()));
        }
        self.open(|pool| self.driver.pool_set_access(self.device, pool, Place::Device(peer), access))
    }

    fn trim(&self, keep: u64) -> Result<()> {
        self.open(|pool| self.driver.pool_trim(self.device, pool, keep))
    }
}

impl DriverPool {
    fn report(&self, bytes: u64, error: &driver::DriverError) -> String {
        let figure = |attribute| self.attribute(attribute).map_or("?".to_owned(), |bytes| bytes.to_string());
        format!(
            "the {:?} pool of device {} has no {bytes} bytes more ({error}); it holds {}, of which {} are in use: free \
             buffers, raise max_size, or end other programs on the device",
            self.kind,
            self.device,
            figure(PoolAttribute::ReservedCurrent),
            figure(PoolAttribute::UsedCurrent)
        )
    }
}

impl Drop for DriverPool {
    fn drop(&mut self) {
        if driver::process::is_forked() {
            return;
        }
        // Nothing retries these calls later, so each is tried twice. Blocks still live are pointers that were never
        // freed.
        let ended = self.close().or_else(|_| self.close()).and_then(|()| {
            let mut status = *self.status.get_mut();
            match status {
                Status::Closed => Ok(self.end(&mut status).or_else(|_| self.end(&mut status))?),
                Status::Open | Status::Ended => Ok(()),
            }
        });
        if let Err(error) = ended {
            tracing::warn!(device = %self.device, %error, "a driver pool could not be destroyed and leaks");
        }
    }
}
