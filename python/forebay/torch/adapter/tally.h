// One figure of torch.cuda.memory_stats, counted with as little as an allocation can do: the rest is worked out when it is asked for.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace forebay_torch {

// One thread at a time. What counting touches is one cache line.
class alignas(64) Tally {
 public:
  void come(size_t amount, bool small) {
    Part& part = parts_[small];
    part.came += static_cast<int64_t>(amount);
    part.peak = std::max(part.peak, part.now());
    peak_ = std::max(peak_, part.now() + parts_[!small].now());
  }
  void go(size_t amount, bool small) {
    parts_[small].went += static_cast<int64_t>(amount);
  }
  int64_t now() const {
    return parts_[false].now() + parts_[true].now();
  }

  // In PyTorch's form: of all, of the small, of the large.
  c10::CachingAllocator::StatArray stats() const {
    using c10::CachingAllocator::StatType;
    c10::CachingAllocator::StatArray stats;
    auto& all = stats[static_cast<size_t>(StatType::AGGREGATE)];
    for (const bool small : {false, true}) {
      const Part& part = parts_[small];
      auto& stat = stats[static_cast<size_t>(small ? StatType::SMALL_POOL : StatType::LARGE_POOL)];
      stat.current = part.now();
      stat.peak = part.peak;
      stat.allocated = part.came - before_[small].came;
      stat.freed = part.went - before_[small].went;
      all.current += stat.current;
      all.allocated += stat.allocated;
      all.freed += stat.freed;
    }
    all.peak = peak_;
    return stats;
  }

  void reset_peaks() {
    for (Part& part : parts_) {
      part.peak = part.now();
    }
    peak_ = now();
  }
  void reset_accumulated() {
    before_ = parts_;
  }

 private:
  struct Part {
    int64_t came = 0;
    int64_t went = 0;
    int64_t peak = 0;

    int64_t now() const {
      return came - went;
    }
  };
  // Of large blocks, of small ones.
  std::array<Part, 2> parts_;
  int64_t peak_ = 0;
  // At the last reset.
  std::array<Part, 2> before_;
};

} // namespace forebay_torch
