/* Every kind of memory resource: its properties and attributes, and copies from pinned memory to the device and back.
 *
 *   cc -std=c11 resources.c -lforebay -o resources
 *   FOREBAY_DRIVER=host ./resources      without a GPU
 *   ./resources                          on device 0
 */
#include <forebay.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEVICE = 0, BYTES = 3 << 20 };

static void must(forebay_status status, const char *what) {
  if (status == FOREBAY_STATUS_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, forebay_status_text(status), forebay_last_error_message());
  exit(EXIT_FAILURE);
}

/* A driver may lack a kind; the message then says what is missing. */
static int has(forebay_status status, const char *what) {
  if (status == FOREBAY_STATUS_UNSUPPORTED) printf("%-18s not here: %s\n", what, forebay_last_error_message());
  else must(status, what);
  return status == FOREBAY_STATUS_OK;
}

static void *address(forebay_buffer *buffer) {
  forebay_buffer_info info = {.size = sizeof info, .version = FOREBAY_INFO_VERSION};
  must(forebay_buffer_get_info(buffer, &info), "forebay_buffer_get_info");
  return (void *)(uintptr_t)info.handle;
}

/* Prints a resource's properties, with one live buffer. */
static void show(const char *name, forebay_resource *resource, void *stream) {
  forebay_resource_info info = {.size = sizeof info, .version = FOREBAY_INFO_VERSION};
  must(forebay_resource_get_info(resource, &info), "forebay_resource_get_info");
  printf("%-18s device %2d, for%s%s%s%s%s", name, info.device_id, info.is_device_accessible ? " kernels" : "",
         info.is_host_accessible ? " the host" : "", info.is_managed ? ", managed" : "",
         info.is_ipc_enabled ? ", can be shared" : "", info.is_handle_owned ? "" : ", not owned");

  forebay_buffer *buffer = NULL;
  must(forebay_resource_allocate(resource, BYTES, stream, &buffer), name);
  must(forebay_buffer_fill(buffer, 0xdeadbeef, 4, stream), "forebay_buffer_fill");

  /* Resources without a pool return FOREBAY_STATUS_UNSUPPORTED. */
  uint64_t used = 0, held = 0;
  if (forebay_resource_get_attribute(resource, FOREBAY_ATTRIBUTE_USED_MEM_CURRENT, &used) == FOREBAY_STATUS_OK) {
    must(forebay_resource_get_attribute(resource, FOREBAY_ATTRIBUTE_RESERVED_MEM_CURRENT, &held), "reserved");
    printf(": %" PRIu64 " bytes in use, %" PRIu64 " held", used, held);
  }
  printf("\n");
  forebay_buffer_destroy(buffer); /* closes it, in the order of its stream */
}

/* Copies from pinned memory to the device and back to pinned memory. */
static void round_trip(forebay_pool *pool, forebay_resource *pinned, forebay_resource *device, void *stream) {
  forebay_buffer *out = NULL, *there = NULL, *back = NULL;
  must(forebay_resource_allocate(pinned, BYTES, stream, &out), "allocate");
  must(forebay_resource_allocate(device, BYTES, stream, &there), "allocate");
  must(forebay_resource_allocate(pinned, BYTES, stream, &back), "allocate");

  /* Memory of a stream-ordered pool is ready in stream order: synchronize before the host uses it. */
  must(forebay_stream_synchronize(pool, DEVICE, stream), "forebay_stream_synchronize");
  uint8_t *from = address(out);
  for (size_t i = 0; i < BYTES; i++) from[i] = (uint8_t)(i * 31 >> 3);

  must(forebay_buffer_copy(there, out, stream), "forebay_buffer_copy");
  must(forebay_buffer_copy(back, there, stream), "forebay_buffer_copy");
  must(forebay_stream_synchronize(pool, DEVICE, stream), "forebay_stream_synchronize");

  const uint8_t *to = address(back);
  for (size_t i = 0; i < BYTES; i++) {
    if (to[i] != (uint8_t)(i * 31 >> 3)) {
      fprintf(stderr, "byte %zu came back wrong\n", i);
      exit(EXIT_FAILURE);
    }
  }
  printf("pinned -> device -> pinned: %d bytes, every one right\n", BYTES);
  forebay_buffer_destroy(out);
  forebay_buffer_destroy(there);
  forebay_buffer_destroy(back);
}

int main(void) {
  forebay_pool *pool = NULL;
  must(forebay_pool_shared(&pool), "forebay_pool_shared");
  printf("forebay %s, driver %s\n", forebay_version(), forebay_pool_driver_name(pool));
  void *stream = NULL;
  must(forebay_stream_create(pool, DEVICE, &stream), "forebay_stream_create");

  /* NULL options: the defaults; for pools, the current pool. */
  forebay_resource *device = NULL, *pinned = NULL, *other = NULL;
  if (has(forebay_device_resource_create(DEVICE, NULL, &other), "current pool")) show("current pool", other, stream);
  forebay_resource_destroy(other);

  forebay_device_resource_options options;
  must(forebay_device_resource_options_init(&options), "options");
  options.max_size = 1 << 30;
  if (has(forebay_device_resource_create(DEVICE, &options, &device), "new pool")) {
    /* Keep idle memory for later requests, instead of giving it back at each synchronization. */
    must(forebay_resource_set_attribute(device, FOREBAY_ATTRIBUTE_RELEASE_THRESHOLD, 64 << 20), "threshold");
    show("new pool", device, stream);
  }

  must(forebay_pinned_resource_create(NULL, &pinned), "forebay_pinned_resource_create");
  show("pinned", pinned, stream);

  other = NULL;
  if (has(forebay_managed_resource_create(NULL, &other), "managed")) show("managed", other, stream);
  forebay_resource_destroy(other);

  other = NULL;
  if (has(forebay_virtual_resource_create(DEVICE, NULL, &other), "virtual memory")) show("virtual memory", other, stream);
  forebay_resource_destroy(other);

  other = NULL;
  if (has(forebay_host_resource_create(NULL, &other), "host")) show("host", other, stream);
  forebay_resource_destroy(other);

  /* The pool that PyTorch and CuPy use, as a resource. */
  must(forebay_pool_resource_create(pool, DEVICE, &other), "forebay_pool_resource_create");
  show("Forebay's pool", other, stream);

  round_trip(pool, pinned, device != NULL ? device : other, stream);

  forebay_resource_destroy(other);
  forebay_resource_destroy(pinned);
  forebay_resource_destroy(device);
  must(forebay_stream_destroy(pool, DEVICE, stream), "forebay_stream_destroy");
  forebay_pool_destroy(pool);
  return EXIT_SUCCESS;
}
