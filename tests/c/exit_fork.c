/* Leaving in every way a program can: a forked child that goes on calling, a child that exits, exit() with live blocks
 * and a queue of work, destroy called late. Exits with 0 when each answered as documented and nothing crashed.
 *
 * Usage: exit_fork fork | exit | late
 */
#define _POSIX_C_SOURCE 200809L
#include <forebay.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEVICE = 0, BYTES = 1 << 20 };

static forebay_pool *pool;
static void *stream, *block;

static void must(forebay_status got, forebay_status wanted, const char *what) {
  if (got == wanted) return;
  fprintf(stderr, "%s: %s, wanted %s: %s\n", what, forebay_status_text(got), forebay_status_text(wanted),
          forebay_last_error_message());
  exit(EXIT_FAILURE);
}

static void use_pool(void) {
  must(forebay_pool_shared(&pool), FOREBAY_STATUS_OK, "forebay_pool_shared");
  must(forebay_stream_create(pool, DEVICE, &stream), FOREBAY_STATUS_OK, "forebay_stream_create");
  must(forebay_pool_malloc(pool, BYTES, DEVICE, stream, &block), FOREBAY_STATUS_OK, "forebay_pool_malloc");
  must(forebay_pool_fill(pool, DEVICE, block, 1, BYTES, stream), FOREBAY_STATUS_OK, "forebay_pool_fill");
}

/* The driver's state does not survive a fork, so every call that would need it is refused, by its own status. */
static void child(void) {
  void *more = NULL;
  must(forebay_pool_malloc(pool, BYTES, DEVICE, stream, &more), FOREBAY_STATUS_FORKED, "malloc in the child");
  if (more != NULL) exit(EXIT_FAILURE);
  must(forebay_pool_free(pool, block, stream), FOREBAY_STATUS_FORKED, "free in the child");
  must(forebay_stream_synchronize(pool, DEVICE, stream), FOREBAY_STATUS_FORKED, "synchronize in the child");
  forebay_torch_free(block, BYTES, DEVICE, stream); /* cannot answer: must do nothing */
  forebay_pool_destroy(pool);
  exit(EXIT_SUCCESS); /* with every exit handler and destructor */
}

static void fork_and_go_on(void) {
  use_pool();
  fflush(NULL);
  pid_t id = fork();
  if (id == 0) child();
  int status = 0;
  if (id < 0 || waitpid(id, &status, 0) != id || !WIFEXITED(status) || WEXITSTATUS(status) != EXIT_SUCCESS) {
    fprintf(stderr, "the child ended with status 0x%x\n", (unsigned)status);
    exit(EXIT_FAILURE);
  }
  void *more = NULL;
  must(forebay_pool_malloc(pool, BYTES, DEVICE, stream, &more), FOREBAY_STATUS_OK, "malloc in the parent afterwards");
  must(forebay_pool_free(pool, more, stream), FOREBAY_STATUS_OK, "free in the parent");
  must(forebay_pool_free(pool, block, stream), FOREBAY_STATUS_OK, "free of the older block");
  must(forebay_pool_check(pool, DEVICE), FOREBAY_STATUS_OK, "forebay_pool_check");
}

static void destroy_late(void) {
  /* Exit handlers run when the library's and the driver's own may have run: all of this must be harmless. */
  forebay_torch_free(block, BYTES, DEVICE, stream);
  (void)forebay_stream_destroy(pool, DEVICE, stream);
  forebay_pool_destroy(pool);
}

int main(int count, char **arguments) {
  const char *how = count > 1 ? arguments[1] : "";
  if (strcmp(how, "fork") == 0) fork_and_go_on();
  else if (strcmp(how, "exit") == 0) use_pool(); /* and leave, with a live block and queued work */
  else if (strcmp(how, "late") == 0) {
    atexit(destroy_late); /* registered before CUDA starts, so it runs after CUDA's own handlers */
    use_pool();
  } else {
    fprintf(stderr, "usage: exit_fork fork | exit | late\n");
    return EXIT_FAILURE;
  }
  printf("%s: right\n", how);
  return EXIT_SUCCESS;
}
