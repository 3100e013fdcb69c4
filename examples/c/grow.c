/* A buffer that grows: it keeps its contents, and its address if the addresses behind it are free.
 *
 *   cc -std=c11 grow.c -lforebay -o grow
 *   FOREBAY_DRIVER=host ./grow           without a GPU
 *   ./grow                               on device 0
 */
#include <forebay.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEVICE = 0, STEPS = 6 };

static void must(forebay_status status, const char *what) {
  if (status == FOREBAY_STATUS_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, forebay_status_text(status), forebay_last_error_message());
  exit(EXIT_FAILURE);
}

static forebay_buffer_info about(forebay_buffer *buffer) {
  forebay_buffer_info info = {.size = sizeof info, .version = FOREBAY_INFO_VERSION};
  must(forebay_buffer_get_info(buffer, &info), "forebay_buffer_get_info");
  return info;
}

int main(void) {
  forebay_pool *pool = NULL;
  must(forebay_pool_shared(&pool), "forebay_pool_shared");
  printf("forebay %s, driver %s\n", forebay_version(), forebay_pool_driver_name(pool));
  void *stream = NULL;
  must(forebay_stream_create(pool, DEVICE, &stream), "forebay_stream_create");

  forebay_resource *resource = NULL;
  must(forebay_virtual_resource_create(DEVICE, NULL, &resource), "forebay_virtual_resource_create");
  forebay_buffer *buffer = NULL;
  must(forebay_resource_allocate(resource, 1, stream, &buffer), "forebay_resource_allocate");

  /* Each step fills the new part with its own number; the end of the program checks every part. */
  uint64_t ends[STEPS], before = 0;
  for (int step = 0; step < STEPS; step++) {
    if (step > 0) {
      must(forebay_resource_modify_allocation(resource, buffer, 2 * before, NULL, stream), "grow");
    }
    forebay_buffer_info info = about(buffer);
    printf("step %d: %9" PRIu64 " bytes at 0x%" PRIx64 "\n", step, info.bytes, info.handle);
    uint8_t *fresh = (uint8_t *)(uintptr_t)info.handle + before;
    must(forebay_pool_fill(pool, DEVICE, fresh, (uint8_t)(step + 1), info.bytes - before, stream), "forebay_pool_fill");
    ends[step] = before = info.bytes;
  }

  forebay_buffer_info info = about(buffer);
  uint8_t *back = calloc(1, info.bytes);
  if (back == NULL) return EXIT_FAILURE;
  must(forebay_pool_copy(pool, DEVICE, back, (void *)(uintptr_t)info.handle, info.bytes, stream), "forebay_pool_copy");
  must(forebay_stream_synchronize(pool, DEVICE, stream), "forebay_stream_synchronize");
  for (uint64_t i = 0, step = 0; i < info.bytes; i++) {
    if (i == ends[step]) step++;
    if (back[i] != step + 1) {
      fprintf(stderr, "byte %" PRIu64 " is %d and not %d\n", i, back[i], (int)step + 1);
      return EXIT_FAILURE;
    }
  }
  printf("%d grows, every byte of %" PRIu64 " right\n", STEPS - 1, info.bytes);

  /* Growth that fails for lack of memory leaves the buffer unchanged. */
  forebay_status status = forebay_resource_modify_allocation(resource, buffer, UINT64_C(1) << 50, NULL, stream);
  printf("1 PiB: %s; still %" PRIu64 " bytes\n", forebay_status_text(status), about(buffer).bytes);

  must(forebay_resource_modify_allocation(resource, buffer, ends[0], NULL, stream), "shrink");
  printf("shrunk to %" PRIu64 " bytes\n", about(buffer).bytes);

  free(back);
  forebay_buffer_destroy(buffer);
  forebay_resource_destroy(resource);
  must(forebay_stream_destroy(pool, DEVICE, stream), "forebay_stream_destroy");
  forebay_pool_destroy(pool);
  return EXIT_SUCCESS;
}
