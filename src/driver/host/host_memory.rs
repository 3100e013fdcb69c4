//! Page-locked and managed memory, and what is known of a pointer.
//!
//! All of the host's memory can be paged in or out as the system likes: nothing is really locked. What counts is what
//! the books say, since that is what a caller can get wrong.

use super::HostDriver;
use super::blocks::Kind;
use super::fault::Call;
use super::memory::{Memory, page_size};
use crate::driver::{HostFlags, HostMemory, Place, PointerInfo, PointerKind, Result};
use crate::units::{Address, DeviceId};

/// Memory of the program that is page-locked.
pub(super) struct Registration {
    pub(super) bytes: u64,
}

impl Memory {
    fn register(&mut self, at: Address, bytes: u64, flags: HostFlags) -> Result<()> {
        let call = Call::HostRegister;
        let end = at.0.checked_add(bytes).filter(|_| at.0 != 0 && bytes > 0);
        let end = end.ok_or_else(|| call.invalid(format!("{at}+{bytes} is no range of memory")))?;
        if flags.write_combined {
            return Err(call.invalid("memory that exists cannot become write-combined"));
        }
        if let Some((start, bytes)) = self.registered(end - 1).or_else(|| self.registration_before(end, at.0)) {
            return Err(call.invalid(format!("{at} is registered already, in {start:#x}+{bytes}")));
        }
        let reserved = self.reservations.range(..end).next_back().is_some_and(|(start, r)| start + r.bytes > at.0);
        if reserved || self.zone.touches(at.0, end) {
            return Err(call.invalid(format!("{at}+{bytes} is the driver's own memory")));
        }
        let page = page_size();
        let (first, last) = (at.0 & !(page - 1), (end - 1) | (page - 1));
        // SAFETY: changes nothing of the memory; the kernel says whether all of it is mapped.
        if unsafe { libc::msync(first as *mut libc::c_void, (last - first) as usize, libc::MS_ASYNC) } != 0 {
            return Err(call.invalid(format!("{at}+{bytes} is not all mapped in this process")));
        }
        self.registrations.insert(at.0, Registration { bytes });
        Ok(())
    }

    /// A registration that begins in `from..end`, or reaches into it.
    fn registration_before(&self, end: u64, from: u64) -> Option<(u64, u64)> {
        let (&start, found) = self.registrations.range(..end).next_back()?;
        (start + found.bytes > from).then_some((start, found.bytes))
    }

    /// The registration that holds `at`.
    fn registered(&self, at: u64) -> Option<(u64, u64)> {
        self.registration_before(at.checked_add(1)?, at)
    }

    fn unregister(&mut self, at: Address) -> Result<()> {
        self.registrations
            .remove(&at.0)
            .map(|_| ())
            .ok_or_else(|| Call::HostUnregister.invalid(format!("{at} is not the start of registered memory")))
    }

    fn is_pinned(&self, at: Address) -> bool {
        let pinned = self.block_at(at.0).is_some_and(|(_, block)| matches!(block.kind, Kind::Pinned));
        pinned || self.registered(at.0).is_some()
    }

    fn pointer(&self, at: Address) -> PointerInfo {
        let info = |place: Place, (start, bytes)| PointerInfo {
            kind: if place.is_host() { PointerKind::Host } else { PointerKind::Device },
            device: if let Place::Device(device) = place { Some(device) } else { None },
            range: Some((Address(start), bytes)),
            legacy_ipc: false,
        };
        if let Some((start, block)) = self.block_at(at.0) {
            let range = (start, block.bytes);
            return match block.kind {
                Kind::Plain { device, .. } => {
                    PointerInfo { legacy_ipc: self.options.legacy_ipc, ..info(Place::Device(device), range) }
                }
                Kind::Opened { device } => info(Place::Device(device), range),
                Kind::Pinned => info(Place::Host, range),
                Kind::Managed => PointerInfo { kind: PointerKind::Managed, ..info(Place::Host, range) },
                Kind::Pooled { .. } => match self.pool_of(block).map(|pool| pool.options) {
                    Some(pool) if !pool.managed => info(pool.place.unwrap_or(Place::Host), range),
                    _ => PointerInfo { kind: PointerKind::Managed, ..info(Place::Host, range) },
                },
            };
        }
        if let Some((start, mapping)) = self.mapping_at(at.0) {
            let place = self.ranges.get(&mapping.range).map_or(Place::Host, |range| range.place);
            return info(place, (start, mapping.bytes));
        }
        match self.registered(at.0) {
            Some(range) => info(Place::Host, range),
            None => PointerInfo { kind: PointerKind::Unknown, device: None, range: None, legacy_ipc: false },
        }
    }
}

impl HostMemory for HostDriver {
    fn host_allocate(&self, device: DeviceId, bytes: u64, _flags: HostFlags) -> Result<Address> {
        self.enter(Call::HostAllocate, device)?;
        let at = self.memory.write().allocate_on_host(Call::HostAllocate, bytes, Kind::Pinned)?;
        self.books.charge(Call::HostAllocate, bytes);
        Ok(at)
    }

    fn host_free(&self, device: DeviceId, at: Address) -> Result<()> {
        self.enter(Call::HostFree, device)?;
        self.memory.read().pinned(Call::HostFree, at)?;
        self.drain(Call::HostFree)?;
        let bytes = self.memory.write().free_pinned(at)?;
        self.books.charge(Call::HostFree, bytes);
        Ok(())
    }

    fn host_register(&self, device: DeviceId, at: Address, bytes: u64, flags: HostFlags) -> Result<()> {
        self.enter(Call::HostRegister, device)?;
        self.memory.write().register(at, bytes, flags)?;
        self.books.charge(Call::HostRegister, bytes);
        Ok(())
    }

    fn host_unregister(&self, device: DeviceId, at: Address) -> Result<()> {
        self.enter(Call::HostUnregister, device)?;
        self.memory.write().unregister(at)
    }

    /// One address for all, as wherever CUDA has unified addressing.
    fn host_device_address(&self, device: DeviceId, at: Address) -> Result<Address> {
        self.enter(Call::HostDeviceAddress, device)?;
        if self.memory.read().is_pinned(at) {
            return Ok(at);
        }
        Err(Call::HostDeviceAddress.invalid(format!("{at} is neither page-locked nor registered memory")))
    }

    fn managed_allocate(&self, device: DeviceId, bytes: u64) -> Result<Address> {
        self.enter(Call::ManagedAllocate, device)?;
        self.memory.write().allocate_on_host(Call::ManagedAllocate, bytes, Kind::Managed)
    }

    fn pointer(&self, device: DeviceId, at: Address) -> Result<PointerInfo> {
        self.enter(Call::Pointer, device)?;
        Ok(self.memory.read().pointer(at))
    }
}
