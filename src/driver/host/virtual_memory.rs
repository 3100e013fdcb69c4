//! Virtual memory with all its options.

use super::HostDriver;
use super::fault::Call;
use crate::driver::{Access, Physical, PhysicalOptions, Place, Result, Share, VirtualMemory};
use crate::units::{Address, DeviceId};

impl HostDriver {
    /// Whether there can be physical memory of this kind.
    fn check_kind(&self, call: Call, options: &PhysicalOptions) -> Result<()> {
        self.memory.read().check_place(call, options.place)?;
        if options.place == Place::Host {
            return Err(call.unsupported("physical memory of the host lies on a NUMA node: name one"));
        }
        let lacks = match options.share {
            Share::None => false,
            Share::Fd => !self.options.posix_fd,
            Share::Fabric => !self.options.fabric,
        };
        if lacks {
            return Err(call.unsupported(format!("no memory can be shared as {:?}", options.share)));
        }
        if options.rdma && !self.options.rdma {
            return Err(call.unsupported("no memory can be reached by network cards"));
        }
        Ok(())
    }
}

impl VirtualMemory for HostDriver {
    fn granularity(&self, device: DeviceId, options: &PhysicalOptions, _recommended: bool) -> Result<u64> {
        self.enter(Call::Granularity, device)?;
        self.check_kind(Call::Granularity, options)?;
        Ok(self.options.granularity)
    }

    fn reserve_at(&self, device: DeviceId, bytes: u64, alignment: u64, hint: Address) -> Result<Address> {
        self.enter(Call::ReserveAt, device)?;
        self.memory.write().reserve(Call::ReserveAt, device, bytes, alignment, hint)
    }

    fn create_with(&self, device: DeviceId, bytes: u64, options: &PhysicalOptions) -> Result<Physical> {
        self.enter(Call::CreateWith, device)?;
        self.check_kind(Call::CreateWith, options)?;
        let physical = self.memory.write().create(Call::CreateWith, bytes, options)?;
        self.books.charge_at(Call::CreateWith, options.place, bytes);
        Ok(physical)
    }

    fn grant_access(&self, device: DeviceId, at: Address, bytes: u64, access: &[(Place, Access)]) -> Result<()> {
        self.enter(Call::GrantAccess, device)?;
        let handles = self.memory.write().grant(Call::GrantAccess, at, bytes, access)?;
        // The price was measured to be per handle and per device.
        for (place, bytes) in handles {
            access.iter().for_each(|_| self.books.charge_at(Call::GrantAccess, place, bytes));
        }
        Ok(())
    }

    fn can_access_peer(&self, device: DeviceId, peer: DeviceId) -> Result<bool> {
        self.enter(Call::CanAccessPeer, device)?;
        self.known(Call::CanAccessPeer, peer)?;
        Ok(true)
    }
}
