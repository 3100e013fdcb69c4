// What to do when a call fails: an exception with the call's name, which ends one workload and not the program.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace peers {

[[noreturn]] inline void fail(const std::string &what, const std::string &why) { throw std::runtime_error(what + ": " + why); }

inline void must(cudaError_t error, const char *what) {
  if (error == cudaSuccess) [[likely]] return;
  cudaGetLastError();  // else the next call that asks for the last error is told of this one
  fail(what, cudaGetErrorString(error));
}

}  // namespace peers
