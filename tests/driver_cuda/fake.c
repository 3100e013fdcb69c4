/* A libcuda that does nothing and notes everything.
 *
 * Every call appends `name:mode:depth ` to the log, where depth counts contexts pushed on the thread. Calls whose
 * arguments matter also leave them, as text, in `said`. -DVERSION is what it reports; -DUNTIL=12040 leaves out what
 * came after 12.4; -DBROKEN, what every libcuda has. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef unsigned long long u64;
#ifndef UNTIL
#define UNTIL VERSION
#endif

static char log_[1 << 16], said[512];
static char failing[64]; static int failing_code;
static int mode = 0, depth = 0, capturing = 0, no_fd = 0, access_flags = 3;
static void *current = 0;
static int pool_location[2] = {-1, 0}; /* type and number, which libcuda tells from 13.1 on */
void fake_pool_location(int type_and_id) { pool_location[0] = type_and_id >> 8; pool_location[1] = type_and_id & 0xff; }
const char *fake_log(void) { return log_; }
void fake_clear(void) { log_[0] = 0; }
const char *fake_said(void) { return said; }
void fake_answer(const char *name, int code) { strncpy(failing, name, 63); failing_code = code; }
void fake_current(void *context) { current = context; }
void *fake_get_current(void) { return current; }
void fake_mode(int m) { mode = m; }
int fake_get_mode(void) { return mode; }
void fake_capture(int c) { capturing = c; }
void fake_no_fd(int n) { no_fd = n; }
void fake_access(int a) { access_flags = a; }

static int called(const char *name) {
  char line[128]; snprintf(line, sizeof line, "%s:%d:%d ", name, mode, depth); strcat(log_, line);
  return (!strcmp(failing, name) || !strcmp(failing, "*")) ? failing_code : 0;
}
#define F(name, args, ...) int name args { int wrong = called(#name); if (wrong) return wrong; __VA_ARGS__; return 0; }
/* The same, refused where no context is current. */
#define C(name, args, ...) F(name, args, if (!current) return 201; __VA_ARGS__)
#define SAY(...) snprintf(said, sizeof said, __VA_ARGS__)

/* The structures of cuda.h, as far as they are looked at. */
typedef struct { unsigned type; int id; } location;
typedef struct { location place; unsigned flags; } access;
typedef struct {
  unsigned type, handles; location place; void *win32;
  unsigned char compression, rdma; unsigned short usage; unsigned char reserved[4];
} properties;
typedef struct {
  unsigned type, handles; location place; void *win32;
  size_t most; unsigned short usage; unsigned char reserved[54];
} pool_properties;
typedef struct { unsigned char bytes[64]; } blob;

static void fill_blob(void *to, unsigned char first) { for (int i = 0; i < 64; i++) ((unsigned char *)to)[i] = first + i; }
static void give_fd(void *to) { *(int *)to = no_fd ? -1 : open("/dev/null", O_RDONLY); }

