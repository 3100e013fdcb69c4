// cudaMalloc and cudaFree: no pool at all.
#pragma once

#include "../harness/check.h"
#include "../harness/contender.h"

namespace peers {

struct Contender {
  static constexpr bool kDevice = true;
  static constexpr const char *kNoPhysical = "cudaMalloc does not say what it holds";
  static void open() {}
  static void fresh(Room) { must(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }
  static void meet(cudaStream_t) {}
  static void part(cudaStream_t) {}
  static void *take(std::size_t bytes, cudaStream_t) {
    void *p = nullptr;
    must(cudaMalloc(&p, bytes), "cudaMalloc");
    return p;
  }
  static void give(void *p, std::size_t, cudaStream_t) { must(cudaFree(p), "cudaFree"); }
  static void give_elsewhere(void *p, std::size_t bytes, cudaStream_t, cudaStream_t on) { give(p, bytes, on); }
  static Physical physical_peak() { return std::nullopt; }
};

}  // namespace peers
