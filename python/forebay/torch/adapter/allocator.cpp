#include "allocator.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <pthread.h>

namespace forebay_torch {

Allocator::Allocator(const std::string& library_path) : library_(library_path) {
  the_allocator = this;
  pthread_atfork(nullptr, nullptr, [] { the_allocator->forked_.store(true, std::memory_order_relaxed); });
}

void Allocator::init(int device_count) {
  library_.forebay_torch_init(device_count);
  const std::lock_guard<std::mutex> lock(mutex_);
  statistics_.resize(device_count);
  gpu_count_ = c10::cuda::device_count();
  while (devices_.size() < static_cast<size_t>(device_count)) {
    auto fresh = std::make_unique<Device>();
    fresh->allocator = this;
    fresh->index = static_cast<DeviceIndex>(devices_.size());
    devices_.push_back(std::move(fresh));
  }
  initialized_ = true;
}

std::string Allocator::name() {
  return "forebay";
}

void Allocator::emptyCache(MempoolId_t id) {
  if (id != NO_POOL) {
    // Forebay's own memory of a private pool is free for all when the pool is released.
    for (const auto& device : devices_) {
      if (CustomPool* pool = custom_pools_.find(device->index, id)) {
        const c10::cuda::CUDAGuard guard(device->index);
        pool->trim();
        update_pool_limit(*device);
      }
    }
  } else {
    const auto context = history_.gather(RecordContext::ALL);
    const ScopedContext scope(context);
    library_.forebay_torch_reset();
  }
}

void Allocator::enable(bool value) {
  uncached_.enable(!value);
}

bool Allocator::isEnabled() const {
  return !uncached_.enabled();
}

void Allocator::attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  out_of_memory_observers_.push_back(std::move(observer));
}

Allocator::Device& Allocator::device(DeviceIndex index) {
  TORCH_CHECK(
      0 <= index && static_cast<size_t>(index) < devices_.size(),
      "there is no device ", std::to_string(static_cast<int>(index)), ": PyTorch was initialised with ",
      std::to_string(devices_.size()), " devices");
  return *devices_[index];
}

// The calling thread's; with a single device there is no need to ask CUDA.
DeviceIndex Allocator::current_device() const {
  DeviceIndex device = 0;
  if (devices_.size() != 1) {
    C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  }
  return device;
}

Allocator::Device& Allocator::open_device(DeviceIndex index) {
  Device& state = device(index);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!state.opened.load(std::memory_order_relaxed)) {
    library_.check(library_.forebay_pool_set_mapping_observer(library_.pool(), index, &Allocator::on_mapping, &state));
    // Other frameworks may have used the pool before: what they had mapped counts as one segment.
    if (const forebay_pool_stats before = pool_stats(index); before.physical > 0) {
      statistics_.count_mapping(index, before.physical, true);
    }
    single_device_.store(single_device_.load() == NONE ? index : SEVERAL, std::memory_order_relaxed);
    state.opened.store(true, std::memory_order_release);
  }
  return state;
}

// Called through C, under Forebay's locks: it must not throw. A record that cannot be made is left out.
void Allocator::on_mapping(void* user, int32_t device, uint32_t what, void* ptr, uint64_t bytes) noexcept try {
  Allocator& self = *static_cast<Device*>(user)->allocator;
  const bool mapped = what == FOREBAY_MAPPING_MAPPED;
  const auto index = static_cast<DeviceIndex>(device);
  self.statistics_.count_mapping(index, bytes, mapped);
  Event event;
  event.action = mapped ? TraceEntry::SEGMENT_MAP : TraceEntry::SEGMENT_UNMAP;
  event.device = index;
  event.addr = reinterpret_cast<size_t>(ptr);
  event.size = bytes;
  self.history_.record(event, ScopedContext::current());
} catch (const std::exception& error) {
  TORCH_WARN_ONCE("Forebay could not record a mapping: ", error.what());
}

// Tells Forebay that the stream lives as long as the process, so that frees on it need no event.
void Allocator::register_stream(DeviceIndex index, c10::cuda::CUDAStream stream) {
  // PyTorch's own streams have an odd id and are never destroyed. Others belong to users; 0 is registered by itself.
  if ((stream.id() & 1) == 0) {
    return;
  }
  thread_local std::pair<DeviceIndex, cudaStream_t> last{-1, nullptr};
  const std::pair<DeviceIndex, cudaStream_t> key{index, stream.stream()};
  if (key == last) {
    return;
  }
  // A stream under capture cannot be told from an earlier stream at its address.
  Device& state = opened_device(index);
  if ((TELLS_CAPTURES ? state.captures : state.pool_routes).load(std::memory_order_relaxed) > 0) {
    return;
  }
  bool fresh = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    fresh = registered_streams_.insert(key).second;
  }
  if (fresh && library_.forebay_stream_register(library_.pool(), index, key.second) != FOREBAY_STATUS_OK) {
    // The next allocation tries again; until then each free records an event.
    const std::lock_guard<std::mutex> lock(mutex_);
    registered_streams_.erase(key);
    return;
  }
  last = key;
}

void Allocator::report_to_profiler(void* ptr, DeviceIndex index, int64_t change) {
  c10::reportMemoryUsageToProfiler(
      ptr, change, statistics_.allocated_bytes(index), pool_stats(index).physical,
      c10::Device(c10::DeviceType::CUDA, index));
}

forebay_pool_stats Allocator::pool_stats(DeviceIndex device) {
  forebay_pool_stats stats{};
  stats.size = sizeof(stats);
  stats.version = FOREBAY_STATS_VERSION;
  library_.check(library_.forebay_pool_get_stats(library_.pool(), device, &stats));
  return stats;
}

} // namespace forebay_torch
