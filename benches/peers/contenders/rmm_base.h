// What the contenders on an RMM resource share. The resource's own type is called, not a type-erased reference: RMM at
// its fastest.
#pragma once

#include <cuda_runtime_api.h>

#include <rmm/cuda_device.hpp>

#include <cuda/memory_resource>
#include <optional>

#include "../harness/check.h"
#include "../harness/contender.h"

namespace peers {

inline constexpr std::size_t kRmmAlignment = 256;

// `Make::make(room)` gives the resource, `Make::held(resource, room)` what it holds.
template <class Make>
struct RmmResource {
  using Resource = decltype(Make::make(Room::kPreset));
  static inline std::optional<Resource> resource;
  static inline Room made = Room::kPreset;

  static void open() { resource.emplace(Make::make(made)); }

  static void fresh(Room room) {
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    resource.reset();
    made = room;
    resource.emplace(Make::make(made));
  }

  static void meet(cudaStream_t) {}
  static void part(cudaStream_t) {}
  static void *take(std::size_t bytes, cudaStream_t stream) {
    return resource->allocate(cuda::stream_ref{stream}, bytes, kRmmAlignment);
  }
  static void give(void *p, std::size_t bytes, cudaStream_t stream) {
    resource->deallocate(cuda::stream_ref{stream}, p, bytes, kRmmAlignment);
  }
  static void give_elsewhere(void *p, std::size_t bytes, cudaStream_t, cudaStream_t on) { give(p, bytes, on); }
  // RMM's pools never shrink, so what one holds is its peak.
  static Physical physical_peak() { return Make::held(*resource, made); }
};

// Half of what is free, as RMM's own benchmarks have it.
inline std::size_t rmm_start(Room room) { return room == Room::kPreset ? rmm::percent_of_free_device_memory(50) : 0; }

}  // namespace peers
