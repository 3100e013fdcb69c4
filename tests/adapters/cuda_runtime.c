// The CUDA runtime of a machine with one GPU, on RAM: as much of it as PyTorch needs to allocate. Device memory is
// Forebay's, on its host driver, and so are the streams. Everything is done at once.
#include <cuda_runtime_api.h>

#include <forebay.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// For the functions that PyTorch's libraries name and that are not here: run.py writes a stub for each.
void missing(const char *name) {
  fprintf(stderr, "%s was called, and the stand-in for CUDA does not have it\n", name);
  abort();
}

static void *forebay(const char *name) {
  void *library = dlopen(getenv("FOREBAY_LIBRARY"), RTLD_NOW);
  void *found = library == NULL ? NULL : dlsym(library, name);
  if (found == NULL) missing(name);
  return found;
}

cudaError_t cudaGetDeviceCount(int *count) { *count = 1; return cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { *device = 0; return cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
cudaError_t cudaDriverGetVersion(int *version) { *version = 13000; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { *version = 13000; return cudaSuccess; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaPeekAtLastError(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t error) { (void)error; return "an error of the stand-in for CUDA"; }
const char *cudaGetErrorName(cudaError_t error) { (void)error; return "stand-in"; }

// The driver's: whether the runtime has made a context.
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  (void)device;
  *flags = 0;
  *active = 1;
  return 0;
}

// Functions of the driver by name: the one above, and for the rest one that answers CUDA_ERROR_NOT_SUPPORTED.
static int unsupported(void) { return 801; }
cudaError_t cudaGetDriverEntryPointByVersion(
    const char *symbol, void **function, unsigned version, unsigned long long flags, enum cudaDriverEntryPointQueryResult *result) {
  (void)version, (void)flags;
  *function = strcmp(symbol, "cuDevicePrimaryCtxGetState") == 0 ? (void *)cuDevicePrimaryCtxGetState : (void *)unsupported;
  if (result != NULL) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
// Removed in CUDA 13.
cudaError_t cudaGetDriverEntryPoint(
    const char *symbol, void **function, unsigned long long flags, enum cudaDriverEntryPointQueryResult *result) {
  return cudaGetDriverEntryPointByVersion(symbol, function, 0, flags, result);
}

cudaError_t cudaMalloc(void **ptr, size_t bytes) { *ptr = malloc(bytes); return cudaSuccess; }
cudaError_t cudaFree(void *ptr) { free(ptr); return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) { *free_bytes = 1 << 20; *total = 1 << 21; return cudaSuccess; }
cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) { (void)peer, (void)flags; return cudaSuccess; }

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
  (void)kind;
  memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  (void)stream;
  return cudaMemcpy(to, from, bytes, kind);
}
cudaError_t cudaMemcpyPeerAsync(void *to, int device, const void *from, int other, size_t bytes, cudaStream_t stream) {
  (void)device, (void)other, (void)stream;
  return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -3; return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  (void)stream;
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
  (void)flags, (void)priority;
  forebay_pool *pool = NULL;
  __typeof__(&forebay_pool_shared) shared = forebay("forebay_pool_shared");
  __typeof__(&forebay_stream_create) create = forebay("forebay_stream_create");
  void *made = NULL;
  if (shared(&pool) != FOREBAY_STATUS_OK || create(pool, 0, &made) != FOREBAY_STATUS_OK) return cudaErrorUnknown;
  *stream = made;
  return cudaSuccess;
}

// Called when a library with kernels is loaded.
void **__cudaRegisterFatBinary(void *binary) { static void *handle; (void)binary; return &handle; }
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
void __cudaRegisterFunction(void) {}
void __cudaRegisterVar(void) {}
void __cudaRegisterManagedVar(void) {}
char __cudaInitModule(void **handle) { (void)handle; return 0; }
