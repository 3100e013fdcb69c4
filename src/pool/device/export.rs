//! The physical memory of a live block, for other processes.

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
    /// The device in whose context the chunks were created.
    pub device: DeviceId,
    /// Offset of the block in the first chunk, in bytes.
    pub offset: u64,
    /// The chunks that the block lies in, in address order: handle and bytes.
    pub chunks: Vec<(Physical, u64)>,
}

/// Records the export of a part of the live block at `base`, as [`Pool::export`](crate::pool::Pool).
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
        // From now on the block's free takes the slow path, which ends its exports.
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

/// Calls `visit` with the chunks of the exported live block at `base`, as [`Pool::extent`](crate::pool::Pool).
pub(crate) fn extent<T>(pool: &DevicePool, base: Address, visit: impl FnOnce(&Extent) -> T) -> Result<T> {
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
    Ok(visit(&extent))
}
