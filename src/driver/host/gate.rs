//! What every call passes first: the counters, the faults, the features that are switched off.

use super::HostDriver;
use super::fault::Call;
use crate::driver::Result;
use crate::units::{Address, DeviceId};

impl HostDriver {
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

    pub(super) fn known(&self, call: Call, device: DeviceId) -> Result<()> {
        if device.0 < self.options.devices {
            return Ok(());
        }
        Err(call.invalid(format!("device {device} of {}", self.options.devices)))
    }

    /// Refuses work on memory that `device` may not touch, or that was given to a pool's free: whatever runs behind
    /// the free would be too late, and whatever runs before it should have been queued before.
    pub(super) fn check_access(
        &self,
        call: Call,
        device: DeviceId,
        at: Address,
        bytes: u64,
        write: bool,
    ) -> Result<()> {
        let memory = self.memory.read();
        if memory.is_being_freed(at.0) {
            return Err(call.invalid(format!("{at} lies in an allocation that was freed")));
        }
        memory.check_access(device, at.0, bytes, write).map_err(|why| call.invalid(why))
    }
}
