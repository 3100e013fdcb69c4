//! Blocks: device, page-locked and managed memory, allocations of pools, and memory of other processes opened here.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fault::Call;
use super::file::SharedFile;
use super::places::Places;
use super::rights::Rights;
use super::system::{self, page_size};
use super::zone::{self, Zone};
use crate::driver::{Place, Result};
use crate::units::{Address, DeviceId};

/// One allocation in the zone.
pub(super) struct Block {
    /// Its size in bytes, rounded up to pages.
    pub(super) bytes: u64,
    pub(super) kind: Kind,
}

/// The kind of a block.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// `allocate`: a range of the device's file from `offset` on. `shared` if it was exported to another process.
    Plain { device: DeviceId, offset: u64, shared: bool },
    /// `host_allocate`.
    Pinned,
    /// `managed_allocate`.
    Managed,
    /// `pool_allocate` or `pool_import_pointer`: a range of the pool's file from `offset` on.
    Pooled { pool: u64, offset: u64, shared: bool, freeing: bool },
    /// `ipc_open`.
    Opened { device: DeviceId },
}

/// All blocks by their address, and the zone that they lie in.
#[derive(Default)]
pub(super) struct Blocks {
    table: BTreeMap<u64, Block>,
    zone: Zone,
}

impl Blocks {
    /// Whether any address of `at..end` belongs to the zone of blocks.
    pub(super) fn touch(&self, at: u64, end: u64) -> bool {
        self.zone.touches(at, end)
    }

    /// The block that holds `at`.
    pub(super) fn around(&self, at: u64) -> Option<(u64, &Block)> {
        let (&start, block) = self.table.range(..=at).next_back()?;
        (at < start + block.bytes).then_some((start, block))
    }

    /// The block that begins at `at`.
    pub(super) fn get(&self, at: Address) -> Option<&Block> {
        self.table.get(&at.0)
    }

    pub(super) fn get_mut(&mut self, at: Address) -> Option<&mut Block> {
        self.table.get_mut(&at.0)
    }

    pub(super) fn count(&self, wanted: impl Fn(Kind) -> bool) -> u64 {
        self.table.values().filter(|block| wanted(block.kind)).count() as u64
    }

    /// `bytes` rounded up to pages.
    pub(super) fn round(call: Call, bytes: u64) -> Result<u64> {
        if bytes == 0 {
            return Err(call.invalid("0 bytes"));
        }
        bytes
            .checked_next_multiple_of(page_size())
            .filter(|&bytes| bytes <= isize::MAX as u64)
            .ok_or_else(|| call.invalid(format!("{bytes} bytes are more than there are addresses")))
    }

    fn find(&mut self, call: Call, bytes: u64) -> Result<u64> {
        let last = |end| self.table.range(..end).next_back().map(|(&start, block)| start + block.bytes);
        self.zone.find(call, bytes, last)
    }

    /// Adds a block that maps a file from `offset` on.
    pub(super) fn add_of_file(
        &mut self,
        call: Call,
        (file, offset): (&Arc<SharedFile>, u64),
        bytes: u64,
        kind: Kind,
    ) -> Result<Address> {
        let at = self.find(call, bytes)?;
        // SAFETY: the zone found a gap in its own addresses.
        unsafe { file.map_at(call, at, bytes, offset, Rights::ALL.protection())? };
        self.table.insert(at, Block { bytes, kind });
        Ok(Address(at))
    }

    /// Adds a block of memory that no other process can map.
    fn add_private(&mut self, call: Call, bytes: u64, kind: Kind) -> Result<Address> {
        let at = self.find(call, bytes)?;
        // SAFETY: the zone found a gap in its own addresses.
        unsafe { system::anonymous_at(call, at, bytes, Rights::ALL.protection())? };
        self.table.insert(at, Block { bytes, kind });
        Ok(Address(at))
    }

    /// Removes a block and leaves a hole at its addresses.
    pub(super) fn remove(&mut self, call: Call, at: u64) -> Result<()> {
        if let Some(block) = self.table.get(&at) {
            // SAFETY: a block of the zone, which the caller no longer uses.
            unsafe { zone::clear(call, at, block.bytes)? };
            self.table.remove(&at);
        }
        Ok(())
    }

