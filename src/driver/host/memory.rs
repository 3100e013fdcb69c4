//! The books of all memory: what lies where, how much of it there is, and what the system calls are.
//!
//! The physical memory of a device is one sparse memfd, that of the host another. A handle or a plain allocation is a
//! range of it that no other ever had, so data that outlives its handle can never look valid: the hole is punched
//! when nothing holds it.

use std::collections::{BTreeMap, HashMap};
use std::ptr;
use std::sync::{Arc, Weak};

use super::HostOptions;
use super::blocks::Block;
use super::fault::Call;
use super::file::{Content, Inode, SharedFile};
use super::host_memory::Registration;
use super::pool_books::Pool;
use super::vmm::{Mapping, Range, Reservation};
use super::zone::Zone;
use crate::driver::{DriverError, ErrorKind, MemoryInfo, Place, Result};
use crate::units::{Address, DeviceId, Human};

/// The physical memory of a place.
pub(super) struct Backing {
    pub(super) file: Arc<SharedFile>,
    /// Where the next range begins. Only grows.
    pub(super) next_offset: u64,
    /// Bytes counted against the capacity.
    pub(super) used: u64,
}

impl Backing {
    fn new(place: Place) -> Result<Self> {
        let file = Arc::new(SharedFile::create(Call::Create, Content::Physical, place)?);
        Ok(Self { file, next_offset: 0, used: 0 })
    }

    /// The file, and where its next range begins.
    pub(super) fn end(&self) -> (Arc<SharedFile>, u64) {
        (Arc::clone(&self.file), self.next_offset)
    }
}

/// All memory of all devices and of the host.
///
/// Data is copied and filled under the read half of the lock around this, so that nothing is unmapped in
/// the middle of it.
pub(super) struct Memory {
    pub(super) options: HostOptions,
    pub(super) devices: Vec<Backing>,
    pub(super) host: Backing,
    pub(super) reservations: BTreeMap<u64, Reservation>,
    pub(super) mappings: BTreeMap<u64, Mapping>,
    pub(super) ranges: HashMap<u64, Range>,
    /// The next handle. Only grows.
    pub(super) next_range: u64,
    pub(super) blocks: BTreeMap<u64, Block>,
    pub(super) zone: Zone,
    pub(super) registrations: BTreeMap<u64, Registration>,
    pub(super) pools: BTreeMap<u64, Pool>,
    /// The next pool. Only grows.
    pub(super) next_pool: u64,
    /// Files of other processes, and of our own that came back: one open descriptor for each, however many handles.
    pub(super) foreign: HashMap<Inode, Weak<SharedFile>>,
}

impl Memory {
    pub(super) fn new(options: HostOptions) -> Result<Self> {
        let device = |device| Backing::new(Place::Device(DeviceId(device)));
        Ok(Self {
            options,
            devices: (0..options.devices).map(device).collect::<Result<_>>()?,
            host: Backing::new(Place::Host)?,
            reservations: BTreeMap::new(),
            mappings: BTreeMap::new(),
            ranges: HashMap::new(),
            next_range: 1,
            blocks: BTreeMap::new(),
            zone: Zone::default(),
            registrations: BTreeMap::new(),
            pools: BTreeMap::new(),
            next_pool: 1,
            foreign: HashMap::new(),
        })
    }

    /// The memory of a place; all places of the host have one memory. pre: [`Memory::check_place`].
    pub(super) fn backing(&self, place: Place) -> &Backing {
        match place {
            Place::Device(device) => &self.devices[device.0 as usize],
            _ => &self.host,
        }
    }

    pub(super) fn backing_mut(&mut self, place: Place) -> &mut Backing {
        match place {
            Place::Device(device) => &mut self.devices[device.0 as usize],
            _ => &mut self.host,
        }
    }

