// What torch.cuda.memory_stats counts: PyTorch's blocks, and mappings.
#pragma once

#include "block_table.h"
#include "spin_lock.h"
#include "stat_counter.h"

#include <memory>
#include <mutex>
#include <vector>

namespace forebay_torch {

// Thread-safe. Its locks are held for a few instructions only.
class Statistics {
 public:
  void resize(size_t devices);

  void count_malloc(DeviceIndex device, size_t bytes, size_t requested) {
    Counters& counters = *counters_[device];
    const bool small = bytes <= MAX_SMALL;
    const std::lock_guard<SpinLock> lock(counters.lock);
    counters.blocks.add(1, small);
    counters.bytes.add(bytes, small);
    counters.requested.add(requested, small);
  }
  void count_free(DeviceIndex device, size_t bytes, size_t requested) {
    Counters& counters = *counters_[device];
    const bool small = bytes <= MAX_SMALL;
    const std::lock_guard<SpinLock> lock(counters.lock);
    counters.blocks.subtract(1, small);
    counters.bytes.subtract(bytes, small);
    counters.requested.subtract(requested, small);
  }
  void count_out_of_memory(DeviceIndex device);
  void count_mapping(DeviceIndex device, size_t bytes, bool mapped);

  // Without what only the pool knows: see Allocator::getDeviceStats.
  DeviceStats stats(DeviceIndex device);
  size_t allocated_bytes(DeviceIndex device);
  void reset_peaks(DeviceIndex device);
  void reset_accumulated(DeviceIndex device);

 private:
  // Devices share no cache line.
  struct alignas(128) Counters {
    SpinLock lock;
    StatCounter blocks;
    StatCounter bytes;
    StatCounter requested;
    // Of mappings and failures.
    DeviceStats rare;
  };

  std::vector<std::unique_ptr<Counters>> counters_;
};

} // namespace forebay_torch
