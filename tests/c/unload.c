// Loads the library given as argument, uses it on a thread that ends, lets go of it; all that twice.
//
// Threads of the library (FOREBAY_GIVE_BACK_MS, IPC) may run at any time: its code must stay where it is.
#define _DEFAULT_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "forebay.h"

static void *library;

// On a thread of its own: the loader keeps what has something to do at the end of a thread, until then.
static void *use(void *failed) {
  forebay_status (*shared)(forebay_pool **);
  forebay_status (*allocate)(forebay_pool *, uint64_t, int32_t, void *, void **);
  forebay_status (*release)(forebay_pool *, void *, void *);
  // ISO C has no conversion from void * to a function; POSIX wants this one.
  *(void **)&shared = dlsym(library, "forebay_pool_shared");
  *(void **)&allocate = dlsym(library, "forebay_pool_malloc");
  *(void **)&release = dlsym(library, "forebay_pool_free");
  forebay_pool *pool;
  void *block;
  *(int *)failed = !shared || !allocate || !release || shared(&pool) || allocate(pool, 64 << 20, 0, NULL, &block) ||
                   release(pool, block, NULL);
  return NULL;
}

int main(int count, char **arguments) {
  if (count != 2) return puts("usage: unload LIBRARY"), 2;
  for (int turn = 1; turn <= 2; turn++) {
    library = dlopen(arguments[1], RTLD_NOW);
    if (!library) return puts(dlerror()), 1;
    int failed = 1;
    pthread_t thread;
    if (pthread_create(&thread, NULL, use, &failed) || pthread_join(thread, NULL) || failed) return 1;
    if (dlclose(library)) return puts(dlerror()), 1;
    usleep(50 * 1000);
    printf("turn %d: used and let go\n", turn);
  }
  return 0;
}
