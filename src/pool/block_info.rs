//! Block info, for callers that keep state of their own per block.

use super::bad_free::of_another_framework;
use super::cache::stream::Stream;
use super::device::device_pool::DevicePool;
use super::device::free::{FreeAfter, record_use};
use super::fallback::device::Device;
use super::fallback::ledger::Block;
use super::pool::Pool;
use crate::block::{CellRef, Header};
use crate::error::Result;
use crate::units::{Address, DeviceId, GRANULE, StreamHandle};

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// The block's device.
    pub device: i32,
    /// The block's length in bytes.
    pub bytes: u64,
    /// The bytes requested.
    pub requested: u64,
}

impl BlockInfo {
    #[inline]
    fn new(device: DeviceId, cell: CellRef<'_>, header: Header) -> Self {
        let bytes = header.granules() * GRANULE;
        Self { device: device.0 as i32, bytes, requested: bytes - u64::from(cell.slack()) }
    }

    fn of_block(device: DeviceId, block: &Block) -> Self {
        Self { device: device.0 as i32, bytes: block.bytes, requested: block.requested }
    }

    /// Inspects a block that is freed: returns its info if it belongs to framework `tag`.
    #[inline(always)]
    pub(crate) fn of_tag(tag: u8) -> impl Fn(&Stream, CellRef<'_>, Header) -> Option<Self> {
        move |stream, cell, header| (header.tag() == tag).then(|| Self::new(stream.gpu.device, cell, header))
    }
}

impl Pool {
    /// The block that starts at `at` and belongs to framework `tag`, and the stream of its allocation.
    ///
    /// # Errors
    /// [`BadFree`](crate::error::Error::BadFree) if no live block of that framework starts there.
    pub fn block_info(&self, at: Address, tag: u8) -> Result<(BlockInfo, StreamHandle)> {
        match self.device(self.device_of(at)?)? {
            Device::Arena(pool) => block_info(pool, at, tag).map(|(info, stream, _)| (info, stream)),
            Device::DriverOrdered(pool) => {
                let block = pool.block_of(at, tag)?;
                Ok((BlockInfo::of_block(pool.device(), &block), block.stream.handle))
            }
        }
    }

    /// Frees a block of framework `tag` in the order of the stream of its allocation, which must be alive, and after
    /// the work that `current` has now, if given. This is for frameworks whose users free a block while another stream
    /// is current, on which they may have used it. A private pool's memory stays in the order of its own stream, and a
    /// captured stream gets no event.
    ///
    /// # Errors
    /// [`BadFree`](crate::error::Error::BadFree) if no live block of that framework starts at `at`; nothing was changed.
    pub fn free_while(&self, at: Address, current: Option<StreamHandle>, tag: u8) -> Result<BlockInfo> {
        self.free_slow_while(at, current, tag)
    }

    /// Frees a block that the fast path declined.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_slow_while(&self, at: Address, current: Option<StreamHandle>, tag: u8) -> Result<BlockInfo> {
        if let Some(current) = current
            && let Ok(info) = self.free_now(at, current, true, BlockInfo::of_tag(tag))
        {
            return Ok(info);
        }
        let pool = match self.device(self.device_of(at)?)? {
            Device::Arena(pool) => pool,
            Device::DriverOrdered(pool) => {
                return Ok(BlockInfo::of_block(pool.device(), &pool.free_while(at, current, tag)?));
            }
        };
        let (info, stream, private) = block_info(pool, at, tag)?;
        if let Some(current) = current.map(StreamHandle::canonical).filter(|&current| !private && current != stream) {
            let noted = self.on_stream(None, info.device, current, |pool, found| {
                let captured = pool.gpu.may_be_captured(found.stream.handle)?;
                if captured { Ok(()) } else { record_use(pool, &found.stream, at) }
            });
            if let Err(error) = noted {
                tracing::debug!(device = info.device, %error, "the use on the current stream was not recorded for a free");
            }
        }
        self.free_slow(at, stream, FreeAfter::Stream)?;
        Ok(info)
    }
}

/// A live block, the stream of its allocation, and whether it belongs to a private pool.
fn block_info(pool: &DevicePool, at: Address, tag: u8) -> Result<(BlockInfo, StreamHandle, bool)> {
    let (start, header) = pool.find_live(at)?;
    if header.tag() != tag {
        return Err(of_another_framework(at));
    }
    let cell = pool.layout.table.cell(start).ok_or_else(|| pool.bad_free(at))?;
    let stream = pool.streams.by_slot(header.stream()).ok_or_else(|| pool.bad_free(at))?.handle;
    let private = header.is_special() && pool.state.lock().graphs.pool_of(start).is_some();
    Ok((BlockInfo::new(pool.device(), cell, header), stream, private))
}
