// RMM's pool over cudaHostAlloc. It starts empty: its makers name no size for it.
#pragma once

#include <rmm/mr/pinned_host_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include "rmm_base.h"

namespace peers {

struct MakeRmmPinned {
  static rmm::mr::pool_memory_resource make(Room) {
    return rmm::mr::pool_memory_resource{rmm::mr::pinned_host_memory_resource{}, 0};
  }
  static Physical held(const rmm::mr::pool_memory_resource &pool, Room) { return pool.pool_size(); }
};

struct Contender : RmmResource<MakeRmmPinned> {
  static constexpr bool kDevice = false;
  static constexpr const char *kNoPhysical = "";
};

}  // namespace peers
