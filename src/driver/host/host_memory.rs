//! Page-locked and managed memory, and properties of pointers.
//!
//! No memory is really page-locked. The tables alone record it, which is enough to detect a caller's mistakes.

use super::HostDriver;
use super::blocks::Kind;
use super::fault::Call;
use super::memory::Memory;
use crate::driver::{HostFlags, HostMemory, Place, PointerInfo, PointerKind, Result};
use crate::units::{Address, DeviceId};

fn is_pinned(memory: &Memory, at: Address) -> bool {
    let pinned = memory.blocks.around(at.0).is_some_and(|(_, block)| matches!(block.kind, Kind::Pinned));
    pinned || memory.registrations.around(at.0).is_some()
}

fn pointer(memory: &Memory, legacy_ipc: bool, at: Address) -> PointerInfo {
    let info = |place: Place, (start, bytes)| PointerInfo {
        kind: if place.is_host() { PointerKind::Host } else { PointerKind::Device },
        device: if let Place::Device(device) = place { Some(device) } else { None },
        range: Some((Address(start), bytes)),
        legacy_ipc: false,
    };
    if let Some((start, block)) = memory.blocks.around(at.0) {
        let range = (start, block.bytes);
        return match block.kind {
            Kind::Plain { device, .. } => PointerInfo { legacy_ipc, ..info(Place::Device(device), range) },
            Kind::Opened { device } => info(Place::Device(device), range),
            Kind::Pinned => info(Place::Host, range),
            Kind::Managed => PointerInfo { kind: PointerKind::Managed, ..info(Place::Host, range) },
            Kind::Pooled { .. } => match memory.pools.owner(block).map(|pool| pool.options) {
                Some(pool) if !pool.managed => info(pool.place.unwrap_or(Place::Host), range),
                _ => PointerInfo { kind: PointerKind::Managed, ..info(Place::Host, range) },
            },
        };
    }
    if let Some((place, range)) = memory.space.mapped_at(at.0) {
        return info(place, range);
    }
    match memory.registrations.around(at.0) {
        Some(range) => info(Place::Host, range),
        None => PointerInfo { kind: PointerKind::Unknown, device: None, range: None, legacy_ipc: false },
    }
}

impl HostMemory for HostDriver {
    fn host_allocate(&self, device: DeviceId, bytes: u64, _flags: HostFlags) -> Result<Address> {
        self.gate.enter(Call::HostAllocate, device)?;
        let Memory { places, blocks, .. } = &mut *self.memory.write();
        let at = blocks.allocate_on_host(places, Call::HostAllocate, bytes, Kind::Pinned)?;
        self.gate.totals.charge(Call::HostAllocate, bytes);
        Ok(at)
    }

    fn host_free(&self, device: DeviceId, at: Address) -> Result<()> {
        self.gate.enter(Call::HostFree, device)?;
        self.memory.read().blocks.pinned(Call::HostFree, at)?;
        self.queues.drain(Call::HostFree)?;
        let Memory { places, blocks, .. } = &mut *self.memory.write();
        let bytes = blocks.free_pinned(places, at)?;
        self.gate.totals.charge(Call::HostFree, bytes);
        Ok(())
    }

    fn host_register(&self, device: DeviceId, at: Address, bytes: u64, flags: HostFlags) -> Result<()> {
        self.gate.enter(Call::HostRegister, device)?;
        let Memory { registrations, space, blocks, .. } = &mut *self.memory.write();
        registrations.add(at, bytes, flags, space, blocks)?;
        self.gate.totals.charge(Call::HostRegister, bytes);
        Ok(())
    }

    fn host_unregister(&self, device: DeviceId, at: Address) -> Result<()> {
        self.gate.enter(Call::HostUnregister, device)?;
        self.memory.write().registrations.remove(at)
    }

    /// The same address on every device, as with CUDA's unified addressing.
    fn host_device_address(&self, device: DeviceId, at: Address) -> Result<Address> {
        self.gate.enter(Call::HostDeviceAddress, device)?;
        if is_pinned(&self.memory.read(), at) {
            return Ok(at);
        }
        Err(Call::HostDeviceAddress.invalid(format!("{at} is neither page-locked nor registered memory")))
    }

    fn managed_allocate(&self, device: DeviceId, bytes: u64) -> Result<Address> {
        self.gate.enter(Call::ManagedAllocate, device)?;
        let Memory { places, blocks, .. } = &mut *self.memory.write();
        blocks.allocate_on_host(places, Call::ManagedAllocate, bytes, Kind::Managed)
    }

    fn pointer(&self, device: DeviceId, at: Address) -> Result<PointerInfo> {
        self.gate.enter(Call::Pointer, device)?;
        Ok(pointer(&self.memory.read(), self.gate.options.legacy_ipc, at))
    }
}
