//! One allocation of virtual memory: its addresses and its physical memory, and growing and shrinking both.

use std::sync::Arc;

use super::options::Checked;
use crate::driver::{Access, Driver, Physical, Place, Result};
use crate::units::{Address, DeviceId};

/// One physical handle of a region.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub physical: Physical,
    pub bytes: u64,
    access: Vec<(Place, Access)>,
}

/// A range of addresses, with physical memory mapped from the start without a gap.
#[derive(Debug)]
pub(super) struct Region {
    driver: Arc<dyn Driver>,
    device: DeviceId,
    pub at: Address,
    /// The bytes that its user may use.
    pub bytes: u64,
    /// Adjacent reservations, in address order.
    reserved: Vec<(Address, u64)>,
    pub pieces: Vec<Piece>,
}

impl Region {
    /// Reserves addresses, creates physical memory and maps it. After an error nothing is left.
    pub fn new(driver: &Arc<dyn Driver>, device: DeviceId, bytes: u64, kind: &Checked) -> Result<Self> {
        let mut region = Self::reserve(driver, device, bytes, kind)?;
        match region.append(bytes, kind) {
            Ok(()) => {
                region.bytes = bytes;
                Ok(region)
            }
            Err(error) => {
                region.give_up();
                Err(error)
            }
        }
    }

    /// Reserves addresses for `bytes` and, if possible, for growth to the size of the device's memory, so that growing
    /// moves nothing.
    fn reserve(driver: &Arc<dyn Driver>, device: DeviceId, bytes: u64, kind: &Checked) -> Result<Self> {
        let all = driver.memory_info(device).map_or(0, |info| info.total);
        let roomy = all.max(bytes.saturating_mul(2)).next_multiple_of(kind.granularity);
        let reserve = |bytes| driver.reserve_at(device, bytes, kind.alignment, kind.hint).map(|at| (at, bytes));
        let (at, length) = reserve(roomy).or_else(|_| reserve(bytes))?;
        Ok(Self { driver: Arc::clone(driver), device, at, bytes: 0, reserved: vec![(at, length)], pieces: Vec::new() })
    }

    pub fn mapped(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }

    fn addresses(&self) -> u64 {
        self.reserved.iter().map(|&(_, bytes)| bytes).sum()
    }

    /// Creates and maps `bytes` more bytes behind the mapped ones. pre: their addresses are reserved.
    fn append(&mut self, bytes: u64, kind: &Checked) -> Result<()> {
        let physical = self.driver.create_with(self.device, bytes, &kind.physical)?;
        let piece = Piece { physical, bytes, access: kind.access.clone() };
        if let Err(error) = self.map(&piece, self.at.plus(self.mapped())) {
            self.try_twice("release", || self.driver.release(self.device, physical));
            return Err(error);
        }
        self.pieces.push(piece);
        Ok(())
    }

    fn map(&self, piece: &Piece, at: Address) -> Result<()> {
        self.driver.map(self.device, at, piece.bytes, piece.physical)?;
        if piece.access.is_empty() {
            return Ok(());
        }
        self.driver.grant_access(self.device, at, piece.bytes, &piece.access).inspect_err(|_| {
            self.try_twice("unmap", || self.driver.unmap(self.device, at, piece.bytes));
        })
    }

    // ---- growing -------------------------------------------------------------------------------------

    /// Grows to `bytes` if the addresses are free. `false`: it has to move.
    pub fn grow_in_place(&mut self, bytes: u64, kind: &Checked) -> Result<bool> {
        let missing = bytes - self.mapped();
        let room = self.addresses() - self.mapped();
        if missing > room {
            let end = self.at.plus(self.addresses());
            let more = missing - room;
            let Ok(got) = self.driver.reserve_at(self.device, more, kind.granularity, end) else { return Ok(false) };
            if got != end {
                self.try_twice("unreserve", || self.driver.unreserve(self.device, got, more));
                return Ok(false);
            }
            self.reserved.push((end, more));
        }
        // A mapping must not cross the border of two reservations.
        let parts = [missing.min(room), missing.saturating_sub(room)];
        let before = self.pieces.len();
        for part in parts.into_iter().filter(|&part| part > 0) {
            if let Err(error) = self.append(part, kind) {
                self.drop_pieces(before);
                self.drop_reservation_beyond(room, missing);
                return Err(error);
            }
        }
        self.bytes = bytes;
        Ok(true)
    }

