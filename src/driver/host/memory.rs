//! Physical memory of the host driver, plain allocations, and who may touch an address.
//!
//! Each device's physical memory is one sparse memfd. A handle is a range of it that no other handle ever
//! had, so data that outlives its handle can never look valid: the hole is punched when nothing holds it.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use super::fault::Call;
use super::vmm::{Mapping, Reservation};
use crate::driver::{DriverError, ErrorKind, MemoryInfo, Result};
use crate::units::{Address, DeviceId, Human};

/// The size of each memfd: far more than all handles of a process will ever have summed up to.
const FILE_BYTES: i64 = 1 << 60;

/// A device's physical memory.
pub(super) struct Backing {
    pub(super) file: OwnedFd,
    /// Where the next handle begins. Only grows.
    pub(super) next_offset: u64,
    /// Bytes counted against the capacity.
    pub(super) used: u64,
}

impl Backing {
    fn new(device: u32) -> Result<Self> {
        // SAFETY: the name is a C string that lives through the call.
        let fd = unsafe { libc::memfd_create(c"forebay-host".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(Call::Create.failed(&format!("memfd_create for device {device}")));
        }
        // SAFETY: `fd` was just opened and nobody else owns it.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: an open file of ours.
        if unsafe { libc::ftruncate(file.as_raw_fd(), FILE_BYTES) } != 0 {
            return Err(Call::Create.failed(&format!("ftruncate for device {device}")));
        }
        Ok(Self { file, next_offset: 0, used: 0 })
    }
}

/// One handle: a range of its device's memfd.
pub(super) struct Range {
    pub(super) device: DeviceId,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// The creator has not released it.
    pub(super) held: bool,
    /// At how many addresses it is mapped.
    pub(super) mappings: u32,
}

/// One plain allocation.
struct Plain {
    device: DeviceId,
    bytes: u64,
}

/// All memory of all devices.
///
/// Data is copied and filled under the read half of the lock around this, so that nothing is unmapped in
/// the middle of it.
pub(super) struct Memory {
    pub(super) granularity: u64,
    pub(super) capacity: u64,
    pub(super) devices: Vec<Backing>,
    pub(super) reservations: BTreeMap<u64, Reservation>,
    pub(super) mappings: BTreeMap<u64, Mapping>,
    pub(super) ranges: HashMap<u64, Range>,
    /// The next handle. Only grows.
    pub(super) next_range: u64,
    plain: BTreeMap<u64, Plain>,
}

impl Memory {
    pub(super) fn new(devices: u32, capacity: u64, granularity: u64) -> Result<Self> {
        Ok(Self {
            granularity,
            capacity,
            devices: (0..devices).map(Backing::new).collect::<Result<_>>()?,
            reservations: BTreeMap::new(),
            mappings: BTreeMap::new(),
            ranges: HashMap::new(),
            next_range: 1,
            plain: BTreeMap::new(),
        })
    }

    pub(super) fn info(&self, device: DeviceId) -> MemoryInfo {
        let used = self.devices[device.0 as usize].used;
        MemoryInfo { free: self.capacity.saturating_sub(used), total: self.capacity }
    }

    /// Counts `bytes` against the capacity.
    pub(super) fn take(&mut self, call: Call, device: DeviceId, bytes: u64) -> Result<()> {
        let free = self.info(device).free;
        if bytes > free {
            let detail = format!(
                "asked for {} ({bytes} bytes), device {device} has {} free of {}",
                Human(bytes),
                Human(free),
                Human(self.capacity)
            );
            return Err(DriverError::new(ErrorKind::OutOfMemory, call.name(), detail));
        }
        self.devices[device.0 as usize].used += bytes;
        Ok(())
    }

    pub(super) fn give_back(&mut self, device: DeviceId, bytes: u64) {
        self.devices[device.0 as usize].used -= bytes;
    }

