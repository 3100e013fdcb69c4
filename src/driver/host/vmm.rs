//! Virtual memory of the host driver: `mmap` of nothing, `mmap` of a memfd over it, `mprotect`.
//!
//! As strict as CUDA was measured to be: whole handles only, nothing mapped twice at one address, nothing
//! outside a reservation. A refused call has changed nothing: books are written after the system call.

use std::os::fd::AsRawFd;

use super::fault::Call;
use super::memory::{self, Memory, Range};
use crate::driver::{Physical, Result};
use crate::units::{Address, DeviceId};

/// Addresses of ours with nothing behind them.
pub(super) struct Reservation {
    pub(super) device: DeviceId,
    pub(super) bytes: u64,
}

/// One handle at one address.
pub(super) struct Mapping {
    pub(super) bytes: u64,
    range: u64,
    /// One bit for each device that may touch it.
    granted: u64,
}

impl Mapping {
    pub(super) fn granted_to(&self, device: DeviceId) -> bool {
        self.granted & (1 << device.0) != 0
    }
}

impl Memory {
    pub(super) fn reserve(&mut self, device: DeviceId, bytes: u64) -> Result<Address> {
        self.check_size(Call::Reserve, bytes)?;
        // mmap aligns to its own page: take one granule more and cut the ends off.
        let padded = bytes
            .checked_add(self.granularity)
            .filter(|&bytes| bytes <= isize::MAX as u64)
            .ok_or_else(|| Call::Reserve.invalid(format!("{bytes} bytes are more than there are addresses")))?;
        let start = memory::anonymous(Call::Reserve, padded, libc::PROT_NONE)?;
        let at = start.next_multiple_of(self.granularity);
        let (head, tail) = (at - start, self.granularity - (at - start));
        for (from, length) in [(start, head), (at + bytes, tail)] {
            if length > 0 {
                // An end that stays mapped costs a few addresses and no memory.
                let _ = memory::unmap(Call::Reserve, from, length);
            }
        }
        self.reservations.insert(at, Reservation { device, bytes });
        Ok(Address(at))
    }

    pub(super) fn unreserve(&mut self, device: DeviceId, at: Address, bytes: u64) -> Result<()> {
        match self.reservations.get(&at.0) {
            None => return Err(Call::Unreserve.invalid(format!("{at} is not the start of a reservation"))),
            Some(found) if found.bytes != bytes || found.device != device => {
                return Err(Call::Unreserve.invalid(format!(
                    "{at} was reserved with {} bytes on device {}, not {bytes} on device {device}",
                    found.bytes, found.device
                )));
            }
            Some(_) => {}
        }
        if let Some((&start, _)) = self.mappings.range(at.0..at.0 + bytes).next() {
            return Err(Call::Unreserve.invalid(format!("{start:#x} in {at}+{bytes} is still mapped")));
        }
        memory::unmap(Call::Unreserve, at.0, bytes)?;
        self.reservations.remove(&at.0);
        Ok(())
    }

    pub(super) fn create(&mut self, device: DeviceId, bytes: u64) -> Result<Physical> {
        self.check_size(Call::Create, bytes)?;
        self.take(Call::Create, device, bytes)?;
        let backing = &mut self.devices[device.0 as usize];
        let offset = backing.next_offset;
        backing.next_offset += bytes;
        let handle = self.next_range;
        self.next_range += 1;
        self.ranges.insert(handle, Range { device, offset, bytes, held: true, mappings: 0 });
        Ok(Physical(handle))
    }

    /// Returns the handle's size.
    pub(super) fn release(&mut self, device: DeviceId, physical: Physical) -> Result<u64> {
        match self.ranges.get_mut(&physical.0) {
            Some(range) if range.held && range.device == device => {
                range.held = false;
                let bytes = range.bytes;
                self.drop_if_unused(physical.0);
                Ok(bytes)
            }
            Some(range) if range.held => {
                Err(Call::Release.invalid(format!("handle {} belongs to device {}", physical.0, range.device)))
            }
            _ => {
                Err(Call::Release
                    .invalid(format!("handle {} is not held: released before, or never created", physical.0)))
            }
        }
    }