/* -- process, devices, contexts -- */
int cuInit(unsigned f) { called("cuInit"); const char *c = getenv("FAKE_INIT"); return c ? atoi(c) : 0; }
F(cuDriverGetVersion, (int *v), *v = VERSION)
int cuGetErrorName(int code, const char **name) {
  *name = code == 100 ? "CUDA_ERROR_NO_DEVICE" : code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" :
          code == 1 ? "CUDA_ERROR_INVALID_VALUE" : code == 800 ? "CUDA_ERROR_NOT_PERMITTED" :
          code == 4 ? "CUDA_ERROR_DEINITIALIZED" : code == 900 ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" : 0;
  return *name ? 0 : 1;
}
F(cuDeviceGet, (int *d, int o), *d = o + 70)
F(cuDeviceGetCount, (int *n), *n = getenv("FAKE_DEVICES") ? atoi(getenv("FAKE_DEVICES")) : 2)
/* Each attribute is 1, but for those in FAKE_ATTRIBUTES, as `,134=-1,128=0`, of one device as `,134@71=5`; from FAKE_UNKNOWN on none is known. */
int cuDeviceGetAttribute(int *v, int a, int d) {
  int wrong = called("cuDeviceGetAttribute"); if (wrong) return wrong;
  const char *unknown = getenv("FAKE_UNKNOWN"), *list = getenv("FAKE_ATTRIBUTES");
  if (unknown && a >= atoi(unknown)) return 1;
  char key[16]; snprintf(key, sizeof key, ",%d@%d=", a, d);
  const char *found = list ? strstr(list, key) : 0;
  if (!found) { snprintf(key, sizeof key, ",%d=", a); found = list ? strstr(list, key) : 0; }
  *v = found ? atoi(found + strlen(key)) : 1;
  return 0;
}
F(cuDeviceGetUuid, (unsigned char *u, int d), for (int i = 0; i < 16; i++) u[i] = d + i)
F(cuDeviceCanAccessPeer, (int *c, int d, int p), SAY("device=%d peer=%d", d, p); *c = d == 71)
F(cuDevicePrimaryCtxRetain, (void **c, int d), *c = (void *)(u64)(0xc000 + d))
F(cuCtxGetCurrent, (void **c), *c = current)
/* A context is 0xc000 and its device; the others in tests are device 70's. */
C(cuCtxGetDevice, (int *d), *d = ((u64)current & 0xf000) == 0xc000 ? (u64)current & 0xfff : 70)
static void *below[8];
F(cuCtxPushCurrent_v2, (void *c), below[depth++] = current; current = c)
F(cuCtxPopCurrent_v2, (void **c), *c = current; current = below[--depth])
F(cuCtxSynchronize, (void))
F(cuThreadExchangeStreamCaptureMode, (int *m), int old = mode; mode = *m; *m = old)

/* -- plain memory, data -- */
F(cuMemGetInfo_v2, (size_t *f, size_t *t), *f = 1 << 30; *t = 2 << 29)
F(cuMemAlloc_v2, (u64 *p, size_t n), *p = 0xa000)
F(cuMemFree_v2, (u64 p))
F(cuMemAllocManaged, (u64 *p, size_t n, unsigned f), SAY("bytes=%zu flags=%u", n, f); *p = 0xd000)
F(cuMemHostAlloc, (void **p, size_t n, unsigned f), SAY("bytes=%zu flags=%u", n, f); *p = (void *)0xb000)
F(cuMemFreeHost, (void *p), SAY("at=%p", p))
F(cuMemHostRegister_v2, (void *p, size_t n, unsigned f), SAY("at=%p bytes=%zu flags=%u", p, n, f))
F(cuMemHostUnregister, (void *p), SAY("at=%p", p))
F(cuMemHostGetDevicePointer_v2, (u64 *d, void *p, unsigned f), SAY("at=%p flags=%u", p, f); *d = (u64)p + 1)
static int pointer_attribute(unsigned a, void *to, u64 p) {
  int device = p == 0xa000, host = p == 0xb000, managed = p == 0xd000, known = device || host || managed;
  switch (a) {
    case 2: *(unsigned *)to = host ? 1 : known ? 2 : 0; return 0;
    case 8: *(unsigned char *)to = managed; return 0;
    case 9: *(int *)to = known ? 1 : -2; return 0;
    case 10: *(int *)to = device; return 0;
    case 11: *(u64 *)to = known ? p - 0x100 : 0; return 0;
    case 12: *(size_t *)to = known ? 0x1000 : 0; return 0;
    default: return 1;
  }
}
F(cuPointerGetAttributes, (unsigned n, unsigned *a, void **to, u64 p),
  for (unsigned i = 0; i < n; i++) if (pointer_attribute(a[i], to[i], p)) return 1)
