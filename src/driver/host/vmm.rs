//! Virtual memory of the host driver: reservations are `mmap` without access, mappings are `mmap` of a memfd over them,
//! access is `mprotect`.
//!
//! As strict as CUDA: whole handles only, no address mapped twice, no mapping outside a reservation. A refused call
//! changes nothing: the tables are written after the system call.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::fault::Call;
use super::file::SharedFile;
use super::places::Places;
use super::rights::Rights;
use super::system;
use crate::driver::{Access, Physical, PhysicalOptions, Place, Result, Share};
use crate::units::{Address, DeviceId};

/// A range of reserved addresses.
struct Reservation {
    device: DeviceId,
    bytes: u64,
}

/// One handle: a range of a file.
pub(super) struct Range {
    pub(super) file: Arc<SharedFile>,
    pub(super) place: Place,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) share: Share,
    /// Whether its handle is not yet released.
    pub(super) held: bool,
    /// The number of its mappings.
    pub(super) mappings: u32,
    /// Whether it was exported. Its pages then stay as long as the file, since imports in other processes cannot be
    /// detected.
    pub(super) exported: bool,
    /// Whether it was imported: its bytes are counted by the exporter.
    pub(super) imported: bool,
}

/// One handle at one address.
struct Mapping {
    bytes: u64,
    range: u64,
    rights: Rights,
}

/// All reservations and mappings by their address, and all handles.
pub(super) struct AddressSpace {
    granularity: u64,
    reservations: BTreeMap<u64, Reservation>,
    mappings: BTreeMap<u64, Mapping>,
    ranges: HashMap<u64, Range>,
    /// The next handle. Only grows.
    next_range: u64,
}

impl AddressSpace {
    pub(super) fn new(granularity: u64) -> Self {
        Self {
            granularity,
            reservations: BTreeMap::new(),
            mappings: BTreeMap::new(),
            ranges: HashMap::new(),
            next_range: 1,
        }
    }

    pub(super) fn reservation_count(&self) -> u64 {
        self.reservations.len() as u64
    }

    pub(super) fn mapping_count(&self) -> u64 {
        self.mappings.len() as u64
    }

    /// The number of handles not yet released: the created ones, or the imported ones.
    pub(super) fn held_count(&self, imported: bool) -> u64 {
        self.ranges.values().filter(|range| range.held && range.imported == imported).count() as u64
    }

    /// Whether any address of `at..end` is reserved.
    pub(super) fn is_reserved(&self, at: u64, end: u64) -> bool {
        self.reservations.range(..end).next_back().is_some_and(|(start, found)| start + found.bytes > at)
    }

    /// Checks that `device` may read or write `at..end`. The error gives the reason.
    pub(super) fn check_access(
        &self,
        device: DeviceId,
        at: u64,
        end: u64,
        write: bool,
    ) -> std::result::Result<(), String> {
        let mut cursor = at;
        while cursor < end {
            let Some((start, mapping)) = self.mapping_at(cursor) else {
                return Err(format!("{cursor:#x} is not mapped"));
            };
            mapping.rights.require(device, write, cursor)?;
            cursor = start + mapping.bytes;
        }
        Ok(())
    }

    /// The place of the memory mapped at `at`, and start and bytes of the mapping.
    pub(super) fn mapped_at(&self, at: u64) -> Option<(Place, (u64, u64))> {
        let (start, mapping) = self.mapping_at(at)?;
        Some((self.place_of(mapping), (start, mapping.bytes)))
    }

    fn place_of(&self, mapping: &Mapping) -> Place {
        self.ranges.get(&mapping.range).map_or(Place::Host, |range| range.place)
    }

    /// Reserves addresses at `hint` if they are free, otherwise anywhere.
    pub(super) fn reserve(
        &mut self,
        call: Call,
        device: DeviceId,
        bytes: u64,
        alignment: u64,
        hint: Address,
    ) -> Result<Address> {
        self.check_size(call, bytes)?;
        if alignment != 0 && !alignment.is_power_of_two() {
            return Err(call.invalid(format!("alignment {alignment} is no power of two")));
        }
        let alignment = alignment.max(self.granularity);
        let at_hint = hint.0 != 0 && hint.0.is_multiple_of(alignment) && hint.0.checked_add(bytes).is_some();
        let at = match at_hint.then(|| system::anonymous_if_free(hint.0, bytes, libc::PROT_NONE)).flatten() {
            Some(at) => at,
            None => reserve_anywhere(call, bytes, alignment)?,
        };
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
        system::unmap(Call::Unreserve, at.0, bytes)?;
        self.reservations.remove(&at.0);
        Ok(())
    }

