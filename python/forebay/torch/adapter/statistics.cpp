#include "statistics.h"

namespace forebay_torch {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

namespace {

// Of chunks, which belong to no size class: they count as the large pool's.
void change(StatArray& stats, size_t amount, bool increase) {
  for (auto type : {StatType::AGGREGATE, StatType::LARGE_POOL}) {
    Stat& stat = stats[static_cast<size_t>(type)];
    // Chunks from before the first count can be unmapped, and some builds throw if a statistic becomes negative.
    const auto current = static_cast<size_t>(std::max<int64_t>(stat.current, 0));
    increase ? stat.increase(amount) : stat.decrease(std::min(amount, current));
  }
}

} // namespace

void Statistics::resize(size_t devices) {
  while (counters_.size() < devices) {
    counters_.push_back(std::make_unique<Counters>());
  }
}

DeviceStats Statistics::stats(DeviceIndex device) {
  Counters& counters = *counters_.at(device);
  const std::lock_guard<SpinLock> lock(counters.lock);
  DeviceStats stats = counters.rare;
  stats.allocation = stats.active = counters.blocks.stats();
  stats.allocated_bytes = stats.active_bytes = counters.bytes.stats();
  stats.requested_bytes = counters.requested.stats();
  return stats;
}

size_t Statistics::allocated_bytes(DeviceIndex device) {
  Counters& counters = *counters_.at(device);
  const std::lock_guard<SpinLock> lock(counters.lock);
  return static_cast<size_t>(counters.bytes.current());
}

void Statistics::count_out_of_memory(DeviceIndex device) {
  Counters& counters = *counters_.at(device);
  const std::lock_guard<SpinLock> lock(counters.lock);
  counters.rare.num_ooms += 1;
}

void Statistics::count_mapping(DeviceIndex device, size_t bytes, bool mapped) {
  Counters& counters = *counters_.at(device);
  const std::lock_guard<SpinLock> lock(counters.lock);
  DeviceStats& stats = counters.rare;
  (mapped ? stats.num_device_alloc : stats.num_device_free) += 1;
  change(stats.segment, 1, mapped);
  change(stats.reserved_bytes, bytes, mapped);
}

void Statistics::reset_peaks(DeviceIndex device) {
  Counters& counters = *counters_.at(device);
  const std::lock_guard<SpinLock> lock(counters.lock);
  for (StatCounter* counter : {&counters.blocks, &counters.bytes, &counters.requested}) {
    counter->reset_peaks();
  }
  for (StatArray* stats : {&counters.rare.segment, &counters.rare.reserved_bytes}) {
    for (Stat& stat : *stats) {
      stat.reset_peak();
    }
  }
}

void Statistics::reset_accumulated(DeviceIndex device) {
  Counters& counters = *counters_.at(device);
  const std::lock_guard<SpinLock> lock(counters.lock);
  for (StatCounter* counter : {&counters.blocks, &counters.bytes, &counters.requested}) {
    counter->reset_accumulated();
  }
  DeviceStats& stats = counters.rare;
  for (StatArray* array : {&stats.segment, &stats.reserved_bytes}) {
    for (Stat& stat : *array) {
      stat.reset_accumulated();
    }
  }
  stats.num_ooms = 0;
  stats.num_device_alloc = 0;
  stats.num_device_free = 0;
}

} // namespace forebay_torch
