// A fixed row of allocations and frees, the same for every contender: made, or read, before the clock runs, so that the
// loop that is timed does nothing but look up the next step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "clock.h"
#include "stream.h"

namespace peers {

// One step. run.py writes traces in this form: little end first, 16 bytes.
struct Step {
  std::uint64_t bytes;
  std::uint32_t slot;  // where the block is kept; used again once the block was given back
  std::uint16_t stream;
  std::uint16_t take;  // 1: allocate, 0: free
};
static_assert(sizeof(Step) == 16);

struct Script {
  std::vector<Step> steps;
  std::uint32_t slots = 0;
  std::uint16_t streams = 1;
  std::uint64_t peak_bytes = 0;  // most bytes asked for and not given back, at any one time
  std::size_t peak_blocks = 0;

  // Fills in everything but the steps.
  void count() {
    std::uint64_t bytes = 0;
    std::size_t blocks = 0;
    for (const Step &step : steps) {
      slots = std::max(slots, step.slot + 1);
      streams = std::max<std::uint16_t>(streams, step.stream + 1);
      bytes = step.take ? bytes + step.bytes : bytes - step.bytes;
      blocks = step.take ? blocks + 1 : blocks - 1;
      peak_bytes = std::max(peak_bytes, bytes);
      peak_blocks = std::max(peak_blocks, blocks);
    }
  }
};

inline std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

struct Pass {
  double ns = 0;        // of one step
  std::size_t done = 0;  // steps
  std::string stopped;   // why it ended early, if it did
};

// Plays the script once, until the cap. Afterwards everything is given back, outside the time that is reported.
template <class Contender>
Pass play(const Script &script, const Streams<Contender> &streams) {
  std::vector<void *> blocks(script.slots, nullptr);
  std::vector<cudaStream_t> handles(streams.size());
  for (std::size_t i = 0; i < streams.size(); i++) handles[i] = *streams[i];
  Pass pass;
  auto start = Clock::now();
  try {
    for (const Step &step : script.steps) {
      void *&block = blocks[step.slot];
      if (step.take) {
        block = Contender::take(step.bytes, handles[step.stream]);
      } else {
        Contender::give(block, step.bytes, handles[step.stream]);
        block = nullptr;
      }
      if ((++pass.done & 255) == 0 && since(start) > settings().cap_s) {
        pass.stopped = "stopped after " + short_number(settings().cap_s) + " s";
        break;
      }
    }
  } catch (const std::exception &error) {
    pass.stopped = error.what();
  }
  pass.ns = since(start) * 1e9 / std::max<std::size_t>(pass.done, 1);
  if (pass.done < script.steps.size()) {
    pass.stopped += " at step " + std::to_string(pass.done) + " of " + std::to_string(script.steps.size());
  }
  std::vector<const Step *> last(script.slots, nullptr);
  for (std::size_t i = 0; i < pass.done; i++) last[script.steps[i].slot] = &script.steps[i];
  for (std::uint32_t slot = 0; slot < script.slots; slot++) {
    if (blocks[slot]) Contender::give(blocks[slot], last[slot]->bytes, handles[last[slot]->stream]);
  }
  must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return pass;
}

}  // namespace peers