    pub(super) fn create(
        &mut self,
        places: &mut Places,
        call: Call,
        bytes: u64,
        options: &PhysicalOptions,
    ) -> Result<Physical> {
        let (place, share) = (options.place, options.share);
        self.check_size(call, bytes)?;
        places.take(call, place, bytes)?;
        let (file, offset) = places.backing(place).end();
        places.backing_mut(place).next_offset += bytes;
        let range =
            Range { file, place, offset, bytes, share, held: true, mappings: 0, exported: false, imported: false };
        Ok(self.add_range(range))
    }

    pub(super) fn add_range(&mut self, range: Range) -> Physical {
        let handle = self.next_range;
        self.next_range += 1;
        self.ranges.insert(handle, range);
        Physical(handle)
    }

    /// A handle that is not released. Refuses memory of another device, to detect a pool that confuses its devices.
    pub(super) fn held(&mut self, call: Call, device: DeviceId, physical: Physical) -> Result<&mut Range> {
        match self.ranges.get_mut(&physical.0) {
            Some(range) if range.held => match range.place {
                Place::Device(owner) if owner != device && !range.imported => {
                    Err(call.invalid(format!("handle {} belongs to device {owner}", physical.0)))
                }
                _ => Ok(range),
            },
            _ => Err(call.invalid(format!("handle {} is not held: released before, or never created", physical.0))),
        }
    }

    /// Returns the place of the handle's memory, and its size.
    pub(super) fn release(
        &mut self,
        places: &mut Places,
        device: DeviceId,
        physical: Physical,
    ) -> Result<(Place, u64)> {
        let range = self.held(Call::Release, device, physical)?;
        range.held = false;
        let found = (range.place, range.bytes);
        self.drop_if_unused(places, physical.0);
        Ok(found)
    }

    /// Returns the place of the handle's memory.
    pub(super) fn map(&mut self, device: DeviceId, at: Address, bytes: u64, physical: Physical) -> Result<Place> {
        let call = Call::Map;
        self.check_size(call, bytes)?;
        let granularity = self.granularity;
        let range = self.held(call, device, physical)?;
        if range.bytes != bytes {
            let all = range.bytes;
            return Err(call.invalid(format!("handle {} has {all} bytes, asked to map {bytes}", physical.0)));
        }
        let (file, place, offset) = (Arc::clone(&range.file), range.place, range.offset);
        if !at.0.is_multiple_of(granularity) {
            return Err(call.invalid(format!("{at} is not a multiple of {granularity}")));
        }
        let end = at.0.checked_add(bytes).ok_or_else(|| call.invalid(format!("{at}+{bytes} overflows")))?;
        let inside =
            self.reservations.range(..=at.0).next_back().is_some_and(|(start, found)| end <= start + found.bytes);
        if !inside {
            return Err(call.invalid(format!("{at}+{bytes} is not inside a reservation")));
        }
        if let Some((&start, found)) = self.mappings.range(..end).next_back()
            && start + found.bytes > at.0
        {
            return Err(call.invalid(format!("{at}+{bytes} is mapped already, at {start:#x}+{}", found.bytes)));
        }
        // SAFETY: the range lies in a reservation of this driver and nothing is mapped there.
        unsafe { file.map_at(call, at.0, bytes, offset, libc::PROT_NONE)? };
        self.mappings.insert(at.0, Mapping { bytes, range: physical.0, rights: Rights::default() });
        if let Some(range) = self.ranges.get_mut(&physical.0) {
            range.mappings += 1;
        }
        Ok(place)
    }

    /// Returns places and sizes of the handles there, for the ledger.
    pub(super) fn grant(
        &mut self,
        places: &Places,
        call: Call,
        at: Address,
        bytes: u64,
        access: &[(Place, Access)],
    ) -> Result<Vec<(Place, u64)>> {
        let found = self.whole_mappings(call, at, bytes)?;
        if access.is_empty() {
            return Err(call.invalid("nobody is named whose access is to change"));
        }
        for &(who, wanted) in access {
            places.check(call, who)?;
            let reachable = who.is_host().then(|| found.iter().find(|(lies, _)| !lies.is_host())).flatten();
            if let Some((lies, _)) = reachable.filter(|_| wanted != Access::None) {
                return Err(call.unsupported(format!("{at}+{bytes}: the host cannot reach memory of {lies}")));
            }
        }
        let (mut changes, mut cursor) = (Vec::new(), at.0);
        for &(_, size) in &found {
            if let Some(mapping) = self.mappings.get(&cursor) {
                let mut rights = mapping.rights;
                access.iter().for_each(|&(who, wanted)| rights.set(who, wanted));
                changes.push((cursor, size, mapping.rights, rights));
            }
            cursor += size;
        }
        protect(call, &changes)?;
        for (start, _, _, rights) in changes {
            if let Some(mapping) = self.mappings.get_mut(&start) {
                mapping.rights = rights;
            }
        }
        Ok(found)
    }

