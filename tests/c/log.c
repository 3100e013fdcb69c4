/* What the log says, and to whom.
 *
 * Usage: log stderr | callback
 */
#define _POSIX_C_SOURCE 200809L
#include <forebay.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICE = 0, MIB = 1 << 20, TURNS = 200 };

static forebay_pool *pool;
static void *stream;

static void must(forebay_status got, forebay_status wanted, const char *what) {
  if (got == wanted) return;
  fprintf(stderr, "%s: %s: %s\n", what, forebay_status_text(got), forebay_last_error_message());
  exit(EXIT_FAILURE);
}

#define MUST(call) must(call, FOREBAY_STATUS_OK, #call)

static void check(bool truth, const char *what) {
  if (truth) return;
  fprintf(stderr, "not so: %s\n", what);
  exit(EXIT_FAILURE);
}

#define CHECK(truth) check(truth, #truth)

static void bad_free(void *at) {
  forebay_torch_free(at, 512, DEVICE, stream);
}

/* More than the pool has: it makes room, which is worth a word. */
static void grow(void) {
  void *block = NULL;
  MUST(forebay_pool_trim(pool, DEVICE, 0, NULL));
  MUST(forebay_pool_malloc(pool, 80 * MIB, DEVICE, stream, &block));
  MUST(forebay_pool_free(pool, block, stream));
}

/* ---- to stderr, as the variable says */

static void to_stderr(void) {
  void *block = forebay_torch_malloc(1024, DEVICE, stream);
  printf("%p %p\n", (void *)((char *)block + 512), stream);
  bad_free((char *)block + 512);
  forebay_cupy_free(NULL, (char *)block + 512, DEVICE);
  /* This one is answered, so it is nothing for the log. */
  must(forebay_pool_free(pool, (char *)block + 512, stream), FOREBAY_STATUS_BAD_FREE, "a bad free");
  bad_free(block);
  grow();
}

/* ---- to a callback */

static atomic_int heard[5];
static atomic_bool tries_things, has_tried, is_set, stop;
static char last[512];
static forebay_status inside;

static void *use_the_pool(void *unused) {
  (void)unused;
  grow();
  forebay_pool_stats stats = {.size = sizeof stats, .version = FOREBAY_STATS_VERSION};
  MUST(forebay_pool_get_stats(pool, DEVICE, &stats));
  return NULL;
}

static void callback(void *user, uint32_t level, const char *message) {
  CHECK(user == (void *)heard && level >= FOREBAY_LOG_LEVEL_ERROR && level <= FOREBAY_LOG_LEVEL_DEBUG && is_set);
  heard[level]++;
  if (!tries_things || has_tried) return;
  has_tried = true;
  snprintf(last, sizeof last, "%s", message);
  inside = forebay_log_set_callback(NULL, NULL, 0);
  /* Whoever needs a lock of the pool's would wait for ever if it were held here. */
  pthread_t other;
  CHECK(pthread_create(&other, NULL, use_the_pool, NULL) == 0);
  CHECK(pthread_join(other, NULL) == 0);
}

static void set(uint32_t level) {
  is_set = true;
  MUST(forebay_log_set_callback(callback, heard, level));
}

static void unset(void) {
  MUST(forebay_log_set_callback(NULL, NULL, 0));
  is_set = false;
}

static void *free_badly(void *at) {
  while (!stop) bad_free(at);
  return NULL;
}

static void to_callback(void) {
  void *block = forebay_torch_malloc(1024, DEVICE, stream);
  char *wrong = (char *)block + 512;
  char address[32], queue[32];
  snprintf(address, sizeof address, "address=%p", (void *)wrong);
  snprintf(queue, sizeof queue, "stream=%p", stream);

  /* A warning names hook, address and stream, and comes before the call returns. What is below the level does not come. */
  set(FOREBAY_LOG_LEVEL_WARN);
  tries_things = true;
  bad_free(wrong);
  CHECK(has_tried && heard[FOREBAY_LOG_LEVEL_WARN] == 1);
  CHECK(strstr(last, "forebay_torch_free") && strstr(last, address) && strstr(last, queue));
  must(inside, FOREBAY_STATUS_BUSY, "a change inside of the callback");
  grow();
  CHECK(heard[FOREBAY_LOG_LEVEL_DEBUG] == 0);

  /* Said under the pool's locks, told without them. */
  set(FOREBAY_LOG_LEVEL_DEBUG);
  has_tried = false;
  grow();
  CHECK(has_tried && heard[FOREBAY_LOG_LEVEL_DEBUG] > 0);
  tries_things = false;

  must(forebay_log_set_callback(callback, heard, 5), FOREBAY_STATUS_INVALID_ARGUMENT, "level 5");
  unset();
  bad_free(wrong);
  CHECK(heard[FOREBAY_LOG_LEVEL_WARN] == 1);

  /* When it is unset it is not called any more, also by threads that are on their way to it. */
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, free_badly, wrong) == 0);
  for (int turn = 0; turn < TURNS; turn++) {
    int before = heard[FOREBAY_LOG_LEVEL_WARN];
    set(FOREBAY_LOG_LEVEL_WARN);
    while (heard[FOREBAY_LOG_LEVEL_WARN] == before) sched_yield();
    unset();
  }
  stop = true;
  for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  /* What is left is printed by the default again: nothing more may come of this. */
  set(FOREBAY_LOG_LEVEL_OFF);
  int before = heard[FOREBAY_LOG_LEVEL_WARN];
  bad_free(wrong);
  CHECK(heard[FOREBAY_LOG_LEVEL_WARN] == before);
  bad_free(block);
}

int main(int count, char **arguments) {
  const char *how = count > 1 ? arguments[1] : "";
  if (strcmp(how, "callback") == 0) set(FOREBAY_LOG_LEVEL_WARN); /* works before there is a pool */
  MUST(forebay_pool_shared(&pool));
  MUST(forebay_stream_create(pool, DEVICE, &stream));
  if (strcmp(how, "callback") == 0) to_callback();
  else to_stderr();
  MUST(forebay_pool_check(pool, DEVICE));
  printf("%s: right\n", how);
  return EXIT_SUCCESS;
}
