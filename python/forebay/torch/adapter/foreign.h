// Which MemPools have allocators of their own, and when allocations go to them.
#pragma once

#include "foreign_pool.h"

#include <atomic>
#include <functional>

namespace forebay_torch {

// Those of all devices. Pools stay until the process ends: blocks that outlive their pool go back through it.
class ForeignPools {
 public:
  using Filter = std::function<bool(cudaStream_t)>;

  void create(DeviceIndex device, MempoolId_t id, std::shared_ptr<CUDAAllocator> allocator);
  ForeignPool* find(DeviceIndex device, MempoolId_t id);
  std::vector<std::pair<MempoolId_t, ForeignPool*>> all(DeviceIndex device);
  bool begin(DeviceIndex device, MempoolId_t id, Filter filter);
  bool end(DeviceIndex device, MempoolId_t id);
  // The pool whose memory an allocation on this stream gets now.
  std::pair<ForeignPool*, MempoolId_t> route(DeviceIndex device, cudaStream_t stream);
  // What they hold.
  size_t bytes(DeviceIndex device);
  bool routing() const {
    return routing_.load(std::memory_order_relaxed) != 0;
  }

 private:
  struct Route {
    DeviceIndex device;
    MempoolId_t id;
    Filter filter;
    ForeignPool* pool;
  };
  std::mutex mutex_;
  std::map<std::pair<DeviceIndex, MempoolId_t>, std::unique_ptr<ForeignPool>> pools_;
  std::vector<Route> routes_;
  std::atomic<int> routing_{0};
};

} // namespace forebay_torch
