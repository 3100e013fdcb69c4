//! For callers that keep books of their own about blocks: what a block is, and what it was when it went.

use super::bad_free::of_another_framework;
use super::cache::stream::Stream;
use super::device::device_pool::DevicePool;
use super::device::free::{Behind, record_use};
use super::fallback::device::Device;
use super::fallback::ledger::Block;
use super::pool::Pool;
use crate::block::{Header, Place};
use crate::error::Result;
use crate::units::{Address, DeviceId, GRANULE, StreamHandle};

/// A live block, as its user knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// The device it is on.
    pub device: i32,
    /// Its length.
    pub bytes: u64,
    /// How many bytes were asked for.
    pub requested: u64,
}

impl BlockInfo {
    #[inline]
    fn new(device: DeviceId, place: Place<'_>, header: Header) -> Self {
        let bytes = header.granules() * GRANULE;
        Self { device: device.0 as i32, bytes, requested: bytes - u64::from(place.slack()) }
    }

    fn of_block(device: DeviceId, block: &Block) -> Self {
        Self { device: device.0 as i32, bytes: block.bytes, requested: block.requested }
    }

    /// For a block that is about to go: its info, if it is that framework's.
    #[inline(always)]
    pub(crate) fn of_tag(tag: u8) -> impl Fn(&Stream, Place<'_>, Header) -> Option<Self> {
        move |stream, place, header| (header.tag() == tag).then(|| Self::new(stream.gpu.device, place, header))
    }
}

impl Pool {
    /// The block that starts at `at`, which framework `tag` asked for, and the stream of its allocation.
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

    /// Frees a block of framework `tag` in the order of the stream of its allocation, and behind what `current` has now, where there is such a stream: for frameworks whose users free while another stream than that is current, and may
    /// have used the block there. A private pool's memory stays in the order of its own stream, and nothing is asked of a captured one.
    /// The stream of the allocation must be alive.
    ///
    /// # Errors
    /// [`BadFree`](crate::error::Error::BadFree) if no live block of that framework starts at `at`; nothing was changed.
    pub fn free_while(&self, at: Address, current: Option<StreamHandle>, tag: u8) -> Result<BlockInfo> {
        self.free_slow_while(at, current, tag)
    }

    /// The same for a block that the fast path did not take.
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
                tracing::debug!(device = info.device, %error, "a free does not wait for the stream that was current");
            }
        }
        self.free_slow(at, stream, Behind::Stream)?;
        Ok(info)
    }
}

/// A live block, the stream of its allocation, and whether it belongs to a private pool.
fn block_info(pool: &DevicePool, at: Address, tag: u8) -> Result<(BlockInfo, StreamHandle, bool)> {
    let (start, header) = pool.find_live(at)?;
    if header.tag() != tag {
        return Err(of_another_framework(at));
    }
    let place = pool.layout.table.place(start).ok_or_else(|| pool.bad_free(at))?;
    let stream = pool.streams.by_slot(header.stream()).ok_or_else(|| pool.bad_free(at))?.handle;
    let private = header.is_special() && pool.state.lock().graphs.pool_of(start).is_some();
    Ok((BlockInfo::new(pool.device(), place, header), stream, private))
}
