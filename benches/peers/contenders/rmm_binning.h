// RMM's bins of 256 KiB to 4 MiB over its pool, as RMM's own benchmarks have them.
#pragma once

#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include "rmm_base.h"

namespace peers {

struct MakeRmmBinning {
  static inline std::optional<rmm::mr::pool_memory_resource> below;

  static rmm::mr::binning_memory_resource make(Room room) {
    below.reset();
    below.emplace(rmm::mr::cuda_memory_resource{}, rmm_start(room));
    return rmm::mr::binning_memory_resource{*below, 18, 22};
  }
  static Physical held(const rmm::mr::binning_memory_resource &, Room room) {
    return room == Room::kGrows ? Physical(below->pool_size()) : std::nullopt;
  }
};

struct Contender : RmmResource<MakeRmmBinning> {
  static constexpr bool kDevice = true;
  static constexpr const char *kNoPhysical = "its memory is set beforehand";
};

}  // namespace peers
