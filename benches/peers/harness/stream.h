// A stream of the kind that every contender gets: one that does not synchronise with the default stream.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "check.h"

namespace peers {

// Made and ended the way the contender wants streams told to it.
template <class Contender>
class Stream {
 public:
  Stream() {
    must(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    Contender::meet(handle_);
  }
  ~Stream() {
    Contender::part(handle_);
    cudaStreamDestroy(handle_);
  }
  Stream(const Stream &) = delete;
  Stream &operator=(const Stream &) = delete;
  operator cudaStream_t() const { return handle_; }
  void wait() const { must(cudaStreamSynchronize(handle_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t handle_ = nullptr;
};

template <class Contender>
using Streams = std::vector<std::unique_ptr<Stream<Contender>>>;

template <class Contender>
Streams<Contender> make_streams(int count) {
  Streams<Contender> streams;
  for (int i = 0; i < count; i++) streams.push_back(std::make_unique<Stream<Contender>>());
  return streams;
}

// An event that keeps no time.
class Event {
 public:
  Event() { must(cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming), "cudaEventCreateWithFlags"); }
  ~Event() { cudaEventDestroy(handle_); }
  Event(const Event &) = delete;
  Event &operator=(const Event &) = delete;
  operator cudaEvent_t() const { return handle_; }

 private:
  cudaEvent_t handle_ = nullptr;
};

}  // namespace peers
