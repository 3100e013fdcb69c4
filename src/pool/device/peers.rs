//! Access of other devices to a pool's memory. Access makes every mapping slower, so it is given only on request.

use super::device_pool::DevicePool;
use crate::driver::{Access, Driver, Place};
use crate::error::{Error, Result};
use crate::units::DeviceId;

impl DevicePool {
    /// What `peer` may do with the pool's memory.
    #[must_use]
    pub fn peer_access(&self, peer: DeviceId) -> Access {
        self.backing.access_of(peer)
    }

    /// Sets what `peer` may do with the pool's memory, live blocks included. No queued work of `peer` may use memory
    /// that it loses access to.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the pool's own device, [`Error::Unsupported`] where the devices cannot reach each
    /// other. The access is then as before.
    pub fn set_peer_access(&self, peer: DeviceId, access: Access) -> Result<()> {
        // Every device may use pinned memory.
        let owner = if self.backing.is_host() { peer } else { self.gpu.device };
        if !needs_access(&*self.gpu.driver, owner, peer, access)? {
            return Ok(());
        }
        let state = self.state.lock();
        let before = self.backing.set_access_of(peer, access);
        let places = state.memory.arena.all_chunks().into_iter().map(|chunk| (chunk.page, chunk.pages));
        let retiring = state.retiring.iter().map(|(_, old)| (old.page, old.pages));
        let mut changed = Vec::new();
        for (page, pages) in places.chain(retiring) {
            let grant = move |access| self.backing.grant_to(page, pages, (Place::Device(peer), access));
            match grant(access) {
                Ok(()) => changed.push(grant),
                Err(error) => {
                    self.backing.set_access_of(peer, before);
                    for undo in changed {
                        if let Err(error) = undo(before) {
                            tracing::error!(device = %self.gpu.device, %peer, %error, "access could not be set back");
                        }
                    }
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }
}

/// Whether access has to be set: not for the owner itself.
///
/// # Errors
/// As [`DevicePool::set_peer_access`].
pub(crate) fn needs_access(driver: &dyn Driver, owner: DeviceId, peer: DeviceId, access: Access) -> Result<bool> {
    if peer == owner {
        if access == Access::ReadWrite {
            return Ok(false);
        }
        return Err(Error::invalid(format_args!(
            "device {peer} uses this pool's memory anyway: its access cannot be taken away"
        )));
    }
    if !driver.can_access_peer(owner, peer)? {
        return Err(Error::Unsupported(
            format!("device {peer} cannot be given access to memory of device {owner}").into(),
        ));
    }
    Ok(true)
}
