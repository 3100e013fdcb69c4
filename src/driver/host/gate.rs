//! What every call passes first: the counters, the faults, the features that are switched off.

use super::fault::{Call, Faults};
use super::ledger::Books;
use super::options::HostOptions;
use crate::driver::Result;
use crate::units::DeviceId;

/// What the driver's devices have, and what was asked of them.
pub(super) struct Gate {
    pub(super) options: HostOptions,
    pub(super) faults: Faults,
    pub(super) books: Books,
}

impl Gate {
    pub(super) fn new(options: HostOptions) -> Self {
        Self { options, faults: Faults::new(), books: Books::default() }
    }

    /// Counts a call and refuses it where a fault is due, the device unknown or the feature missing.
    pub(super) fn enter(&self, call: Call, device: DeviceId) -> Result<()> {
        self.books.count();
        self.faults.enter(call)?;
        self.known(call, device)?;
        if self.lacks(call) {
            return Err(call.unsupported("switched off in HostOptions"));
        }
        Ok(())
    }

    fn lacks(&self, call: Call) -> bool {
        use Call as C;
        let options = &self.options;
        match call {
            C::Reserve | C::Unreserve | C::Create | C::Release | C::Map | C::Grant | C::Unmap => !options.vmm,
            C::Granularity | C::ReserveAt | C::CreateWith | C::GrantAccess => !options.vmm,
            C::ExportFd | C::ImportFd => !options.vmm || !options.posix_fd,
            C::ExportFabric | C::ImportFabric => !options.vmm || !options.fabric,
            C::StreamIdentity => !options.stream_identity,
            C::EventRecordAll => !options.device_events,
            C::ManagedAllocate => !options.managed,
            C::IpcExport | C::IpcOpen | C::IpcClose => !options.legacy_ipc,
            C::PoolExportFd | C::PoolImportFd | C::PoolExportPointer | C::PoolImportPointer => {
                !options.driver_pools || !options.pool_fd
            }
            C::TrimDriverPools | C::PoolDefault | C::PoolCurrent | C::PoolCreate | C::PoolDestroy => {
                !options.driver_pools
            }
            C::PoolAttribute | C::PoolSetAttribute | C::PoolAccess | C::PoolSetAccess => !options.driver_pools,
            C::PoolTrim | C::PoolAllocate | C::PoolFree => !options.driver_pools,
            _ => false,
        }
    }

    /// Refuses a device that there is not.
    pub(super) fn known(&self, call: Call, device: DeviceId) -> Result<()> {
        if device.0 < self.options.devices {
            return Ok(());
        }
        Err(call.invalid(format!("device {device} of {}", self.options.devices)))
    }
}
