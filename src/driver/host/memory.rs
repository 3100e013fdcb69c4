//! All memory of the host driver, with its locations and access rights.

use super::blocks::Blocks;
use super::fault::Call;
use super::foreign::Foreign;
use super::options::HostOptions;
use super::places::Places;
use super::pool_table::PoolTable;
use super::registrations::Registrations;
use super::vmm::AddressSpace;
use crate::driver::Result;
use crate::units::{Address, DeviceId};

/// All memory of all devices and of the host.
///
/// Copies and fills run under the read lock around this, so that no memory is unmapped during them.
pub(super) struct Memory {
    pub(super) places: Places,
    pub(super) space: AddressSpace,
    pub(super) blocks: Blocks,
    pub(super) pools: PoolTable,
    pub(super) registrations: Registrations,
    pub(super) foreign: Foreign,
}

impl Memory {
    pub(super) fn new(options: HostOptions) -> Result<Self> {
        Ok(Self {
            places: Places::new(options)?,
            space: AddressSpace::new(options.granularity),
            blocks: Blocks::default(),
            pools: PoolTable::new(),
            registrations: Registrations::default(),
            foreign: Foreign::default(),
        })
    }

    /// Checks that `device` may read or write `at..at+bytes`: mappings that it has access to, one block, or memory that
    /// this driver does not know, which is the program's. The error gives the reason.
    pub(super) fn check_access(
        &self,
        device: DeviceId,
        at: u64,
        bytes: u64,
        write: bool,
    ) -> std::result::Result<(), String> {
        if at == 0 {
            return Err("address 0".into());
        }
        let Some(end) = at.checked_add(bytes) else {
            return Err(format!("{at:#x}+{bytes} runs past the last address"));
        };
        if self.space.is_reserved(at, end) {
            return self.space.check_access(device, at, end, write);
        }
        if self.blocks.touch(at, end) {
            let Some((start, block)) = self.blocks.around(at) else {
                return Err(format!("{at:#x} is not inside an allocation: freed before, or never made"));
            };
            if end > start + block.bytes {
                return Err(format!("{at:#x}+{bytes} is not inside the allocation {start:#x}+{}", block.bytes));
            }
            if let Some(pool) = self.pools.owner(block) {
                pool.rights.require(device, write, at)?;
            }
        }
        Ok(())
    }

    /// Refuses to queue work on memory that `device` may not use, or that is being freed to a pool: work queued after
    /// the free would use freed memory.
    pub(super) fn check_queued(
        &self,
        call: Call,
        device: DeviceId,
        at: Address,
        bytes: u64,
        write: bool,
    ) -> Result<()> {
        if self.blocks.is_being_freed(at.0) {
            return Err(call.invalid(format!("{at} lies in an allocation that was freed")));
        }
        self.check_access(device, at.0, bytes, write).map_err(|why| call.invalid(why))
    }
}
