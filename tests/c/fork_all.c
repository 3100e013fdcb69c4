/* Every exported function in a child of fork(): FOREBAY_STATUS_FORKED, or the answer that the header names, at once, and
 * nothing of the parent's is touched. First with a parent that does nothing else, which may not have changed at all; then
 * while its other threads are in the middle of calls, one of them for sure under the locks of the shared pool.
 *
 * Usage: fork_all FUNCTION...      the names of include/forebay.h; one that has no entry here is a failure
 */
#define _POSIX_C_SOURCE 200809L
#include <forebay.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DEVICE = 0, BYTES = 1 << 20, KINDS = 6, ROUNDS = 3, SECONDS = 20, UNKNOWN = 3 };

/* ---- DLPack's structs, which forebay.h only declares */

typedef struct {
  void *data;
  struct { int32_t type, id; } device;
  int32_t ndim;
  struct { uint8_t code, bits; uint16_t lanes; } dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} tensor;

struct DLManagedTensor {
  tensor inside;
  void *context;
  void (*deleter)(struct DLManagedTensor *self);
};

struct DLManagedTensorVersioned {
  uint32_t major, minor;
  void *context;
  void (*deleter)(struct DLManagedTensorVersioned *self);
  uint64_t flags;
  tensor inside;
};

/* ---- what the parent has */

static forebay_pool *pool, *own, *other;
static void *stream, *block, *own_block, *torch_block, *cupy_block, *cupy_pool_block;
/* Of each kind: device, pinned, managed, virtual, host, pool. */
static forebay_resource *resources[KINDS];
static forebay_buffer *buffers[KINDS], *released, *of_tensor, *of_legacy;
static struct DLManagedTensorVersioned *lent;
static struct DLManagedTensor *lent_legacy;
static forebay_cupy_pool *cupy_pool;
static forebay_ipc_descriptor descriptor;
static uint64_t pressure;
static uint8_t uuid[16];
static char memory[BYTES];
static int64_t shape[1] = {64};
/* How often somebody was told that memory he lent is free. */
static int told_free;

static void must(forebay_status got, const char *what) {
  if (got == FOREBAY_STATUS_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, forebay_status_text(got), forebay_last_error_message());
  exit(EXIT_FAILURE);
}

#define MUST(call) must(call, #call)

static void check(bool truth, const char *what) {
  if (truth) return;
  fprintf(stderr, "not so: %s\n", what);
  exit(EXIT_FAILURE);
}

#define CHECK(truth) check(truth, #truth)

static void release(void *context) {
  (void)context;
  told_free++;
}
static void delete_versioned(struct DLManagedTensorVersioned *self) {
  (void)self;
  told_free++;
}
static void delete_legacy(struct DLManagedTensor *self) {
  (void)self;
  told_free++;
}

static struct DLManagedTensorVersioned theirs = {
    .major = 1, .deleter = delete_versioned, .inside = {memory, {1, 0}, 1, {0, 8, 1}, shape, NULL, 0}};
static struct DLManagedTensor theirs_legacy = {
    .inside = {memory, {1, 0}, 1, {0, 8, 1}, shape, NULL, 0}, .deleter = delete_legacy};

static bool give_nothing(void *user, int32_t device, uint64_t bytes) {
  (void)user, (void)device, (void)bytes;
  return false;
}
static void log_nothing(void *user, uint32_t level, const char *message) {
  (void)user, (void)level, (void)message;
}
static void visit(void *context, const forebay_block *seen) {
  (void)seen;
  ++*(int *)context;
}
static void nobody(void *user, int32_t device, uint32_t what, void *ptr, uint64_t bytes) {
  (void)user, (void)device, (void)what, (void)ptr, (void)bytes;
}

