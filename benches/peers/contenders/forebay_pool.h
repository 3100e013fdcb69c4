// What the contenders on a forebay_pool share: which pool it is, and how memory is freed.
#pragma once

#include <forebay.h>

#include "../harness/check.h"
#include "../harness/contender.h"

namespace peers {

inline void must(forebay_status status, const char *what) {
  if (status == FOREBAY_STATUS_OK) [[likely]] return;
  fail(what, forebay_last_error_message());
}

struct ForebayPool {
  static constexpr const char *kNoPhysical = "";
  static inline forebay_pool *pool = nullptr;

  static void fresh(Room) {
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    must(forebay_pool_trim(pool, 0, 0, nullptr), "forebay_pool_trim");
    must(forebay_pool_reset_peaks(pool, 0), "forebay_pool_reset_peaks");
  }

  static constexpr bool kMeets = true;  // a stream that it was not told of costs more
  static void meet(cudaStream_t stream) { must(forebay_stream_register(pool, 0, stream), "forebay_stream_register"); }
  static void part(cudaStream_t stream) { forebay_stream_unregister(pool, 0, stream); }

  static void *take(std::size_t bytes, cudaStream_t stream) {
    void *p = nullptr;
    must(forebay_pool_malloc(pool, bytes, 0, stream, &p), "forebay_pool_malloc");
    return p;
  }
  static void give(void *p, std::size_t, cudaStream_t stream) { must(forebay_pool_free(pool, p, stream), "forebay_pool_free"); }
  static void give_elsewhere(void *p, std::size_t bytes, cudaStream_t, cudaStream_t on) { give(p, bytes, on); }

  static Physical physical_peak() {
    forebay_pool_stats stats{};
    stats.size = sizeof stats;
    stats.version = FOREBAY_STATS_VERSION;
    must(forebay_pool_get_stats(pool, 0, &stats), "forebay_pool_get_stats");
    return stats.physical_peak;
  }
};

}  // namespace peers
