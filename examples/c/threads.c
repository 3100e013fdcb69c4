/* Several threads on one pool, each with a stream of its own: random blocks, written, checked and freed; then the
 * price of a pair of calls, with no data.
 *
 *   cc -std=c11 -pthread threads.c -lforebay -o threads
 *   FOREBAY_DRIVER=host ./threads [threads] [steps]
 */
#include <forebay.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { DEVICE = 0, HELD = 32, LARGEST = 64 << 10, BATCH = 16, MAX_THREADS = 64 };

static void must(forebay_status status, const char *what) {
  if (status == FOREBAY_STATUS_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, forebay_status_text(status), forebay_last_error_message());
  exit(EXIT_FAILURE);
}

typedef struct block {
  void *address;
  uint64_t bytes;
  uint8_t pattern;
} block;

typedef struct worker {
  pthread_t thread;
  forebay_pool *pool;
  void *stream;
  uint64_t random; /* xorshift state: each thread has its own, so a run can be repeated */
  int steps;
  uint8_t *back; /* host memory to check blocks in */
} worker;

static uint64_t next_random(worker *w) {
  w->random ^= w->random << 13;
  w->random ^= w->random >> 7;
  w->random ^= w->random << 17;
  return w->random;
}

static block make(worker *w) {
  block b = {.bytes = 256 + next_random(w) % (LARGEST - 255), .pattern = (uint8_t)next_random(w)};
  must(forebay_pool_malloc(w->pool, b.bytes, DEVICE, w->stream, &b.address), "forebay_pool_malloc");
  must(forebay_pool_fill(w->pool, DEVICE, b.address, b.pattern, b.bytes, w->stream), "forebay_pool_fill");
  return b;
}

/* The bytes differ if the pool reused a live block, or reused a freed one too early. */
static void check_and_free(worker *w, block *b) {
  must(forebay_pool_copy(w->pool, DEVICE, w->back, b->address, b->bytes, w->stream), "forebay_pool_copy");
  must(forebay_stream_synchronize(w->pool, DEVICE, w->stream), "forebay_stream_synchronize");
  for (uint64_t i = 0; i < b->bytes; i++) {
    if (w->back[i] == b->pattern) continue;
    fprintf(stderr, "block %p: byte %" PRIu64 " of %" PRIu64 " is 0x%02x, not 0x%02x\n", b->address, i, b->bytes,
            w->back[i], b->pattern);
    exit(EXIT_FAILURE);
  }
  must(forebay_pool_free(w->pool, b->address, w->stream), "forebay_pool_free");
  *b = (block){0};
}

static void *check_data(void *argument) {
  worker *w = argument;
  block held[HELD] = {0};
  for (int step = 0; step < w->steps; step++) {
    block *b = &held[next_random(w) % HELD];
    if (b->address == NULL) *b = make(w);
    else check_and_free(w, b);
  }
  for (int i = 0; i < HELD; i++) {
    if (held[i].address != NULL) check_and_free(w, &held[i]);
  }
  return NULL;
}

static void *count_pairs(void *argument) {
  worker *w = argument;
  void *blocks[BATCH];
  for (int round = 0; round < w->steps; round++) {
    for (int i = 0; i < BATCH; i++) {
      must(forebay_pool_malloc(w->pool, 256u << (i % 9), DEVICE, w->stream, &blocks[i]), "forebay_pool_malloc");
    }
    for (int i = 0; i < BATCH; i++) must(forebay_pool_free(w->pool, blocks[i], w->stream), "forebay_pool_free");
  }
  return NULL;
}

static double seconds(void) {
  struct timespec now;
  timespec_get(&now, TIME_UTC);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double run(worker *workers, int threads, void *(*work)(void *)) {
  double start = seconds();
  for (int i = 0; i < threads; i++) {
    if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) exit(EXIT_FAILURE);
  }
  for (int i = 0; i < threads; i++) pthread_join(workers[i].thread, NULL);
  return seconds() - start;
}

int main(int count, char **arguments) {
  int threads = count > 1 ? atoi(arguments[1]) : 4;
  int steps = count > 2 ? atoi(arguments[2]) : 4000;
  if (threads < 1 || threads > MAX_THREADS || steps < 1) {
    fprintf(stderr, "usage: threads [1..%d threads] [steps]\n", MAX_THREADS);
    return EXIT_FAILURE;
  }

  forebay_pool *pool = NULL;
  must(forebay_pool_create(NULL, &pool), "forebay_pool_create");
  printf("forebay %s, driver %s, %d threads\n", forebay_version(), forebay_pool_driver_name(pool), threads);

  worker workers[MAX_THREADS] = {0};
  for (int i = 0; i < threads; i++) {
    workers[i] = (worker){.pool = pool, .random = 88172645463325252u + (uint64_t)i * 7919, .steps = steps};
    workers[i].back = malloc(LARGEST + 1);
    if (workers[i].back == NULL) return EXIT_FAILURE;
    must(forebay_stream_create(pool, DEVICE, &workers[i].stream), "forebay_stream_create");
  }

  double checked = run(workers, threads, check_data);
  printf("data: %d random steps in %.2f s, every byte right\n", threads * steps, checked);
  double timed = run(workers, threads, count_pairs);
  printf("calls: %.2f million pairs per second\n", (double)threads * steps * BATCH / timed / 1e6);

  must(forebay_pool_check(pool, DEVICE), "forebay_pool_check");
  forebay_pool_stats stats = {.size = sizeof stats, .version = FOREBAY_STATS_VERSION};
  must(forebay_pool_get_stats(pool, DEVICE, &stats), "forebay_pool_get_stats");
  printf("stats: live %" PRIu64 " (peak %" PRIu64 "), physical peak %" PRIu64 ", %" PRIu64 " allocations, %" PRIu64
         " hits, %" PRIu64 " steals, %" PRIu64 " waits\n",
         stats.live, stats.live_peak, stats.physical_peak, stats.allocations, stats.hits, stats.steals, stats.waits);

  for (int i = 0; i < threads; i++) {
    must(forebay_stream_destroy(pool, DEVICE, workers[i].stream), "forebay_stream_destroy");
    free(workers[i].back);
  }
  forebay_pool_destroy(pool);
  return stats.live == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
