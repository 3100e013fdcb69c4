// Forebay's own pinned pool. With -DREADY its memory is asked for ready for the host at once, else ready in the order of the
// stream, which is what the pools of the device and the driver's host pool give.
#pragma once

#include "forebay_pool.h"

namespace peers {

struct Contender : ForebayPool {
  static constexpr bool kDevice = false;

  static void open() {
    forebay_pool_options options;
    must(forebay_pool_options_init(&options), "forebay_pool_options_init");
    options.location = FOREBAY_LOCATION_HOST_NUMA;
    options.numa_id = -1;
    must(forebay_pool_create(&options, &pool), "forebay_pool_create");
  }

#ifdef READY
  static void *take(std::size_t bytes, cudaStream_t stream) {
    void *p = nullptr;
    must(forebay_pool_malloc_ready(pool, bytes, 0, stream, &p), "forebay_pool_malloc_ready");
    return p;
  }
#endif
};

}  // namespace peers
