// What the contenders on a pool of the driver share.
#pragma once

#include "../harness/check.h"
#include "../harness/contender.h"

namespace peers {

// A pool of the driver gives memory back at every synchronise unless told to keep it: each is
// compared at its best.
struct DriverPool {
  static constexpr const char *kNoPhysical = "";
  static inline cudaMemPool_t pool = nullptr;

  static void keep_all() {
    std::uint64_t all = UINT64_MAX;
    must(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all), "cudaMemPoolSetAttribute");
  }

  static void fresh(Room) {
    std::uint64_t zero = 0;
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    must(cudaMemPoolTrimTo(pool, 0), "cudaMemPoolTrimTo");
    must(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &zero), "cudaMemPoolSetAttribute");
  }

  static void meet(cudaStream_t) {}
  static void part(cudaStream_t) {}
  static void give(void *p, std::size_t, cudaStream_t stream) { must(cudaFreeAsync(p, stream), "cudaFreeAsync"); }
  static void give_elsewhere(void *p, std::size_t bytes, cudaStream_t, cudaStream_t on) { give(p, bytes, on); }

  static Physical physical_peak() {
    std::uint64_t bytes = 0;
    must(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &bytes), "cudaMemPoolGetAttribute");
    return bytes;
  }
};

}  // namespace peers
