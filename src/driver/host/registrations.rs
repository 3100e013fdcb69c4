//! Memory of the program that is page-locked.

use std::collections::BTreeMap;

use super::blocks::Blocks;
use super::fault::Call;
use super::system::page_size;
use super::vmm::AddressSpace;
use crate::driver::{HostFlags, Result};
use crate::units::Address;

/// The bytes of each registration, by where it begins.
#[derive(Default)]
pub(super) struct Registrations(BTreeMap<u64, u64>);

impl Registrations {
    /// Registers memory that is the program's, and not the driver's own: no reservation in `space`, none of `blocks`.
    pub(super) fn add(
        &mut self,
        at: Address,
        bytes: u64,
        flags: HostFlags,
        space: &AddressSpace,
        blocks: &Blocks,
    ) -> Result<()> {
        let call = Call::HostRegister;
        let end = at.0.checked_add(bytes).filter(|_| at.0 != 0 && bytes > 0);
        let end = end.ok_or_else(|| call.invalid(format!("{at}+{bytes} is no range of memory")))?;
        if flags.write_combined {
            return Err(call.invalid("memory that exists cannot become write-combined"));
        }
        if let Some((start, bytes)) = self.around(end - 1).or_else(|| self.before(end, at.0)) {
            return Err(call.invalid(format!("{at} is registered already, in {start:#x}+{bytes}")));
        }
        if space.is_reserved(at.0, end) || blocks.touch(at.0, end) {
            return Err(call.invalid(format!("{at}+{bytes} is the driver's own memory")));
        }
        let page = page_size();
        let (first, last) = (at.0 & !(page - 1), (end - 1) | (page - 1));
        // SAFETY: changes nothing of the memory; the kernel says whether all of it is mapped.
        if unsafe { libc::msync(first as *mut libc::c_void, (last - first) as usize, libc::MS_ASYNC) } != 0 {
            return Err(call.invalid(format!("{at}+{bytes} is not all mapped in this process")));
        }
        self.0.insert(at.0, bytes);
        Ok(())
    }

    /// A registration that begins in `from..end`, or reaches into it.
    fn before(&self, end: u64, from: u64) -> Option<(u64, u64)> {
        let (&start, &bytes) = self.0.range(..end).next_back()?;
        (start + bytes > from).then_some((start, bytes))
    }

    /// The registration that holds `at`.
    pub(super) fn around(&self, at: u64) -> Option<(u64, u64)> {
        self.before(at.checked_add(1)?, at)
    }

    pub(super) fn remove(&mut self, at: Address) -> Result<()> {
        let found = self.0.remove(&at.0).map(drop);
        found.ok_or_else(|| Call::HostUnregister.invalid(format!("{at} is not the start of registered memory")))
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len() as u64
    }
}
