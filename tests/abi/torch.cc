// PyTorch's hooks, called the way PyTorch calls them. Built twice: plain, where failures must be std::runtime_error, and
// with FAKE_C10, beside libraries that have PyTorch's exception classes, where want of memory must be theirs.
#include "forebay.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>

#ifdef FAKE_C10
#include "c10.h"
#endif

typedef struct CUstream_st *cudaStream_t;

static void fail(const char *what, const std::string &why) {
  std::fprintf(stderr, "%s: %s\n", what, why.c_str());
  std::exit(1);
}

static void must(bool truth, const char *what) {
  if (!truth) fail(what, forebay_last_error_message());
}

static void says(const char *what, const std::string &text, std::initializer_list<const char *> words) {
  for (const char *word : words)
    if (text.find(word) == std::string::npos) fail(what, std::string("no '") + word + "' in: " + text);
}

/// Something with a destructor in the frame between: it must run while the exception passes.
struct Witness {
  int *count;
  ~Witness() { ++*count; }
};
static int witnessed = 0;

template <class Call> static void runtime_error(const char *what, Call call, std::initializer_list<const char *> words) {
  int before = witnessed;
  try {
    Witness witness{&witnessed};
    call();
  } catch (const std::runtime_error &error) {
    must(witnessed == before + 1, "a destructor ran");
    return says(what, error.what(), words);
  } catch (const std::exception &error) {
    fail(what, std::string("another exception: ") + error.what());
  }
  fail(what, "nothing was thrown");
}

template <class Call> static void out_of_memory(const char *what, Call call, std::initializer_list<const char *> words) {
#ifdef FAKE_C10
  int before = witnessed, live = c10::Error::live;
  try {
    Witness witness{&witnessed};
    call();
  } catch (const c10::OutOfMemoryError &error) {
    must(witnessed == before + 1, "a destructor ran");
    must(std::strlen(error.location().function) > 0 && std::strlen(error.location().file) > 0, "a source location");
    must(c10::Error::live == live + 1, "one exception object");
    says(what, error.what(), words);
  } catch (const std::exception &error) {
    fail(what, std::string("another exception: ") + error.what());
  }
  must(witnessed == before + 1, "something was thrown");
  must(c10::Error::live == live, "the exception object was destroyed, by its own destructor");
  // The base class catches it too, as PyTorch's own handlers do.
  try {
    call();
  } catch (const c10::Error &error) {
    return says(what, error.what(), words);
  }
  fail(what, "nothing was thrown the second time");
#else
  runtime_error(what, call, words);
#endif
}

static forebay_pool_stats stats() {
  forebay_pool *pool = nullptr;
  must(forebay_pool_shared(&pool) == FOREBAY_STATUS_OK, "shared");
  forebay_pool_stats stats = {};
  stats.size = sizeof stats;
  stats.version = FOREBAY_STATS_VERSION;
  must(forebay_pool_get_stats(pool, 0, &stats) == FOREBAY_STATUS_OK, "stats");
  must(forebay_pool_check(pool, 0) == FOREBAY_STATUS_OK, "check");
  forebay_pool_destroy(pool);
  return stats;
}

static void allocations() {
  const ptrdiff_t size = 3 << 20;
  void *block = forebay_torch_malloc(size, 0, nullptr);
  must(block != nullptr && (uintptr_t)block % 512 == 0, "malloc");
  must(stats().live_by_framework[FOREBAY_FRAMEWORK_TORCH] == (uint64_t)size, "charged to PyTorch");
  must(forebay_torch_malloc(0, 0, nullptr) == nullptr, "no bytes");

  size_t bytes = 0;
  must(forebay_torch_base_alloc((char *)block + 12345, &bytes) == block && bytes == (size_t)size, "base_alloc");
  must(forebay_torch_base_alloc(block, nullptr) == block, "base_alloc without a size");
  runtime_error("base_alloc", [&] { forebay_torch_base_alloc(&bytes, &bytes); }, {"not memory of this pool"});

  // Neither of these may throw: PyTorch calls them in destructors.
  forebay_torch_record_stream(block, (void *)1);
  forebay_torch_record_stream((char *)block + 512, nullptr);
  forebay_torch_record_stream(&bytes, nullptr);
  forebay_torch_record_stream(nullptr, nullptr);
  forebay_torch_free(&bytes, 8, 0, nullptr);
  forebay_torch_free((char *)block + 512, 512, 0, nullptr);
  must(stats().live == (uint64_t)size, "bad frees changed nothing");
  forebay_torch_free(block, 7, 0, nullptr);  // the size is wrong, and not trusted
  must(stats().live == 0, "free with a wrong size");
  forebay_torch_free(block, size, 0, nullptr);
  forebay_torch_free(nullptr, 0, 0, nullptr);
  must(stats().frees == 1, "a second free is no free");
  forebay_torch_reset();
  must(stats().physical == 0, "reset gives all free memory back");
}

