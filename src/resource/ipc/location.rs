//! The location of exported memory, in terms that hold in every process.

use crate::driver::{Driver, Place};
use crate::error::{Error, Result};
use crate::units::DeviceId;

/// The location of memory. Devices have UUIDs, since their ordinals differ between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// Memory of the device with this UUID.
    Device([u8; 16]),
    /// Host memory, on any NUMA node.
    Host,
    /// Host memory on this NUMA node.
    HostNuma(u32),
}

impl Location {
    /// The location of a place of this process.
    ///
    /// # Errors
    /// The driver's, for a device that it does not know.
    pub fn of(driver: &dyn Driver, place: Place) -> Result<Self> {
        Ok(match place {
            Place::Device(device) => Self::Device(driver.device_uuid(device)?),
            Place::Host | Place::HostNumaCurrent => Self::Host,
            Place::HostNuma(node) => Self::HostNuma(node),
        })
    }

    /// The place in this process.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a device that this process does not see.
    pub fn place(self, driver: &dyn Driver) -> Result<Place> {
        let uuid = match self {
            Self::Device(uuid) => uuid,
            Self::Host => return Ok(Place::Host),
            Self::HostNuma(node) => return Ok(Place::HostNuma(node)),
        };
        for device in (0..driver.device_count()).map(DeviceId) {
            if driver.device_uuid(device)? == uuid {
                return Ok(Place::Device(device));
            }
        }
        let (name, count) = (uuid::Uuid::from_bytes(uuid), driver.device_count());
        Err(Error::NotFound(
            format!(
                "the memory lies on device {name}, which is none of the {count} that this process sees: make it visible \
                 here too (CUDA_VISIBLE_DEVICES)"
            )
            .into(),
        ))
    }
}
