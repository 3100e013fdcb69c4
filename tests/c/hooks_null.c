/* In a program without a C++ runtime the framework hooks cannot throw: a failed allocation is NULL, with a text. */
#include <forebay.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(bool truth, const char *what) {
  if (truth) return;
  fprintf(stderr, "%s: %s\n", what, forebay_last_error_message());
  exit(EXIT_FAILURE);
}

int main(void) {
  const size_t huge = (size_t)1 << 50;
  must(forebay_torch_malloc((ptrdiff_t)huge, 0, NULL) == NULL, "torch: more than any device has");
  must(strlen(forebay_last_error_message()) > 0, "torch: a text");
  must(forebay_torch_malloc(-1, 0, NULL) == NULL, "torch: a negative size");
  must(forebay_torch_malloc(PTRDIFF_MAX, 0, NULL) == NULL, "torch: the largest size");
  must(forebay_torch_malloc(512, -1, NULL) == NULL, "torch: device -1");
  must(forebay_torch_malloc(512, 4096, NULL) == NULL, "torch: a device that is not there");
  must(forebay_cupy_malloc(NULL, huge, 0) == NULL, "cupy: more than any device has");
  must(forebay_cupy_malloc(NULL, SIZE_MAX, 0) == NULL, "cupy: the largest size");
  must(forebay_torch_malloc(0, 0, NULL) == NULL, "torch: no bytes");

  /* The frees have no way to answer; they must not crash. */
  forebay_torch_free(NULL, 0, 0, NULL);
  forebay_torch_free(&(int){0}, 4, 0, NULL);
  forebay_cupy_free(NULL, NULL, 0);
  forebay_cupy_free(NULL, &(int){0}, 0);

  /* And after all that a good call is good. The size given to free is wrong on purpose: it is never trusted. */
  void *block = forebay_torch_malloc(512, 0, NULL);
  must(block != NULL, "torch: 512 bytes");
  forebay_torch_free(block, 1 << 30, 0, NULL);
  forebay_pool *pool = NULL;
  must(forebay_pool_shared(&pool) == FOREBAY_STATUS_OK, "forebay_pool_shared");
  must(forebay_pool_check(pool, 0) == FOREBAY_STATUS_OK, "forebay_pool_check");
  forebay_pool_destroy(pool);
  printf("hooks without C++: right\n");
  return EXIT_SUCCESS;
}
