// One thread, two streams: memory is allocated on one, an event makes the other wait for it, and it is freed on the other. First
// without kernels, for the price of the calls, then with: do the streams overlap, and what memory does that take?
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "../harness/clock.h"
#include "../harness/contender.h"
#include "../harness/report.h"
#include "../harness/stream.h"
#include "../kernels.h"
#include "pairs.h"

namespace peers {

inline constexpr std::size_t kAhead = 6;  // blocks that the host is ahead of the device, at most

// Microseconds for a block of which one stream's kernel makes something in 50, and another's something else in 100: about 100 if
// they overlap, 150 if each waits for the other. `beside` bytes are live all the time.
template <class Contender>
double at_work_us(std::size_t bytes, std::size_t beside) {
  constexpr std::size_t kBlocks = 1500, kFirst = 500;
  Contender::fresh(Room::kGrows);
  Stream<Contender> producer, consumer;
  void *other = beside ? Contender::take(beside, producer) : nullptr;
  void *target = nullptr;  // what kernels write to: there are contenders without memory
  must(cudaMalloc(&target, 8), "cudaMalloc");
  Event made;
  std::vector<Event> done(kAhead);
  auto start = Clock::now();
  for (std::size_t i = 0; i < kBlocks; i++) {
    if (i == kFirst) start = Clock::now();
    if (i >= kAhead) must(cudaEventSynchronize(done[i % kAhead]), "cudaEventSynchronize");
    void *p = Contender::take(bytes, producer);
    must(spin(producer, 50'000, target), "spin");
    must(cudaEventRecord(made, producer), "cudaEventRecord");
    must(cudaStreamWaitEvent(consumer, made, 0), "cudaStreamWaitEvent");
    must(spin(consumer, 100'000, target), "spin");
    must(cudaEventRecord(done[i % kAhead], consumer), "cudaEventRecord");
    Contender::give_elsewhere(p, bytes, producer, consumer);
  }
  must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  double us = since(start) * 1e6 / (kBlocks - kFirst);
  if (other) Contender::give(other, beside, producer);
  must(cudaFree(target), "cudaFree");
  return us;
}

template <class Contender>
void at_work(Report &report, const std::string &name, std::size_t bytes, std::size_t beside) {
  try {
    report.figure(name, "us", at_work_us<Contender>(bytes, beside));
    if (auto held = Contender::physical_peak()) {
      report.figure(name + ", blocks held", "blocks", (static_cast<double>(*held) - static_cast<double>(beside)) / bytes);
    }
  } catch (const std::exception &error) {
    report.cannot(name, error.what());
  }
}

template <class Contender>
void handed_over(Report &report) {
  for (Size size : {Size{"64 KiB", 64 << 10}, Size{"16 MiB", 16 << 20}}) {
    report.attempt(size.text, "ns", [&] {
      Contender::fresh(Room::kPreset);
      Stream<Contender> producer, consumer;
      Event made;
      return per_call_ns(
          [&](long count) {
            for (long i = 0; i < count; i++) {
              void *p = Contender::take(size.bytes, producer);
              must(cudaEventRecord(made, producer), "cudaEventRecord");
              must(cudaStreamWaitEvent(consumer, made, 0), "cudaStreamWaitEvent");
              Contender::give_elsewhere(p, size.bytes, producer, consumer);
            }
          },
          [&] { must(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); });
    });
  }
  at_work<Contender>(report, "64 MiB under kernels", 64 << 20, 0);
  at_work<Contender>(report, "64 MiB under kernels, 4 GiB beside", 64 << 20, std::size_t{4} << 30);
}

}  // namespace peers
