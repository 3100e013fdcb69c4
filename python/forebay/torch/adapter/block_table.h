// The live blocks that the adapter knows more about than Forebay: with a stack, of a private pool, or of a custom
// allocator.
#pragma once

#include "torch_version.h"

#include <c10/util/flat_hash_map.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace forebay_torch {

inline constexpr MempoolId_t NO_POOL{0, 0};
// torch.cuda.memory_stats counts blocks up to this size in its small pool.
inline constexpr size_t MAX_SMALL = size_t{1} << 20;

class CustomPool;

struct Block {
  size_t requested = 0;
  // As Forebay rounds: the size in the statistics.
  size_t bytes = 0;
  DeviceIndex device = -1;
  cudaStream_t stream = nullptr;
  MempoolId_t pool = NO_POOL;
  // Of a MemPool with a custom allocator; null for memory of Forebay.
  CustomPool* custom_pool = nullptr;
  std::shared_ptr<GatheredContext> context;
};

struct LiveBlock {
  void* ptr = nullptr;
  Block block;
};

// Thread-safe.
class BlockTable {
 public:
  void insert(void* ptr, Block block);
  void erase(void* ptr);
  bool empty() const {
    return size_.load(std::memory_order_relaxed) == 0;
  }
  std::optional<Block> find(const void* ptr);
  std::vector<LiveBlock> blocks_of(DeviceIndex device, MempoolId_t pool);

 private:
  std::mutex mutex_;
  ska::flat_hash_map<const void*, Block> blocks_;
  std::atomic<size_t> size_{0};
};

} // namespace forebay_torch