    pub(super) fn allocate(&mut self, device: DeviceId, bytes: u64) -> Result<Address> {
        if bytes == 0 {
            return Err(Call::Allocate.invalid("0 bytes"));
        }
        let rounded = bytes
            .checked_next_multiple_of(page_size())
            .filter(|&bytes| bytes <= isize::MAX as u64)
            .ok_or_else(|| Call::Allocate.invalid(format!("{bytes} bytes are more than addresses")))?;
        self.take(Call::Allocate, device, rounded)?;
        match anonymous(Call::Allocate, rounded, libc::PROT_READ | libc::PROT_WRITE) {
            Ok(at) => {
                self.plain.insert(at, Plain { device, bytes: rounded });
                Ok(Address(at))
            }
            Err(error) => {
                self.give_back(device, rounded);
                Err(error)
            }
        }
    }

    /// Returns the size that was freed.
    pub(super) fn free(&mut self, device: DeviceId, at: Address) -> Result<u64> {
        match self.plain.get(&at.0) {
            Some(plain) if plain.device == device => {
                let bytes = plain.bytes;
                unmap(Call::Free, at.0, bytes)?;
                self.plain.remove(&at.0);
                self.give_back(device, bytes);
                Ok(bytes)
            }
            Some(plain) => Err(Call::Free.invalid(format!("{at} was allocated on device {}", plain.device))),
            None => Err(Call::Free.invalid(format!("{at} is not the start of a plain allocation"))),
        }
    }

    pub(super) fn plain_count(&self) -> u64 {
        self.plain.len() as u64
    }

    /// Whether `device` may touch `at..at+bytes`: granted mappings, one plain allocation, or memory that
    /// this driver does not know, which is the program's own. The error says what is in the way.
    pub(super) fn check_access(&self, device: DeviceId, at: u64, bytes: u64) -> std::result::Result<(), String> {
        if at == 0 {
            return Err("address 0".into());
        }
        let Some(end) = at.checked_add(bytes) else {
            return Err(format!("{at:#x}+{bytes} runs past the last address"));
        };
        if let Some((&start, reservation)) = self.reservations.range(..end).next_back()
            && start + reservation.bytes > at
        {
            let mut cursor = at;
            while cursor < end {
                match self.mapping_at(cursor) {
                    Some((start, mapping)) if mapping.granted_to(device) => cursor = start + mapping.bytes,
                    Some(_) => return Err(format!("{cursor:#x} is mapped, but device {device} has no access to it")),
                    None => return Err(format!("{cursor:#x} is not mapped")),
                }
            }
        } else if let Some((&start, plain)) = self.plain.range(..end).next_back()
            && start + plain.bytes > at
            && (at < start || end > start + plain.bytes)
        {
            return Err(format!("{at:#x}+{bytes} is not inside the allocation {start:#x}+{}", plain.bytes));
        }
        Ok(())
    }

    /// The mapping that holds `at`.
    pub(super) fn mapping_at(&self, at: u64) -> Option<(u64, &Mapping)> {
        let (&start, mapping) = self.mappings.range(..=at).next_back()?;
        (at < start + mapping.bytes).then_some((start, mapping))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let plain = self.plain.iter().map(|(&at, plain)| (at, plain.bytes));
        let reserved = self.reservations.iter().map(|(&at, reservation)| (at, reservation.bytes));
        for (at, bytes) in plain.chain(reserved) {
            // What cannot be unmapped at the end is the kernel's to clear with the process.
            let _ = unmap(Call::Unreserve, at, bytes);
        }
    }
}

/// The size of a page of the operating system.
pub(super) fn page_size() -> u64 {
    // SAFETY: no memory is involved.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

/// New anonymous memory that the kernel backs only where it is touched.
pub(super) fn anonymous(call: Call, bytes: u64, protection: i32) -> Result<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the kernel chooses a place that nobody has.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes as usize, protection, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(call.failed(&format!("mmap of {bytes} bytes")));
    }
    Ok(at as u64)
}

/// Returns addresses to the operating system.
pub(super) fn unmap(call: Call, at: u64, bytes: u64) -> Result<()> {
    // SAFETY: the callers pass ranges that this driver got from mmap and that are in its books.
    if unsafe { libc::munmap(at as *mut libc::c_void, bytes as usize) } != 0 {
        return Err(call.failed(&format!("munmap of {at:#x}+{bytes}")));
    }
    Ok(())
}
