// cudaMallocAsync from the device's default pool.
#pragma once

#include "driver_pool.h"

namespace peers {

struct Contender : DriverPool {
  static constexpr bool kDevice = true;

  static void open() {
    must(cudaDeviceGetDefaultMemPool(&pool, 0), "cudaDeviceGetDefaultMemPool");
    keep_all();
  }

  static void *take(std::size_t bytes, cudaStream_t stream) {
    void *p = nullptr;
    must(cudaMallocAsync(&p, bytes, stream), "cudaMallocAsync");
    return p;
  }
};

}  // namespace peers
