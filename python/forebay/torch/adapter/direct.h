// torch.cuda.caching_allocator_enable(False): each block from the CUDA runtime and back there, in no figures and no history, so
// that tools which watch cudaMalloc see every tensor.
#pragma once

#include "books.h"

#include <atomic>
#include <unordered_set>

namespace forebay_torch {

// Any thread.
class Direct {
 public:
  void set(bool on) {
    on_.store(on, std::memory_order_relaxed);
  }
  bool on() const {
    return on_.load(std::memory_order_relaxed);
  }

  // On the current device. Throws c10::OutOfMemoryError.
  void* take(size_t bytes);
  // Whether the block was one of these.
  bool give(void* ptr) {
    return used_.load(std::memory_order_acquire) && give_own(ptr);
  }
  bool has(void* ptr);

 private:
  bool give_own(void* ptr);

  std::atomic<bool> on_{false};
  // Blocks outlive the mode.
  std::atomic<bool> used_{false};
  std::mutex mutex_;
  std::unordered_set<void*> blocks_;
};

} // namespace forebay_torch
