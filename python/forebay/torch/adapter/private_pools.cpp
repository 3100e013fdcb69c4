#include "allocator.h"

#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <thread>

namespace forebay_torch {

void Allocator::beginAllocateToPool(DeviceIndex index, MempoolId_t id, std::function<bool(cudaStream_t)> filter) {
  Device& state = opened_device(index);
  // Forebay also counts the users of a custom pool, as of a private pool of its own.
  if (custom_pools_.begin(index, id, filter)) {
    library_.check(library_.forebay_torch_hold_pool(index, id.first, id.second));
    return;
  }
  // Before the first allocation goes to the pool, so that each of its blocks gets into the block table.
  state.pool_routes.fetch_add(1);
  try {
    library_.forebay_torch_begin_allocate_to_pool(index, id.first, id.second, &filter);
  } catch (...) {
    state.pool_routes.fetch_sub(1);
    throw;
  }
}

void Allocator::endAllocateToPool(DeviceIndex index, MempoolId_t id) {
  if (custom_pools_.end(index, id)) {
    return;
  }
  library_.forebay_torch_end_allocate_to_pool(index, id.first, id.second);
  device(index).pool_routes.fetch_sub(1);
}

void Allocator::markCaptureBegin(DeviceIndex index) {
  device(index).captures.fetch_add(1);
}

void Allocator::markCaptureEnd(DeviceIndex index) {
  device(index).captures.fetch_sub(1);
}

// Called in destructors, also at exit: it must not throw.
void Allocator::releasePool(DeviceIndex index, MempoolId_t id) {
  library_.forebay_torch_release_pool(index, id.first, id.second);
  uint32_t count = 0;
  const auto status = library_.forebay_torch_pool_use_count(index, id.first, id.second, &count);
  if (status != FOREBAY_STATUS_OK || count > 0) {
    return;
  }
  if (CustomPool* pool = custom_pools_.find(index, id)) {
    try {
      const c10::cuda::CUDAGuard guard(index);
      pool->close();
      update_pool_limit(device(index));
    } catch (const std::exception& error) {
      TORCH_WARN("memory of a MemPool could not be returned to its allocator: ", error.what());
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  auto gone = std::remove(oom_pools_.begin(), oom_pools_.end(), std::make_pair(index, id));
  oom_pools_.erase(gone, oom_pools_.end());
}

void Allocator::createOrIncrefPool(DeviceIndex index, MempoolId_t id, std::shared_ptr<CUDAAllocator> allocator) {
  opened_device(index);
  library_.check(library_.forebay_torch_hold_pool(index, id.first, id.second));
  if (allocator && allocator.get() != this) {
    custom_pools_.create(index, id, std::move(allocator));
  }
}

int Allocator::getPoolUseCount(DeviceIndex index, MempoolId_t id) {
  opened_device(index);
  uint32_t count = 0;
  library_.check(library_.forebay_torch_pool_use_count(index, id.first, id.second, &count));
  return static_cast<int>(count);
}

void Allocator::setUseOnOOM(DeviceIndex index, MempoolId_t id, bool use) {
  opened_device(index);
  const std::pair<DeviceIndex, MempoolId_t> entry{index, id};
  const std::lock_guard<std::mutex> lock(mutex_);
  auto found = std::find(oom_pools_.begin(), oom_pools_.end(), entry);
  if (use && found == oom_pools_.end()) {
    oom_pools_.push_back(entry);
  } else if (!use && found != oom_pools_.end()) {
    oom_pools_.erase(found);
  }
}

// For custom pools alone: it is meant against fragmentation, which Forebay removes by moving chunks.
void Allocator::setNoSplit(DeviceIndex index, MempoolId_t id) {
  opened_device(index);
  if (CustomPool* pool = custom_pools_.find(index, id)) {
    pool->set_no_split();
  }
}

// Null if it is out of memory. A custom pool does not grow for blocks of others.
void* Allocator::allocate_from_private_pool(Device& device, Block& block, MempoolId_t id) {
  if (CustomPool* pool = custom_pools_.find(device.index, id)) {
    void* const ptr = pool->reuse(block.bytes, block.stream);
    if (ptr != nullptr) {
      std::tie(block.custom_pool, block.pool) = std::make_pair(pool, id);
    }
    return ptr;
  }
  const auto self = std::this_thread::get_id();
  beginAllocateToPool(device.index, id, [self](cudaStream_t) { return std::this_thread::get_id() == self; });
  const auto leave = [&] {
    endAllocateToPool(device.index, id);
    library_.forebay_torch_release_pool(device.index, id.first, id.second);
  };
  void* ptr = nullptr;
  try {
    ptr = pool_malloc(device.index, block.requested, block.stream);
  } catch (...) {
    leave();
    throw;
  }
  leave();
  if (ptr != nullptr) {
    block.pool = id;
  }
  return ptr;
}

bool Allocator::checkPoolLiveAllocations(
    DeviceIndex index,
    MempoolId_t id,
    const std::unordered_set<void*>& expected) {
  const std::vector<LiveBlock> live = blocks_.blocks_of(index, id);
  return live.size() == expected.size() &&
      std::all_of(live.begin(), live.end(), [&](const LiveBlock& one) { return expected.count(one.ptr) != 0; });
}

} // namespace forebay_torch
