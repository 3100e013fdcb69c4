//! Blocks: plain, page-locked and managed memory, allocations of pools, and other processes' memory opened here.

use std::sync::Arc;

use super::access::Rights;
use super::fault::Call;
use super::file::SharedFile;
use super::memory::{self, Memory, page_size};
use super::{pool_books::Pool, zone};
use crate::driver::{Place, Result};
use crate::units::{Address, DeviceId};

/// One allocation in the zone.
pub(super) struct Block {
    /// Rounded up to pages.
    pub(super) bytes: u64,
    pub(super) kind: Kind,
}

/// What a block is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// `allocate`: a range of the device's file from `offset` on. Shared if another process was told of it.
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

impl Memory {
    /// The block that holds `at`.
    pub(super) fn block_at(&self, at: u64) -> Option<(u64, &Block)> {
        let (&start, block) = self.blocks.range(..=at).next_back()?;
        (at < start + block.bytes).then_some((start, block))
    }

    pub(super) fn pool_of(&self, block: &Block) -> Option<&Pool> {
        match block.kind {
            Kind::Pooled { pool, .. } => self.pools.get(&pool),
            _ => None,
        }
    }

    pub(super) fn count_blocks(&self, wanted: impl Fn(Kind) -> bool) -> u64 {
        self.blocks.values().filter(|block| wanted(block.kind)).count() as u64
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

    /// A block that shows `offset` of a file.
    pub(super) fn add_file_block(
        &mut self,
        call: Call,
        (file, offset): (&Arc<SharedFile>, u64),
        bytes: u64,
        kind: Kind,
    ) -> Result<Address> {
        let at = self.zone.find(call, bytes, &self.blocks)?;
        // SAFETY: the zone found a gap of its own.
        unsafe { file.map_at(call, at, bytes, offset, Rights::ALL.protection())? };
        self.blocks.insert(at, Block { bytes, kind });
        Ok(Address(at))
    }

    /// A block of memory that no other process can have.
    fn add_private_block(&mut self, call: Call, bytes: u64, kind: Kind) -> Result<Address> {
        let at = self.zone.find(call, bytes, &self.blocks)?;
        // SAFETY: the zone found a gap of its own.
        unsafe { memory::anonymous_at(call, at, bytes, Rights::ALL.protection())? };
        self.blocks.insert(at, Block { bytes, kind });
        Ok(Address(at))
    }

    /// Takes a block out of the books and leaves a hole.
    pub(super) fn remove_block(&mut self, call: Call, at: u64) -> Result<()> {
        if let Some(block) = self.blocks.get(&at) {
            // SAFETY: a block of the zone; the caller has no more use for it.
            unsafe { zone::clear(call, at, block.bytes)? };
            self.blocks.remove(&at);
        }
        Ok(())
    }

    pub(super) fn allocate(&mut self, device: DeviceId, bytes: u64) -> Result<Address> {
        let call = Call::Allocate;
        let (bytes, place) = (Self::round(call, bytes)?, Place::Device(device));
        self.take(call, place, bytes)?;
        let (file, offset) = self.backing(place).end();
        let added = self.add_file_block(call, (&file, offset), bytes, Kind::Plain { device, offset, shared: false });
        match added {
            Ok(_) => self.backing_mut(place).next_offset += bytes,
            Err(_) => self.give_back(place, bytes),
        }
        added
    }

    /// Page-locked or managed memory.
    pub(super) fn allocate_on_host(&mut self, call: Call, bytes: u64, kind: Kind) -> Result<Address> {
        let bytes = Self::round(call, bytes)?;
        self.take(call, Place::Host, bytes)?;
        let added = self.add_private_block(call, bytes, kind);
        if added.is_err() {
            self.give_back(Place::Host, bytes);
        }
        added
    }

    /// Frees plain or managed memory. Returns the size that was freed.
    pub(super) fn free(&mut self, device: DeviceId, at: Address) -> Result<u64> {
        let call = Call::Free;
        let (bytes, kind) = self.block_starting(call, at, "plain")?;
        match kind {
            Kind::Plain { device: owner, .. } if owner != device => {
                return Err(call.invalid(format!("{at} was allocated on device {owner}")));
            }
            Kind::Plain { offset, shared, .. } => {
                self.remove_block(call, at.0)?;
                self.backing(Place::Device(device)).file.forget(call, offset, bytes, shared);
                self.give_back(Place::Device(device), bytes);
            }
            Kind::Managed => {
                self.remove_block(call, at.0)?;
                self.give_back(Place::Host, bytes);
            }
            _ => return Err(call.invalid(format!("{at} is not the start of a plain allocation: {kind:?}"))),
        }
        Ok(bytes)
    }

    /// Size and kind of the block that starts at `at`.
    pub(super) fn block_starting(&self, call: Call, at: Address, what: &str) -> Result<(u64, Kind)> {
        self.blocks
            .get(&at.0)
            .map(|block| (block.bytes, block.kind))
            .ok_or_else(|| call.invalid(format!("{at} is not the start of a {what} allocation")))
    }

    /// The size of page-locked memory that may be freed.
    pub(super) fn pinned(&self, call: Call, at: Address) -> Result<u64> {
        match self.block_starting(call, at, "page-locked")? {
            (bytes, Kind::Pinned) => Ok(bytes),
            (_, kind) => Err(call.invalid(format!("{at} is not the start of a page-locked allocation: {kind:?}"))),
        }
    }

    /// Returns the size that was freed.
    pub(super) fn free_pinned(&mut self, at: Address) -> Result<u64> {
        let bytes = self.pinned(Call::HostFree, at)?;
        self.remove_block(Call::HostFree, at.0)?;
        self.give_back(Place::Host, bytes);
        Ok(bytes)
    }
}
