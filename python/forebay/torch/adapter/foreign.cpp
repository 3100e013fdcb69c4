#include "foreign.h"

#include <c10/cuda/CUDAException.h>

namespace forebay_torch {

void* ForeignPool::take(size_t bytes, cudaStream_t stream) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto found = kept_.lower_bound({stream, bytes, 0});
    if (found != kept_.end() && std::get<0>(found->first) == stream && std::get<1>(found->first) == bytes) {
      void* ptr = found->second;
      kept_.erase(found);
      pieces_[ptr].live = true;
      return ptr;
    }
  }
  void* ptr = allocator_->raw_alloc_with_stream(bytes, stream);
  TORCH_CHECK_WITH(
      OutOfMemoryError, ptr != nullptr, "CUDA out of memory. The allocator of this MemPool gave nothing for ", bytes, " bytes");
  const std::lock_guard<std::mutex> lock(mutex_);
  pieces_[ptr] = {ptr, bytes, stream, next_++, true};
  return ptr;
}

void ForeignPool::give(void* ptr) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Piece& piece = pieces_.at(ptr);
    if (!closed_) {
      piece.live = false;
      kept_[{piece.stream, piece.bytes, piece.number}] = ptr;
      return;
    }
    pieces_.erase(ptr);
  }
  C10_CUDA_CHECK_WARN(cudaDeviceSynchronize());
  allocator_->raw_delete(ptr);
}

void ForeignPool::close() {
  decltype(kept_) kept;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    kept.swap(kept_);
    for (const auto& [key, ptr] : kept) {
      pieces_.erase(ptr);
    }
  }
  if (kept.empty()) {
    return;
  }
  C10_CUDA_CHECK_WARN(cudaDeviceSynchronize());
  for (const auto& [key, ptr] : kept) {
    allocator_->raw_delete(ptr);
  }
}

std::vector<ForeignPool::Piece> ForeignPool::pieces() {
  std::vector<Piece> all;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [ptr, piece] : pieces_) {
    all.push_back(piece);
  }
  return all;
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

std::vector<std::pair<MempoolId_t, ForeignPool::Piece>> ForeignPools::pieces(DeviceIndex device) {
  std::vector<std::pair<MempoolId_t, ForeignPool::Piece>> all;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [key, pool] : pools_) {
    if (key.first == device) {
      for (const ForeignPool::Piece& piece : pool->pieces()) {
        all.emplace_back(key.second, piece);
      }
    }
  }
  return all;
}

size_t ForeignPools::bytes(DeviceIndex device) {
  size_t sum = 0;
  for (const auto& [id, piece] : pieces(device)) {
    sum += piece.bytes;
  }
  return sum;
}

} // namespace forebay_torch
