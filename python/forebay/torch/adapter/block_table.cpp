#include "block_table.h"

namespace forebay_torch {

void BlockTable::insert(void* ptr, Block block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  blocks_[ptr] = std::move(block);
  size_.store(blocks_.size(), std::memory_order_relaxed);
}

void BlockTable::erase(void* ptr) {
  // Destroyed outside of the lock: a stack holds Python objects.
  std::optional<Block> old;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blocks_.find(ptr);
  if (found != blocks_.end()) {
    old = std::move(found->second);
    blocks_.erase(found);
    size_.store(blocks_.size(), std::memory_order_relaxed);
  }
}

std::optional<Block> BlockTable::find(const void* ptr) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blocks_.find(ptr);
  return found == blocks_.end() ? std::nullopt : std::make_optional(found->second);
}

std::vector<LiveBlock> BlockTable::blocks_of(DeviceIndex device, MempoolId_t pool) {
  std::vector<LiveBlock> live;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [ptr, block] : blocks_) {
    if (block.device == device && block.pool == pool) {
      live.push_back({const_cast<void*>(ptr), block});
    }
  }
  return live;
}

} // namespace forebay_torch
