/* A capture that nobody announced is refused by the next request that no cached block serves, and stays valid; whichever
 * context is current where it is asked, and whether the stream was registered. Nor does what the legacy stream freed break one.
 *
 *   nvcc -std=c++17 -O2 -Iinclude tests/gpu/captures.cu -o captures -L... -lforebay
 */
#include <cuda_runtime.h>
#include <forebay.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

namespace {

forebay_pool *pool;
int failures = 0;

void must(bool holds, const std::string &what) {
  std::printf("  %s %s\n", holds ? "ok  " : "FAIL", what.c_str());
  failures += !holds;
}

void cuda(cudaError_t code, const char *what) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(code));
  std::exit(2);
}

// Asks for memory of a length that was never asked for, so that no cached block serves.
forebay_status ask(int device, cudaStream_t stream) {
  static uint64_t megabytes = 3;
  void *block = nullptr;
  forebay_status status = forebay_pool_malloc(pool, megabytes++ << 20, device, stream, &block);
  if (status == FOREBAY_STATUS_OK) forebay_pool_free(pool, block, stream);
  return status;
}

void here(const std::function<void()> &work) { work(); }

// A fresh thread has no context.
void in_a_thread(const std::function<void()> &work) { std::thread(work).join(); }

void check(int device, bool registered, const std::string &where, void (*at)(const std::function<void()> &), int current) {
  std::string name = "device " + std::to_string(device) + (registered ? ", registered, " : ", not registered, ") + where;
  cuda(cudaSetDevice(device), "cudaSetDevice");
  cudaStream_t stream;
  cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  if (registered) must(forebay_stream_register(pool, device, stream) == FOREBAY_STATUS_OK, name + ": registered");
  forebay_status before, during, after;
  auto asked = [&](forebay_status *status) {
    cuda(cudaSetDevice(current), "cudaSetDevice");
    at([=] { *status = ask(device, stream); });
    cuda(cudaSetDevice(device), "cudaSetDevice");
  };
  asked(&before);
  cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  asked(&during);
  cudaGraph_t graph = nullptr;
  cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  asked(&after);
  must(before == FOREBAY_STATUS_OK, name + ": served before the capture");
  must(during == FOREBAY_STATUS_CAPTURING, name + ": refused in the capture");
  must(ended == cudaSuccess, name + ": the capture is valid");
  must(after == FOREBAY_STATUS_OK, name + ": served after it");
  if (graph) cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
  if (registered) forebay_stream_unregister(pool, device, stream);
  cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

// While a stream that synchronises with the legacy stream is captured, an event on that one would break the capture.
void check_legacy(int device) {
  std::string name = "device " + std::to_string(device) + ", memory of the legacy stream";
  cuda(cudaSetDevice(device), "cudaSetDevice");
  cudaStream_t captured, other;
  cuda(cudaStreamCreate(&captured), "cudaStreamCreate");
  cuda(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "cudaStreamCreate");
  must(ask(device, nullptr) == FOREBAY_STATUS_OK, name + ": freed before the capture");
  cuda(cudaStreamBeginCapture(captured, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  forebay_status during = FOREBAY_STATUS_OK;
  in_a_thread([&] {
    cuda(cudaSetDevice(device), "cudaSetDevice");
    during = ask(device, other);
  });
  cudaGraph_t graph = nullptr;
  cudaError_t ended = cudaStreamEndCapture(captured, &graph);
  must(during == FOREBAY_STATUS_OK, name + ": another stream is served during it");
  must(ended == cudaSuccess, name + ": the capture is valid");
  must(ask(device, other) == FOREBAY_STATUS_OK, name + ": served after it");
  if (graph) cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
  cuda(cudaStreamDestroy(captured), "cudaStreamDestroy");
  cuda(cudaStreamDestroy(other), "cudaStreamDestroy");
}

}  // namespace

int main() {
  if (forebay_pool_shared(&pool) != FOREBAY_STATUS_OK) {
    std::fprintf(stderr, "%s\n", forebay_last_error_message());
    return 2;
  }
  int count = 0;
  cuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  // Twice: new streams get the handles of those that are gone.
  for (int round = 0; round < 2; round++) {
    for (int device = 0; device < count && device < 2; device++) {
      for (bool registered : {true, false}) {
        check(device, registered, "its own context", here, device);
        check(device, registered, "a thread without a context", in_a_thread, device);
        if (count > 1) check(device, registered, "another device's context", here, 1 - device);
      }
      check_legacy(device);
    }
  }
  std::printf("%d failures\n", failures);
  return failures != 0;
}
