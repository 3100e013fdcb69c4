// A lock for a few instructions, each time an allocation or a free is counted.
#pragma once

#include <sched.h>

#include <atomic>

namespace forebay_torch {

// One atomic exchange and a plain store, where a mutex takes two atomic operations and two calls. Whoever holds it
// neither calls anybody nor waits.
class SpinLock {
 public:
  void lock() {
    while (taken_.exchange(true, std::memory_order_acquire)) {
      for (int turn = 0; taken_.load(std::memory_order_relaxed); turn++) {
        if (turn >= TURNS) {
          // Its holder may not be running.
          sched_yield();
        }
      }
    }
  }
  void unlock() {
    taken_.store(false, std::memory_order_release);
  }

 private:
  static constexpr int TURNS = 1000;
  std::atomic<bool> taken_{false};
};

} // namespace forebay_torch
