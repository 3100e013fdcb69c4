#include "allocator.h"

#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <thread>

namespace forebay_torch {

void Allocator::beginAllocateToPool(DeviceIndex index, MempoolId_t id, std::function<bool(cudaStream_t)> filter) {
  Device& home = opened(index);
  // Also a foreign pool is held, and counted, as a private pool of Forebay's.
  if (foreign_.begin(index, id, filter)) {
    library_.check(library_.forebay_torch_hold_pool(index, id.first, id.second));
    return;
  }
  // Before the pool takes anything, so that no block of it goes unnoticed.
  home.routes.fetch_add(1);
  try {
    library_.forebay_torch_begin_allocate_to_pool(index, id.first, id.second, &filter);
  } catch (...) {
    home.routes.fetch_sub(1);
    throw;
  }
}

void Allocator::endAllocateToPool(DeviceIndex index, MempoolId_t id) {
  if (foreign_.end(index, id)) {
    return;
  }
  library_.forebay_torch_end_allocate_to_pool(index, id.first, id.second);
  device(index).routes.fetch_sub(1);
}

// Called in destructors, also while the process ends: throws nothing.
void Allocator::releasePool(DeviceIndex index, MempoolId_t id) {
  library_.forebay_torch_release_pool(index, id.first, id.second);
  uint32_t count = 0;
  const auto status = library_.forebay_torch_pool_use_count(index, id.first, id.second, &count);
  if (status != FOREBAY_STATUS_OK || count > 0) {
    return;
  }
  if (ForeignPool* pool = foreign_.find(index, id)) {
    try {
      const c10::cuda::CUDAGuard guard(index);
      pool->close();
      share_limit(device(index));
    } catch (const std::exception& error) {
      TORCH_WARN("memory of a MemPool was not given back to its allocator: ", error.what());
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  auto gone = std::remove(last_resorts_.begin(), last_resorts_.end(), std::make_pair(index, id));
  last_resorts_.erase(gone, last_resorts_.end());
}

void Allocator::createOrIncrefPool(DeviceIndex index, MempoolId_t id, std::shared_ptr<CUDAAllocator> allocator) {
  opened(index);
  library_.check(library_.forebay_torch_hold_pool(index, id.first, id.second));
  if (allocator && allocator.get() != this) {
    foreign_.create(index, id, std::move(allocator));
  }
}

int Allocator::getPoolUseCount(DeviceIndex index, MempoolId_t id) {
  opened(index);
  uint32_t count = 0;
  library_.check(library_.forebay_torch_pool_use_count(index, id.first, id.second, &count));
  return static_cast<int>(count);
}

void Allocator::setUseOnOOM(DeviceIndex index, MempoolId_t id, bool use) {
  opened(index);
  const std::pair<DeviceIndex, MempoolId_t> entry{index, id};
  const std::lock_guard<std::mutex> lock(mutex_);
  auto found = std::find(last_resorts_.begin(), last_resorts_.end(), entry);
  if (use && found == last_resorts_.end()) {
    last_resorts_.push_back(entry);
  } else if (!use && found != last_resorts_.end()) {
    last_resorts_.erase(found);
  }
}

// Against fragmentation, which Forebay removes by moving memory: its blocks are cut to what is asked for.
void Allocator::setNoSplit(DeviceIndex index, MempoolId_t id) {
  opened(index);
  if (ForeignPool* pool = foreign_.find(index, id)) {
    pool->set_no_split();
  }
}

// Null for want of memory; a pool with an allocator of its own does not grow for others.
void* Allocator::from_pool(Device& home, Block& block, MempoolId_t id) {
  if (ForeignPool* pool = foreign_.find(home.index, id)) {
    void* const ptr = pool->reuse(block.bytes, block.stream);
    if (ptr != nullptr) {
      std::tie(block.foreign, block.pool) = std::make_pair(pool, id);
    }
    return ptr;
  }
  const auto self = std::this_thread::get_id();
  beginAllocateToPool(home.index, id, [self](cudaStream_t) { return std::this_thread::get_id() == self; });
  const auto leave = [&] {
    endAllocateToPool(home.index, id);
    library_.forebay_torch_release_pool(home.index, id.first, id.second);
  };
  void* ptr = nullptr;
  try {
    ptr = ask(home.index, block.requested, block.stream);
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
  const std::vector<LiveBlock> live = books_.of_pool(index, id);
  return live.size() == expected.size() &&
      std::all_of(live.begin(), live.end(), [&](const LiveBlock& one) { return expected.count(one.ptr) != 0; });
}

// ---- checkpoints of CUDA-graph trees

namespace {

struct Checkpoint final : caching::AllocatorState {
  MempoolId_t pool;
  std::vector<LiveBlock> live;
};

bool same(const Block& a, const Block& b) {
  return a.bytes == b.bytes && a.stream == b.stream;
}

} // namespace

std::shared_ptr<caching::AllocatorState> Allocator::getCheckpointState(DeviceIndex index, MempoolId_t id) {
  TORCH_CHECK(
      foreign_.find(index, id) == nullptr, "no checkpoint of a MemPool with an allocator of its own is possible");
  auto state = std::make_shared<Checkpoint>();
  state->pool = id;
  state->live = books_.of_pool(index, id);
  return state;
}

caching::CheckpointDelta Allocator::setCheckpointPoolState(
    DeviceIndex index,
    std::shared_ptr<caching::AllocatorState> state) {
  const auto* checkpoint = dynamic_cast<const Checkpoint*>(state.get());
  TORCH_CHECK(checkpoint != nullptr, "this checkpoint was not made by Forebay");
  std::unordered_map<void*, const Block*> wanted;
  for (const LiveBlock& one : checkpoint->live) {
    wanted.emplace(one.ptr, &one.block);
  }
  caching::CheckpointDelta delta;
  // Everything live counts as freed, as PyTorch's own allocator reports it; a block that is to be live as it is stays.
  std::unordered_set<void*> kept;
  for (const LiveBlock& one : books_.of_pool(index, checkpoint->pool)) {
    delta.ptrs_freed.push_back(one.ptr);
    auto found = wanted.find(one.ptr);
    if (found != wanted.end() && same(*found->second, one.block)) {
      kept.insert(one.ptr);
    } else {
      raw_delete(one.ptr);
    }
  }
  for (const LiveBlock& one : checkpoint->live) {
    if (kept.count(one.ptr) == 0) {
      library_.check(library_.forebay_torch_restore(
          checkpoint->pool.first, checkpoint->pool.second, one.ptr, one.block.bytes, one.block.stream));
      enter(one.ptr, one.block);
    }
    delta.dataptrs_allocd.emplace_back(
        one.ptr, one.ptr, raw_deleter(), c10::Device(c10::DeviceType::CUDA, index));
  }
  return delta;
}

} // namespace forebay_torch
