// The driver's pool of pinned host memory. Its memory is ready in the order of the stream.
#pragma once

#include "driver_pool.h"

namespace peers {

struct Contender : DriverPool {
  static constexpr bool kDevice = false;

  static void open() {
    cudaMemPoolProps wanted{};
    wanted.allocType = cudaMemAllocationTypePinned;
    wanted.location.type = cudaMemLocationTypeHost;
    must(cudaMemPoolCreate(&pool, &wanted), "cudaMemPoolCreate for the host");
    keep_all();
  }

  static void *take(std::size_t bytes, cudaStream_t stream) {
    void *p = nullptr;
    must(cudaMallocFromPoolAsync(&p, bytes, pool, stream), "cudaMallocFromPoolAsync");
    return p;
  }
};

}  // namespace peers
