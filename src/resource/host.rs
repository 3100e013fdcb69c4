//! Memory without streams: page-locked host memory (`cuMemHostAlloc`) and managed memory (`cuMemAllocManaged`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::memory_resource::{
    Info, Kind, MemoryResource, check_bytes, check_device, device_of_stream, device_or_current,
};
use super::pointers::Pointers;
use crate::driver::{Access, Driver, HostFlags};
use crate::error::{Error, Result};
use crate::units::{Address, DeviceId, StreamHandle};

/// What is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// Page-locked host memory.
    Host(HostFlags),
    /// Managed memory.
    Managed,
}

/// Each allocation is the driver's own. An allocation is usable at once; giving one back waits for its stream, and the
/// driver waits for the whole device: none of it belongs on a hot path.
#[derive(Debug)]
pub struct HostResource {
    driver: Arc<dyn Driver>,
    device: DeviceId,
    plain: HostKind,
    closed: AtomicBool,
    pointers: Pointers,
}

impl HostResource {
    /// errors: [`Error::BadDevice`], [`Error::Unsupported`] where the device has no managed memory.
    /// Without a device, in the current one's context.
    pub fn new(driver: Arc<dyn Driver>, device: Option<i32>, plain: HostKind) -> Result<Self> {
        let device = device_or_current(driver.as_ref(), device)?;
        if plain == HostKind::Managed && !driver.capabilities(device)?.managed {
            return Err(Error::Unsupported(format!("device {device} has no managed memory").into()));
        }
        Ok(Self { driver, device, plain, closed: AtomicBool::new(false), pointers: Pointers::default() })
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
        match self.plain {
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
            return Err(Error::Closed("the resource was closed: nothing can be allocated from it".into()));
        }
        if bytes == 0 {
            return Ok(Address(0));
        }
        let at = match self.plain {
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
        match self.plain {
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
        let shared = match self.plain {
            HostKind::Host(flags) => flags.mapped && (flags.portable || peer == self.device),
            HostKind::Managed => true,
        };
        Ok(if shared { Access::ReadWrite } else { Access::None })
    }

    fn set_peer_access(&self, peer: DeviceId, access: Access) -> Result<()> {
        if self.peer_access(peer)? == access {
            return Ok(());
        }
        Err(Error::Unsupported("who may use page-locked or managed memory is settled when it is allocated".into()))
    }
}
