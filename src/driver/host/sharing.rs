//! Memory that leaves the process: descriptors and blobs that another process can open.
//!
//! Nobody tells a process when the last descriptor of its memory is closed elsewhere. So a handle that was exported
//! keeps its pages until the process ends, though it no longer counts against the capacity: that costs RAM and no more.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::HostDriver;
use super::blocks::Kind;
use super::fault::Call;
use super::file::{Content, SharedFile};
use super::memory::Memory;
use super::ticket::{Purpose, Ticket};
use super::vmm::Range;
use crate::driver::{Blob, Physical, Place, Result, Share, Sharing};
use crate::units::{Address, DeviceId};

impl Memory {
    /// A file from elsewhere, opened once for all that is imported from it.
    pub(super) fn adopt(&mut self, call: Call, file: SharedFile, content: Content) -> Result<Arc<SharedFile>> {
        if file.content != content {
            return Err(call.invalid(format!("the memory is {:?}, expected {content:?}", file.content)));
        }
        self.check_place(call, file.place)?;
        if let Some(known) = self.foreign.get(&file.inode).and_then(std::sync::Weak::upgrade) {
            return Ok(known);
        }
        self.foreign.retain(|_, file| file.strong_count() > 0);
        let file = Arc::new(file);
        self.foreign.insert(file.inode, Arc::downgrade(&file));
        Ok(file)
    }

    /// Notes that others may have a handle, after `make` made what names it.
    fn export<T>(
        &mut self,
        call: Call,
        device: DeviceId,
        physical: Physical,
        share: Share,
        make: impl FnOnce(&Range) -> Result<T>,
    ) -> Result<T> {
        let range = self.held(call, device, physical)?;
        if range.share != share {
            let made = range.share;
            return Err(call.invalid(format!("handle {} was created with Share::{made:?}", physical.0)));
        }
        let made = make(range)?;
        range.file.record(call, range.offset, range.bytes)?;
        range.exported = true;
        Ok(made)
    }

    fn import(&mut self, call: Call, file: SharedFile, offset: u64, share: Share) -> Result<Physical> {
        let bytes = file.recorded(call, offset)?;
        self.check_size(call, bytes)?;
        let file = self.adopt(call, file, Content::Physical)?;
        let place = file.place;
        let range =
            Range { file, place, offset, bytes, share, held: true, mappings: 0, exported: true, imported: true };
        Ok(self.add_range(range))
    }
}

impl Sharing for HostDriver {
    fn export_fd(&self, device: DeviceId, physical: Physical) -> Result<OwnedFd> {
        let call = Call::ExportFd;
        self.enter(call, device)?;
        self.memory.write().export(call, device, physical, Share::Fd, |range| range.file.reopen(call, range.offset))
    }

    fn import_fd(&self, device: DeviceId, fd: BorrowedFd<'_>) -> Result<Physical> {
        let call = Call::ImportFd;
        self.enter(call, device)?;
        let ours = fd.try_clone_to_owned().map_err(|error| call.failed_with("duplicating the descriptor", &error))?;
        let file = SharedFile::open(call, ours.into())?;
        let offset = file.position(call)?;
        self.memory.write().import(call, file, offset, Share::Fd)
    }

    fn export_fabric(&self, device: DeviceId, physical: Physical) -> Result<Blob> {
        let call = Call::ExportFabric;
        self.enter(call, device)?;
        self.memory.write().export(call, device, physical, Share::Fabric, |range| {
            Ok(Ticket::blob(Purpose::Fabric, &range.file, range.offset, range.bytes))
        })
    }

    fn import_fabric(&self, device: DeviceId, blob: &Blob) -> Result<Physical> {
        let call = Call::ImportFabric;
        self.enter(call, device)?;
        let ticket = Ticket::read(call, Purpose::Fabric, blob)?;
        self.memory.write().import(call, ticket.open(call)?, ticket.offset, Share::Fabric)
    }

    fn ipc_export(&self, device: DeviceId, at: Address) -> Result<Blob> {
        let call = Call::IpcExport;
        self.enter(call, device)?;
        let mut memory = self.memory.write();
        let (bytes, kind) = memory.block_starting(call, at, "plain")?;
        let Kind::Plain { device: owner, offset, .. } = kind else {
            return Err(call.invalid(format!("{at} is not the start of a plain allocation: {kind:?}")));
        };
        let file = Arc::clone(&memory.backing(Place::Device(owner)).file);
        file.record(call, offset, bytes)?;
        if let Some(block) = memory.blocks.get_mut(&at.0) {
            block.kind = Kind::Plain { device: owner, offset, shared: true };
        }
        Ok(Ticket::blob(Purpose::Legacy, &file, offset, bytes))
    }

    fn ipc_open(&self, device: DeviceId, blob: &Blob) -> Result<Address> {
        let call = Call::IpcOpen;
        self.enter(call, device)?;
        let ticket = Ticket::read(call, Purpose::Legacy, blob)?;
        if ticket.process == std::process::id() {
            return Err(call.invalid("the allocation is this process's own: use its address"));
        }
        let file = ticket.open(call)?;
        let mut memory = self.memory.write();
        file.confirm(call, ticket.offset, ticket.bytes)?;
        let file = memory.adopt(call, file, Content::Physical)?;
        memory.add_file_block(call, (&file, ticket.offset), ticket.bytes, Kind::Opened { device })
    }

    fn ipc_close(&self, device: DeviceId, at: Address) -> Result<()> {
        let call = Call::IpcClose;
        self.enter(call, device)?;
        let mut memory = self.memory.write();
        match memory.block_starting(call, at, "opened")? {
            (_, Kind::Opened { .. }) => memory.remove_block(call, at.0),
            (_, kind) => Err(call.invalid(format!("{at} is not the start of an opened allocation: {kind:?}"))),
        }
    }
}