F(cuMemcpyAsync, (u64 t, u64 f, size_t n, void *s))
F(cuMemsetD8Async, (u64 t, unsigned char v, size_t n, void *s), SAY("8: %x %zu", v, n))
F(cuMemsetD16Async, (u64 t, unsigned short v, size_t n, void *s), SAY("16: %x %zu", v, n))
F(cuMemsetD32Async, (u64 t, unsigned v, size_t n, void *s), SAY("32: %x %zu", v, n))

/* -- streams, events -- */
F(cuStreamCreate, (void **s, unsigned f), *s = (void *)(0x5000ull + f))
F(cuStreamDestroy_v2, (void *s))
F(cuStreamSynchronize, (void *s))
F(cuStreamQuery, (void *s))
/* A stream from 0x6000 on is device 71's. */
C(cuStreamGetCtx, (void *s, void **c), *c = (void *)((u64)s >= 0x6000 ? 0xc047ull : 0xc046ull))
C(cuStreamWaitEvent, (void *s, void *e, unsigned f))
/* The legacy stream answers for the blocking streams. */
C(cuStreamIsCapturing, (void *s, int *c), if (capturing && (u64)s < 2) return 906; *c = capturing)
F(cuEventCreate, (void **e, unsigned f), *e = (void *)(0xe000ull + f))
F(cuEventDestroy_v2, (void *e))
C(cuEventRecord, (void *e, void *s))
#ifndef BROKEN
C(cuEventQuery, (void *e))
#endif
F(cuEventSynchronize, (void *e))

/* -- virtual memory -- */
F(cuMemGetAllocationGranularity, (size_t *g, properties *p, unsigned o),
  SAY("place=%u:%d handles=%u which=%u", p->place.type, p->place.id, p->handles, o); *g = (2 << 20) << (o ? 1 : 0))
F(cuMemAddressReserve, (u64 *p, size_t n, size_t a, u64 h, u64 f),
  SAY("bytes=%zu alignment=%zu hint=%llx flags=%llu", n, a, h, f); *p = 0x200000)
F(cuMemAddressFree, (u64 p, size_t n))
F(cuMemCreate, (u64 *h, size_t n, properties *p, u64 f),
  SAY("bytes=%zu type=%u handles=%u place=%u:%d compression=%u rdma=%u usage=%u", n, p->type, p->handles,
      p->place.type, p->place.id, p->compression, p->rdma, p->usage); *h = 0x77)
F(cuMemRelease, (u64 h))
F(cuMemMap, (u64 p, size_t n, size_t o, u64 h, u64 f))
F(cuMemUnmap, (u64 p, size_t n))
F(cuMemSetAccess, (u64 p, size_t n, access *d, size_t c), said[0] = 0;
  for (size_t i = 0; i < c; i++)
    sprintf(said + strlen(said), "%u:%d=%u ", d[i].place.type, d[i].place.id, d[i].flags))
F(cuMemExportToShareableHandle, (void *to, u64 h, unsigned t, u64 f), SAY("handle=%llx type=%u flags=%llu", h, t, f);
  if (t == 8) fill_blob(to, 1); else give_fd(to))
F(cuMemImportFromShareableHandle, (u64 *h, void *from, unsigned t),
  if (t == 8) SAY("fabric=%u..%u", ((blob *)from)->bytes[0], ((blob *)from)->bytes[63]); else SAY("fd=%d", (int)(u64)from);
  *h = 0x78)

#if UNTIL >= 11000
F(cuIpcGetMemHandle, (blob *h, u64 p), SAY("at=%llx", p); fill_blob(h, 200))
F(cuIpcOpenMemHandle_v2, (u64 *p, blob h, unsigned f), SAY("blob=%u..%u flags=%u", h.bytes[0], h.bytes[63], f); *p = 0xf000)
F(cuIpcCloseMemHandle, (u64 p), SAY("at=%llx", p))
#endif