static void make_world(void) {
  MUST(forebay_pool_shared(&pool));
  MUST(forebay_pool_create(NULL, &own));
  forebay_pool_options idle;
  MUST(forebay_pool_options_init(&idle));
  idle.give_back_ms = 4; /* with a thread of its own */
  MUST(forebay_pool_create(&idle, &other));
  MUST(forebay_stream_create(pool, DEVICE, &stream));
  MUST(forebay_pool_malloc(pool, BYTES, DEVICE, stream, &block));
  MUST(forebay_pool_fill(pool, DEVICE, block, 7, BYTES, stream));
  MUST(forebay_pool_malloc(own, BYTES, DEVICE, NULL, &own_block));
  void *short_lived = NULL;
  MUST(forebay_pool_malloc(other, BYTES, DEVICE, NULL, &short_lived));
  MUST(forebay_pool_free(other, short_lived, NULL));
  MUST(forebay_pool_trim(other, DEVICE, 0, NULL));
  torch_block = forebay_torch_malloc(BYTES, DEVICE, stream);
  cupy_block = forebay_cupy_malloc(NULL, BYTES, DEVICE);
  CHECK(torch_block != NULL && cupy_block != NULL);

  forebay_device_resource_options options;
  MUST(forebay_device_resource_options_init(&options));
  options.ipc_enabled = 1;
  MUST(forebay_device_resource_create(DEVICE, &options, &resources[0]));
  MUST(forebay_pinned_resource_create(NULL, &resources[1]));
  MUST(forebay_managed_resource_create(NULL, &resources[2]));
  MUST(forebay_virtual_resource_create(DEVICE, NULL, &resources[3]));
  MUST(forebay_host_resource_create(NULL, &resources[4]));
  MUST(forebay_pool_resource_create(pool, DEVICE, &resources[5]));
  for (int kind = 0; kind < KINDS; kind++) {
    MUST(forebay_resource_allocate(resources[kind], BYTES, stream, &buffers[kind]));
    MUST(forebay_buffer_fill(buffers[kind], 7, 1, stream));
  }
  forebay_resource_info info = {.size = sizeof info, .version = FOREBAY_INFO_VERSION};
  MUST(forebay_resource_get_info(resources[0], &info));
  memcpy(uuid, info.uuid, sizeof uuid);
  MUST(forebay_buffer_get_ipc_descriptor(buffers[3], &descriptor));
  MUST(forebay_buffer_from_handle(memory, BYTES, NULL, release, NULL, NULL, &released));
  MUST(forebay_buffer_from_dlpack(&theirs, NULL, &of_tensor));
  MUST(forebay_buffer_from_dlpack_legacy(&theirs_legacy, NULL, &of_legacy));
  MUST(forebay_buffer_to_dlpack(buffers[0], &lent));
  MUST(forebay_buffer_to_dlpack_legacy(buffers[3], &lent_legacy));

  MUST(forebay_cupy_pool_create((const forebay_resource *const *)resources, 1, &cupy_pool));
  cupy_pool_block = forebay_cupy_pool_malloc(cupy_pool, BYTES, DEVICE);
  CHECK(cupy_pool_block != NULL);
  MUST(forebay_pool_add_pressure_callback(pool, give_nothing, NULL, &pressure));
  MUST(forebay_pool_private_begin(pool, DEVICE, 5, stream));
  MUST(forebay_pool_private_end(pool, DEVICE, 5));
  MUST(forebay_torch_hold_pool(DEVICE, 1, 2));
  MUST(forebay_stream_synchronize(pool, DEVICE, stream));
}

/* ---- what a child is told */

/* The text of the guard that everything exported goes through. */
static int told(const char *name) {
  if (told_free == 0 && strstr(forebay_last_error_message(), "forked") != NULL) return EXIT_SUCCESS;
  fprintf(stderr, "%s: says \"%s\"; %d callbacks\n", name, forebay_last_error_message(), told_free);
  return EXIT_FAILURE;
}

