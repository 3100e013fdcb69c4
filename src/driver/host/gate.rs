//! The checks at the start of every call: counters, faults and disabled features.

use super::fault::{Call, Faults};
use super::ledger::Totals;
use super::options::HostOptions;
use crate::driver::Result;
use crate::units::DeviceId;

/// The devices' options, and the counters of calls.
pub(super) struct Gate {
    pub(super) options: HostOptions,
    pub(super) faults: Faults,
    pub(super) totals: Totals,
}

impl Gate {
    pub(super) fn new(options: HostOptions) -> Self {
        Self { options, faults: Faults::new(), totals: Totals::default() }
    }

    /// Counts a call, and refuses it if a fault is planned, the device is unknown or the feature is disabled.
    pub(super) fn enter(&self, call: Call, device: DeviceId) -> Result<()> {
        self.totals.count();
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

    /// Refuses an unknown device.
    pub(super) fn known(&self, call: Call, device: DeviceId) -> Result<()> {
        if device.0 < self.options.devices {
            return Ok(());
        }
        Err(call.invalid(format!("device {device} of {}", self.options.devices)))
    }
}
