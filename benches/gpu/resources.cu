/* What a buffer of each memory resource costs at the C level, beside the driver's own calls in the same run.
 *
 *   nvcc -std=c++17 -O2 -Iinclude benches/gpu/resources.cu -o resources -L... -lforebay
 *   resources [--json]
 *
 * A pair is one allocate and one close of a 1 MiB buffer, warm, on one stream; the contenders of a line take turns, and
 * each figure is the median of the repeats. "grow" is one step of 1 GiB, from 1 to 64 GiB.
 */
#include <cuda_runtime.h>
#include <forebay.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

namespace {

constexpr int kDevice = 0, kRepeats = 15;
constexpr uint64_t kMiB = 1 << 20, kGiB = 1 << 30;
bool json = false;
cudaStream_t stream;

void fail(const char *what, const char *why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  std::exit(1);
}

void must(forebay_status status, const char *what) {
  if (status != FOREBAY_STATUS_OK) fail(what, forebay_last_error_message());
}

void must(cudaError_t error, const char *what) {
  if (error != cudaSuccess) fail(what, cudaGetErrorString(error));
}

using Work = std::function<void()>;

double time_of(const Work &work, int calls) {
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; i++) work();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / calls;
}

double median(std::vector<double> &times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void compare(const char *what, const Work &theirs, const Work &ours, int calls) {
  std::vector<double> a, b;
  time_of(theirs, calls / 10 + 1), time_of(ours, calls / 10 + 1);
  for (int i = 0; i < kRepeats; i++) {
    a.push_back(time_of(theirs, calls));
    b.push_back(time_of(ours, calls));
  }
  double driver = median(a), forebay = median(b);
  std::printf("  %-46s %10.0f %10.0f   %6.2f times\n", what, driver, forebay, driver / forebay);
  if (json) std::printf("{\"bench\": \"resource pair: %s\", \"driver_ns\": %.1f, \"forebay_ns\": %.1f}\n", what, driver, forebay);
}

Work pair_of(forebay_resource *resource, void *on) {
  return [=] {
    forebay_buffer *buffer;
    must(forebay_resource_allocate(resource, kMiB, on, &buffer), "allocate");
    forebay_buffer_destroy(buffer);
  };
}

/* One buffer stays, so that the driver's pool does not go back to the system between two pairs. */
forebay_buffer *hold(forebay_resource *resource) {
  forebay_buffer *buffer;
  must(forebay_resource_allocate(resource, kMiB, stream, &buffer), "allocate");
  return buffer;
}

}  // namespace

