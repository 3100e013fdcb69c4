#include "allocator.h"

namespace forebay_torch {

double Allocator::getMemoryFraction(DeviceIndex index) {
  Device& device = opened_device(index);
  uint64_t limit = 0, free = 0, total = 0;
  library_.check(library_.forebay_pool_get_limit(library_.pool(), index, &limit));
  library_.check(library_.forebay_pool_memory_info(library_.pool(), index, &free, &total));
  const std::lock_guard<std::mutex> lock(device.limit_mutex);
  if (device.fraction_bytes != 0 && limit == device.pool_limit) {
    limit = device.fraction_bytes;
  }
  return limit == 0 ? 1.0 : static_cast<double>(limit) / static_cast<double>(total);
}

void Allocator::setMemoryFraction(double fraction, DeviceIndex index) {
  TORCH_CHECK(0 <= fraction && fraction <= 1, "the memory fraction is ", std::to_string(fraction), "; it must be from 0 to 1");
  Device& device = opened_device(index);
  uint64_t free = 0, total = 0;
  library_.check(library_.forebay_pool_memory_info(library_.pool(), index, &free, &total));
  {
    const std::lock_guard<std::mutex> lock(device.limit_mutex);
    device.fraction_bytes = std::max<uint64_t>(static_cast<uint64_t>(fraction * static_cast<double>(total)), 1);
  }
  update_pool_limit(device);
}

// Sets on Forebay's pool what custom pools leave of the limit.
void Allocator::update_pool_limit(Device& device) {
  const std::lock_guard<std::mutex> lock(device.limit_mutex);
  if (device.fraction_bytes == 0) {
    return;
  }
  const uint64_t custom = custom_pools_.bytes(device.index);
  // A fraction of 0 allows no memory; a limit of 0 would be no limit.
  const uint64_t left = device.fraction_bytes > custom ? device.fraction_bytes - custom : 1;
  library_.check(library_.forebay_pool_set_limit(library_.pool(), device.index, left));
  device.pool_limit = left;
}

// Whether `bytes` more of a custom pool are within the limit, after emptying the cache if need be.
bool Allocator::fits_limit(Device& device, size_t bytes) {
  const auto fits = [&] {
    const std::lock_guard<std::mutex> lock(device.limit_mutex);
    return device.fraction_bytes == 0 || pool_stats(device.index).physical + custom_pools_.bytes(device.index) + bytes <= device.fraction_bytes;
  };
  if (fits()) {
    return true;
  }
  library_.forebay_torch_reset();
  return fits();
}

} // namespace forebay_torch
