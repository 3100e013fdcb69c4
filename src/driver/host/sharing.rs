//! Exporting and importing memory: descriptors and blobs that another process can open.
//!
//! A process cannot detect that other processes have closed all descriptors of its memory. So an exported handle keeps
//! its pages until the process ends. After its release it no longer counts against the capacity, and costs only RAM.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::HostDriver;
use super::blocks::Kind;
use super::fault::Call;
use super::file::{Content, SharedFile};
use super::memory::Memory;
use super::ticket::{Purpose, Ticket};
use super::vmm::{AddressSpace, Range};
use crate::driver::{Blob, Physical, Place, Result, Share, Sharing};
use crate::units::{Address, DeviceId};

/// Records that other processes may have a handle, after `make` created its descriptor or blob.
fn export<T>(
    space: &mut AddressSpace,
    call: Call,
    device: DeviceId,
    physical: Physical,
    share: Share,
    make: impl FnOnce(&Range) -> Result<T>,
) -> Result<T> {
    let range = space.held(call, device, physical)?;
    if range.share != share {
        let made = range.share;
        return Err(call.invalid(format!("handle {} was created with Share::{made:?}", physical.0)));
    }
    let made = make(range)?;
    range.file.record(call, range.offset, range.bytes)?;
    range.exported = true;
    Ok(made)
}

fn import(memory: &mut Memory, call: Call, file: SharedFile, offset: u64, share: Share) -> Result<Physical> {
    let bytes = file.recorded(call, offset)?;
    memory.space.check_size(call, bytes)?;
    let file = memory.foreign.adopt(call, file, Content::Physical, &memory.places)?;
    let place = file.place;
    let range = Range { file, place, offset, bytes, share, held: true, mappings: 0, exported: true, imported: true };
    Ok(memory.space.add_range(range))
}

impl Sharing for HostDriver {
    fn export_fd(&self, device: DeviceId, physical: Physical) -> Result<OwnedFd> {
        let call = Call::ExportFd;
        self.gate.enter(call, device)?;
        export(&mut self.memory.write().space, call, device, physical, Share::Fd, |range| {
            range.file.reopen(call, range.offset)
        })
    }

    fn import_fd(&self, device: DeviceId, fd: BorrowedFd<'_>) -> Result<Physical> {
        let call = Call::ImportFd;
        self.gate.enter(call, device)?;
        let ours = fd.try_clone_to_owned().map_err(|error| call.failed_with("duplicating the descriptor", &error))?;
        let file = SharedFile::open(call, ours.into())?;
        let offset = file.position(call)?;
        import(&mut self.memory.write(), call, file, offset, Share::Fd)
    }

    fn export_fabric(&self, device: DeviceId, physical: Physical) -> Result<Blob> {
        let call = Call::ExportFabric;
        self.gate.enter(call, device)?;
        export(&mut self.memory.write().space, call, device, physical, Share::Fabric, |range| {
            Ok(Ticket::blob(Purpose::Fabric, &range.file, range.offset, range.bytes))
        })
    }

    fn import_fabric(&self, device: DeviceId, blob: &Blob) -> Result<Physical> {
        let call = Call::ImportFabric;
        self.gate.enter(call, device)?;
        let ticket = Ticket::read(call, Purpose::Fabric, blob)?;
        import(&mut self.memory.write(), call, ticket.open(call)?, ticket.offset, Share::Fabric)
    }

    fn ipc_export(&self, device: DeviceId, at: Address) -> Result<Blob> {
        let call = Call::IpcExport;
        self.gate.enter(call, device)?;
        let mut memory = self.memory.write();
        let (bytes, kind) = memory.blocks.starting(call, at, "plain")?;
        let Kind::Plain { device: owner, offset, .. } = kind else {
            return Err(call.invalid(format!("{at} is not the start of a plain allocation: {kind:?}")));
        };
        let file = Arc::clone(&memory.places.backing(Place::Device(owner)).file);
        file.record(call, offset, bytes)?;
        if let Some(block) = memory.blocks.get_mut(at) {
            block.kind = Kind::Plain { device: owner, offset, shared: true };
        }
        Ok(Ticket::blob(Purpose::Legacy, &file, offset, bytes))
    }

    fn ipc_open(&self, device: DeviceId, blob: &Blob) -> Result<Address> {
        let call = Call::IpcOpen;
        self.gate.enter(call, device)?;
        let ticket = Ticket::read(call, Purpose::Legacy, blob)?;
        if ticket.process == std::process::id() {
            return Err(call.invalid("the allocation is this process's own: use its address"));
        }
        let file = ticket.open(call)?;
        let Memory { places, blocks, foreign, .. } = &mut *self.memory.write();
        file.confirm(call, ticket.offset, ticket.bytes)?;
        let file = foreign.adopt(call, file, Content::Physical, places)?;
        blocks.add_of_file(call, (&file, ticket.offset), ticket.bytes, Kind::Opened { device })
    }

    fn ipc_close(&self, device: DeviceId, at: Address) -> Result<()> {
        let call = Call::IpcClose;
        self.gate.enter(call, device)?;
        let mut memory = self.memory.write();
        match memory.blocks.starting(call, at, "opened")? {
            (_, Kind::Opened { .. }) => memory.blocks.remove(call, at.0),
            (_, kind) => Err(call.invalid(format!("{at} is not the start of an opened allocation: {kind:?}"))),
        }
    }
}
