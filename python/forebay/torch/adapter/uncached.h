// torch.cuda.caching_allocator_enable(False): each block is a cudaMalloc of its own, in no statistics and no history,
// so that tools which watch cudaMalloc see every tensor.
#pragma once

#include "torch_version.h"

#include <atomic>
#include <mutex>
#include <unordered_set>

namespace forebay_torch {

// Thread-safe.
class UncachedBlocks {
 public:
  void enable(bool on) {
    enabled_.store(on, std::memory_order_relaxed);
  }
  bool enabled() const {
    return enabled_.load(std::memory_order_relaxed);
  }

  // On the current device. Throws c10::OutOfMemoryError.
  void* allocate(size_t bytes);
  // Frees the block if it is one of these, and says whether it was.
  bool free(void* ptr) {
    return used_.load(std::memory_order_acquire) && free_own(ptr);
  }
  bool owns(void* ptr);

 private:
  bool free_own(void* ptr);

  std::atomic<bool> enabled_{false};
  // Blocks outlive the mode.
  std::atomic<bool> used_{false};
  std::mutex mutex_;
  std::unordered_set<void*> blocks_;
};

} // namespace forebay_torch
