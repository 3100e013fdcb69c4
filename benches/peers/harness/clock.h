// Time, medians, and what one call of a loop costs.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

#include "settings.h"

namespace peers {

using Clock = std::chrono::steady_clock;

inline double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Nanoseconds of one of the `count` things that `body(count)` does: the median of several repeats, each long enough for
// the clock. Finding that length warms up what is measured; what the first call takes besides says nothing about it. `settle`
// runs between repeats and is not timed.
template <class Body, class Settle>
double per_call_ns(Body body, Settle settle) {
  long count = 1;
  body(count);
  settle();
  for (;;) {
    auto start = Clock::now();
    body(count);
    double seconds = since(start);
    settle();
    if (seconds * 1e3 >= settings().repeat_ms) break;
    double more = settings().repeat_ms / 1e3 / std::max(seconds, 1e-7);
    count = std::max(count + 1, static_cast<long>(count * std::min(more * 1.1, 16.0)));
  }
  std::vector<double> times;
  for (int repeat = 0; repeat < settings().repeats; repeat++) {
    auto start = Clock::now();
    body(count);
    times.push_back(since(start) * 1e9 / count);
    settle();
  }
  return median(times);
}

}  // namespace peers