    pub(super) fn allocate(&mut self, places: &mut Places, device: DeviceId, bytes: u64) -> Result<Address> {
        let call = Call::Allocate;
        let (bytes, place) = (Self::round(call, bytes)?, Place::Device(device));
        places.take(call, place, bytes)?;
        let (file, offset) = places.backing(place).end();
        let added = self.add_of_file(call, (&file, offset), bytes, Kind::Plain { device, offset, shared: false });
        match added {
            Ok(_) => places.backing_mut(place).next_offset += bytes,
            Err(_) => places.give_back(place, bytes),
        }
        added
    }

    /// Page-locked or managed memory.
    pub(super) fn allocate_on_host(
        &mut self,
        places: &mut Places,
        call: Call,
        bytes: u64,
        kind: Kind,
    ) -> Result<Address> {
        let bytes = Self::round(call, bytes)?;
        places.take(call, Place::Host, bytes)?;
        let added = self.add_private(call, bytes, kind);
        if added.is_err() {
            places.give_back(Place::Host, bytes);
        }
        added
    }

    /// Frees device or managed memory. Returns the size that was freed.
    pub(super) fn free(&mut self, places: &mut Places, device: DeviceId, at: Address) -> Result<u64> {
        let call = Call::Free;
        let (bytes, kind) = self.starting(call, at, "plain")?;
        match kind {
            Kind::Plain { device: owner, .. } if owner != device => {
                return Err(call.invalid(format!("{at} was allocated on device {owner}")));
            }
            Kind::Plain { offset, shared, .. } => {
                self.remove(call, at.0)?;
                places.backing(Place::Device(device)).file.forget(call, offset, bytes, shared);
                places.give_back(Place::Device(device), bytes);
            }
            Kind::Managed => {
                self.remove(call, at.0)?;
                places.give_back(Place::Host, bytes);
            }
            _ => return Err(call.invalid(format!("{at} is not the start of a plain allocation: {kind:?}"))),
        }
        Ok(bytes)
    }

    /// Size and kind of the block that starts at `at`.
    pub(super) fn starting(&self, call: Call, at: Address, what: &str) -> Result<(u64, Kind)> {
        self.table
            .get(&at.0)
            .map(|block| (block.bytes, block.kind))
            .ok_or_else(|| call.invalid(format!("{at} is not the start of a {what} allocation")))
    }

    /// The size of page-locked memory that may be freed.
    pub(super) fn pinned(&self, call: Call, at: Address) -> Result<u64> {
        match self.starting(call, at, "page-locked")? {
            (bytes, Kind::Pinned) => Ok(bytes),
            (_, kind) => Err(call.invalid(format!("{at} is not the start of a page-locked allocation: {kind:?}"))),
        }
    }

    /// Returns the size that was freed.
    pub(super) fn free_pinned(&mut self, places: &mut Places, at: Address) -> Result<u64> {
        let bytes = self.pinned(Call::HostFree, at)?;
        self.remove(Call::HostFree, at.0)?;
        places.give_back(Place::Host, bytes);
        Ok(bytes)
    }

    // ---- of pools --------------------------------------------------------------------------------------

    /// Marks the block as being freed: no work may be queued on it from now on.
    pub(super) fn begin_pool_free(&mut self, at: Address) -> Result<()> {
        let call = Call::PoolFree;
        match self.get_mut(at).map(|block| &mut block.kind) {
            Some(Kind::Pooled { freeing, .. }) if !*freeing => {
                *freeing = true;
                Ok(())
            }
            Some(Kind::Pooled { .. }) => Err(call.invalid(format!("{at} was freed before"))),
            _ => Err(call.invalid(format!("{at} is not the start of a pool's allocation"))),
        }
    }

    /// Undoes [`Self::begin_pool_free`] if the free could not be queued.
    pub(super) fn cancel_pool_free(&mut self, at: Address) {
        if let Some(Block { kind: Kind::Pooled { freeing, .. }, .. }) = self.get_mut(at) {
            *freeing = false;
        }
    }

    /// Whether `at` lies in a block whose free was called and has not run.
    pub(super) fn is_being_freed(&self, at: u64) -> bool {
        self.around(at).is_some_and(|(_, block)| matches!(block.kind, Kind::Pooled { freeing: true, .. }))
    }

    /// Whether frees are queued that have not run.
    pub(super) fn frees_are_queued(&self) -> bool {
        self.count(|kind| matches!(kind, Kind::Pooled { freeing: true, .. })) > 0
    }
}
