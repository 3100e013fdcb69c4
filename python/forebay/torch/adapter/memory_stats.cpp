#include "allocator.h"

namespace forebay_torch {

using c10::CachingAllocator::StatType;

DeviceStats Allocator::getDeviceStats(DeviceIndex index) {
  Device& state = device(index);
  DeviceStats stats = statistics_.stats(index);
  stats.max_split_size = -1;
  if (!state.opened.load(std::memory_order_acquire)) {
    return stats;
  }
  // Counting mappings is not enough: while a chunk moves it is mapped twice, and holds memory once.
  const forebay_pool_stats held = pool_stats(index);
  // Blocks of custom pools count as allocated, so their segments count as reserved.
  const size_t custom = custom_pools_.bytes(index);
  for (auto type : {StatType::AGGREGATE, StatType::LARGE_POOL}) {
    auto& reserved = stats.reserved_bytes[static_cast<size_t>(type)];
    reserved.current = static_cast<int64_t>(held.physical + custom);
    reserved.peak = std::max(static_cast<int64_t>(held.physical_peak), reserved.current);
  }
  return stats;
}

void Allocator::resetAccumulatedStats(DeviceIndex index) {
  device(index);
  statistics_.reset_accumulated(index);
}

void Allocator::resetPeakStats(DeviceIndex index) {
  Device& state = device(index);
  statistics_.reset_peaks(index);
  if (state.opened.load(std::memory_order_acquire)) {
    library_.check(library_.forebay_pool_reset_peaks(library_.pool(), index));
  }
}

void Allocator::cacheInfo(DeviceIndex index, size_t* largest) {
  opened_device(index);
  if (*largest == 0) {
    uint64_t free = 0, total = 0;
    library_.check(library_.forebay_pool_memory_info(library_.pool(), index, &free, &total));
    *largest = free;
  }
  *largest = std::max<size_t>(*largest, pool_stats(index).largest_free);
}

} // namespace forebay_torch
