// RMM's arena over cudaMalloc: half of the device, RMM's default, in every workload, since it does not grow.
#pragma once

#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>

#include "rmm_base.h"

namespace peers {

struct MakeRmmArena {
  static rmm::mr::arena_memory_resource make(Room) { return rmm::mr::arena_memory_resource{rmm::mr::cuda_memory_resource{}}; }
  static Physical held(const rmm::mr::arena_memory_resource &, Room) { return std::nullopt; }
};

struct Contender : RmmResource<MakeRmmArena> {
  static constexpr bool kDevice = true;
  static constexpr const char *kNoPhysical = "its memory is set beforehand";
};

}  // namespace peers
