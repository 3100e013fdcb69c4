//! Other devices that may use a pool's memory. Access costs time in every mapping, so it is given when asked for.

use super::DevicePool;
use crate::driver::{Access, Place};
use crate::error::{Error, Result};
use crate::units::DeviceId;

impl DevicePool {
    /// What `peer` may do with the pool's memory.
    #[must_use]
    pub fn peer_access(&self, peer: DeviceId) -> Access {
        self.backing.access_of(peer)
    }

    /// Says what `peer` may do with the pool's memory, live blocks included. No queued work of `peer` may be using
    /// what it loses.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the pool's own device, [`Error::Unsupported`] where the devices cannot reach each
    /// other. The access is then as before.
    pub fn set_peer_access(&self, peer: DeviceId, access: Access) -> Result<()> {
        if peer == self.device || self.backing.is_host() {
            if access == Access::ReadWrite {
                return Ok(());
            }
            return Err(Error::invalid(format_args!(
                "device {peer} uses this pool's memory anyway: its access cannot be taken away"
            )));
        }
        if !self.driver.can_access_peer(self.device, peer)? {
            return Err(Error::Unsupported(
                format!("device {peer} cannot be given access to memory of device {}", self.device).into(),
            ));
        }
        let inner = self.inner.lock();
        let before = self.backing.set_access_of(peer, access);
        let places = inner.arena.all_chunks().into_iter().map(|chunk| (chunk.page, chunk.pages));
        let retiring = inner.retiring.iter().map(|(_, old)| (old.page, old.pages));
        let mut changed = Vec::new();
        for (page, pages) in places.chain(retiring) {
            let grant = move |access| {
                let (at, bytes) = (self.page_address(page), self.page_bytes(pages));
                self.driver.grant_access(self.device, at, bytes, &[(Place::Device(peer), access)])
            };
            match grant(access) {
                Ok(()) => changed.push(grant),
                Err(error) => {
                    self.backing.set_access_of(peer, before);
                    for undo in changed {
                        if let Err(error) = undo(before) {
                            tracing::error!(device = %self.device, %peer, %error, "access could not be set back");
                        }
                    }
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }
}
