// The benchmark of one contender, whose header comes by -DCONTENDER_HEADER='"contenders/NAME.h"'. run.py builds and runs
// one such program for each.
//
//   NAME [--quick] [--cap SECONDS] [--traces FOLDER] [WORKLOAD...]      without workloads: all that there are for it
//
// Prints a JSON line for every figure. Ends with 0 unless the machine or the arguments are wrong: a workload that fails is
// a line too.
#include CONTENDER_HEADER

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "workloads/kernels.h"
#include "workloads/other_thread.h"
#include "workloads/pairs.h"
#include "workloads/random.h"
#include "workloads/replay.h"
#include "workloads/streams.h"
#include "workloads/threads.h"

namespace peers {

struct Workload {
  const char *name;
  void (*run)(Report &);
};

template <class C>
std::vector<Workload> workloads() {
  if constexpr (C::kDevice) {
    // Traces before random sizes: these use up the time that a pool gives to moving chunks, and no training comes after such a thing.
    return {{"pairs", pairs<C>},             {"replay", replay<C>},   {"random", random<C>},            {"kernels", kernels<C>},
            {"handed_over", handed_over<C>}, {"threads", threads<C>}, {"other_thread", other_thread<C>}};
  } else {
    return {{"pinned_pairs", pinned_pairs<C>}, {"pinned_random", pinned_random<C>}};
  }
}

// Where a program stands that has a context and wants memory.
template <class C>
void start(Report &report) {
  must(cudaSetDevice(0), "cudaSetDevice");
  must(cudaFree(nullptr), "cudaFree");
  auto begun = Clock::now();
  C::open();
  double opened = since(begun) * 1e6;
  Stream<C> stream;
  begun = Clock::now();
  void *p = C::take(1 << 20, stream);
  double us = opened + since(begun) * 1e6;
  C::give(p, 1 << 20, stream);
  std::string note = "of it making the pool " + std::to_string(static_cast<int>(opened)) + " us";
  report.figure("first allocation", "us", us, note);
}

int run(int count, char **arguments) {
  std::vector<std::string> wanted;
  for (int i = 1; i < count; i++) {
    std::string word = arguments[i];
    if (word == "--quick") {
      settings().repeat_ms = 1.5;
      settings().repeats = 5;
      settings().team_repeats = 3;
      settings().team_ms = 8;
      settings().warm_s = 0.2;
    } else if (word == "--cap" && i + 1 < count) {
      settings().cap_s = std::atof(arguments[++i]);
    } else if (word == "--traces" && i + 1 < count) {
      settings().traces = arguments[++i];
    } else if (word[0] == '-') {
      fail(word, "no such option");
    } else {
      wanted.push_back(word);
    }
  }
  Report report(Contender::kDevice ? "start" : "pinned_start");
  report.fact("cores", std::to_string(cores().order.size()) + " (" + std::to_string(cores().physical) + " physical)");
  start<Contender>(report);
  pin(0);  // after the context: its own threads run where they like
  for (const Workload &workload : workloads<Contender>()) {
    bool chosen = wanted.empty();
    for (const std::string &word : wanted) chosen = chosen || word == workload.name;
    if (!chosen) continue;
    report.workload(workload.name);
    auto begun = Clock::now();
    try {
      workload.run(report);
    } catch (const std::exception &error) {
      report.cannot("", error.what());
    }
    report.done(since(begun));
  }
  return 0;
}

}  // namespace peers

int main(int count, char **arguments) {
  try {
    int code = peers::run(count, arguments);
    // Static destructors of allocators and of the CUDA runtime run in no order that suits both.
    std::fflush(stdout);
    std::_Exit(code);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