/* -- pools -- */
#if UNTIL >= 11020
F(cuDeviceGetDefaultMemPool, (void **p, int d), SAY("device=%d", d); *p = (void *)0xb0)
F(cuDeviceGetMemPool, (void **p, int d), SAY("device=%d", d); *p = (void *)0xb1)
F(cuMemPoolCreate, (void **p, pool_properties *q),
  int rest = q->usage; for (int i = 0; i < 54; i++) rest |= q->reserved[i];
  SAY("type=%u handles=%u place=%u:%d most=%zu rest=%d", q->type, q->handles, q->place.type, q->place.id, q->most, rest);
  *p = (void *)0xb2)
F(cuMemPoolDestroy, (void *p), SAY("pool=%p", p))
F(cuMemPoolGetAttribute, (void *p, unsigned a, void *to), if (a > 8 && pool_location[0] < 0) return 1;
  if (a > 8) *(int *)to = a == 12 ? pool_location[0] : pool_location[1]; else if (a <= 3) *(int *)to = a & 1; else *(u64 *)to = (1ull << 40) + a)
F(cuMemPoolSetAttribute, (void *p, unsigned a, void *from),
  if (a <= 3) SAY("%u=%d", a, *(int *)from); else SAY("%u=%llu", a, *(u64 *)from))
F(cuMemPoolGetAccess, (unsigned *f, void *p, location *l), SAY("pool=%p place=%u:%d", p, l->type, l->id); *f = access_flags)
F(cuMemPoolSetAccess, (void *p, access *d, size_t c), SAY("pool=%p %u:%d=%u count=%zu", p, d->place.type, d->place.id, d->flags, c))
F(cuMemPoolTrimTo, (void *p, size_t n), SAY("pool=%p keep=%zu", p, n))
F(cuMemAllocFromPoolAsync, (u64 *at, size_t n, void *p, void *s), SAY("bytes=%zu pool=%p stream=%p", n, p, s); *at = 0xa100)
F(cuMemFreeAsync, (u64 at, void *s), SAY("at=%llx stream=%p", at, s))
F(cuMemPoolExportToShareableHandle, (void *to, void *p, unsigned t, u64 f), SAY("pool=%p type=%u flags=%llu", p, t, f); give_fd(to))
F(cuMemPoolImportFromShareableHandle, (void **p, void *from, unsigned t, u64 f),
  SAY("fd=%d type=%u flags=%llu", (int)(u64)from, t, f); *p = (void *)0xb3)
F(cuMemPoolExportPointer, (blob *b, u64 at), SAY("at=%llx", at); fill_blob(b, 100))
F(cuMemPoolImportPointer, (u64 *at, void *p, blob *b), SAY("pool=%p blob=%u..%u", p, b->bytes[0], b->bytes[63]); *at = 0xa200)
#endif
#if UNTIL >= 11030
F(cuStreamGetCaptureInfo_v2, (void *s, int *c, u64 *id, void *g, void *d, size_t *n), *c = capturing; *id = 42)
#endif
#if UNTIL >= 11040
F(cuDeviceGetUuid_v2, (unsigned char *u, int d), for (int i = 0; i < 16; i++) u[i] = 100 + d + i)
#endif
#if UNTIL >= 12000
C(cuStreamGetId, (void *s, u64 *id), *id = 1000 + (u64)s)
#endif
#if UNTIL >= 12050
static void *recorded;
void *fake_recorded(void) { return recorded; }
F(cuCtxRecordEvent, (void *c, void *e), recorded = (void *)((u64)c << 16 | (u64)e & 0xffff))
#endif
#if UNTIL >= 13000
F(cuMemGetDefaultMemPool, (void **p, location *l, unsigned t), SAY("place=%u:%d type=%u", l->type, l->id, t); *p = (void *)0xb4)
F(cuMemGetMemPool, (void **p, location *l, unsigned t), SAY("place=%u:%d type=%u", l->type, l->id, t); *p = (void *)0xb5)
#endif
