// Allocate and free, one after the other, warm; and 64 blocks of 64 sizes allocated, then freed. No kernel runs: this is
// the price of the calls.
#pragma once

#include <cstddef>
#include <string>

#include "../harness/clock.h"
#include "../harness/contender.h"
#include "../harness/report.h"
#include "../harness/stream.h"

namespace peers {

struct Size {
  const char *text;
  std::size_t bytes;
};

template <class Contender>
double pair_ns(std::size_t bytes, cudaStream_t stream) {
  return per_call_ns(
      [&](long count) {
        for (long i = 0; i < count; i++) Contender::give(Contender::take(bytes, stream), bytes, stream);
      },
      [&] { must(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); });
}

template <class Contender>
double mixed_ns(cudaStream_t stream) {
  constexpr int kBlocks = 64;
  std::size_t sizes[kBlocks];
  for (int i = 0; i < kBlocks; i++) sizes[i] = (512u << (i % 12)) * (1 + i % 3) + 512u * i;
  void *blocks[kBlocks];
  double ns = per_call_ns(
      [&](long count) {
        for (long round = 0; round < count; round++) {
          for (int i = 0; i < kBlocks; i++) blocks[i] = Contender::take(sizes[i], stream);
          for (int i = 0; i < kBlocks; i++) Contender::give(blocks[i], sizes[i], stream);
        }
      },
      [&] { must(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); });
  return ns / kBlocks;
}

template <class Contender>
void pairs_on(Report &report, const char *name, cudaStream_t stream) {
  constexpr Size kSizes[] = {{"512 B", 512},       {"4 KiB", 4 << 10},     {"64 KiB", 64 << 10},
                             {"1 MiB", 1 << 20},   {"2 MiB", 2 << 20},     {"16 MiB", 16 << 20},
                             {"64 MiB", 64 << 20}, {"256 MiB", 256 << 20}, {"1 GiB", 1 << 30}};
  for (const Size &size : kSizes) {
    report.attempt(std::string(size.text) + ", " + name, "ns", [&] { return pair_ns<Contender>(size.bytes, stream); });
  }
  report.attempt(std::string("64 mixed, ") + name, "ns", [&] { return mixed_ns<Contender>(stream); });
}

template <class Contender>
void pairs(Report &report) {
  Contender::fresh(Room::kPreset);
  {
    Stream<Contender> own;
    pairs_on<Contender>(report, "own stream", own);
  }
  pairs_on<Contender>(report, "default stream", nullptr);
  if constexpr (requires { Contender::kMeets; }) {  // what it costs not to tell the contender of a stream
    cudaStream_t stranger = nullptr;
    must(cudaStreamCreateWithFlags(&stranger, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    for (Size size : {Size{"4 KiB", 4 << 10}, Size{"2 MiB", 2 << 20}}) {
      report.attempt(std::string(size.text) + ", unregistered stream", "ns",
                     [&] { return pair_ns<Contender>(size.bytes, stranger); });
    }
    must(cudaStreamDestroy(stranger), "cudaStreamDestroy");
  }
}

// The same for pinned memory of the host, and what a pool's first block costs.
template <class Contender>
void pinned_pairs(Report &report) {
  constexpr Size kSizes[] = {{"4 KiB", 4 << 10}, {"1 MiB", 1 << 20}, {"64 MiB", 64 << 20}};
  Stream<Contender> stream;
  for (const Size &size : kSizes) {
    report.attempt(std::string(size.text) + ", first use", "us", [&] {
      Contender::fresh(Room::kGrows);
      auto start = Clock::now();
      void *p = Contender::take(size.bytes, stream);
      stream.wait();
      double us = since(start) * 1e6;
      Contender::give(p, size.bytes, stream);
      return us;
    });
    report.attempt(size.text, "ns", [&] { return pair_ns<Contender>(size.bytes, stream); });
  }
}

}  // namespace peers
