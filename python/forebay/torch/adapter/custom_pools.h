// The MemPools with a custom allocator, and which of them an allocation goes to.
#pragma once

#include "custom_pool.h"

#include <atomic>
#include <functional>

namespace forebay_torch {

// Of all devices. A pool is never destroyed: blocks that outlive its MemPool are freed through it.
class CustomPools {
 public:
  using Filter = std::function<bool(cudaStream_t)>;

  void create(DeviceIndex device, MempoolId_t id, std::shared_ptr<CUDAAllocator> allocator);
  CustomPool* find(DeviceIndex device, MempoolId_t id);
  std::vector<std::pair<MempoolId_t, CustomPool*>> all(DeviceIndex device);
  bool begin(DeviceIndex device, MempoolId_t id, Filter filter);
  bool end(DeviceIndex device, MempoolId_t id);
  // The pool that an allocation on this stream belongs to now; {nullptr, NO_POOL} for none.
  std::pair<CustomPool*, MempoolId_t> route(DeviceIndex device, cudaStream_t stream);
  // The bytes of their segments.
  size_t bytes(DeviceIndex device);
  bool any_route() const {
    return route_count_.load(std::memory_order_relaxed) != 0;
  }

 private:
  struct Route {
    DeviceIndex device;
    MempoolId_t id;
    Filter filter;
    CustomPool* pool;
  };
  std::mutex mutex_;
  std::map<std::pair<DeviceIndex, MempoolId_t>, std::unique_ptr<CustomPool>> pools_;
  std::vector<Route> routes_;
  std::atomic<int> route_count_{0};
};

} // namespace forebay_torch
