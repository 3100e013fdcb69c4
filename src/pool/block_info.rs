//! For callers that keep books of their own about blocks: what a block is, and what it was when it went.

use super::device::DevicePool;
use super::pool::Pool;
use crate::block::{Header, Place};
use crate::error::{Error, Result};
use crate::units::{Address, GRAIN, StreamHandle};

/// A live block, as its user knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// The device it is on.
    pub device: i32,
    /// Its length.
    pub bytes: u64,
    /// How many bytes were asked for.
    pub requested: u64,
}

impl Account {
    #[inline]
    fn new(home: &DevicePool, place: Place<'_>, header: Header) -> Self {
        let bytes = header.grains() * GRAIN;
        Self { device: home.device.0 as i32, bytes, requested: bytes - u64::from(place.unasked()) }
    }

    /// For a block that is about to go: its account, if it is that framework's.
    #[inline(always)]
    pub(crate) fn of_tag(tag: u8) -> impl Fn(&DevicePool, Place<'_>, Header) -> Option<Self> {
        move |home, place, header| (header.tag() == tag).then(|| Self::new(home, place, header))
    }
}

/// How many bytes of a block of that length such a request does not ask for.
#[inline(always)]
pub(crate) const fn unasked(grains: u64, bytes: u64) -> u32 {
    (grains * GRAIN).wrapping_sub(bytes) as u32
}

impl Pool {
    /// The block that starts at `at`, which framework `tag` asked for, and the stream of its allocation.
    ///
    /// # Errors
    /// [`Error::BadFree`] if no live block of that framework starts there.
    pub fn account(&self, at: Address, tag: u8) -> Result<(Account, StreamHandle)> {
        let home = self.device(self.device_of(at)?)?;
        let (account, stream, _) = home.account(at, tag)?;
        Ok((account, stream))
    }

    /// Frees a block of framework `tag` in the order of the stream of its allocation, and behind what `current` has now, where
    /// there is such a stream: for frameworks whose users free while another stream than that is current, and may have used
    /// the block there. A private pool's memory stays in the order of its own stream, and nothing is asked of a captured one.
    /// The stream of the allocation must be alive.
    ///
    /// # Errors
    /// [`Error::BadFree`] if no live block of that framework starts at `at`; nothing was changed.
    #[inline]
    pub fn free_while(&self, at: Address, current: Option<StreamHandle>, tag: u8) -> Result<Account> {
        let near = current.and_then(|current| self.near_block(at, current, DevicePool::is_as_known));
        match near.and_then(|near| near.free_fenced(at, Account::of_tag(tag))) {
            Some(account) => Ok(account),
            None => self.free_while_missed(at, current, tag),
        }
    }

    #[cold]
    #[inline(never)]
    fn free_while_missed(&self, at: Address, current: Option<StreamHandle>, tag: u8) -> Result<Account> {
        let home = self.device(self.device_of(at)?)?;
        let (account, stream, private) = home.account(at, tag)?;
        if let Some(current) = current.map(StreamHandle::canonical).filter(|&current| !private && current != stream) {
            let noted = self.on_stream(account.device, current, |home, current, _| {
                if home.may_be_captured(current)? { Ok(()) } else { home.record_use(current, at) }
            });
            if let Err(error) = noted {
                tracing::debug!(device = %home.device, %error, "a free does not wait for the stream that was current");
            }
        }
        self.free(at, stream)?;
        Ok(account)
    }
}

impl DevicePool {
    /// Notes how many bytes were asked for of the block at `at`, which nobody else knows of yet.
    pub(crate) fn asked(&self, bytes: u64, at: Address) -> Address {
        if let Some(place) = self.grain(at).and_then(|start| self.table.place(start)) {
            place.set_unasked(unasked(place.read().grains(), bytes));
        }
        at
    }

    /// How many bytes of a live block were not asked for.
    pub(crate) fn unasked(&self, start: u64) -> u32 {
        self.table.place(start).map_or(0, Place::unasked)
    }

    /// A live block, the stream of its allocation, and whether it belongs to a private pool.
    fn account(&self, at: Address, tag: u8) -> Result<(Account, StreamHandle, bool)> {
        let (start, header) = self.find_live(at)?;
        if header.tag() != tag {
            let why = format!("{at} is a block of another framework: free it where it was allocated");
            return Err(Error::BadFree(why.into()));
        }
        let place = self.table.place(start).ok_or_else(|| self.bad_free(at))?;
        let known = self.streams.read().slots.get(header.stream() as usize).cloned().flatten();
        let stream = known.map(|stream| stream.handle).ok_or_else(|| self.bad_free(at))?;
        let private = header.is_special() && self.inner.lock().private_blocks.contains_key(&start);
        Ok((Account::new(self, place, header), stream, private))
    }
}
