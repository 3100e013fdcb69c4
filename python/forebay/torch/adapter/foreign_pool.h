// The memory of a torch.cuda.MemPool that was given an allocator of its own: that allocator's, in segments as PyTorch's own
// cache takes them, since such allocators are slow and give whole pages (ncclMemAlloc: 2 MiB). Blocks are cut from free memory
// of the same stream, and joined again when they are free.
#pragma once

#include "books.h"

#include <map>
#include <set>
#include <tuple>

namespace forebay_torch {

using c10::cuda::CUDACachingAllocator::CUDAAllocator;

// Any thread. The allocator is called without a lock held.
class ForeignPool {
 public:
  explicit ForeignPool(std::shared_ptr<CUDAAllocator> allocator) : allocator_(std::move(allocator)) {}

  // Memory that is there, or null. The best fit; of equal ones the first of the segment that came first: processes that
  // register memory with each other, as NCCL's do, ask in the same order and must meet the same memory.
  void* reuse(size_t bytes, cudaStream_t stream);
  // Memory in a new segment. Throws c10::OutOfMemoryError if the allocator gives none.
  void* grow(size_t bytes, cudaStream_t stream);
  // How long the segment would be.
  size_t segment_bytes(size_t bytes) const;
  // Takes a block back. Says whether memory went back to the allocator.
  bool give(void* ptr);
  // Every block gets a segment of its own from now on.
  void set_no_split();
  // Gives wholly free segments back to the allocator, after a wait for the device.
  void trim();
  // The same, and the others follow with their last block.
  void close();

  struct Part {
    size_t bytes = 0;
    bool live = false;
  };
  struct Segment {
    size_t bytes = 0;
    cudaStream_t stream = nullptr;
    // For small blocks, which would otherwise keep large ones from being whole again.
    bool small = false;
    int32_t number = 0;
    // By address, without gap.
    std::map<char*, Part> parts;

    bool free() const {
      return parts.size() == 1 && !parts.begin()->second.live;
    }
  };
  // What the allocator gave and has not back, by address.
  std::map<char*, Segment> segments();
  size_t bytes();

 private:
  // Stream, small, length, number of the segment, address.
  using Free = std::tuple<cudaStream_t, bool, size_t, int32_t, char*>;
  using Place = std::map<char*, Segment>::iterator;

  static Free entry(const Segment& segment, char* at, size_t bytes) {
    return {segment.stream, segment.small, bytes, segment.number, at};
  }
  Place around(char* at);
  void* cut(Segment& segment, char* at, size_t bytes);
  // Takes out what is wholly free, for its caller to give back.
  std::vector<char*> take_free();
  void give_back(const std::vector<char*>& segments);

  const std::shared_ptr<CUDAAllocator> allocator_;
  std::mutex mutex_;
  std::map<char*, Segment> segments_;
  std::set<Free> free_;
  int32_t next_ = 0;
  bool no_split_ = false;
  bool closed_ = false;
};

} // namespace forebay_torch
