/*
 * forebay.hpp: memory by stream, at once, from many threads; failures; a pool that lives as long as its resources.
 *
 * With CCCL from 3.1 on it also is what that calls a resource. tests/cpp/cccl stands for CCCL where there is none.
 */
#include <forebay.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#if defined(CCCL_VERSION) && CCCL_VERSION >= 3001000
static_assert(cuda::mr::resource_with<forebay::memory_resource, cuda::mr::device_accessible>, "a resource of CCCL's");
static_assert(cuda::mr::synchronous_resource<forebay::memory_resource>, "with and without a stream");
#endif

static void must(bool condition, const char *what) {
  if (!condition) {
    std::printf("FAILED: %s\n", what);
    std::exit(1);
  }
}

template <class Kind, class Call>
static void throws(Call call, const char *word) {
  try {
    call();
  } catch (const Kind &error) {
    must(std::strstr(error.what(), word) != nullptr, error.what());
    return;
  }
  must(false, word);
}

static forebay_pool_stats stats(forebay_pool *pool) {
  forebay_pool_stats now = {};
  now.size = sizeof now;
  now.version = FOREBAY_STATS_VERSION;
  forebay::check(forebay_pool_get_stats(pool, 0, &now));
  return now;
}

int main() {
  forebay::memory_resource resource;
  void *handle = nullptr;
  forebay::check(forebay_stream_create(resource.pool(), 0, &handle));
  const cuda::stream_ref stream{static_cast<cudaStream_t>(handle)};

  void *block = resource.allocate(stream, 1000);
  must(reinterpret_cast<std::uintptr_t>(block) % 512 == 0, "aligned");
  must(stats(resource.pool()).live == 1024, "it is live");
  resource.deallocate(stream, block, 1000);
  must(resource.allocate(stream, 1000, 512) == block, "what was freed comes back in the order of its stream");
  resource.deallocate(stream, block, 1000, 512);
  void *ready = resource.allocate_sync(1 << 20);
  must(ready != nullptr && ready != block, "memory without a stream");
  resource.deallocate_sync(ready, 1 << 20);
  must(resource.allocate(stream, 0) == nullptr, "nothing for nothing");
  resource.deallocate(stream, nullptr, 0);

  throws<std::bad_alloc>([&] { resource.allocate(stream, std::size_t{1} << 50); }, "asked for");
  throws<forebay::out_of_memory>([&] { resource.allocate_sync(std::size_t{1} << 50); }, "asked for");
  for (const std::size_t alignment : {std::size_t{0}, std::size_t{3}, std::size_t{1024}}) {
    throws<forebay::error>([&] { resource.allocate(stream, 1, alignment); }, "at most 512");
    throws<forebay::error>([&] { resource.allocate_sync(1, alignment); }, "at most 512");
  }
  throws<forebay::error>([] { forebay::memory_resource(99); }, "device 99");
  throws<forebay::error>([] { forebay::memory_resource(-1); }, "device -1");
  resource.deallocate(stream, block, 1000); // said on the standard error stream
  must(stats(resource.pool()).live == 0, "nothing is left, and nothing freed twice");

  forebay_pool_options options = {};
  options.size = sizeof options;
  options.version = FOREBAY_POOL_OPTIONS_VERSION;
  forebay::check(forebay_pool_options_init(&options));
  options.limit = 8 << 20;
  forebay::memory_resource limited(0, forebay::make_pool(&options));
  const forebay::memory_resource copy = limited, other;
  must(copy == limited && other == resource && copy != resource && copy.device() == 0, "copies are equal");
  block = limited.allocate(stream, 6 << 20);
  throws<forebay::out_of_memory>([&] { limited.allocate(stream, 6 << 20); }, "limit");
  forebay::memory_resource *last = new forebay::memory_resource(copy);
  limited = resource;
  last->deallocate(stream, block, 6 << 20);
  must(stats(last->pool()).live == 0, "its pool lives on in its copies");
  delete last;

  std::vector<std::thread> threads;
  for (int number = 0; number < 8; number++) {
    threads.emplace_back([&] {
      forebay::memory_resource mine = resource;
      std::set<void *> seen;
      for (std::size_t step = 0; step < 1000; step++) seen.insert(mine.allocate(stream, 512 << (step % 8)));
      must(seen.size() == 1000, "no block is given out twice");
      for (void *each : seen) mine.deallocate(stream, each, 512);
    });
  }
  for (std::thread &thread : threads) thread.join();
  must(stats(resource.pool()).live == 0, "all of it came back");
  forebay::check(forebay_stream_synchronize(resource.pool(), 0, handle));
  forebay::check(forebay_stream_destroy(resource.pool(), 0, handle));
  std::printf("ok memory_resource, driver %s\n", forebay_pool_driver_name(resource.pool()));
}
