//! Virtual memory with all options.

use super::HostDriver;
use super::fault::Call;
use super::memory::Memory;
use crate::driver::{Access, Physical, PhysicalOptions, Place, Result, Share, VirtualMemory};
use crate::units::{Address, DeviceId};

impl HostDriver {
    /// Checks that physical memory with these options is possible.
    fn check_kind(&self, call: Call, options: &PhysicalOptions) -> Result<()> {
        self.memory.read().places.check(call, options.place)?;
        if options.place == Place::Host {
            return Err(call.unsupported("physical memory of the host lies on a NUMA node: name one"));
        }
        let lacks = match options.share {
            Share::None => false,
            Share::Fd => !self.gate.options.posix_fd,
            Share::Fabric => !self.gate.options.fabric,
        };
        if lacks {
            return Err(call.unsupported(format!("no memory can be shared as {:?}", options.share)));
        }
        if options.rdma && !self.gate.options.rdma {
            return Err(call.unsupported("no memory can be reached by network cards"));
        }
        Ok(())
    }
}

impl VirtualMemory for HostDriver {
    fn granularity(&self, device: DeviceId, options: &PhysicalOptions, _recommended: bool) -> Result<u64> {
        self.gate.enter(Call::Granularity, device)?;
        self.check_kind(Call::Granularity, options)?;
        Ok(self.gate.options.granularity)
    }

    fn reserve_at(&self, device: DeviceId, bytes: u64, alignment: u64, hint: Address) -> Result<Address> {
        self.gate.enter(Call::ReserveAt, device)?;
        self.memory.write().space.reserve(Call::ReserveAt, device, bytes, alignment, hint)
    }

    fn create_with(&self, device: DeviceId, bytes: u64, options: &PhysicalOptions) -> Result<Physical> {
        self.gate.enter(Call::CreateWith, device)?;
        self.check_kind(Call::CreateWith, options)?;
        let Memory { places, space, .. } = &mut *self.memory.write();
        let physical = space.create(places, Call::CreateWith, bytes, options)?;
        self.gate.totals.charge_at(Call::CreateWith, options.place, bytes);
        Ok(physical)
    }

    fn grant_access(&self, device: DeviceId, at: Address, bytes: u64, access: &[(Place, Access)]) -> Result<()> {
        self.gate.enter(Call::GrantAccess, device)?;
        let Memory { places, space, .. } = &mut *self.memory.write();
        let handles = space.grant(places, Call::GrantAccess, at, bytes, access)?;
        // The price was measured to be per handle and per device.
        for (place, bytes) in handles {
            access.iter().for_each(|_| self.gate.totals.charge_at(Call::GrantAccess, place, bytes));
        }
        Ok(())
    }

    fn can_access_peer(&self, device: DeviceId, peer: DeviceId) -> Result<bool> {
        self.gate.enter(Call::CanAccessPeer, device)?;
        self.gate.known(Call::CanAccessPeer, peer)?;
        Ok(true)
    }
}
