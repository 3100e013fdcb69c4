//! Access rights to memory.

use crate::driver::{Access, Place};
use crate::units::DeviceId;

/// The access of all places to some memory: one bit for each device, and one for the host's threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rights {
    read: u64,
    write: u64,
    host: Access,
}

impl Rights {
    /// All places read and write.
    pub(super) const ALL: Self = Self { read: u64::MAX, write: u64::MAX, host: Access::ReadWrite };

    /// The rights of one place alone.
    pub(super) fn only(place: Place) -> Self {
        let mut rights = Self::default();
        rights.set(place, Access::ReadWrite);
        rights
    }

    /// All host places stand for the host's threads.
    pub(super) fn set(&mut self, place: Place, access: Access) {
        let Place::Device(device) = place else {
            self.host = access;
            return;
        };
        let bit = 1 << device.0;
        self.read &= !bit;
        self.write &= !bit;
        if access != Access::None {
            self.read |= bit;
        }
        if access == Access::ReadWrite {
            self.write |= bit;
        }
    }

    pub(super) fn of(self, place: Place) -> Access {
        match place {
            Place::Device(device) if self.may(device, true) => Access::ReadWrite,
            Place::Device(device) if self.may(device, false) => Access::Read,
            Place::Device(_) => Access::None,
            _ => self.host,
        }
    }

    pub(super) fn may(self, device: DeviceId, write: bool) -> bool {
        let who = if write { self.write } else { self.read };
        who & (1 << device.0) != 0
    }

    /// The protection of the pages: that of all places together, since their work runs on threads of this process.
    pub(super) fn protection(self) -> i32 {
        let write = self.write != 0 || self.host == Access::ReadWrite;
        let read = write || self.read != 0 || self.host == Access::Read;
        (if read { libc::PROT_READ } else { libc::PROT_NONE }) | (if write { libc::PROT_WRITE } else { 0 })
    }

    /// The error for a device without access.
    pub(super) fn require(self, device: DeviceId, write: bool, at: u64) -> Result<(), String> {
        match (self.may(device, write), self.may(device, false)) {
            (true, _) => Ok(()),
            (false, true) => Err(format!("device {device} may read {at:#x} and not write it")),
            (false, false) => Err(format!("{at:#x} is mapped, but device {device} has no access to it")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_each_ones_own_and_the_protection_is_their_union() {
        let (first, second) = (Place::Device(DeviceId(0)), Place::Device(DeviceId(63)));
        let mut rights = Rights::default();
        assert_eq!(rights.protection(), libc::PROT_NONE);
        rights.set(second, Access::Read);
        assert_eq!((rights.of(first), rights.of(second)), (Access::None, Access::Read));
        assert_eq!(rights.protection(), libc::PROT_READ);
        rights.set(Place::HostNuma(1), Access::ReadWrite);
        assert_eq!((rights.of(Place::Host), rights.of(second)), (Access::ReadWrite, Access::Read));
        assert_eq!(rights.protection(), libc::PROT_READ | libc::PROT_WRITE);
        rights.set(second, Access::None);
        rights.set(Place::Host, Access::None);
        assert_eq!(rights, Rights::default());
    }
}
