//! The last rungs of the out-of-memory ladder: what can be given back, nearest first.

use super::DevicePool;

/// One rung: told how many bytes are wanted, says whether it gave anything back.
pub(crate) type Step = fn(&DevicePool, u64) -> bool;

/// In order. The wait at the end is for what the callbacks freed.
pub(crate) const STEPS: [Step; 6] = [
    |pool, _| pool.wait_for_pending(),
    |pool, _| pool.clear_quarantine(),
    |pool, _| {
        !pool.backing.is_host() && pool.capabilities.driver_pools && pool.driver.trim_driver_pools(pool.device).is_ok()
    },
    |pool, _| pool.pressure.trim_others(pool.device),
    |pool, bytes| pool.pressure.call(pool.device, bytes),
    |pool, _| pool.wait_for_pending(),
];
