//! What lies behind a live block, for other processes.

use super::DevicePool;
use crate::block::State;
use crate::driver::{Physical, Place};
use crate::error::{Error, Result};
use crate::pool::pool::Pool;
use crate::resource::ipc::Ticket;
use crate::units::{Address, DeviceId, GRAIN};

/// A live block's physical memory.
#[derive(Clone, Debug)]
pub(crate) struct Extent {
    /// In whose context the chunks were made.
    pub device: DeviceId,
    /// Offset of the block in the first chunk, in bytes.
    pub offset: u64,
    /// The chunks it lies in, in address order: handle and bytes.
    pub chunks: Vec<(Physical, u64)>,
}

/// A part of a live block that was exported.
pub(crate) struct Export {
    /// Bytes from the block's start, and how many.
    pub part: (u64, u64),
    /// What it was offered as.
    pub ticket: Ticket,
    /// What to do when the block is freed.
    pub on_free: Box<dyn FnOnce() + Send>,
}

impl Pool {
    /// Notes that a part of the live block at `base` was exported: `on_free` runs when the block is freed, before the memory can be
    /// anybody else's. Returns where the memory lies, and the part's ticket: of a part that was exported before, the one that it has,
    /// and `export` is dropped.
    pub(crate) fn export(&self, base: Address, export: Export) -> Result<(Place, Ticket)> {
        let device = self.device_of(base)?;
        self.device(device)?.export(base, export)
    }

    /// What `look` makes of the chunks of the live block at `base`. The block cannot be freed meanwhile: `look` runs
    /// under the arena's lock, and must not call the pool.
    pub(crate) fn extent<T>(&self, base: Address, look: impl FnOnce(&Extent) -> T) -> Result<T> {
        let device = self.device_of(base)?;
        self.device(device)?.extent(base, look)
    }
}

impl DevicePool {
    fn export(&self, base: Address, export: Export) -> Result<(Place, Ticket)> {
        if !self.backing.is_shareable() {
            return Err(Error::Unsupported(
                format!("memory of device {} cannot be exported as file descriptors by this driver", self.device)
                    .into(),
            ));
        }
        loop {
            let (start, header) = self.find_live(base)?;
            let mut inner = self.inner.lock();
            // Its free goes the slow way from now on, past the list of exports.
            if self.change_header(start, header, header.special()) {
                let known = inner.exports.entry(start).or_default();
                let ticket = match known.iter().find(|known| known.part == export.part) {
                    Some(known) => known.ticket,
                    None => {
                        let ticket = export.ticket;
                        known.push(export);
                        ticket
                    }
                };
                return Ok((self.backing.place(), ticket));
            }
        }
    }

    fn extent<T>(&self, base: Address, look: impl FnOnce(&Extent) -> T) -> Result<T> {
        let inner = self.inner.lock();
        let found = self.grain(base).map(|start| (start, self.table.read(start)));
        let live = found.filter(|(start, header)| header.state() == State::Live && inner.exports.contains_key(start));
        let Some((start, header)) = live else {
            return Err(Error::NotFound(format!("the block at {base} was freed since it was exported").into()));
        };
        let chunks = inner.arena.chunks_under(start, header.grains());
        let page = chunks.first().map_or(0, |chunk| chunk.page);
        let extent = Extent {
            device: self.device,
            offset: (start - page * (self.backing.granularity / GRAIN)) * GRAIN,
            chunks: chunks.iter().map(|chunk| (Physical(chunk.handle), self.page_bytes(chunk.pages))).collect(),
        };
        Ok(look(&extent))
    }
}
