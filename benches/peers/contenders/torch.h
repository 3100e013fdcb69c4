// PyTorch's own allocator, called as its C++ does. With expandable segments by PYTORCH_ALLOC_CONF.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdlib>
#include <cstring>

#include "../harness/check.h"
#include "../harness/contender.h"

// PyTorch's libraries declare this to each other only.
namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*has)(DeviceIndex));
}

namespace peers {

struct Contender {
  static constexpr bool kDevice = true;
  static constexpr const char *kNoPhysical = "";
  static inline c10::cuda::CUDACachingAllocator::CUDAAllocator *allocator = nullptr;

  static void open() {
    // Which devices have a context: libtorch_cuda tells, which is far larger and needed for nothing else.
    c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex device) { return device == 0; });
    int devices = 0;
    must(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    allocator = c10::cuda::CUDACachingAllocator::get();
    allocator->init(devices);
  }

  static void fresh(Room) {
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    c10::cuda::CUDACachingAllocator::emptyCache();
    allocator->resetPeakStats(0);
  }

  static void meet(cudaStream_t) {}
  // PyTorch's own streams live as long as the process, and an expandable segment waits for its stream when it is unmapped.
  static void part(cudaStream_t) {
    if (!expandable()) return;
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    c10::cuda::CUDACachingAllocator::emptyCache();
  }
  static bool expandable() {
    const char *settings = std::getenv("PYTORCH_ALLOC_CONF");
    return settings != nullptr && std::strstr(settings, "expandable_segments:True") != nullptr;
  }
  static void *take(std::size_t bytes, cudaStream_t stream) { return allocator->raw_alloc_with_stream(bytes, stream); }
  static void give(void *p, std::size_t, cudaStream_t) { allocator->raw_delete(p); }

  // PyTorch frees in the order of the stream of the allocation, and is told of the other one.
  static void give_elsewhere(void *p, std::size_t, cudaStream_t, cudaStream_t on) {
    c10::DataPtr owner(p, p, allocator->raw_deleter(), c10::Device(c10::DeviceType::CUDA, 0));
    allocator->recordStream(owner, c10::cuda::getStreamFromExternal(on, 0));
  }

  static Physical physical_peak() {
    constexpr auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return allocator->getDeviceStats(0).reserved_bytes[all].peak;
  }
};

}  // namespace peers
