#include "allocator.h"

namespace forebay_torch {

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
      custom_pools_.find(index, id) == nullptr, "a checkpoint is not possible for a MemPool with an allocator of its own");
  auto state = std::make_shared<Checkpoint>();
  state->pool = id;
  state->live = blocks_.blocks_of(index, id);
  return state;
}

caching::CheckpointDelta Allocator::setCheckpointPoolState(
    DeviceIndex index,
    std::shared_ptr<caching::AllocatorState> state) {
  const auto* checkpoint = dynamic_cast<const Checkpoint*>(state.get());
  TORCH_CHECK(checkpoint != nullptr, "this checkpoint was not made by Forebay's allocator");
  std::unordered_map<void*, const Block*> wanted;
  for (const LiveBlock& one : checkpoint->live) {
    wanted.emplace(one.ptr, &one.block);
  }
  caching::CheckpointDelta delta;
  // PyTorch's own allocator reports every live block as freed, so this does too; blocks that are in the checkpoint
  // stay.
  std::unordered_set<void*> kept;
  for (const LiveBlock& one : blocks_.blocks_of(index, checkpoint->pool)) {
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
      record_allocation(one.ptr, one.block);
    }
    delta.dataptrs_allocd.emplace_back(
        one.ptr, one.ptr, raw_deleter(), c10::Device(c10::DeviceType::CUDA, index));
  }
  return delta;
}

} // namespace forebay_torch
