//! The driver's own stream-ordered pools (`cuMemPool*`) as memory resources: of a device, of pinned host memory, of
//! managed memory.
//!
//! `create` says which pool a resource stands for, `ipc` shares pools between processes.

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
    /// Whose memory it is, or in whose context its calls are made.
    device: DeviceId,
    kind: Kind,
    /// Where its memory lies; `None` for managed memory without a preference.
    place: Option<Place>,
    handle: PoolHandle,
    owned: bool,
    ipc: bool,
    mapped: bool,
    /// Read while the pool is used, written to end it.
    standing: RwLock<Standing>,
    /// Blocks that were given out and are not back.
    live: AtomicI64,
    shared: Mutex<Shared>,
    pointers: Pointers,
}

/// Whether a pool can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Open,
    /// Nothing is given out any more. The driver still has it: CUDA allows ending a pool that has live blocks, but
    /// programs that did so crashed inside a later synchronise (driver 580).
    Closed,
    /// The driver has it no more.
    Ended,
}

/// What sharing the pool takes.
#[derive(Debug, Default)]
struct Shared {
    /// The pool's descriptor, made when first asked for.
    fd: Option<OwnedFd>,
    /// The pool's name among processes, where it is shared.
    uuid: Option<Uuid>,
}

impl DriverPool {
    fn closed(&self) -> Error {
        Error::Closed(format!("the {:?} resource of device {} was closed", self.kind, self.device).into())
    }

    /// In whose context a call with that stream is made: a pool serves the streams of every device that may use its memory.
    fn home_of(&self, stream: StreamHandle) -> DeviceId {
        device_of_stream(self.driver.as_ref(), self.device, stream)
    }

    /// Calls `work` with the pool, which nobody ends meanwhile.
    fn open<T>(&self, work: impl FnOnce(PoolHandle) -> driver::Result<T>) -> Result<T> {
        let standing = self.standing.read();
        if *standing != Standing::Open {
            return Err(self.closed());
        }
        Ok(work(self.handle)?)
    }

    /// Calls `work`, which gives out a block.
    fn give_out(&self, work: impl FnOnce(PoolHandle) -> driver::Result<Address>) -> Result<Address> {
        self.open(|pool| {
            let at = work(pool)?;
            self.live.fetch_add(1, Ordering::Relaxed);
            Ok(at)
        })
    }

    /// Has the driver end a closed pool.
    fn end(&self, standing: &mut Standing) -> driver::Result<()> {
        self.driver.pool_destroy(self.device, self.handle)?;
        *standing = Standing::Ended;
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
            is_closed: *self.standing.read() != Standing::Open,
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
                "the resource is another process's pool, mapped here: only that process can allocate from it".into(),
            ));
        }
        let result = match bytes {
            0 => self.open(|_| Ok(Address(0))),
            _ => self.give_out(|pool| self.driver.pool_allocate(self.home_of(stream), pool, bytes, stream)),
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
        // Also after the pool was closed: the last block that comes back ends it.
        self.driver.pool_free(self.home_of(stream), at, stream)?;
        if self.live.fetch_sub(1, Ordering::AcqRel) == 1 && *self.standing.read() == Standing::Closed {
            let mut standing = self.standing.write();
            if *standing == Standing::Closed
                && let Err(error) = self.end(&mut standing)
            {
                tracing::warn!(device = %self.device, %error, "a pool of the driver is ended later");
            }
        }
        Ok(())
    }

    fn close(&self) -> Result<()> {
        if !self.owned {
            return Ok(());
        }
        let mut standing = self.standing.write();
        if *standing != Standing::Open {
            return Ok(());
        }
        if self.live.load(Ordering::Acquire) > 0 {
            *standing = Standing::Closed;
        } else {
            self.end(&mut standing)?;
        }
        let mut shared = self.shared.lock();
        shared.fd = None;
        if let Some(uuid) = shared.uuid.filter(|_| self.mapped) {
            // Nobody is to find a closed pool.
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
            PoolAttribute::ReservedHigh | PoolAttribute::UsedHigh => (value == 0, "it can be set to 0 only"),
            PoolAttribute::ReservedCurrent | PoolAttribute::UsedCurrent => (false, "it can only be read"),
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
        // Nobody comes again, so each gets a second chance. What is still live is a pointer that nobody gave back.
        let ended = self.close().or_else(|_| self.close()).and_then(|()| {
            let mut standing = *self.standing.get_mut();
            match standing {
                Standing::Closed => Ok(self.end(&mut standing).or_else(|_| self.end(&mut standing))?),
                Standing::Open | Standing::Ended => Ok(()),
            }
        });
        if let Err(error) = ended {
            tracing::warn!(device = %self.device, %error, "a pool of the driver could not be ended");
        }
    }
}
