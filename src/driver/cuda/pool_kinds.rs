//! Finding the driver's pools of a place, and the kinds of pools that can be created.

use std::ffi::c_uint;
use std::ptr;

use cudarc::driver::sys::{
    CUmemAllocationHandleType as HandleType, CUmemAllocationType_enum as AllocationType, CUmemLocation, CUmemPoolProps,
    CUmemoryPool,
};

use super::CudaDriver;
use super::api::{self, version};
use super::error::{forgive, invalid, lacking};
use super::place::NOWHERE;
use crate::driver::{Place, PoolHandle, PoolOptions, Pools, Result};
use crate::units::DeviceId;

/// The default or the current pool of a place.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    Default,
    Current,
}

/// A kind of pool, for people.
pub(super) fn asked(place: Option<Place>, managed: bool) -> String {
    match (place, managed) {
        (Some(place), false) => format!("a pool of {place}"),
        (Some(place), true) => format!("a managed pool that prefers {place}"),
        (None, _) => "a managed pool without a preference".into(),
    }
}

impl CudaDriver {
    pub(super) fn pools(&self, device: DeviceId, call: &'static str) -> Result<&api::Pools> {
        let known = self.device(device)?;
        let group = self.api.need(&self.api.pools, call, 11_020)?;
        if !known.traits.pools {
            return Err(lacking(call, format!("device {device} has no stream-ordered pools")));
        }
        Ok(group)
    }

    pub(super) fn find_pool(
        &self,
        device: DeviceId,
        place: Option<Place>,
        managed: bool,
        wanted: Wanted,
    ) -> Result<PoolHandle> {
        let mut pool: CUmemoryPool = ptr::null_mut();
        // Every driver with pools has these calls for pinned memory of a device; other kinds need newer calls.
        if let (Some(Place::Device(owner)), false) = (place, managed) {
            let group = self.pools(owner, "cuDeviceGetMemPool")?;
            let (call, ask) = match wanted {
                Wanted::Default => ("cuDeviceGetDefaultMemPool", group.cuDeviceGetDefaultMemPool),
                Wanted::Current => ("cuDeviceGetMemPool", group.cuDeviceGetMemPool),
            };
            let handle = self.device(owner)?.handle;
            let _scope = self.enter_relaxed(device)?;
            // SAFETY: writes a pool, which the driver keeps.
            let code = unsafe { ask(&raw mut pool, handle) };
            self.api.check(call, code, || asked(place, managed))?;
            return Ok(PoolHandle(pool as u64));
        }
        let call = match wanted {
            Wanted::Default => "cuMemGetDefaultMemPool",
            Wanted::Current => "cuMemGetMemPool",
        };
        self.pools(device, call)?;
        let group = self.api.need(&self.api.place_pools, call, 13_000)?;
        let ask = match wanted {
            Wanted::Default => group.cuMemGetDefaultMemPool,
            Wanted::Current => group.cuMemGetMemPool,
        };
        let (type_, mut location) = self.pool_place(call, device, place, managed)?;
        let _scope = self.enter_relaxed(device)?;
        // SAFETY: reads the location, writes a pool, which the driver keeps.
        let code = unsafe { ask(&raw mut pool, &raw mut location, type_ as c_uint) };
        self.api.check(call, code, || asked(place, managed))?;
        Ok(PoolHandle(pool as u64))
    }

    /// The properties for libcuda, or an error that names the missing feature.
    pub(super) fn pool_properties(
        &self,
        call: &'static str,
        device: DeviceId,
        options: &PoolOptions,
    ) -> Result<CUmemPoolProps> {
        if options.managed {
            self.api.need(&self.api.place_pools, call, 13_000)?;
            if options.max_size != 0 {
                return Err(invalid(call, format!("managed pools take no limit, {} was asked for", options.max_size)));
            }
        }
        if options.max_size != 0 && self.api.version < 12_020 {
            let detail = format!("a limit needs driver API 12.2 or newer, this is {}", version(self.api.version));
            return Err(lacking(call, detail));
        }
        if options.share {
            let unshared = match options.place {
                _ if options.managed => Some("managed pools cannot be shared".into()),
                Some(Place::Host) => Some("pools of host memory are shared only from a named NUMA node".into()),
                Some(Place::Device(owner)) if !self.device(owner)?.traits.pool_fd => {
                    Some(format!("pools of device {owner} cannot be shared as a file descriptor"))
                }
                _ => None,
            };
            if let Some(detail) = unshared {
                return Err(lacking(call, detail));
            }
        }
        let (kind, location) = self.pool_place(call, device, options.place, options.managed)?;
        Ok(CUmemPoolProps {
            allocType: kind,
            handleTypes: if options.share {
                HandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            } else {
                HandleType::CU_MEM_HANDLE_TYPE_NONE
            },
            location,
            win32SecurityAttributes: ptr::null_mut(),
            maxSize: options.max_size as usize,
            usage: 0,
            reserved: [0; 54],
        })
    }

    fn pool_place(
        &self,
        call: &'static str,
        device: DeviceId,
        place: Option<Place>,
        managed: bool,
    ) -> Result<(AllocationType, CUmemLocation)> {
        if managed {
            let location = place.map_or(Ok(NOWHERE), |place| self.location(call, place))?;
            return Ok((AllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED, location));
        }
        let traits = self.device(device)?.traits;
        let place = match place {
            Some(Place::Host) if !traits.host_pools => {
                let detail = format!("device {device} has no pools of host memory at large; a NUMA node may have one");
                return Err(lacking(call, detail));
            }
            Some(Place::HostNuma(_) | Place::HostNumaCurrent) if !traits.host_numa_pools => {
                return Err(lacking(call, format!("device {device} has no pools of a NUMA node's memory")));
            }
            Some(place) => place,
            None => return Err(invalid(call, "a pool that is not managed needs a place")),
        };
        Ok((AllocationType::CU_MEM_ALLOCATION_TYPE_PINNED, self.location(call, place)?))
    }

    /// Trims the default pool, and the current pool if the program set another.
    pub(super) fn trim_pools(&self, device: DeviceId) -> Result<()> {
        let find = |wanted| self.find_pool(device, Some(Place::Device(device)), false, wanted);
        forgive(find(Wanted::Default).and_then(|default| {
            let current = find(Wanted::Current)?;
            self.pool_trim(device, default, 0)?;
            if current == default || current.0 == 0 { Ok(()) } else { self.pool_trim(device, current, 0) }
        }))
    }
}
