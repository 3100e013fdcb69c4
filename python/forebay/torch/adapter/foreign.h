// The memory of a torch.cuda.MemPool that was given an allocator of its own: that allocator's, kept for reuse within the
// pool on the same stream, and given back when the pool ends.
#pragma once

#include "books.h"

#include <atomic>
#include <functional>
#include <map>
#include <tuple>

namespace forebay_torch {

using c10::cuda::CUDACachingAllocator::CUDAAllocator;

class ForeignPool {
 public:
  explicit ForeignPool(std::shared_ptr<CUDAAllocator> allocator) : allocator_(std::move(allocator)) {}

  void* take(size_t bytes, cudaStream_t stream);
  void give(void* ptr);
  // Gives back what is not live, after a wait for the device; what is live follows when it is freed.
  void close();

  struct Piece {
    void* ptr = nullptr;
    size_t bytes = 0;
    cudaStream_t stream = nullptr;
    // Pieces are numbered as they come, and the lowest number of a length is used first: processes that register memory
    // with each other, as NCCL's do, ask in the same order and must meet the same pieces.
    int32_t number = 0;
    bool live = false;
  };
  // All that the allocator gave and has not back, by address.
  std::vector<Piece> pieces();

 private:
  std::shared_ptr<CUDAAllocator> allocator_;
  std::mutex mutex_;
  std::map<void*, Piece> pieces_;
  // Those that are not live.
  std::map<std::tuple<cudaStream_t, size_t, int32_t>, void*> kept_;
  int32_t next_ = 0;
  bool closed_ = false;
};

// Those of all devices. Pools stay until the process ends: blocks that outlive their pool go back through it.
class ForeignPools {
 public:
  using Filter = std::function<bool(cudaStream_t)>;

  void create(DeviceIndex device, MempoolId_t id, std::shared_ptr<CUDAAllocator> allocator);
  ForeignPool* find(DeviceIndex device, MempoolId_t id);
  bool begin(DeviceIndex device, MempoolId_t id, Filter filter);
  bool end(DeviceIndex device, MempoolId_t id);
  // The pool whose memory an allocation on this stream gets now.
  std::pair<ForeignPool*, MempoolId_t> route(DeviceIndex device, cudaStream_t stream);
  std::vector<std::pair<MempoolId_t, ForeignPool::Piece>> pieces(DeviceIndex device);
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
