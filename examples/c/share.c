/* Sharing memory between two processes: a pointer into the shared pool, and a driver pool.
 *
 *   cc -std=c11 share.c -lforebay -o share
 *   FOREBAY_DRIVER=host ./share          without a GPU
 *   ./share                              on device 0
 *
 * The child is this program again, started by exec: after a bare fork neither CUDA nor this library works.
 */
#define _GNU_SOURCE
#include <forebay.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEVICE = 0, BYTES = 1 << 20, INSIDE = 4096, PARENT = 0x11, CHILD = 0x22 };

/* A message over the socket, with or without a file descriptor. */
typedef struct {
  uint8_t uuid[16];
  forebay_ipc_descriptor descriptor;
} message;

static void must(forebay_status status, const char *what) {
  if (status == FOREBAY_STATUS_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, forebay_status_text(status), forebay_last_error_message());
  exit(EXIT_FAILURE);
}

static void fail(const char *what) {
  perror(what);
  exit(EXIT_FAILURE);
}

/* ---- the socket: descriptors are plain bytes, a file descriptor needs SCM_RIGHTS ------------------------------- */

static void send_message(int socket, const message *text, int fd) {
  union {
    char space[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
  } beside;
  memset(&beside, 0, sizeof beside);
  struct iovec bytes = {.iov_base = (void *)text, .iov_len = sizeof *text};
  struct msghdr packet = {.msg_iov = &bytes, .msg_iovlen = 1};
  if (fd >= 0) {
    packet.msg_control = beside.space;
    packet.msg_controllen = sizeof beside.space;
    struct cmsghdr *header = CMSG_FIRSTHDR(&packet);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  if (sendmsg(socket, &packet, MSG_NOSIGNAL) != (ssize_t)sizeof *text) fail("sendmsg");
}

/* Returns 0 when the other side has closed the socket. `fd` is -1 if none was received. */
static int receive_message(int socket, message *text, int *fd) {
  union {
    char space[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
  } beside;
  struct iovec bytes = {.iov_base = text, .iov_len = sizeof *text};
  struct msghdr packet = {
      .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = beside.space, .msg_controllen = sizeof beside.space};
  ssize_t count = recvmsg(socket, &packet, MSG_CMSG_CLOEXEC);
  if (count == 0) return 0;
  if (count != (ssize_t)sizeof *text) fail("recvmsg");
  *fd = -1;
  struct cmsghdr *header = CMSG_FIRSTHDR(&packet);
  if (header != NULL && header->cmsg_type == SCM_RIGHTS) memcpy(fd, CMSG_DATA(header), sizeof *fd);
  return 1;
}

/* ---- memory: checked through copies, since it may be device memory ----------------------------------------------- */

static void expect(forebay_pool *pool, const void *at, size_t bytes, uint8_t value, const char *who) {
  uint8_t *back = calloc(1, bytes);
  if (back == NULL) fail("calloc");
  must(forebay_pool_copy(pool, DEVICE, back, at, bytes, NULL), "forebay_pool_copy");
  must(forebay_stream_synchronize(pool, DEVICE, NULL), "forebay_stream_synchronize");
  for (size_t i = 0; i < bytes; i++) {
    if (back[i] != value) {
      fprintf(stderr, "%s: byte %zu is 0x%02x and not 0x%02x\n", who, i, back[i], value);
      exit(EXIT_FAILURE);
    }
  }
  free(back);
}

static void write_all(forebay_pool *pool, void *at, size_t bytes, uint8_t value) {
  must(forebay_pool_fill(pool, DEVICE, at, value, bytes, NULL), "forebay_pool_fill");
  /* Stream order does not reach into another process: wait before it reads. */
  must(forebay_stream_synchronize(pool, DEVICE, NULL), "forebay_stream_synchronize");
}

static forebay_buffer_info about(forebay_buffer *buffer) {
  forebay_buffer_info info = {.size = sizeof info, .version = FOREBAY_INFO_VERSION};
  must(forebay_buffer_get_info(buffer, &info), "forebay_buffer_get_info");
  return info;
}

/* ---- the child: maps the memory, writes into it, answers ------------------------------------------------------- */

static int child(int socket) {
  static const char *const paths[] = {"none", "a pool", "file descriptors", "fabric handles", "a legacy handle"};
  forebay_pool *pool = NULL;
  must(forebay_pool_shared(&pool), "child: forebay_pool_shared");
  message text;
  int fd;
  while (receive_message(socket, &text, &fd)) {
    forebay_resource *mapped = NULL;
    if (fd >= 0) {
      must(forebay_resource_from_allocation_handle(FOREBAY_RESOURCE_KIND_DEVICE, DEVICE, fd, text.uuid, &mapped),
           "child: forebay_resource_from_allocation_handle");
      close(fd);
    }
    forebay_buffer *buffer = NULL;
    must(forebay_buffer_from_ipc_descriptor(mapped, &text.descriptor, sizeof text.descriptor, NULL, &buffer),
         "child: forebay_buffer_from_ipc_descriptor");
    forebay_buffer_info info = about(buffer);
    void *at = (void *)(uintptr_t)info.handle;
    expect(pool, at, info.bytes, PARENT, "child");
    write_all(pool, at, info.bytes, CHILD);
    printf("child: %" PRIu64 " bytes by %s: read, and written\n", info.bytes, paths[info.ipc_path]);
    fflush(stdout);
    forebay_buffer_destroy(buffer); /* unmaps the memory in this process only */
    forebay_resource_destroy(mapped);
    send_message(socket, &text, -1);
  }
  forebay_pool_destroy(pool);
  return EXIT_SUCCESS;
}

/* ---- the parent ------------------------------------------------------------------------------------------------- */

/* Sends `text`, and waits for the child to answer. */
static void hand_over(int socket, message *text, int fd) {
  send_message(socket, text, fd);
  if (!receive_message(socket, text, &fd)) {
    fprintf(stderr, "the child has ended\n");
    exit(EXIT_FAILURE);
  }
}

/* The pointer may lie anywhere in a live block: the other process gets the memory from there to the block's end. */
static void share_pointer(forebay_pool *pool, int socket) {
  message text = {0};
  void *neighbour = NULL, *block = NULL;
  must(forebay_pool_malloc(pool, 1000, DEVICE, NULL, &neighbour), "forebay_pool_malloc");
  must(forebay_pool_malloc(pool, BYTES, DEVICE, NULL, &block), "forebay_pool_malloc");
  write_all(pool, block, BYTES, PARENT);
  char *inside = (char *)block + INSIDE;
  must(forebay_ipc_export(pool, inside, &text.descriptor), "forebay_ipc_export");
  hand_over(socket, &text, -1);
  expect(pool, block, INSIDE, PARENT, "parent, before the pointer");
  expect(pool, inside, BYTES - INSIDE, CHILD, "parent, behind the pointer");
  printf("parent: %d bytes behind the pointer are the child's, those before it are mine\n", BYTES - INSIDE);
  must(forebay_pool_free(pool, block, NULL), "forebay_pool_free");
  must(forebay_pool_free(pool, neighbour, NULL), "forebay_pool_free");
}

/* A driver pool is sent once, as a file descriptor; then each of its buffers as plain bytes. */
static void share_pool(forebay_pool *pool, int socket) {
  message text = {0};
  forebay_device_resource_options options;
  must(forebay_device_resource_options_init(&options), "forebay_device_resource_options_init");
  options.ipc_enabled = 1;
  forebay_resource *resource = NULL;
  forebay_status status = forebay_device_resource_create(DEVICE, &options, &resource);
  if (status == FOREBAY_STATUS_UNSUPPORTED) {
    printf("parent: no pool to share here: %s\n", forebay_last_error_message());
    return;
  }
  must(status, "forebay_device_resource_create");
  forebay_buffer *buffer = NULL;
  must(forebay_resource_allocate(resource, BYTES, NULL, &buffer), "forebay_resource_allocate");
  void *at = (void *)(uintptr_t)about(buffer).handle;
  write_all(pool, at, BYTES, PARENT);
  int fd = -1; /* owned by the resource, which closes it */
  must(forebay_resource_get_allocation_handle(resource, &fd, text.uuid), "forebay_resource_get_allocation_handle");
  must(forebay_buffer_get_ipc_descriptor(buffer, &text.descriptor), "forebay_buffer_get_ipc_descriptor");
  hand_over(socket, &text, fd);
  expect(pool, at, BYTES, CHILD, "parent");
  printf("parent: %d bytes of a pool of the driver are the child's\n", BYTES);
  forebay_buffer_destroy(buffer);
  forebay_resource_destroy(resource);
}

int main(int count, char **arguments) {
  if (count == 3 && strcmp(arguments[1], "child") == 0) return child(atoi(arguments[2]));

  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0) fail("socketpair");
  pid_t process = fork(); /* before the first use of the library, which does not work in a forked child */
  if (process < 0) fail("fork");
  if (process == 0) {
    char number[16];
    close(sockets[0]);
    snprintf(number, sizeof number, "%d", sockets[1]);
    execl("/proc/self/exe", arguments[0], "child", number, (char *)NULL);
    perror("exec");
    _exit(EXIT_FAILURE);
  }
  close(sockets[1]);

  forebay_pool *pool = NULL;
  must(forebay_pool_shared(&pool), "forebay_pool_shared");
  printf("forebay %s, driver %s\n", forebay_version(), forebay_pool_driver_name(pool));
  fflush(stdout);
  share_pointer(pool, sockets[0]);
  share_pool(pool, sockets[0]);

  int state = 0;
  close(sockets[0]); /* ends the child */
  if (waitpid(process, &state, 0) != process || state != 0) {
    fprintf(stderr, "the child ended with %d\n", state);
    return EXIT_FAILURE;
  }
  forebay_pool_destroy(pool);
  printf("both right\n");
  return EXIT_SUCCESS;
}
