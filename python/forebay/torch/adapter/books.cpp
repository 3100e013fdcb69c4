#include "books.h"

namespace forebay_torch {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

namespace {

// Memory of the device, which is of no size.
void change(StatArray& stats, size_t amount, bool comes) {
  for (auto type : {StatType::AGGREGATE, StatType::LARGE_POOL}) {
    Stat& stat = stats[static_cast<size_t>(type)];
    // What was there before anybody counted can go, and a figure below 0 is an exception in some builds.
    const auto current = static_cast<size_t>(std::max<int64_t>(stat.current, 0));
    comes ? stat.increase(amount) : stat.decrease(std::min(amount, current));
  }
}

} // namespace

void Books::resize(size_t devices) {
  while (figures_.size() < devices) {
    figures_.push_back(std::make_unique<Figures>());
  }
}

void Books::note(void* ptr, Block block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  notes_[ptr] = std::move(block);
  notes_count_.store(notes_.size(), std::memory_order_relaxed);
}

std::optional<Block> Books::forget(void* ptr) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto found = notes_.find(ptr);
  if (found == notes_.end()) {
    return std::nullopt;
  }
  std::optional<Block> block(std::move(found->second));
  notes_.erase(found);
  notes_count_.store(notes_.size(), std::memory_order_relaxed);
  return block;
}

std::optional<Block> Books::find(void* ptr) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto found = notes_.find(ptr);
  return found == notes_.end() ? std::nullopt : std::make_optional(found->second);
}

std::vector<LiveBlock> Books::of_pool(DeviceIndex device, MempoolId_t pool) {
  std::vector<LiveBlock> live;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [ptr, block] : notes_) {
    if (block.device == device && block.pool == pool) {
      live.push_back({ptr, block});
    }
  }
  return live;
}

DeviceStats Books::stats(DeviceIndex device) {
  Figures& figures = *figures_.at(device);
  const std::lock_guard<ShortLock> lock(figures.lock);
  DeviceStats stats = figures.rare;
  stats.allocation = stats.active = figures.blocks.stats();
  stats.allocated_bytes = stats.active_bytes = figures.bytes.stats();
  stats.requested_bytes = figures.requested.stats();
  return stats;
}

size_t Books::allocated_bytes(DeviceIndex device) {
  Figures& figures = *figures_.at(device);
  const std::lock_guard<ShortLock> lock(figures.lock);
  return static_cast<size_t>(figures.bytes.now());
}

void Books::failed(DeviceIndex device) {
  Figures& figures = *figures_.at(device);
  const std::lock_guard<ShortLock> lock(figures.lock);
  figures.rare.num_ooms += 1;
}

void Books::mapped(DeviceIndex device, size_t bytes, bool now) {
  Figures& figures = *figures_.at(device);
  const std::lock_guard<ShortLock> lock(figures.lock);
  DeviceStats& stats = figures.rare;
  (now ? stats.num_device_alloc : stats.num_device_free) += 1;
  change(stats.segment, 1, now);
  change(stats.reserved_bytes, bytes, now);
}

void Books::reset_peaks(DeviceIndex device) {
  Figures& figures = *figures_.at(device);
  const std::lock_guard<ShortLock> lock(figures.lock);
  for (Tally* tally : {&figures.blocks, &figures.bytes, &figures.requested}) {
    tally->reset_peaks();
  }
  for (StatArray* stats : {&figures.rare.segment, &figures.rare.reserved_bytes}) {
    for (Stat& stat : *stats) {
      stat.reset_peak();
    }
  }
}

void Books::reset_accumulated(DeviceIndex device) {
  Figures& figures = *figures_.at(device);
  const std::lock_guard<ShortLock> lock(figures.lock);
  for (Tally* tally : {&figures.blocks, &figures.bytes, &figures.requested}) {
    tally->reset_accumulated();
  }
  DeviceStats& stats = figures.rare;
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
