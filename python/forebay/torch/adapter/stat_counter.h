// One statistic of torch.cuda.memory_stats. Counting is cheap; what PyTorch asks for is computed when it asks.
#pragma once

#include "torch_version.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace forebay_torch {

// Not thread-safe. Counting touches one cache line.
class alignas(64) StatCounter {
 public:
  void add(size_t amount, bool small) {
    Part& part = parts_[small];
    part.added += static_cast<int64_t>(amount);
    part.peak = std::max(part.peak, part.current());
    peak_ = std::max(peak_, part.current() + parts_[!small].current());
  }
  void subtract(size_t amount, bool small) {
    parts_[small].removed += static_cast<int64_t>(amount);
  }
  int64_t current() const {
    return parts_[false].current() + parts_[true].current();
  }

  // In PyTorch's form: all blocks, small ones, large ones.
  c10::CachingAllocator::StatArray stats() const {
    using c10::CachingAllocator::StatType;
    c10::CachingAllocator::StatArray stats;
    auto& all = stats[static_cast<size_t>(StatType::AGGREGATE)];
    for (const bool small : {false, true}) {
      const Part& part = parts_[small];
      auto& stat = stats[static_cast<size_t>(small ? StatType::SMALL_POOL : StatType::LARGE_POOL)];
      stat.current = part.current();
      stat.peak = part.peak;
      stat.allocated = part.added - reset_[small].added;
      stat.freed = part.removed - reset_[small].removed;
      all.current += stat.current;
      all.allocated += stat.allocated;
      all.freed += stat.freed;
    }
    all.peak = peak_;
    return stats;
  }

  void reset_peaks() {
    for (Part& part : parts_) {
      part.peak = part.current();
    }
    peak_ = current();
  }
  void reset_accumulated() {
    reset_ = parts_;
  }

 private:
  struct Part {
    int64_t added = 0;
    int64_t removed = 0;
    int64_t peak = 0;

    int64_t current() const {
      return added - removed;
    }
  };
  // Index 0: large blocks; 1: small ones.
  std::array<Part, 2> parts_;
  int64_t peak_ = 0;
  // parts_ at the last reset.
  std::array<Part, 2> reset_;
};

} // namespace forebay_torch
