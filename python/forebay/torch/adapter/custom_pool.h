// The memory of a torch.cuda.MemPool with a custom allocator. It takes segments of the sizes of PyTorch's own cache,
// since such allocators are slow and give whole pages (ncclMemAlloc: 2 MiB), splits blocks from free memory of the same
// stream, and merges free neighbours.
#pragma once

#include "block_table.h"

#include <map>
#include <mutex>
#include <set>
#include <tuple>

namespace forebay_torch {

// Thread-safe. The allocator is called without a lock held.
class CustomPool {
 public:
  explicit CustomPool(std::shared_ptr<CUDAAllocator> allocator) : allocator_(std::move(allocator)) {}

  // Free memory of the pool, or null. Best fit; among equals the first in the oldest segment: processes that register
  // memory with each other, as NCCL's do, allocate in the same order and must get the same offsets.
  void* reuse(size_t bytes, cudaStream_t stream);
  // Memory in a new segment. Throws c10::OutOfMemoryError if the allocator returns null.
  void* grow(size_t bytes, cudaStream_t stream);
  // The size of that segment.
  size_t segment_bytes(size_t bytes) const;
  // Frees a block. Returns whether a segment went back to the allocator.
  bool free(void* ptr);
  // From now on every block gets a segment of its own.
  void set_no_split();
  // Returns free segments to the allocator, after synchronizing the device.
  void trim();
  // The same; each other segment is returned with its last block.
  void close();

  struct Part {
    size_t bytes = 0;
    bool live = false;
  };
  struct Segment {
    size_t bytes = 0;
    cudaStream_t stream = nullptr;
    // Small blocks have segments of their own, so that they do not split the large ones.
    bool small = false;
    int32_t number = 0;
    // By address, without gaps.
    std::map<char*, Part> parts;

    bool is_free() const {
      return parts.size() == 1 && !parts.begin()->second.live;
    }
  };
  // By address.
  std::map<char*, Segment> segments();
  size_t bytes();

 private:
  // Stream, small, bytes, number of the segment, address.
  using FreeKey = std::tuple<cudaStream_t, bool, size_t, int32_t, char*>;
  using SegmentIterator = std::map<char*, Segment>::iterator;

  static FreeKey free_key(const Segment& segment, char* at, size_t bytes) {
    return {segment.stream, segment.small, bytes, segment.number, at};
  }
  SegmentIterator segment_of(char* at);
  void* split(Segment& segment, char* at, size_t bytes);
  // Removes the free segments, which its caller returns.
  std::vector<char*> remove_free();
  void return_segments(const std::vector<char*>& segments);

  const std::shared_ptr<CUDAAllocator> allocator_;
  std::mutex mutex_;
  std::map<char*, Segment> segments_;
  std::set<FreeKey> free_;
  int32_t next_number_ = 0;
  bool no_split_ = false;
  bool closed_ = false;
};

} // namespace forebay_torch
