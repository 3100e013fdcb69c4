/* The smallest complete program: a pool, a stream, one block, copies in both directions, statistics.
 *
 *   cc -std=c11 minimal.c -lforebay -o minimal
 *   FOREBAY_DRIVER=host ./minimal        without a GPU
 *   ./minimal                            on device 0
 */
#include <forebay.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEVICE = 0, BYTES = 1 << 20, PATTERN = 0x5a };

/* Every call that can fail returns a status; the text of the last failure is kept for each thread. */
static void must(forebay_status status, const char *what) {
  if (status == FOREBAY_STATUS_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, forebay_status_text(status), forebay_last_error_message());
  exit(EXIT_FAILURE);
}

static void print_stats(const forebay_pool *pool) {
  forebay_pool_stats stats = {.size = sizeof stats, .version = FOREBAY_STATS_VERSION};
  must(forebay_pool_get_stats(pool, DEVICE, &stats), "forebay_pool_get_stats");
  printf("live %" PRIu64 " (peak %" PRIu64 "), physical %" PRIu64 " (peak %" PRIu64 ") bytes\n", stats.live,
         stats.live_peak, stats.physical, stats.physical_peak);
  printf("%" PRIu64 " allocations, %" PRIu64 " frees, %" PRIu64 " hits, %" PRIu64 " chunks created\n",
         stats.allocations, stats.frees, stats.hits, stats.growths);
}

int main(void) {
  forebay_pool *pool = NULL;
  must(forebay_pool_create(NULL, &pool), "forebay_pool_create"); /* NULL: defaults and FOREBAY_* variables */
  printf("forebay %s, driver %s\n", forebay_version(), forebay_pool_driver_name(pool));

  void *stream = NULL;
  must(forebay_stream_create(pool, DEVICE, &stream), "forebay_stream_create");

  void *block = NULL;
  must(forebay_pool_malloc(pool, BYTES, DEVICE, stream, &block), "forebay_pool_malloc");

  /* Fill and copy are queued on the stream, and run in this order after the calls return. */
  uint8_t *back = calloc(1, BYTES);
  if (back == NULL) return EXIT_FAILURE;
  must(forebay_pool_fill(pool, DEVICE, block, PATTERN, BYTES, stream), "forebay_pool_fill");
  must(forebay_pool_copy(pool, DEVICE, back, block, BYTES, stream), "forebay_pool_copy");

  /* The block may be freed now: it is reused only after the work queued so far. */
  must(forebay_pool_free(pool, block, stream), "forebay_pool_free");
  must(forebay_stream_synchronize(pool, DEVICE, stream), "forebay_stream_synchronize");

  for (size_t i = 0; i < BYTES; i++) {
    if (back[i] != PATTERN) {
      fprintf(stderr, "byte %zu is 0x%02x, not 0x%02x\n", i, back[i], PATTERN);
      return EXIT_FAILURE;
    }
  }
  printf("%d bytes written on the stream and read back: right\n", BYTES);
  print_stats(pool);

  free(back);
  must(forebay_stream_destroy(pool, DEVICE, stream), "forebay_stream_destroy");
  forebay_pool_destroy(pool);
  return EXIT_SUCCESS;
}
