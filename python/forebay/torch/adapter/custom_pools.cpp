#include "custom_pools.h"

namespace forebay_torch {

void CustomPools::create(DeviceIndex device, MempoolId_t id, std::shared_ptr<CUDAAllocator> allocator) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& pool = pools_[{device, id}];
  if (!pool) {
    pool = std::make_unique<CustomPool>(std::move(allocator));
  }
}

CustomPool* CustomPools::find(DeviceIndex device, MempoolId_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto found = pools_.find({device, id});
  return found == pools_.end() ? nullptr : found->second.get();
}

bool CustomPools::begin(DeviceIndex device, MempoolId_t id, Filter filter) {
  CustomPool* pool = find(device, id);
  if (pool == nullptr) {
    return false;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  routes_.push_back({device, id, std::move(filter), pool});
  route_count_.fetch_add(1);
  return true;
}

bool CustomPools::end(DeviceIndex device, MempoolId_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto route = routes_.rbegin(); route != routes_.rend(); ++route) {
    if (route->device == device && route->id == id) {
      routes_.erase(std::next(route).base());
      route_count_.fetch_sub(1);
      return true;
    }
  }
  return false;
}

std::pair<CustomPool*, MempoolId_t> CustomPools::route(DeviceIndex device, cudaStream_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto route = routes_.rbegin(); route != routes_.rend(); ++route) {
    if (route->device == device && route->filter(stream)) {
      return {route->pool, route->id};
    }
  }
  return {nullptr, NO_POOL};
}

std::vector<std::pair<MempoolId_t, CustomPool*>> CustomPools::all(DeviceIndex device) {
  std::vector<std::pair<MempoolId_t, CustomPool*>> found;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [key, pool] : pools_) {
    if (key.first == device) {
      found.emplace_back(key.second, pool.get());
    }
  }
  return found;
}

size_t CustomPools::bytes(DeviceIndex device) {
  size_t sum = 0;
  for (const auto& [id, pool] : all(device)) {
    sum += pool->bytes();
  }
  return sum;
}

} // namespace forebay_torch
