//! Memory that is not stream-ordered: page-locked host memory (`cuMemHostAlloc`) and managed memory
//! (`cuMemAllocManaged`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::memory_resource::{
    Info, Kind, MemoryResource, check_bytes, check_device, device_of_stream, device_or_current,
};
use super::pointers::Pointers;
use crate::driver::{Access, Driver, HostFlags};
use crate::error::{Error, Result};
use crate::units::{Address, DeviceId, StreamHandle};

/// The kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// Page-locked host memory.
    Host(HostFlags),
    /// Managed memory.
    Managed,
}

/// A resource that makes a driver call for each allocation. Memory is usable at once. Freeing waits on the host for its
/// stream, and the driver waits for the whole device, so neither belongs on a hot path.
#[derive(Debug)]
pub struct HostResource {
    driver: Arc<dyn Driver>,
    device: DeviceId,
    kind: HostKind,
    closed: AtomicBool,
    pointers: Pointers,
}

impl HostResource {
    /// A resource whose calls are made in the context of `device`, or of the current device.
    ///
    /// # Errors
    /// [`Error::BadDevice`], [`Error::Unsupported`] if the device has no managed memory.
    pub fn new(driver: Arc<dyn Driver>, device: Option<i32>, kind: HostKind) -> Result<Self> {
        let device = device_or_current(driver.as_ref(), device)?;
        if kind == HostKind::Managed && !driver.capabilities(device)?.managed {
            return Err(Error::Unsupported(format!("device {device} has no managed memory").into()));
        }
        Ok(Self { driver, device, kind, closed: AtomicBool::new(false), pointers: Pointers::default() })
    }
}

impl MemoryResource for HostResource {
    fn info(&self) -> Info {
        let info = Info {
            is_handle_owned: true,
            is_host_accessible: true,
            is_closed: self.closed.load(Ordering::Acquire),
            ..Info::new(Kind::Host)
        };
        match self.kind {
            HostKind::Host(flags) => Info { is_device_accessible: flags.mapped, ..info },
            HostKind::Managed => Info { kind: Kind::Managed, is_managed: true, ..info },
        }
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

    fn allocate(&self, bytes: u64, _stream: StreamHandle) -> Result<Address> {
        check_bytes(bytes)?;
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed("the resource is closed: it no longer allocates".into()));
        }
        if bytes == 0 {
            return Ok(Address(0));
        }
        let at = match self.kind {
            HostKind::Host(flags) => self.driver.host_allocate(self.device, bytes, flags),
            HostKind::Managed => self.driver.managed_allocate(self.device, bytes),
        };
        Ok(at?)
    }

    fn deallocate(&self, at: Address, _bytes: u64, stream: StreamHandle) -> Result<()> {
        if at.0 == 0 {
            return Ok(());
        }
        self.driver.stream_synchronize(device_of_stream(self.driver.as_ref(), self.device, stream), stream)?;
        match self.kind {
            HostKind::Host(_) => self.driver.host_free(self.device, at)?,
            HostKind::Managed => self.driver.free(self.device, at)?,
        }
        Ok(())
    }

    fn close(&self) -> Result<()> {
        self.closed.store(true, Ordering::Release);
        Ok(())
    }

    fn peer_access(&self, peer: DeviceId) -> Result<Access> {
        check_device(self.driver.as_ref(), peer.0 as i32)?;
        let shared = match self.kind {
            HostKind::Host(flags) => flags.mapped && (flags.portable || peer == self.device),
            HostKind::Managed => true,
        };
        Ok(if shared { Access::ReadWrite } else { Access::None })
    }

    fn set_peer_access(&self, peer: DeviceId, access: Access) -> Result<()> {
        if self.peer_access(peer)? == access {
            return Ok(());
        }
        Err(Error::Unsupported("access to page-locked or managed memory is fixed when it is allocated".into()))
    }
}