    /// Frees the reservation that a failed growth added.
    fn drop_reservation_beyond(&mut self, room: u64, missing: u64) {
        if missing > room
            && let Some((at, bytes)) = self.reserved.pop()
        {
            self.try_twice("unreserve", || self.driver.unreserve(self.device, at, bytes));
        }
    }

    /// A second region with the same physical memory, grown to `bytes`; this one does not change. Both share the
    /// physical memory until [`Region::abandon`].
    pub fn moved(&self, bytes: u64, kind: &Checked) -> Result<Self> {
        let mut new = Self::reserve(&self.driver, self.device, bytes, kind)?;
        let mut mapped = Vec::new();
        let result = self
            .pieces
            .iter()
            .try_for_each(|piece| {
                let at = new.at.plus(new.mapped());
                new.map(piece, at)?;
                mapped.push((at, piece.bytes));
                new.pieces.push(piece.clone());
                Ok(())
            })
            .and_then(|()| new.append(bytes - new.mapped(), kind));
        if let Err(error) = result {
            for (at, bytes) in mapped {
                self.try_twice("unmap", || self.driver.unmap(self.device, at, bytes));
            }
            new.unreserve();
            return Err(error);
        }
        new.bytes = bytes;
        Ok(new)
    }

    /// Unmaps this region and frees its addresses. The physical memory stays mapped in the second region.
    pub fn abandon(&self) {
        self.try_twice("unmap", || self.unmap_all());
        self.unreserve();
    }

    // ---- shrinking and ending ------------------------------------------------------------------------

    /// Shrinks to `bytes`: frees whole pieces beyond it. A piece that the new end cuts stays whole.
    pub fn shrink(&mut self, bytes: u64) -> Result<()> {
        let mut start = 0;
        let keep = self.pieces.iter().take_while(|piece| {
            let needed = start < bytes;
            start += if needed { piece.bytes } else { 0 };
            needed
        });
        let keep = keep.count();
        let gone = self.mapped() - start;
        if gone > 0 {
            self.driver.unmap(self.device, self.at.plus(start), gone)?;
        }
        for piece in self.pieces.split_off(keep) {
            self.try_twice("release", || self.driver.release(self.device, piece.physical));
        }
        self.bytes = bytes;
        Ok(())
    }

    fn unmap_all(&self) -> Result<()> {
        match self.mapped() {
            0 => Ok(()),
            bytes => self.driver.unmap(self.device, self.at, bytes),
        }
    }

    /// Frees everything. After an error nothing was freed, so the call can be repeated.
    pub fn end(&self) -> Result<()> {
        self.unmap_all()?;
        for piece in &self.pieces {
            self.try_twice("release", || self.driver.release(self.device, piece.physical));
        }
        self.unreserve();
        Ok(())
    }

    /// Frees everything that a failed call created.
    fn give_up(&mut self) {
        self.drop_pieces(0);
        self.unreserve();
    }

    fn drop_pieces(&mut self, keep: usize) {
        while self.pieces.len() > keep {
            let end = self.mapped();
            if let Some(piece) = self.pieces.pop() {
                let at = self.at.plus(end - piece.bytes);
                self.try_twice("unmap", || self.driver.unmap(self.device, at, piece.bytes));
                self.try_twice("release", || self.driver.release(self.device, piece.physical));
            }
        }
    }

    fn unreserve(&self) {
        for &(at, bytes) in &self.reserved {
            self.try_twice("unreserve", || self.driver.unreserve(self.device, at, bytes));
        }
    }

    /// Calls that free resources are tried twice, since nothing retries them later.
    fn try_twice(&self, what: &str, call: impl Fn() -> Result<()>) {
        if let Err(error) = call().or_else(|_| call()) {
            tracing::error!(device = %self.device, %error, "{what} failed: memory or addresses leak");
        }
    }
}