    /// Whether there is such a place.
    pub(super) fn check_place(&self, call: Call, place: Place) -> Result<()> {
        let (devices, nodes) = (self.options.devices, self.options.numa_nodes);
        match place {
            Place::Device(device) if device.0 >= devices => Err(call.invalid(format!("device {device} of {devices}"))),
            Place::HostNuma(node) if node >= nodes => Err(call.invalid(format!("NUMA node {node} of {nodes}"))),
            Place::HostNuma(_) | Place::HostNumaCurrent if !self.options.host_numa => {
                Err(call.unsupported("memory on NUMA nodes is switched off in HostOptions"))
            }
            _ => Ok(()),
        }
    }

    fn capacity(&self, place: Place) -> u64 {
        if place.is_host() { self.options.host_capacity } else { self.options.capacity }
    }

    pub(super) fn info(&self, place: Place) -> MemoryInfo {
        let total = self.capacity(place);
        MemoryInfo { free: total.saturating_sub(self.backing(place).used), total }
    }

    /// Counts `bytes` against the capacity of a place.
    pub(super) fn take(&mut self, call: Call, place: Place, bytes: u64) -> Result<()> {
        let MemoryInfo { free, total } = self.info(place);
        if bytes > free {
            let (asked, free, total) = (Human(bytes), Human(free), Human(total));
            let detail = format!("asked for {asked} ({bytes} bytes), {place} has {free} free of {total}");
            return Err(DriverError::new(ErrorKind::OutOfMemory, call.name(), detail));
        }
        self.backing_mut(place).used += bytes;
        Ok(())
    }

    pub(super) fn give_back(&mut self, place: Place, bytes: u64) {
        self.backing_mut(place).used -= bytes;
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for (&at, reservation) in &self.reservations {
            // What cannot be unmapped at the end is the kernel's to clear with the process.
            let _ = unmap(Call::Unreserve, at, reservation.bytes);
        }
    }
}

/// The size of a page of the operating system.
pub(super) fn page_size() -> u64 {
    // SAFETY: no memory is involved.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// New anonymous memory that the kernel backs only where it is touched.
pub(super) fn anonymous(call: Call, bytes: u64, protection: i32) -> Result<u64> {
    // SAFETY: the kernel chooses a place that nobody has.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes as usize, protection, ANONYMOUS, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(call.failed(&format!("mmap of {bytes} bytes")));
    }
    Ok(at as u64)
}

/// The same at an address of choice, if nobody has it.
pub(super) fn anonymous_if_free(at: u64, bytes: u64, protection: i32) -> Option<u64> {
    let flags = ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: the kernel refuses a place that somebody has.
    let got = unsafe { libc::mmap(at as *mut libc::c_void, bytes as usize, protection, flags, -1, 0) };
    if got == libc::MAP_FAILED {
        return None;
    }
    if got as u64 != at {
        // A kernel that does not know the flag takes the address for a hint.
        let _ = unmap(Call::ReserveAt, got as u64, bytes);
        return None;
    }
    Some(at)
}

/// Anonymous memory over whatever is at `at`.
///
/// # Safety
/// The addresses must be the driver's, with nothing there that is still wanted.
pub(super) unsafe fn anonymous_at(call: Call, at: u64, bytes: u64, protection: i32) -> Result<()> {
    let place = at as *mut libc::c_void;
    // SAFETY: the caller's.
    let got = unsafe { libc::mmap(place, bytes as usize, protection, ANONYMOUS | libc::MAP_FIXED, -1, 0) };
    if got == libc::MAP_FAILED {
        return Err(call.failed(&format!("mmap of fresh memory over {}+{bytes}", Address(at))));
    }
    Ok(())
}

/// Returns addresses to the operating system.
pub(super) fn unmap(call: Call, at: u64, bytes: u64) -> Result<()> {
    // SAFETY: the callers pass ranges that this driver got from mmap and that are in its books.
    if unsafe { libc::munmap(at as *mut libc::c_void, bytes as usize) } != 0 {
        return Err(call.failed(&format!("munmap of {at:#x}+{bytes}")));
    }
    Ok(())
}
