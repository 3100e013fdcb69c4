// What PyTorch has: the figures of torch.cuda.memory_stats, and the blocks that more is to be said about than Forebay knows.
#pragma once

#include "lock.h"
#include "tally.h"

#include <c10/util/flat_hash_map.h>

#include <atomic>
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

  // A block comes or goes.
  void count(DeviceIndex device, size_t bytes, size_t requested, bool comes) {
    Figures& figures = *figures_[device];
    const bool small = bytes <= SMALL;
    const std::lock_guard<ShortLock> lock(figures.lock);
    if (comes) {
      figures.blocks.come(1, small);
      figures.bytes.come(bytes, small);
      figures.requested.come(requested, small);
    } else {
      figures.blocks.go(1, small);
      figures.bytes.go(bytes, small);
      figures.requested.go(requested, small);
    }
  }

  // Blocks with a stack, of a private pool, or not of Forebay: kept until they are freed. Of the others Forebay knows all.
  void note(void* ptr, Block block);
  bool has_notes() const {
    return notes_count_.load(std::memory_order_relaxed) != 0;
  }
  // Ends a note; nothing where there is none.
  std::optional<Block> forget(void* ptr);
  std::optional<Block> find(void* ptr);
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
  // On cache lines of their own: threads of different devices do not meet.
  struct alignas(128) Figures {
    ShortLock lock;
    Tally blocks;
    Tally bytes;
    Tally requested;
    // What is counted at mappings and failures.
    DeviceStats rare;
  };

  std::vector<std::unique_ptr<Figures>> figures_;
  std::mutex mutex_;
  ska::flat_hash_map<void*, Block> notes_;
  std::atomic<size_t> notes_count_{0};
};

} // namespace forebay_torch