static void failures() {
  for (int round = 0; round < 50; round++) {  // nothing leaks, no lock stays held
    runtime_error("negative", [] { forebay_torch_malloc(-1, 0, nullptr); }, {"-1 bytes", "0 or more"});
    runtime_error("device -1", [] { forebay_torch_malloc(512, -1, nullptr); }, {"device -1", "devices are 0 to"});
    runtime_error("device 999", [] { forebay_torch_malloc(512, 999, nullptr); }, {"device 999"});
    out_of_memory("1 PiB", [] { forebay_torch_malloc((ptrdiff_t)1 << 50, 0, nullptr); },
                  {"Forebay: out of memory on device 0", "asked for", "live", "held", "limit"});
    out_of_memory("the largest", [] { forebay_torch_malloc(PTRDIFF_MAX, 0, nullptr); }, {"asked for"});
  }
  runtime_error("fraction", [] { forebay_torch_memory_fraction(1.5, 0); }, {"fraction is 1.5"});
  runtime_error("fraction's device", [] { forebay_torch_memory_fraction(0.5, -3); }, {"device -3"});
  runtime_error("end without begin", [] { forebay_torch_end_allocate_to_pool(0, 5, 0); }, {"private pool"});
  forebay_torch_release_pool(0, 5, 0);  // an unknown one: never throws

  forebay_torch_memory_fraction(1e-12, 0);
  out_of_memory("over the fraction", [] { forebay_torch_malloc(64 << 20, 0, nullptr); },
                {"64.00 MiB (67108864 bytes) asked for", "the pool's limit", "device 0"});
  forebay_torch_memory_fraction(1.0, 0);
  void *block = forebay_torch_malloc(64 << 20, 0, nullptr);
  must(block != nullptr, "after the fraction was raised");
  forebay_torch_free(block, 64 << 20, 0, nullptr);
  must(stats().live == 0, "all came back");
}

/// A filter with state of its own, too big for std::function's inside, so that copies and destructions show.
struct Filter {
  static int alive;
  cudaStream_t takes;
  int *calls;
  char padding[64] = {};
  Filter(cudaStream_t takes, int *calls) : takes(takes), calls(calls) { alive++; }
  Filter(const Filter &other) : takes(other.takes), calls(other.calls) { alive++; }
  ~Filter() { alive--; }
  bool operator()(cudaStream_t stream) const {
    ++*calls;
    return stream == takes;
  }
};
int Filter::alive = 0;

/// As torch/csrc/cuda/CUDAPluggableAllocator.h has it: the filter is taken by value.
typedef void Begin(int device, uint64_t first, uint64_t second, std::function<bool(cudaStream_t)>);

static void private_pools() {
  forebay_pool *pool = nullptr;
  void *captured = nullptr;
  must(forebay_pool_shared(&pool) == FOREBAY_STATUS_OK, "shared");
  must(forebay_stream_create(pool, 0, &captured) == FOREBAY_STATUS_OK, "stream");
  auto begin = reinterpret_cast<Begin *>(reinterpret_cast<void *>(&forebay_torch_begin_allocate_to_pool));
  int calls = 0;
  const size_t size = 4 << 20;

  begin(0, 0, 1, Filter((cudaStream_t)captured, &calls));
  must(Filter::alive == 1, "the library keeps one copy of the filter");
  void *inside = forebay_torch_malloc(size, 0, captured);
  must(calls > 0, "the filter was asked");
  void *outside = forebay_torch_malloc(size, 0, nullptr);
  forebay_torch_free(inside, size, 0, captured);
  forebay_torch_end_allocate_to_pool(0, 0, 1);
  must(Filter::alive == 0, "and gives it up at the end");
  must(stats().private_bytes == size, "what the filter took is the graph's");

  // A small filter, inside std::function, and a plain function.
  int seen = 0;
  begin(0, 1, 0, [&seen](cudaStream_t) { return ++seen > 0; });
  void *other = forebay_torch_malloc(size, 0, captured);
  must(seen > 0 && other != inside, "another graph has memory of its own");
  forebay_torch_end_allocate_to_pool(0, 1, 0);
  begin(0, 1, 0, std::function<bool(cudaStream_t)>());
  forebay_torch_end_allocate_to_pool(0, 1, 0);
  forebay_torch_begin_allocate_to_pool(0, 1, 0, nullptr);
  forebay_torch_end_allocate_to_pool(0, 1, 0);
  runtime_error("a second end", [] { forebay_torch_end_allocate_to_pool(0, 1, 0); }, {"private pool"});
  runtime_error("begin on no device", [&] { begin(-1, 0, 1, Filter(nullptr, &calls)); }, {"device -1"});
  must(Filter::alive == 0, "a begin that failed keeps no copy");

  forebay_torch_free(other, size, 0, captured);
  forebay_torch_free(outside, size, 0, nullptr);
  forebay_torch_release_pool(0, 0, 1);
  for (int hold = 0; hold < 3; hold++) forebay_torch_release_pool(0, 1, 0);
  must(stats().private_bytes == 0, "released");
  forebay_torch_reset();
  must(stats().physical == 0, "all came back");
  must(forebay_stream_destroy(pool, 0, captured) == FOREBAY_STATUS_OK, "stream");
  forebay_pool_destroy(pool);
}

int main(int count, char **arguments) {
  if (count > 1 && std::strcmp(arguments[1], "no-driver") == 0) {
    runtime_error("init", [] { forebay_torch_init(1); }, {"FOREBAY_DRIVER=host"});
    runtime_error("malloc", [] { forebay_torch_malloc(512, 0, nullptr); }, {"FOREBAY_DRIVER=host"});
    forebay_torch_reset();
    forebay_torch_free(&witnessed, 4, 0, nullptr);
    std::printf("without a driver: right\n");
    return 0;
  }
  forebay_torch_free(&witnessed, 4, 0, nullptr);  // before anything else: there is no pool yet
  forebay_torch_reset();
  forebay_torch_init(1);
  allocations();
  failures();
  private_pools();
  std::printf("torch hooks: right\n");
}
