//! What lies behind a live block, for other processes.

use super::device_pool::DevicePool;
use super::free::make_special;
use super::state::Export;
use crate::block::State as BlockState;
use crate::driver::{Physical, Place};
use crate::error::{Error, Result};
use crate::ticket::Ticket;
use crate::units::{Address, DeviceId, GRANULE};

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

/// Notes that a part of the live block at `base` was exported: as [`Pool::export`](crate::pool::Pool).
pub(crate) fn export(pool: &DevicePool, base: Address, export: Export) -> Result<(Place, Ticket)> {
    if !pool.backing.is_shareable() {
        return Err(Error::Unsupported(
            format!("memory of device {} cannot be exported as file descriptors by this driver", pool.gpu.device)
                .into(),
        ));
    }
    loop {
        let (start, header) = pool.find_live(base)?;
        let mut state = pool.state.lock();
        // Its free goes the slow way from now on, past the list of exports.
        if make_special(pool, start, header) {
            let known = state.exports.entry(start).or_default();
            let ticket = match known.iter().find(|known| known.part == export.part) {
                Some(known) => known.ticket,
                None => {
                    let ticket = export.ticket;
                    known.push(export);
                    ticket
                }
            };
            return Ok((pool.backing.place(), ticket));
        }
    }
}

/// What `look` makes of the chunks of the live block at `base`, which was exported: as [`Pool::extent`](crate::pool::Pool).
pub(crate) fn extent<T>(pool: &DevicePool, base: Address, look: impl FnOnce(&Extent) -> T) -> Result<T> {
    let state = pool.state.lock();
    let found = pool.layout.granule(base).map(|start| (start, pool.layout.table.read(start)));
    let live = found.filter(|(start, header)| header.state() == BlockState::Live && state.exports.contains_key(start));
    let Some((start, header)) = live else {
        return Err(Error::NotFound(format!("the block at {base} was freed since it was exported").into()));
    };
    let chunks = state.memory.arena.chunks_under(start, header.granules());
    let page = chunks.first().map_or(0, |chunk| chunk.page);
    let extent = Extent {
        device: pool.gpu.device,
        offset: (start - page * (pool.backing.granularity / GRANULE)) * GRANULE,
        chunks: chunks.iter().map(|chunk| (Physical(chunk.handle), pool.backing.page_bytes(chunk.pages))).collect(),
    };
    Ok(look(&extent))
}
