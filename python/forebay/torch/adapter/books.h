// What PyTorch has: each live block, and the figures of torch.cuda.memory_stats.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/flat_hash_map.h>

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace forebay_torch {

using c10::DeviceIndex;
using c10::GatheredContext;
using c10::MempoolId_t;
using c10::CachingDeviceAllocator::DeviceStats;

inline constexpr MempoolId_t NO_POOL{0, 0};
// Where torch.cuda.memory_stats draws the line between its two pools.
inline constexpr size_t SMALL = size_t{1} << 20;

class ForeignPool;

struct Block {
  size_t requested = 0;
  // As Forebay rounds: the size that the figures count.
  size_t bytes = 0;
  DeviceIndex device = -1;
  // It was given to other processes.
  bool shared = false;
  cudaStream_t stream = nullptr;
  MempoolId_t pool = NO_POOL;
  // Of a MemPool with an allocator of its own; null for memory of Forebay.
  ForeignPool* foreign = nullptr;
  std::shared_ptr<GatheredContext> context;
};

struct LiveBlock {
  void* ptr = nullptr;
  Block block;
};

// Any thread. No lock is held while anybody else's code runs.
class Books {
 public:
  void resize(size_t devices);

  void add(void* ptr, Block block);
  // Ends a block's life here; nothing for a pointer that is no live block's.
  std::optional<Block> remove(void* ptr);
  std::optional<Block> find(void* ptr);
  // Notes that a block was given to other processes.
  void mark_shared(void* ptr);
  // The live blocks of a private pool.
  std::vector<LiveBlock> of_pool(DeviceIndex device, MempoolId_t pool);

  // The part of the figures that is counted here.
  DeviceStats stats(DeviceIndex device);
  size_t allocated_bytes(DeviceIndex device);
  void failed(DeviceIndex device);
  void mapped(DeviceIndex device, size_t bytes, bool now);
  void reset_peaks(DeviceIndex device);
  void reset_accumulated(DeviceIndex device);

 private:
  struct Figures {
    std::mutex mutex;
    DeviceStats stats;
  };
  // By address, so that threads seldom meet.
  struct Shard {
    std::mutex mutex;
    ska::flat_hash_map<void*, Block> blocks;
  };
  static constexpr size_t SHARDS = 32;

  Shard& shard(void* ptr);
  void count(const Block& block, bool comes);

  std::array<Shard, SHARDS> shards_;
  std::vector<std::unique_ptr<Figures>> figures_;
};

} // namespace forebay_torch
