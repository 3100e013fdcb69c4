#include "books.h"

namespace forebay_torch {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

namespace {

// Forebay's blocks are multiples of this.
constexpr int GRAIN_BITS = 9;

void change(StatArray& stats, size_t amount, bool small, bool comes) {
  const auto part = small ? StatType::SMALL_POOL : StatType::LARGE_POOL;
  for (auto type : {StatType::AGGREGATE, part}) {
    Stat& stat = stats[static_cast<size_t>(type)];
    // What was there before anybody counted can go, and a figure below 0 is an exception in some builds.
    const auto current = static_cast<size_t>(std::max<int64_t>(stat.current, 0));
    comes ? stat.increase(amount) : stat.decrease(std::min(amount, current));
  }
}

template <typename F>
void each(DeviceStats& stats, F f) {
  for (StatArray* figures :
       {&stats.allocation,
        &stats.segment,
        &stats.active,
        &stats.inactive_split,
        &stats.allocated_bytes,
        &stats.reserved_bytes,
        &stats.active_bytes,
        &stats.inactive_split_bytes,
        &stats.requested_bytes}) {
    for (Stat& stat : *figures) {
      f(stat);
    }
  }
}

} // namespace

void Books::resize(size_t devices) {
  while (figures_.size() < devices) {
    figures_.push_back(std::make_unique<Figures>());
  }
}

Books::Shard& Books::shard(void* ptr) {
  auto grain = reinterpret_cast<uintptr_t>(ptr) >> GRAIN_BITS;
  // Large blocks begin at round addresses: their low bits alone would choose one shard for all.
  return shards_[(grain ^ (grain >> 7) ^ (grain >> 13)) % SHARDS];
}

void Books::count(const Block& block, bool comes) {
  Figures& figures = *figures_.at(block.device);
  const bool small = block.bytes <= SMALL;
  const std::lock_guard<std::mutex> lock(figures.mutex);
  DeviceStats& stats = figures.stats;
  change(stats.allocation, 1, small, comes);
  change(stats.active, 1, small, comes);
  change(stats.allocated_bytes, block.bytes, small, comes);
  change(stats.active_bytes, block.bytes, small, comes);
  change(stats.requested_bytes, block.requested, small, comes);
}

void Books::add(void* ptr, Block block) {
  count(block, true);
  Shard& home = shard(ptr);
  const std::lock_guard<std::mutex> lock(home.mutex);
  home.blocks[ptr] = std::move(block);
}

std::optional<Block> Books::remove(void* ptr) {
  Block block;
  {
    Shard& home = shard(ptr);
    const std::lock_guard<std::mutex> lock(home.mutex);
    auto found = home.blocks.find(ptr);
    if (found == home.blocks.end()) {
      return std::nullopt;
    }
    block = std::move(found->second);
    home.blocks.erase(found);
  }
  count(block, false);
  return block;
}

std::optional<Block> Books::find(void* ptr) {
  Shard& home = shard(ptr);
  const std::lock_guard<std::mutex> lock(home.mutex);
  auto found = home.blocks.find(ptr);
  return found == home.blocks.end() ? std::nullopt : std::make_optional(found->second);
}

void Books::mark_shared(void* ptr) {
  Shard& home = shard(ptr);
  const std::lock_guard<std::mutex> lock(home.mutex);
  auto found = home.blocks.find(ptr);
  if (found != home.blocks.end()) {
    found->second.shared = true;
  }
}

std::vector<LiveBlock> Books::of_pool(DeviceIndex device, MempoolId_t pool) {
  std::vector<LiveBlock> live;
  for (Shard& home : shards_) {
    const std::lock_guard<std::mutex> lock(home.mutex);
    for (const auto& [ptr, block] : home.blocks) {
      if (block.device == device && block.pool == pool) {
        live.push_back({ptr, block});
      }
    }
  }
  return live;
}

DeviceStats Books::stats(DeviceIndex device) {
  Figures& figures = *figures_.at(device);
  const std::lock_guard<std::mutex> lock(figures.mutex);
  return figures.stats;
}

size_t Books::allocated_bytes(DeviceIndex device) {
  Figures& figures = *figures_.at(device);
  const std::lock_guard<std::mutex> lock(figures.mutex);
  return figures.stats.allocated_bytes[static_cast<size_t>(StatType::AGGREGATE)].current;
}

void Books::failed(DeviceIndex device) {
  Figures& figures = *figures_.at(device);
  const std::lock_guard<std::mutex> lock(figures.mutex);
  figures.stats.num_ooms += 1;
}

void Books::mapped(DeviceIndex device, size_t bytes, bool now) {
  Figures& figures = *figures_.at(device);
  const std::lock_guard<std::mutex> lock(figures.mutex);
  DeviceStats& stats = figures.stats;
  (now ? stats.num_device_alloc : stats.num_device_free) += 1;
  change(stats.segment, 1, false, now);
  change(stats.reserved_bytes, bytes, false, now);
}

void Books::reset_peaks(DeviceIndex device) {
  Figures& figures = *figures_.at(device);
  const std::lock_guard<std::mutex> lock(figures.mutex);
  each(figures.stats, [](Stat& stat) { stat.reset_peak(); });
}

void Books::reset_accumulated(DeviceIndex device) {
  Figures& figures = *figures_.at(device);
  const std::lock_guard<std::mutex> lock(figures.mutex);
  DeviceStats& stats = figures.stats;
  each(stats, [](Stat& stat) { stat.reset_accumulated(); });
  stats.num_ooms = 0;
  stats.num_device_alloc = 0;
  stats.num_device_free = 0;
}

} // namespace forebay_torch