    pub(super) fn map(&mut self, device: DeviceId, at: Address, bytes: u64, physical: Physical) -> Result<()> {
        self.check_size(Call::Map, bytes)?;
        let Some(range) = self.ranges.get(&physical.0).filter(|range| range.held) else {
            return Err(Call::Map.invalid(format!("handle {} is not held", physical.0)));
        };
        if range.device != device {
            return Err(Call::Map.invalid(format!("handle {} belongs to device {}", physical.0, range.device)));
        }
        if range.bytes != bytes {
            let all = range.bytes;
            return Err(Call::Map.invalid(format!("handle {} has {all} bytes, asked to map {bytes}", physical.0)));
        }
        if !at.0.is_multiple_of(self.granularity) {
            return Err(Call::Map.invalid(format!("{at} is not a multiple of {}", self.granularity)));
        }
        let end = at.0.checked_add(bytes).ok_or_else(|| Call::Map.invalid(format!("{at}+{bytes} overflows")))?;
        let inside =
            self.reservations.range(..=at.0).next_back().is_some_and(|(start, found)| end <= start + found.bytes);
        if !inside {
            return Err(Call::Map.invalid(format!("{at}+{bytes} is not inside a reservation")));
        }
        if let Some((&start, found)) = self.mappings.range(..end).next_back()
            && start + found.bytes > at.0
        {
            return Err(Call::Map.invalid(format!("{at}+{bytes} is mapped already, at {start:#x}+{}", found.bytes)));
        }
        let file = self.devices[device.0 as usize].file.as_raw_fd();
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let place = at.0 as *mut libc::c_void;
        // SAFETY: the range lies in a reservation of ours and nothing is mapped there; the file outlives `self`.
        let got = unsafe { libc::mmap(place, bytes as usize, libc::PROT_NONE, flags, file, range.offset as i64) };
        if got == libc::MAP_FAILED {
            return Err(Call::Map.failed(&format!("mmap of {at}+{bytes}")));
        }
        self.mappings.insert(at.0, Mapping { bytes, range: physical.0, granted: 0 });
        if let Some(range) = self.ranges.get_mut(&physical.0) {
            range.mappings += 1;
        }
        Ok(())
    }

    /// Returns the sizes of the handles there, for the ledger.
    pub(super) fn grant(&mut self, device: DeviceId, at: Address, bytes: u64) -> Result<Vec<u64>> {
        let sizes = self.whole_mappings(Call::Grant, at, bytes)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the range is mappings of ours, without a gap.
        if unsafe { libc::mprotect(at.0 as *mut libc::c_void, bytes as usize, access) } != 0 {
            return Err(Call::Grant.failed(&format!("mprotect of {at}+{bytes}")));
        }
        for (_, mapping) in self.mappings.range_mut(at.0..at.0 + bytes) {
            mapping.granted |= 1 << device.0;
        }
        Ok(sizes)
    }

    /// Returns the sizes of the handles there, for the ledger.
    pub(super) fn unmap(&mut self, at: Address, bytes: u64) -> Result<Vec<u64>> {
        let sizes = self.whole_mappings(Call::Unmap, at, bytes)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let place = at.0 as *mut libc::c_void;
        // SAFETY: the range is mappings of ours inside a reservation, which it becomes again.
        let got = unsafe { libc::mmap(place, bytes as usize, libc::PROT_NONE, flags, -1, 0) };
        if got == libc::MAP_FAILED {
            return Err(Call::Unmap.failed(&format!("mmap of nothing over {at}+{bytes}")));
        }
        let mut cursor = at.0;
        for &size in &sizes {
            if let Some(mapping) = self.mappings.remove(&cursor) {
                if let Some(range) = self.ranges.get_mut(&mapping.range) {
                    range.mappings -= 1;
                }
                self.drop_if_unused(mapping.range);
            }
            cursor += size;
        }
        Ok(sizes)
    }

    /// The sizes of the mappings that make up `at..at+bytes` exactly.
    fn whole_mappings(&self, call: Call, at: Address, bytes: u64) -> Result<Vec<u64>> {
        let end = at.0.checked_add(bytes).ok_or_else(|| call.invalid(format!("{at}+{bytes} overflows")))?;
        let mut sizes = Vec::new();
        let mut cursor = at.0;
        while cursor < end {
            let Some(mapping) = self.mappings.get(&cursor) else {
                return Err(call.invalid(format!("no mapping begins at {cursor:#x}, asked for {at}+{bytes}")));
            };
            sizes.push(mapping.bytes);
            cursor += mapping.bytes;
        }
        if cursor != end || bytes == 0 {
            return Err(call.invalid(format!("{at}+{bytes} does not end where a mapping ends: whole handles only")));
        }
        Ok(sizes)
    }

    fn check_size(&self, call: Call, bytes: u64) -> Result<()> {
        if bytes == 0 || !bytes.is_multiple_of(self.granularity) {
            return Err(call.invalid(format!("{bytes} bytes are not a multiple of {}", self.granularity)));
        }
        Ok(())
    }

    /// Lets go of the memory of a handle that is neither held nor mapped.
    fn drop_if_unused(&mut self, handle: u64) {
        let Some(range) = self.ranges.get(&handle).filter(|range| !range.held && range.mappings == 0) else {
            return;
        };
        let (device, offset, bytes) = (range.device, range.offset, range.bytes);
        let file = self.devices[device.0 as usize].file.as_raw_fd();
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: an open file of ours. If it fails the pages stay until the file is closed: the range is
        // never used again, so that costs RAM and is not wrong.
        unsafe { libc::fallocate(file, mode, offset as i64, bytes as i64) };
        self.ranges.remove(&handle);
        self.give_back(device, bytes);
    }
}
