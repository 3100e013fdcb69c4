#include "allocator.h"

#include <c10/cuda/CUDAGuard.h>

namespace forebay_torch {

using c10::CachingAllocator::StatType;

forebay_pool_stats Allocator::figures(DeviceIndex device) {
  forebay_pool_stats stats{};
  stats.size = sizeof(stats);
  stats.version = FOREBAY_STATS_VERSION;
  library_.check(library_.forebay_pool_get_stats(library_.pool(), device, &stats));
  return stats;
}

DeviceStats Allocator::getDeviceStats(DeviceIndex index) {
  Device& home = device(index);
  DeviceStats stats = books_.stats(index);
  stats.max_split_size = -1;
  if (!home.open.load(std::memory_order_acquire)) {
    return stats;
  }
  // Counted at the mappings; a moved chunk has two for a while, and holds its memory once.
  const forebay_pool_stats held = figures(index);
  // Its blocks are counted as allocated, so its memory is as reserved.
  const size_t others = foreign_.bytes(index);
  for (auto type : {StatType::AGGREGATE, StatType::LARGE_POOL}) {
    auto& reserved = stats.reserved_bytes[static_cast<size_t>(type)];
    reserved.current = static_cast<int64_t>(held.physical + others);
    reserved.peak = std::max(static_cast<int64_t>(held.physical_peak), reserved.current);
  }
  return stats;
}

void Allocator::resetAccumulatedStats(DeviceIndex index) {
  device(index);
  books_.reset_accumulated(index);
}

void Allocator::resetPeakStats(DeviceIndex index) {
  Device& home = device(index);
  books_.reset_peaks(index);
  if (home.open.load(std::memory_order_acquire)) {
    library_.check(library_.forebay_pool_reset_peaks(library_.pool(), index));
  }
}

std::vector<caching::StreamSegmentSize> Allocator::getExpandableSegmentSizes(DeviceIndex index) {
  device(index);
  return {};
}

double Allocator::getMemoryFraction(DeviceIndex index) {
  Device& home = opened(index);
  uint64_t limit = 0, free = 0, total = 0;
  library_.check(library_.forebay_pool_get_limit(library_.pool(), index, &limit));
  library_.check(library_.forebay_pool_memory_info(library_.pool(), index, &free, &total));
  const std::lock_guard<std::mutex> lock(home.limits);
  if (home.allowed != 0 && limit == home.told) {
    limit = home.allowed;
  }
  return limit == 0 ? 1.0 : static_cast<double>(limit) / static_cast<double>(total);
}

void Allocator::setMemoryFraction(double fraction, DeviceIndex index) {
  TORCH_CHECK(0 <= fraction && fraction <= 1, "memory fraction is ", std::to_string(fraction), "; it takes a number from 0 to 1");
  Device& home = opened(index);
  uint64_t free = 0, total = 0;
  library_.check(library_.forebay_pool_memory_info(library_.pool(), index, &free, &total));
  {
    const std::lock_guard<std::mutex> lock(home.limits);
    home.allowed = std::max<uint64_t>(static_cast<uint64_t>(fraction * static_cast<double>(total)), 1);
  }
  share_limit(home);
}

void Allocator::share_limit(Device& home) {
  const std::lock_guard<std::mutex> lock(home.limits);
  if (home.allowed == 0) {
    return;
  }
  const uint64_t others = foreign_.bytes(home.index);
  // To Forebay 0 would mean no limit, and to PyTorch it means no memory.
  const uint64_t left = home.allowed > others ? home.allowed - others : 1;
  library_.check(library_.forebay_pool_set_limit(library_.pool(), home.index, left));
  home.told = left;
}

bool Allocator::admit(Device& home, size_t bytes) {
  const auto fits = [&] {
    const std::lock_guard<std::mutex> lock(home.limits);
    return home.allowed == 0 || figures(home.index).physical + foreign_.bytes(home.index) + bytes <= home.allowed;
  };
  if (fits()) {
    return true;
  }
  library_.forebay_torch_reset();
  return fits();
}

void Allocator::emptyCache(MempoolId_t pool) {
  if (pool != NO_POOL) {
    // Forebay's own memory of a private pool goes back to everybody when the pool is released.
    for (const auto& home : devices_) {
      if (ForeignPool* other = foreign_.find(home->index, pool)) {
        const c10::cuda::CUDAGuard guard(home->index);
        other->trim();
        share_limit(*home);
      }
    }
  } else {
    const auto stack = history_.gather(RecordContext::ALL);
    const Cause cause(stack);
    library_.forebay_torch_reset();
  }
}

void Allocator::enable(bool value) {
  direct_.set(!value);
}

bool Allocator::isEnabled() const {
  return !direct_.on();
}

void Allocator::cacheInfo(DeviceIndex index, size_t* largest) {
  opened(index);
  if (*largest == 0) {
    uint64_t free = 0, total = 0;
    library_.check(library_.forebay_pool_memory_info(library_.pool(), index, &free, &total));
    *largest = free;
  }
  *largest = std::max<size_t>(*largest, figures(index).largest_free);
}

} // namespace forebay_torch
