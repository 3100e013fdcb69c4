// RMM's pool over cudaMalloc.
#pragma once

#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include "rmm_base.h"

namespace peers {

struct MakeRmmPool {
  static rmm::mr::pool_memory_resource make(Room room) {
    return rmm::mr::pool_memory_resource{rmm::mr::cuda_memory_resource{}, rmm_start(room)};
  }
  static Physical held(const rmm::mr::pool_memory_resource &pool, Room room) {
    return room == Room::kGrows ? Physical(pool.pool_size()) : std::nullopt;
  }
};

struct Contender : RmmResource<MakeRmmPool> {
  static constexpr bool kDevice = true;
  static constexpr const char *kNoPhysical = "its memory is set beforehand";
};

}  // namespace peers
