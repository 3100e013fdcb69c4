#include "foreign.h"

#include <c10/cuda/CUDAException.h>

namespace forebay_torch {

void* ForeignPool::take(size_t bytes, cudaStream_t stream) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto found = kept_.find({stream, bytes});
    if (found != kept_.end()) {
      void* ptr = found->second;
      kept_.erase(found);
      return ptr;
    }
  }
  return allocator_->raw_alloc_with_stream(bytes, stream);
}

void ForeignPool::give(void* ptr, size_t bytes, cudaStream_t stream) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!closed_) {
      kept_.emplace(std::make_pair(stream, bytes), ptr);
      return;
    }
  }
  C10_CUDA_CHECK_WARN(cudaDeviceSynchronize());
  allocator_->raw_delete(ptr);
}

void ForeignPool::close() {
  std::multimap<std::pair<cudaStream_t, size_t>, void*> kept;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    kept.swap(kept_);
  }
  if (kept.empty()) {
    return;
  }
  C10_CUDA_CHECK_WARN(cudaDeviceSynchronize());
  for (const auto& [key, ptr] : kept) {
    allocator_->raw_delete(ptr);
  }
}

void ForeignPools::create(DeviceIndex device, MempoolId_t id, std::shared_ptr<CUDAAllocator> allocator) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& place = pools_[{device, id}];
  if (!place) {
    place = std::make_unique<ForeignPool>(std::move(allocator));
  }
}

ForeignPool* ForeignPools::find(DeviceIndex device, MempoolId_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto found = pools_.find({device, id});
  return found == pools_.end() ? nullptr : found->second.get();
}

bool ForeignPools::begin(DeviceIndex device, MempoolId_t id, Filter filter) {
  ForeignPool* pool = find(device, id);
  if (pool == nullptr) {
    return false;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  routes_.push_back({device, id, std::move(filter), pool});
  routing_.fetch_add(1);
  return true;
}

bool ForeignPools::end(DeviceIndex device, MempoolId_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto route = routes_.rbegin(); route != routes_.rend(); ++route) {
    if (route->device == device && route->id == id) {
      routes_.erase(std::next(route).base());
      routing_.fetch_sub(1);
      return true;
    }
  }
  return false;
}

std::pair<ForeignPool*, MempoolId_t> ForeignPools::route(DeviceIndex device, cudaStream_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto route = routes_.rbegin(); route != routes_.rend(); ++route) {
    if (route->device == device && route->filter(stream)) {
      return {route->pool, route->id};
    }
  }
  return {nullptr, NO_POOL};
}

} // namespace forebay_torch