    /// Returns the sizes of the handles there, for the ledger.
    pub(super) fn unmap(&mut self, places: &mut Places, at: Address, bytes: u64) -> Result<Vec<(Place, u64)>> {
        let found = self.whole_mappings(Call::Unmap, at, bytes)?;
        // SAFETY: the range is mappings of this driver inside a reservation, which it becomes again.
        unsafe { system::anonymous_at(Call::Unmap, at.0, bytes, libc::PROT_NONE)? };
        let mut cursor = at.0;
        for &(_, size) in &found {
            if let Some(mapping) = self.mappings.remove(&cursor) {
                if let Some(range) = self.ranges.get_mut(&mapping.range) {
                    range.mappings -= 1;
                }
                self.drop_if_unused(places, mapping.range);
            }
            cursor += size;
        }
        Ok(found)
    }

    /// The mapping that holds `at`.
    fn mapping_at(&self, at: u64) -> Option<(u64, &Mapping)> {
        let (&start, mapping) = self.mappings.range(..=at).next_back()?;
        (at < start + mapping.bytes).then_some((start, mapping))
    }

    /// Places and sizes of the mappings that make up `at..at+bytes` exactly.
    fn whole_mappings(&self, call: Call, at: Address, bytes: u64) -> Result<Vec<(Place, u64)>> {
        let end = at.0.checked_add(bytes).ok_or_else(|| call.invalid(format!("{at}+{bytes} overflows")))?;
        let mut found = Vec::new();
        let mut cursor = at.0;
        while cursor < end {
            let Some(mapping) = self.mappings.get(&cursor) else {
                return Err(call.invalid(format!("no mapping begins at {cursor:#x}, asked for {at}+{bytes}")));
            };
            found.push((self.place_of(mapping), mapping.bytes));
            cursor += mapping.bytes;
        }
        if cursor != end || bytes == 0 {
            return Err(call.invalid(format!("{at}+{bytes} does not end where a mapping ends: whole handles only")));
        }
        Ok(found)
    }

    pub(super) fn check_size(&self, call: Call, bytes: u64) -> Result<()> {
        if bytes == 0 || !bytes.is_multiple_of(self.granularity) {
            return Err(call.invalid(format!("{bytes} bytes are not a multiple of {}", self.granularity)));
        }
        Ok(())
    }

    /// Frees the memory of a handle that is released and not mapped.
    fn drop_if_unused(&mut self, places: &mut Places, handle: u64) {
        let unused = self.ranges.get(&handle).is_some_and(|range| !range.held && range.mappings == 0);
        let Some(range) = unused.then(|| self.ranges.remove(&handle)).flatten().filter(|range| !range.imported) else {
            return;
        };
        if !range.exported {
            range.file.punch(range.offset, range.bytes);
        }
        places.give_back(range.place, range.bytes);
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        for (&at, reservation) in &self.reservations {
            // The kernel unmaps the rest at the end of the process.
            let _ = system::unmap(Call::Unreserve, at, reservation.bytes);
        }
    }
}

fn reserve_anywhere(call: Call, bytes: u64, alignment: u64) -> Result<u64> {
    // mmap aligns to pages only: reserve `alignment` more and unmap the ends.
    let padded = bytes.checked_add(alignment).filter(|&bytes| bytes <= isize::MAX as u64).ok_or_else(|| {
        call.invalid(format!("{bytes} bytes aligned to {alignment} are more than there are addresses"))
    })?;
    let start = system::anonymous(call, padded, libc::PROT_NONE)?;
    let at = start.next_multiple_of(alignment);
    let (head, tail) = (at - start, alignment - (at - start));
    for (from, length) in [(start, head), (at + bytes, tail)] {
        if length > 0 {
            // An end that stays mapped costs a few addresses and no memory.
            let _ = system::unmap(call, from, length);
        }
    }
    Ok(at)
}

/// Start, bytes, rights before and after: one call for neighbours that change alike; all or nothing.
fn protect(call: Call, changes: &[(u64, u64, Rights, Rights)]) -> Result<()> {
    let mut runs: Vec<(u64, u64, i32, i32)> = Vec::new();
    for (start, bytes, old, new) in changes {
        let (old, new) = (old.protection(), new.protection());
        match runs.last_mut() {
            Some(run) if (run.2, run.3) == (old, new) => run.1 += bytes,
            _ => runs.push((*start, *bytes, old, new)),
        }
    }
    // SAFETY: mappings of this driver.
    let set = |at: u64, bytes: u64, access| unsafe { libc::mprotect(at as *mut libc::c_void, bytes as usize, access) };
    for (index, &(start, bytes, _, new)) in runs.iter().enumerate() {
        if set(start, bytes, new) != 0 {
            let error = call.failed(&format!("mprotect of {start:#x}+{bytes}"));
            for &(start, bytes, old, _) in &runs[..index] {
                set(start, bytes, old);
            }
            return Err(error);
        }
    }
    Ok(())
}