int main(int argc, char **argv) {
  json = argc > 1 && !std::strcmp(argv[1], "--json");
  must(cudaSetDevice(kDevice), "cudaSetDevice");
  must(cudaFree(nullptr), "a context");
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");

  forebay_device_resource_options device_options;
  forebay_pinned_resource_options pinned_options;
  must(forebay_device_resource_options_init(&device_options), "options");
  must(forebay_pinned_resource_options_init(&pinned_options), "options");
  forebay_pool *shared;
  forebay_resource *device, *pinned, *own_pinned, *pool, *virtual_memory;
  must(forebay_device_resource_create(kDevice, &device_options, &device), "device resource");
  must(forebay_pinned_resource_create(&pinned_options, &pinned), "pinned resource");
  pinned_options.own_pool = 1;
  must(forebay_pinned_resource_create(&pinned_options, &own_pinned), "own pinned resource");
  must(forebay_pool_shared(&shared), "shared pool");
  must(forebay_pool_resource_create(shared, kDevice, &pool), "pool resource");
  must(forebay_virtual_resource_create(kDevice, nullptr, &virtual_memory), "virtual resource");

  /* The pools as the driver's own functions see them: the same pools, by their handles. */
  auto handle = [](forebay_resource *resource) {
    forebay_resource_info info;
    std::memset(&info, 0, sizeof info);
    info.size = sizeof info, info.version = FOREBAY_INFO_VERSION;
    must(forebay_resource_get_info(resource, &info), "info");
    return reinterpret_cast<cudaMemPool_t>(info.handle);
  };
  auto driver_pair = [](cudaMemPool_t from, cudaStream_t on) {
    return [=] {
      void *p;
      must(cudaMallocFromPoolAsync(&p, kMiB, from, on), "cudaMallocFromPoolAsync");
      must(cudaFreeAsync(p, on), "cudaFreeAsync");
    };
  };
  std::vector<forebay_buffer *> held = {hold(device), hold(pinned), hold(own_pinned), hold(pool)};

  std::printf("%-48s %10s %10s\n", "ns for allocate and close of 1 MiB", "driver", "Forebay");
  compare("device pool", driver_pair(handle(device), stream), pair_of(device, stream), 5000);
  compare("device pool / shared pool, unregistered stream", driver_pair(handle(device), stream), pair_of(pool, stream), 20000);
  compare("device pool / shared pool, default stream", driver_pair(handle(device), nullptr), pair_of(pool, nullptr), 20000);
  compare("pinned pool", driver_pair(handle(pinned), stream), pair_of(pinned, stream), 2000);
  compare("pinned pool / own pinned pool, ready", driver_pair(handle(pinned), stream), pair_of(own_pinned, stream), 2000);
  forebay_pool_options pinned_pool_options;
  must(forebay_pool_options_init(&pinned_pool_options), "options");
  pinned_pool_options.location = FOREBAY_LOCATION_HOST_NUMA;
  forebay_pool *pinned_pool;
  must(forebay_pool_create(&pinned_pool_options, &pinned_pool), "pinned pool");
  compare("pinned pool / own, stream-ordered, default stream", driver_pair(handle(pinned), nullptr), [&] {
    void *p;
    must(forebay_pool_malloc(pinned_pool, kMiB, kDevice, nullptr, &p), "malloc");
    must(forebay_pool_free(pinned_pool, p, nullptr), "free");
  }, 20000);
  compare("cudaHostAlloc / own pinned pool, ready", [] {
    void *p;
    must(cudaHostAlloc(&p, kMiB, cudaHostAllocPortable), "cudaHostAlloc");
    must(cudaFreeHost(p), "cudaFreeHost");
  }, pair_of(own_pinned, stream), 50);
  compare("cudaMalloc / virtual memory", [] {
    void *p;
    must(cudaMalloc(&p, kMiB), "cudaMalloc");
    must(cudaFree(p), "cudaFree");
  }, pair_of(virtual_memory, stream), 50);

  forebay_buffer *growing;
  must(forebay_resource_allocate(virtual_memory, kGiB, stream, &growing), "1 GiB");
  std::vector<double> steps;
  forebay_buffer_info info;
  std::memset(&info, 0, sizeof info);
  info.size = sizeof info, info.version = FOREBAY_INFO_VERSION;
  must(forebay_buffer_get_info(growing, &info), "info");
  const uint64_t before = info.handle;
  for (uint64_t gib = 2; gib <= 64; gib++) {
    steps.push_back(time_of([&] {
      must(forebay_resource_modify_allocation(virtual_memory, growing, gib * kGiB, nullptr, stream), "grow");
    }, 1));
  }
  must(forebay_buffer_get_info(growing, &info), "info");
  if (info.handle != before || info.bytes != 64 * kGiB) fail("grow", "the buffer moved, or has another size");
  const double step = median(steps) / 1000;
  std::printf("  grow by 1 GiB, 64 GiB in the end, not moved: %.0f us a step, worst %.0f\n", step, steps.back() / 1000);
  if (json) std::printf("{\"bench\": \"resource: grow by 1 GiB\", \"forebay_us\": %.1f}\n", step);
  double close = time_of([&] { must(forebay_buffer_close(growing), "close"); }, 1) / 1e6;
  std::printf("  closing 64 GiB: %.1f ms\n", close);
  forebay_buffer_destroy(growing);

  for (forebay_buffer *buffer : held) forebay_buffer_destroy(buffer);
  for (forebay_resource *resource : {device, pinned, own_pinned, pool, virtual_memory}) forebay_resource_destroy(resource);
  forebay_pool_destroy(pinned_pool);
  forebay_pool_destroy(shared);
  std::printf("ok\n");
  return 0;
}
