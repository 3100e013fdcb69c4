//! Reclaim: polling fences, waiting for them, and the other ways to get memory back.

use std::sync::Arc;

use super::chunks::{retry_orphans, unmap_retired};
use super::device_pool::DevicePool;
use super::state::State;
use crate::arena::IDLE;
use crate::policy::next::Reclaim;
use crate::pool::cache::stream::Stream;
use crate::pool::order::fence::Fence;
use crate::pool::streams::polling;

/// Empties every cache and polls every fence, without waiting. Memory whose fence has passed becomes unowned, is
/// unmapped, or is freed. `may_poll`: whether to poll the fence of a stream.
pub(crate) fn poll(pool: &DevicePool, state: &mut State, may_poll: impl Fn(&Stream) -> bool) {
    unmap_retired(&pool.gpu, &pool.backing, state);
    state.give_deferred();
    // The list changes only under the state's lock, so this read lock is free.
    polling::poll(&pool.streams.read(), &mut state.memory, may_poll);
    retry_orphans(&pool.backing, state);
}

/// Waits on the host until all blocks freed so far are proven unused. Returns whether there was anything to wait for.
pub(crate) fn wait_for_pending(pool: &DevicePool) -> bool {
    let fences = {
        let mut state = pool.state.lock();
        poll(pool, &mut state, |_| true);
        pending(pool, &mut state)
    };
    if fences.is_empty() {
        return false;
    }
    for fence in &fences {
        if let Err(error) = fence.wait() {
            tracing::warn!(device = %pool.gpu.device, %error, "waiting for a fence failed");
        }
    }
    poll(pool, &mut pool.state.lock(), |_| true);
    true
}

/// All fences that are still pending.
fn pending(pool: &DevicePool, state: &mut State) -> Vec<Arc<Fence>> {
    let mut fences: Vec<Arc<Fence>> = state.retiring.iter().filter_map(|(fence, _)| fence.clone()).collect();
    fences.extend(state.deferred.iter().flat_map(|block| block.fences.iter().cloned()));
    fences.extend(polling::pending(&pool.streams.read(), &mut state.memory));
    fences
}

/// Waits for the whole device where nothing else proves memory unused: memory of released private pools, and blocks
/// freed on a capturing stream. Returns whether that freed anything.
pub(crate) fn clear_quarantine(pool: &DevicePool) -> bool {
    let (blocks, owners) = {
        let state = pool.state.lock();
        (state.quarantine.clone(), state.released.clone())
    };
    // A wait for the whole device would break a capture.
    if blocks.is_empty() && owners.is_empty() || pool.gpu.is_capturing() {
        return false;
    }
    if let Err(error) = pool.gpu.driver.synchronize(pool.gpu.device) {
        tracing::debug!(device = %pool.gpu.device, %error, "waiting for the device failed");
        return false;
    }
    let mut state = pool.state.lock();
    // The wait covers only what was there before it.
    let mut cleared = Vec::new();
    state.quarantine.retain(|block| {
        !blocks.contains(block) || {
            cleared.push(*block);
            false
        }
    });
    for &(start, _) in &cleared {
        state.memory.arena.give(start, IDLE, 0);
    }
    for owner in owners {
        if state.released.remove(&owner) {
            state.memory.arena.promote(owner, u64::MAX);
            state.memory.arena.owner_remove(owner);
        }
    }
    true
}

/// Tries `ways` in order until one gives memory back; `bytes` are wanted. Returns how many were tried.
pub(crate) fn reclaim(pool: &DevicePool, ways: &[Reclaim], bytes: u64) -> usize {
    let gpu = &pool.gpu;
    let gives = |how: &Reclaim| match how {
        Reclaim::Pending => wait_for_pending(pool),
        Reclaim::Quarantine => clear_quarantine(pool),
        Reclaim::DriverPools => {
            let trims = !pool.backing.is_host() && gpu.capabilities.driver_pools;
            trims && gpu.driver.trim_driver_pools(gpu.device).is_ok()
        }
        Reclaim::OtherPools => pool.pressure.trim_others(gpu.device),
        Reclaim::Callbacks => pool.pressure.call(gpu.device, bytes),
    };
    ways.iter().position(gives).map_or(ways.len(), |found| found + 1)
}
