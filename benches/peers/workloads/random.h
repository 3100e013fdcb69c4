// Random allocations and frees: blocks of uniform size, more allocated than freed until a bound is reached, then about as
// many of each, at last only freed. The shape is that of RMM's RANDOM_ALLOCATIONS; the row of steps is made beforehand.
#pragma once

#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "../harness/contender.h"
#include "../harness/report.h"
#include "../harness/script.h"

namespace peers {

// `size(generator)` gives each block's bytes. Allocates `count` blocks in all, each time with a chance of 73 %, unless
// that would make more than `bound` bytes live; else frees one block of those that are live.
template <class SizeOf>
Script random_script(std::size_t count, std::uint64_t bound, SizeOf size) {
  std::mt19937_64 generator(73);  // the same row in every run
  std::uniform_int_distribution<int> percent(0, 99);
  std::vector<std::pair<std::uint32_t, std::uint64_t>> live;  // slot, bytes
  std::vector<std::uint32_t> unused;
  Script script;
  std::uint64_t bytes = 0;
  std::uint32_t next = 0;
  std::size_t made = 0;
  while (made < count || !live.empty()) {
    std::uint64_t wanted = made < count ? size(generator) : 0;
    bool take = made < count && (live.empty() || (percent(generator) < 73 && bytes + wanted < bound));
    if (take) {
      std::uint32_t slot = next;
      if (unused.empty()) {
        next++;
      } else {
        slot = unused.back();
        unused.pop_back();
      }
      script.steps.push_back({wanted, slot, 0, 1});
      live.emplace_back(slot, wanted);
      bytes += wanted;
      made++;
    } else {
      std::swap(live[generator() % live.size()], live.back());
      auto [slot, freed] = live.back();
      live.pop_back();
      unused.push_back(slot);
      script.steps.push_back({freed, slot, 0, 0});
      bytes -= freed;
    }
  }
  script.count();
  return script;
}

// The rows of any script: a first pass on an empty pool, what the pool held at most in it, and passes on the pool that the
// first one has warmed: at least so many, for what settles only after some.
template <class Contender>
void script_rows(Report &report, const std::string &name, const Script &script, Room room, std::size_t passes = 1) {
  Contender::fresh(room);
  auto streams = make_streams<Contender>(script.streams);
  std::string blocks = std::to_string(script.peak_blocks) + " blocks live";
  Pass first = play(script, streams);
  bool whole = first.stopped.empty();
  if (whole || first.stopped.rfind("stopped", 0) == 0) {
    report.figure(name + ", first pass", "ns", first.ns, first.stopped);
  } else {
    report.cannot(name + ", first pass", first.stopped);
    report.cannot(name, first.stopped);
    return;
  }
  Physical physical = Contender::physical_peak();
  if (!physical) {
    report.cannot(name + ", physical / live", Contender::kNoPhysical);
  } else if (!whole) {
    report.cannot(name + ", physical / live", first.stopped);
  } else {
    report.figure(name + ", physical / live", "ratio", static_cast<double>(*physical) / script.peak_bytes);
  }
  if (!whole) {
    report.figure(name, "ns", first.ns, "first pass, " + first.stopped);
    return;
  }
  std::vector<double> warm;
  for (auto start = Clock::now(); warm.size() < passes || since(start) < settings().warm_s;) {
    Pass pass = play(script, streams);
    if (!pass.stopped.empty()) {
      report.cannot(name, pass.stopped);
      return;
    }
    warm.push_back(pass.ns);
  }
  report.figure(name, "ns", median(warm), blocks);
  if (auto held = Contender::physical_peak()) {
    report.figure(name + ", physical / live at last", "ratio", static_cast<double>(*held) / script.peak_bytes);
  }
}

template <class Contender>
void random(Report &report) {
  constexpr std::uint64_t kMiB = 1 << 20;
  const std::pair<const char *, std::uint64_t> bounds[] = {
      {"up to 1 MiB", kMiB}, {"up to 64 MiB", 64 * kMiB}, {"up to 1 GiB", 1024 * kMiB}};
  for (auto [name, most] : bounds) {
    std::uniform_int_distribution<std::uint64_t> uniform(1, most);
    Script script = random_script(100000, 16000 * kMiB, uniform);
    try {
      script_rows<Contender>(report, name, script, Room::kPreset);
    } catch (const std::exception &error) {
      report.cannot(name, error.what());
    }
  }
}

// Sizes spread evenly over the powers of two, as buffers for copies come, and few enough bytes to pin quickly.
template <class Contender>
void pinned_random(Report &report) {
  std::uniform_real_distribution<double> power(12, 26);
  Script script = random_script(5000, 2ull << 30, [&](auto &generator) {
    return static_cast<std::uint64_t>(std::exp2(power(generator)));
  });
  script_rows<Contender>(report, "4 KiB to 64 MiB", script, Room::kGrows, 9);
}

}  // namespace peers