static int is(const char *name, bool truth) {
  if (!truth) fprintf(stderr, "%s: another answer than it should give\n", name);
  return truth ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int forked(const char *name, forebay_status got) {
  if (got == FOREBAY_STATUS_FORKED) return told(name);
  fprintf(stderr, "%s: %s, wanted %s\n", name, forebay_status_text(got), forebay_status_text(FOREBAY_STATUS_FORKED));
  return EXIT_FAILURE;
}

#define IF(function) if (strcmp(name, #function) == 0)
/* A status. */
#define STATUS(function, ...) IF(function) return forked(name, function(__VA_ARGS__))
/* The same for a function of resources or buffers: for each kind. */
#define EACH(function, ...)                                                   \
  IF(function) {                                                              \
    for (int kind = 0; kind < KINDS; kind++)                                  \
      if (forked(name, function(__VA_ARGS__)) != EXIT_SUCCESS) return EXIT_FAILURE; \
    return EXIT_SUCCESS;                                                      \
  }
/* NULL, 0 or false. */
#define NONE(function, ...) IF(function) return is(name, !function(__VA_ARGS__)) | told(name)
/* No answer: nothing may happen. */
#define NOTHING(function, ...)  \
  IF(function) {                \
    function(__VA_ARGS__);      \
    return told(name);          \
  }
#define NOTHING_EACH(function, ...)                                        \
  IF(function) {                                                           \
    for (int kind = 0; kind < KINDS; kind++) function(__VA_ARGS__);        \
    return told(name);                                                     \
  }
/* What needs no pool and works as ever. */
#define WORKS(function, truth) IF(function) return is(name, truth)

static int answers(const char *name) {
  void *out = NULL, *also = NULL;
  uint64_t number = 0, second = 0;
  int32_t count = 0;
  uint32_t word = 0;
  size_t size = 0;
  int visited = 0;
  uint8_t key[16] = {0};
  char text[64];
  forebay_pool *fresh_pool = NULL;
  forebay_resource *fresh_resource = NULL;
  forebay_buffer *fresh = NULL;
  forebay_cupy_pool *fresh_cupy = NULL;
  struct DLManagedTensorVersioned *fresh_tensor = NULL;
  struct DLManagedTensor *fresh_legacy = NULL;
  forebay_ipc_descriptor fresh_descriptor = {0};
  forebay_torch_block torch;
  forebay_pool_options options;
  forebay_device_resource_options device_options;
  forebay_pinned_resource_options pinned_options;
  forebay_managed_resource_options managed_options;
  forebay_virtual_resource_options virtual_options;
  forebay_host_resource_options host_options;
  forebay_buffer_info buffer_info = {.size = sizeof buffer_info, .version = FOREBAY_INFO_VERSION};
  forebay_resource_info resource_info = {.size = sizeof resource_info, .version = FOREBAY_INFO_VERSION};
  forebay_pool_stats stats = {.size = sizeof stats, .version = FOREBAY_STATS_VERSION};
  forebay_stream_stats stream_stats = {.size = sizeof stream_stats, .version = FOREBAY_STATS_VERSION};
  (void)out, (void)also;

  WORKS(forebay_version, strlen(forebay_version()) > 0);
  WORKS(forebay_version_number, forebay_version_number() == FOREBAY_VERSION_NUMBER);
  WORKS(forebay_status_text, strcmp(forebay_status_text(0), "ok") == 0);
  WORKS(forebay_last_error_message, forebay_last_error_message() != NULL);
  WORKS(forebay_pool_block_size_for, forebay_pool_block_size_for(1) == 512);
  WORKS(forebay_cupy_set_stream_getter, (forebay_cupy_set_stream_getter(NULL), true));
  WORKS(forebay_cupy_set_memory_hooks, (forebay_cupy_set_memory_hooks(NULL, NULL), true));

  STATUS(forebay_pool_options_init, &options);
  STATUS(forebay_pool_configure_shared, NULL);
  STATUS(forebay_pool_shared, &fresh_pool);
  STATUS(forebay_pool_create, NULL, &fresh_pool);
  IF(forebay_pool_destroy) {
    forebay_pool_destroy(own);
    forebay_pool_destroy(pool);
    return told(name);
  }
  NOTHING(forebay_pool_capsule_delete, memory);
  NONE(forebay_pool_driver_name, pool);
  STATUS(forebay_pool_device_count, pool, &count);
  STATUS(forebay_pool_memory_info, pool, DEVICE, &number, &second);
  STATUS(forebay_pool_trim, pool, DEVICE, 0, &number);
  STATUS(forebay_pool_set_limit, pool, DEVICE, BYTES);
  STATUS(forebay_pool_set_fraction, pool, DEVICE, 0.5);
  STATUS(forebay_pool_get_limit, pool, DEVICE, &number);
  STATUS(forebay_pool_add_pressure_callback, pool, give_nothing, NULL, &number);
  STATUS(forebay_pool_remove_pressure_callback, pool, pressure);
  STATUS(forebay_log_set_callback, log_nothing, NULL, FOREBAY_LOG_LEVEL_WARN);
  STATUS(forebay_pool_snapshot, pool, DEVICE, visit, &visited);
  STATUS(forebay_pool_set_mapping_observer, own, DEVICE, nobody, NULL);
  STATUS(forebay_pool_get_stats, pool, DEVICE, &stats);
  STATUS(forebay_pool_get_stream_stats, pool, DEVICE, stream, &stream_stats);
  STATUS(forebay_pool_reset_peaks, pool, DEVICE);
  STATUS(forebay_pool_report, pool, DEVICE, text, sizeof text, &size);
  STATUS(forebay_pool_check, pool, DEVICE);

  STATUS(forebay_pool_malloc, pool, BYTES, DEVICE, stream, &out);
  STATUS(forebay_pool_malloc_for, pool, FOREBAY_FRAMEWORK_NUMBA, 512, DEVICE, stream, &out);
  STATUS(forebay_pool_malloc_ready, pool, 512, DEVICE, stream, &out);
  NONE(forebay_pool_try_malloc, pool, FOREBAY_FRAMEWORK_C, BYTES, DEVICE, stream, &out);
  STATUS(forebay_pool_free, pool, block, stream);
  STATUS(forebay_pool_free_after_all, pool, block);
  NONE(forebay_pool_try_free, pool, block, stream);
  STATUS(forebay_pool_record_use, pool, block, NULL);
  STATUS(forebay_pool_block_size, pool, block, &number);
  STATUS(forebay_pool_base_address, pool, block, &out, &number);
  STATUS(forebay_pool_host_register, pool, DEVICE, memory, BYTES, 1, 0);
  STATUS(forebay_pool_host_unregister, pool, DEVICE, memory);

  STATUS(forebay_stream_register, pool, DEVICE, stream);
  STATUS(forebay_stream_unregister, pool, DEVICE, stream);
  STATUS(forebay_stream_create, pool, DEVICE, &out);
  STATUS(forebay_stream_destroy, pool, DEVICE, stream);
  STATUS(forebay_stream_synchronize, pool, DEVICE, stream);
  STATUS(forebay_pool_copy, pool, DEVICE, block, own_block, BYTES, stream);
  STATUS(forebay_pool_fill, pool, DEVICE, block, 9, BYTES, stream);
  STATUS(forebay_pool_private_begin, pool, DEVICE, 6, stream);
  STATUS(forebay_pool_private_end, pool, DEVICE, 5);
  STATUS(forebay_pool_private_release, pool, DEVICE, 5);
  STATUS(forebay_pool_release_captures, pool, DEVICE, &number);

  STATUS(forebay_device_resource_options_init, &device_options);
  STATUS(forebay_pinned_resource_options_init, &pinned_options);
  STATUS(forebay_managed_resource_options_init, &managed_options);
  STATUS(forebay_virtual_resource_options_init, &virtual_options);
  STATUS(forebay_host_resource_options_init, &host_options);
  STATUS(forebay_device_resource_create, DEVICE, NULL, &fresh_resource);
  STATUS(forebay_pinned_resource_create, NULL, &fresh_resource);
  STATUS(forebay_managed_resource_create, NULL, &fresh_resource);
  STATUS(forebay_virtual_resource_create, DEVICE, NULL, &fresh_resource);
  STATUS(forebay_host_resource_create, NULL, &fresh_resource);
  STATUS(forebay_pool_resource_create, pool, DEVICE, &fresh_resource);
  NOTHING_EACH(forebay_resource_destroy, resources[kind]);
  EACH(forebay_resource_close, resources[kind]);
  EACH(forebay_resource_allocate, resources[kind], 512, stream, &fresh);
  NONE(forebay_resource_try_allocate, resources[5], 512, stream, &fresh);
  EACH(forebay_resource_allocate_pointer, resources[kind], 512, stream, &out);
  EACH(forebay_resource_deallocate, resources[kind], block, BYTES, stream);
  EACH(forebay_resource_deallocate_pointer, resources[kind], block);
  EACH(forebay_resource_get_info, resources[kind], &resource_info);
  EACH(forebay_resource_get_attribute, resources[kind], FOREBAY_ATTRIBUTE_USED_MEM_CURRENT, &number);
  EACH(forebay_resource_set_attribute, resources[kind], FOREBAY_ATTRIBUTE_RELEASE_THRESHOLD, 1);
  EACH(forebay_resource_get_peer_access, resources[kind], 0, &word);
  EACH(forebay_resource_set_peer_access, resources[kind], 0, FOREBAY_ACCESS_READ_WRITE);
  EACH(forebay_resource_trim, resources[kind], 0);
  EACH(forebay_resource_modify_allocation, resources[kind], buffers[kind], 8 * BYTES, NULL, stream);
  EACH(forebay_resource_get_allocation_handle, resources[kind], &count, key);
  STATUS(forebay_resource_from_allocation_handle, FOREBAY_RESOURCE_KIND_DEVICE, DEVICE, 0, uuid, &fresh_resource);
  STATUS(forebay_resource_register, resources[0], uuid, &fresh_resource);
  STATUS(forebay_resource_from_registry, uuid, &fresh_resource);

  STATUS(forebay_buffer_from_handle, memory, BYTES, NULL, release, NULL, stream, &fresh);
  IF(forebay_buffer_destroy) {
    for (int kind = 0; kind < KINDS; kind++) forebay_buffer_destroy(buffers[kind]);
    forebay_buffer_destroy(released);
    forebay_buffer_destroy(of_tensor);
    forebay_buffer_destroy(of_legacy);
    return told(name);
  }
  IF(forebay_buffer_close) {
    for (int kind = 0; kind < KINDS; kind++)
      if (forked(name, forebay_buffer_close(buffers[kind])) != EXIT_SUCCESS) return EXIT_FAILURE;
    return forked(name, forebay_buffer_close(released)) | forked(name, forebay_buffer_close(of_tensor)) |
           forked(name, forebay_buffer_close(of_legacy));
  }
  IF(forebay_buffer_try_close) {
    for (int kind = 0; kind < KINDS; kind++)
      if (forebay_buffer_try_close(buffers[kind]) != 0) return is(name, false);
    return told(name);
  }
  EACH(forebay_buffer_close_on, buffers[kind], stream);
  EACH(forebay_buffer_get_info, buffers[kind], &buffer_info);
  EACH(forebay_buffer_get_resource, buffers[kind], &fresh_resource);
  EACH(forebay_buffer_copy, buffers[kind], buffers[(kind + 1) % KINDS], stream);
  EACH(forebay_buffer_clone, buffers[kind], stream, &fresh);
  EACH(forebay_buffer_fill, buffers[kind], 9, 1, stream);
  EACH(forebay_buffer_to_dlpack, buffers[kind], &fresh_tensor);
  EACH(forebay_buffer_to_dlpack_legacy, buffers[kind], &fresh_legacy);
  STATUS(forebay_buffer_from_dlpack, &theirs, stream, &fresh);
  STATUS(forebay_buffer_from_dlpack_legacy, &theirs_legacy, stream, &fresh);
  NOTHING(forebay_dlpack_capsule_delete, memory);
  STATUS(forebay_ipc_serve);
  EACH(forebay_buffer_get_ipc_descriptor, buffers[kind], &fresh_descriptor);
  STATUS(forebay_buffer_from_ipc_descriptor, NULL, &descriptor, 0, stream, &fresh);
  STATUS(forebay_ipc_descriptor_size, &fresh_descriptor, BYTES, &number);
  STATUS(forebay_ipc_export, pool, block, &fresh_descriptor);
  STATUS(forebay_ipc_export_foreign, block, BYTES, &fresh_descriptor);

  NONE(forebay_cupy_malloc, NULL, BYTES, DEVICE);
  NOTHING(forebay_cupy_free, NULL, cupy_block, DEVICE);
  STATUS(forebay_cupy_pool_create, (const forebay_resource *const *)resources, 1, &fresh_cupy);
  NOTHING(forebay_cupy_pool_destroy, cupy_pool);
  STATUS(forebay_cupy_pool_set_limit, cupy_pool, DEVICE, 1);
  STATUS(forebay_cupy_pool_get_limit, cupy_pool, DEVICE, &number);
  NONE(forebay_cupy_pool_malloc, cupy_pool, BYTES, DEVICE);
  NOTHING(forebay_cupy_pool_free, cupy_pool, cupy_pool_block, DEVICE);

  NONE(forebay_torch_malloc, BYTES, DEVICE, stream);
  NOTHING(forebay_torch_free, torch_block, BYTES, DEVICE, stream);
  NOTHING(forebay_torch_init, 1);
  NOTHING(forebay_torch_reset);
  NOTHING(forebay_torch_memory_fraction, 0.5, DEVICE);
  NONE(forebay_torch_base_alloc, torch_block, &size);
  NOTHING(forebay_torch_record_stream, torch_block, stream);
  NOTHING(forebay_torch_begin_allocate_to_pool, DEVICE, 3, 4, NULL);
  NOTHING(forebay_torch_end_allocate_to_pool, DEVICE, 1, 2);
  NOTHING(forebay_torch_release_pool, DEVICE, 1, 2);
  STATUS(forebay_torch_block_at, torch_block, &torch);
  STATUS(forebay_torch_free_while, torch_block, 1, stream, &torch);
  STATUS(forebay_torch_hold_pool, DEVICE, 1, 2);
  STATUS(forebay_torch_pool_use_count, DEVICE, 1, 2, &word);
  STATUS(forebay_torch_pool_of, torch_block, &number, &second);
  STATUS(forebay_torch_restore, 1, 2, torch_block, BYTES, stream);

  /* Not functions of the header, but called by others. */
  IF(deleter) {
    lent->deleter(lent);
    return is(name, told_free == 0);
  }
  IF(deleter_legacy) {
    lent_legacy->deleter(lent_legacy);
    return is(name, told_free == 0);
  }
  /* With every handler and destructor; `main` goes on behind it. */
  IF(exit) exit(EXIT_SUCCESS);
  fprintf(stderr, "%s: no entry in fork_all.c: say there what it answers in a child of fork()\n", name);
  return UNKNOWN;
}

/* How one call ends in a child, which has so many seconds. */
static bool in_child(const char *name) {
  fflush(NULL);
  pid_t id = fork();
  if (id == 0) {
    alarm(SECONDS);
    int code = answers(name);
    fflush(NULL);
    _exit(code);
  }
  int status = 0;
  if (id < 0 || waitpid(id, &status, 0) != id) {
    perror("fork");
    exit(EXIT_FAILURE);
  }
  if (WIFSIGNALED(status)) fprintf(stderr, "%s: the child ended by signal %d\n", name, WTERMSIG(status));
  return WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS;
}

/* ---- the parent, unchanged */

typedef struct {
  forebay_pool_stats shared, own;
  uint64_t used[KINDS];
  forebay_buffer_info buffers[KINDS];
  uint64_t free_bytes, total_bytes;
} picture;

static picture look(void) {
  picture seen;
  memset(&seen, 0, sizeof seen);
  seen.shared.size = seen.own.size = sizeof seen.shared;
  seen.shared.version = seen.own.version = FOREBAY_STATS_VERSION;
  MUST(forebay_pool_get_stats(pool, DEVICE, &seen.shared));
  MUST(forebay_pool_get_stats(own, DEVICE, &seen.own));
  /* These are the driver's, which other threads use. */
  seen.shared.driver_calls = seen.shared.driver_ns = seen.own.driver_calls = seen.own.driver_ns = 0;
  MUST(forebay_pool_memory_info(pool, DEVICE, &seen.free_bytes, &seen.total_bytes));
  for (int kind = 0; kind < KINDS; kind++) {
    (void)forebay_resource_get_attribute(resources[kind], FOREBAY_ATTRIBUTE_USED_MEM_CURRENT, &seen.used[kind]);
    seen.buffers[kind].size = sizeof seen.buffers[kind];
    seen.buffers[kind].version = FOREBAY_INFO_VERSION;
    MUST(forebay_buffer_get_info(buffers[kind], &seen.buffers[kind]));
  }
  return seen;
}

static bool holds(const void *at, uint8_t value) {
  for (size_t i = 0; i < BYTES; i++)
    if (((const uint8_t *)at)[i] != value) return false;
  return true;
}

/* The host driver's memory is RAM. */
static void check_contents(void) {
  MUST(forebay_stream_synchronize(pool, DEVICE, stream));
  CHECK(holds(block, 7));
  for (int kind = 0; kind < KINDS; kind++) {
    forebay_buffer_info info = {.size = sizeof info, .version = FOREBAY_INFO_VERSION};
    MUST(forebay_buffer_get_info(buffers[kind], &info));
    CHECK(holds((void *)(uintptr_t)info.handle, 7));
  }
  CHECK(told_free == 0);
}

/* All that was made can be ended, and then nothing is left. */
static void end_world(void) {
  lent->deleter(lent);
  lent_legacy->deleter(lent_legacy);
  for (int kind = 0; kind < KINDS; kind++) {
    MUST(forebay_buffer_close(buffers[kind]));
    forebay_buffer_destroy(buffers[kind]);
  }
  forebay_buffer_destroy(released);
  forebay_buffer_destroy(of_tensor);
  forebay_buffer_destroy(of_legacy);
  CHECK(told_free == 3);
  forebay_cupy_pool_free(cupy_pool, cupy_pool_block, DEVICE);
  forebay_cupy_pool_destroy(cupy_pool);
  forebay_cupy_free(NULL, cupy_block, DEVICE);
  forebay_torch_free(torch_block, BYTES, DEVICE, stream);
  for (int kind = 0; kind < KINDS; kind++) {
    MUST(forebay_resource_close(resources[kind]));
    forebay_resource_destroy(resources[kind]);
  }
  MUST(forebay_pool_private_release(pool, DEVICE, 5));
  forebay_torch_release_pool(DEVICE, 1, 2);
  MUST(forebay_pool_remove_pressure_callback(pool, pressure));
  MUST(forebay_pool_free(pool, block, stream));
  MUST(forebay_pool_free(own, own_block, NULL));
  MUST(forebay_pool_check(pool, DEVICE));
  MUST(forebay_pool_check(own, DEVICE));
  forebay_pool_stats stats = {.size = sizeof stats, .version = FOREBAY_STATS_VERSION};
  MUST(forebay_pool_get_stats(pool, DEVICE, &stats));
  CHECK(stats.live == 0);
  MUST(forebay_stream_destroy(pool, DEVICE, stream));
  MUST(forebay_pool_trim(pool, DEVICE, 0, NULL));
  forebay_pool_destroy(own);
  forebay_pool_destroy(other);
  uint64_t free_bytes = 0, total_bytes = 0;
  MUST(forebay_pool_memory_info(pool, DEVICE, &free_bytes, &total_bytes));
  CHECK(free_bytes == total_bytes);
  forebay_pool_destroy(pool);
}

/* ---- threads that are in the middle of something */

static atomic_bool inside, go_on, stop;

static void pause_a_little(void) {
  nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* Called under the shared pool's locks. */
static void stay(void *user, int32_t device, uint32_t what, void *ptr, uint64_t bytes) {
  (void)user, (void)device, (void)what, (void)ptr, (void)bytes;
  inside = true;
  while (!go_on) pause_a_little();
}

static void *hold_locks(void *unused) {
  (void)unused;
  void *more = NULL;
  MUST(forebay_pool_malloc(pool, 64 * BYTES, DEVICE, NULL, &more));
  MUST(forebay_pool_free(pool, more, NULL));
  return NULL;
}

static void *use_resources(void *from) {
  for (int kind = (int)(intptr_t)from; !stop; kind = (kind + 1) % (KINDS - 1)) {
    forebay_buffer *fresh = NULL;
    MUST(forebay_resource_allocate(resources[kind], BYTES, NULL, &fresh));
    MUST(forebay_buffer_fill(fresh, 1, 1, NULL));
    if (kind == 3) MUST(forebay_resource_modify_allocation(resources[kind], fresh, 8 * BYTES, NULL, NULL));
    if (kind == 3) MUST(forebay_buffer_get_ipc_descriptor(fresh, &(forebay_ipc_descriptor){{0}}));
    MUST(forebay_buffer_close(fresh));
    forebay_buffer_destroy(fresh);
    MUST(forebay_resource_trim(resources[kind], 0));
  }
  return NULL;
}

static void *use_pool(void *unused) {
  (void)unused;
  forebay_pool_stats stats = {.size = sizeof stats, .version = FOREBAY_STATS_VERSION};
  while (!stop) {
    void *more = NULL, *queue = NULL;
    uint64_t id = 0;
    forebay_pool *passing = NULL;
    MUST(forebay_stream_create(other, DEVICE, &queue));
    MUST(forebay_pool_malloc(other, 80 * BYTES, DEVICE, queue, &more));
    MUST(forebay_pool_free(other, more, queue));
    MUST(forebay_stream_destroy(other, DEVICE, queue));
    MUST(forebay_pool_trim(other, DEVICE, 0, NULL));
    MUST(forebay_pool_get_stats(other, DEVICE, &stats));
    MUST(forebay_pool_add_pressure_callback(other, give_nothing, NULL, &id));
    MUST(forebay_pool_remove_pressure_callback(other, id));
    MUST(forebay_pool_create(NULL, &passing));
    forebay_pool_destroy(passing);
  }
  return NULL;
}

int main(int count, char **names) {
  make_world();
  check_contents();
  bool fine = true;
  const char *more[] = {"deleter", "deleter_legacy", "exit"};
  picture before = look();
  for (int i = 1; i < count; i++) fine &= in_child(names[i]);
  for (int i = 0; i < 3; i++) fine &= in_child(more[i]);
  picture after = look();
  CHECK(memcmp(&before, &after, sizeof before) == 0);
  check_contents();
  if (!fine) return EXIT_FAILURE;

  pthread_t threads[5];
  MUST(forebay_pool_set_mapping_observer(pool, DEVICE, stay, NULL));
  CHECK(pthread_create(&threads[0], NULL, hold_locks, NULL) == 0);
  while (!inside) pause_a_little();
  for (intptr_t i = 1; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, use_resources, (void *)i) == 0);
  CHECK(pthread_create(&threads[4], NULL, use_pool, NULL) == 0);
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = 1; i < count; i++) fine &= in_child(names[i]);
    for (int i = 0; i < 3; i++) fine &= in_child(more[i]);
  }
  go_on = stop = true;
  for (int i = 0; i < 5; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  if (!fine) return EXIT_FAILURE;
  MUST(forebay_pool_set_mapping_observer(pool, DEVICE, NULL, NULL));
  check_contents();
  end_world();
  printf("%d functions in a child of fork: right\n", count - 1);
  return EXIT_SUCCESS;
}
