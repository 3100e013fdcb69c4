/*
 * Forebay: one GPU memory pool that every framework in a process shares.
 *
 * Made from src/abi by cbindgen; do not edit.
 *
 * Ownership   A forebay_pool that a call gives you is yours: end it with forebay_pool_destroy. Memory from
 *             forebay_malloc is yours until forebay_free. Texts that are returned belong to the library. User data of a
 *             callback stays yours and must stay valid until the callback is removed.
 * Arguments   The object comes first; const means that it is only read; outputs come last and are written only on
 *             FOREBAY_STATUS_OK. A NULL object or output is FOREBAY_STATUS_NULL_POINTER. Freeing a NULL block or
 *             destroying a NULL object is fine. Sizes are bytes. Devices are counted from 0, as CUDA counts them.
 * Errors      A call that fails changed nothing. Its status says what kind of failure it was, and
 *             forebay_last_error_message() says it in full, for the thread that made the call. No call aborts
 *             the process or lets a panic out, given valid memory to read and write.
 * Threads     Any function may be called from any thread, at any time, except that nothing may use a pool during or
 *             after the last forebay_pool_destroy on it.
 * Streams     A stream is a CUstream or a cudaStream_t, passed as void *: NULL and 1 are the legacy default stream, 2 is
 *             the calling thread's own default stream. Memory is handed out again only where stream order, an event or a
 *             finished fence proves that its last use is over. A stream must be alive in the call that names it. After
 *             the call its handle is not used again, unless it is a default stream, was registered
 *             (forebay_stream_register), or was recorded as a user of a block that is still live.
 * Captures    Memory for a graph comes from a private pool: forebay_private_begin before the capture,
 *             forebay_private_end after it, forebay_private_release when the graph is gone.
 * Addresses   A block's address never changes while it is live.
 * Driver      FOREBAY_DRIVER=cuda (the default) or host: RAM instead of a GPU, for tests and machines without one.
 * fork        CUDA does not work in a child of fork(), and neither does this library once it was used: there every call
 *             answers FOREBAY_STATUS_FORKED. exec and spawn are fine.
 * exit        The shared pool is not taken down. Freeing while the process ends, also after CUDA is gone, is harmless.
 */

#ifndef FOREBAY_H
#define FOREBAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Layout of `forebay_options`.
#define FOREBAY_OPTIONS_VERSION 1

// Layout of `forebay_stats` and `forebay_stream_stats`.
#define FOREBAY_STATS_VERSION 1

// First part of the version.
#define FOREBAY_VERSION_MAJOR 0

// Second part of the version.
#define FOREBAY_VERSION_MINOR 1

// Third part of the version.
#define FOREBAY_VERSION_PATCH 0

// All parts in one: major * 10000 + minor * 100 + patch.
#define FOREBAY_VERSION_NUMBER 100

// What a call answers. Numbers never change their meaning; retired ones are not used again.
typedef enum forebay_status {
  // Done.
  FOREBAY_STATUS_OK = 0,
  // A required object or output is NULL.
  FOREBAY_STATUS_NULL_POINTER = 1,
  // A size, number, option or struct version is out of range.
  FOREBAY_STATUS_INVALID_ARGUMENT = 2,
  // No memory, after everything that could be given back was.
  FOREBAY_STATUS_OUT_OF_MEMORY = 3,
  // The pointer is not the start of a live block: foreign, inside a block, or freed before.
  FOREBAY_STATUS_BAD_FREE = 4,
  // The driver or device lacks what was asked for.
  FOREBAY_STATUS_UNSUPPORTED = 5,
  // There is no usable driver or device.
  FOREBAY_STATUS_NO_DRIVER = 6,
  // The device number is out of range.
  FOREBAY_STATUS_BAD_DEVICE = 7,
  // The driver failed; the message has its name for it.
  FOREBAY_STATUS_DRIVER = 8,
  // Not possible on a stream that is being captured.
  FOREBAY_STATUS_CAPTURING = 9,
  // In a child of fork().
  FOREBAY_STATUS_FORKED = 10,
  // An unknown callback, private pool or stream.
  FOREBAY_STATUS_NOT_FOUND = 11,
  // Too late: the thing is in use.
  FOREBAY_STATUS_BUSY = 12,
  // A bug in this library, caught before it reached the caller.
  FOREBAY_STATUS_PANIC = 13,
  // The resource or buffer is closed.
  FOREBAY_STATUS_CLOSED = 14,
  // Not allowed: memory of another user, a resource that is not made for sharing, or an allocation from one that
  // is mapped from another process.
  FOREBAY_STATUS_NOT_PERMITTED = 15,
  // The other process is gone, or does not answer as it should.
  FOREBAY_STATUS_PEER = 16,
} forebay_status;

// Who asked for a block: how the figures tell users apart.
typedef enum forebay_framework {
  // forebay_malloc.
  FOREBAY_FRAMEWORK_C = 0,
  // The PyTorch hooks.
  FOREBAY_FRAMEWORK_TORCH = 1,
  // The CuPy hooks.
  FOREBAY_FRAMEWORK_CUPY = 2,
  // Numba's memory manager.
  FOREBAY_FRAMEWORK_NUMBA = 3,
  // cuda.core's memory resource.
  FOREBAY_FRAMEWORK_CUDA_CORE = 4,
} forebay_framework;

// A pool. Holds a reference to one memory pool per device of its driver; several objects may refer to the
// same pool, as all from `forebay_pool_shared` do.
typedef struct forebay_pool forebay_pool;

// Gives the stream that CuPy's calling thread uses now.
typedef ptrdiff_t (*forebay_stream_getter)(void);

// Called before a request of `bytes` fails for want of memory; says whether it gave anything back. No lock is
// held: it may free into the pool. It is not called again by an allocation that it makes itself.
typedef bool (*forebay_pressure_fn)(void *user, int32_t device, uint64_t bytes);

// How a pool behaves. Fill with `forebay_options_init`, then change what you want changed.
typedef struct forebay_options {
  // sizeof(forebay_options), as the caller was compiled.
  uint32_t size;
  // FOREBAY_OPTIONS_VERSION.
  uint32_t version;
  // "cuda", "host", or NULL: the variable FOREBAY_DRIVER, else cuda. Read during the call only.
  const char *driver;
  // Most physical memory to hold per device, in bytes; 0: no limit but the device's. FOREBAY_LIMIT.
  uint64_t limit;
  // The same as a share of the device's memory, above 0 and up to 1; 0: none. FOREBAY_FRACTION.
  double fraction;
  // Largest chunk of physical memory in bytes, a power of two; 0: follows the pool. FOREBAY_MAX_CHUNK.
  uint64_t max_chunk;
  // 1: take new memory rather than make a stream wait for another stream's. FOREBAY_GROW_FIRST.
  uint32_t grow_first;
  // Zero.
  uint32_t reserved0;
  // Zero.
  uint64_t reserved[8];
} forebay_options;

// A device's figures: bytes, and counts since the pool was made.
typedef struct forebay_stats {
  // sizeof(forebay_stats); set by the caller.
  uint32_t size;
  // FOREBAY_STATS_VERSION; set by the caller.
  uint32_t version;
  // Given out, in blocks of 512 bytes.
  uint64_t live;
  // The most that was live at once: exact where one stream allocates, with several it may be low by 1 MiB for each.
  uint64_t live_peak;
  // Memory of the device held.
  uint64_t physical;
  // The most that was held.
  uint64_t physical_peak;
  // Most that may be held; 0 for no limit.
  uint64_t limit;
  // Held and not live.
  uint64_t free_bytes;
  // The longest free block.
  uint64_t largest_free;
  // Free memory that belongs to private pools.
  uint64_t private_bytes;
  // Requests served.
  uint64_t allocations;
  // Blocks taken back.
  uint64_t frees;
  // Requests served by a stream's front cache.
  uint64_t hits;
  // Requests that came to the arena.
  uint64_t misses;
  // Chunks moved to where they were needed.
  uint64_t steals;
  // Chunks created.
  uint64_t growths;
  // Times a stream was made to wait for another's fence.
  uint64_t waits;
  // Chunks given back to the driver.
  uint64_t releases;
  // Requests that failed for want of memory.
  uint64_t out_of_memory;
  // Live bytes by forebay_framework.
  uint64_t live_by_framework[8];
  // Streams known.
  uint64_t streams;
  // Driver calls made, where the driver counts them (the host driver does).
  uint64_t driver_calls;
  // What they would have cost on the GPU they are priced from, in nanoseconds.
  uint64_t driver_ns;
  // Zero.
  uint64_t reserved[8];
} forebay_stats;

// One stream's figures.
typedef struct forebay_stream_stats {
  // sizeof(forebay_stream_stats); set by the caller.
  uint32_t size;
  // FOREBAY_STATS_VERSION; set by the caller.
  uint32_t version;
  // Bytes live that were allocated on the stream.
  uint64_t live;
  // The most of them.
  uint64_t live_peak;
  // Requests served.
  uint64_t allocations;
  // Blocks taken back that were allocated on it.
  uint64_t frees;
  // Requests served by its front cache.
  uint64_t hits;
  // Zero.
  uint64_t reserved[4];
} forebay_stream_stats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Sets the function that gives CuPy's current stream: the C function inside the capsule
// `cupy_backends.cuda.stream.__pyx_capi__["get_current_stream_ptr"]`. NULL, the state at the start: the legacy default
// stream. Any thread.
void forebay_cupy_set_stream_getter(forebay_stream_getter getter);

// Allocates `size` bytes on `device` in the order of CuPy's current stream. `param` is not used.
//
// On failure a Python exception is pending: `cupy.cuda.memory.OutOfMemoryError` with the pool's report for want of
// memory (`MemoryError` where CuPy's own is not to be had), `RuntimeError` else. The pointer is then -1, the value after
// which CuPy's caller looks for an exception. In a program without Python a `std::runtime_error` is thrown; NULL where
// there is no C++ runtime either.
void *forebay_cupy_malloc(void *_param,
                          size_t size,
                          int device);

// Frees a block in the order of CuPy's current stream, and of the stream it was allocated on, since CuPy frees an array
// wherever its last reference goes. A pointer that is no live block's is refused and changes nothing. Never raises: CuPy
// frees in destructors, also while the interpreter ends.
void forebay_cupy_free(void *_param,
                       void *ptr,
                       int _device);

// Gives free memory back to the driver until the pool holds at most `keep` bytes on `device`. Waits on the host for
// work that still uses freed memory. `released` (may be NULL) gets the bytes given back. Any thread.
enum forebay_status forebay_trim(struct forebay_pool *pool,
                                 int32_t device,
                                 uint64_t keep,
                                 uint64_t *released);

// Sets the most bytes to hold on `device`; 0 for no limit. What is held above it stays until trimmed. Any thread.
enum forebay_status forebay_set_limit(struct forebay_pool *pool,
                                      int32_t device,
                                      uint64_t bytes);

// Sets the limit to a share of the device's memory, above 0 and up to 1. Any thread.
enum forebay_status forebay_set_fraction(struct forebay_pool *pool, int32_t device, double fraction);

// The limit of `device` in bytes; 0 for none. Any thread.
enum forebay_status forebay_get_limit(const struct forebay_pool *pool, int32_t device, uint64_t *out);

// Adds a pressure callback; `id` gets a number for `forebay_remove_pressure_callback`. It is called on whichever thread
// runs out of memory, possibly on several at once; `user` is passed on as it is and must stay valid until it is
// removed. Any thread.
enum forebay_status forebay_add_pressure_callback(struct forebay_pool *pool,
                                                  forebay_pressure_fn callback,
                                                  void *user,
                                                  uint64_t *id);

// Removes a pressure callback. A call of it under way on another thread may still be running when this returns.
//
// Returns FOREBAY_STATUS_NOT_FOUND for a number that is not one. Any thread.
enum forebay_status forebay_remove_pressure_callback(struct forebay_pool *pool,
                                                     uint64_t id);

// Allocates `bytes` on `device`, aligned to 512 bytes, usable by work queued on `stream` from now on.
// `stream` is a CUstream or cudaStream_t; NULL is the legacy default stream. It must be alive in this call.
// 0 bytes give NULL and FOREBAY_STATUS_OK. Any thread. Free with `forebay_free`.
//
// Returns FOREBAY_STATUS_OUT_OF_MEMORY with the pool's report as the message when nothing more can be given back,
// FOREBAY_STATUS_CAPTURING on a stream that is being captured without a private pool. `out` is then not written.
enum forebay_status forebay_malloc(struct forebay_pool *pool,
                                   uint64_t bytes,
                                   int32_t device,
                                   void *stream,
                                   void **out);

// Frees a block in the order of `stream`: what is queued on it until now may still use the block, and the block
// is handed out again only where that work is proven to come first. Uses on other streams must be ordered before
// this by the caller, or recorded with `forebay_record_use`. `stream` need not be the one of the allocation; it must
// be alive in this call. NULL `ptr` is fine. Any thread.
//
// Returns FOREBAY_STATUS_BAD_FREE, and changes nothing, unless a live block starts at `ptr`.
enum forebay_status forebay_free(struct forebay_pool *pool,
                                 void *ptr,
                                 void *stream);

// Notes that the block is also used on `stream`: once freed, it is handed out again only after the work that
// `stream` has at that time is done. `stream` must live until the block is freed. Any thread.
enum forebay_status forebay_record_use(struct forebay_pool *pool, void *ptr, void *stream);

// The size in bytes of the live block that starts at `ptr`: what was asked for, rounded up to 512. Any thread.
enum forebay_status forebay_block_size(struct forebay_pool *pool,
                                       const void *ptr,
                                       uint64_t *out);

// The live block that `ptr` points into: its start and its size in bytes. Slower for pointers deep inside a large
// block. Any thread.
enum forebay_status forebay_base_address(struct forebay_pool *pool,
                                         const void *ptr,
                                         void **base,
                                         uint64_t *bytes);

// Fills `options` with the defaults, changed by the FOREBAY_* variables. Any thread.
//
// Returns FOREBAY_STATUS_INVALID_ARGUMENT if a variable cannot be read; `options` is then not written.
enum forebay_status forebay_options_init(struct forebay_options *options);

// Says how the shared pool is to be made, before its first use. NULL: from the environment, as without this call.
//
// Returns FOREBAY_STATUS_BUSY once the shared pool exists. Any thread.
enum forebay_status forebay_configure(const struct forebay_options *options);

// The shared pool of the process, which the hooks of PyTorch and CuPy use. Made on first use; lives until the
// process ends. Every call gives a new object: the caller owns it and frees it with `forebay_pool_destroy`,
// which leaves the shared pool itself alone. Any thread.
//
// Returns FOREBAY_STATUS_NO_DRIVER where there is no usable driver; the message says what is missing.
enum forebay_status forebay_pool_shared(struct forebay_pool **out);

// Makes a pool of your own. Takes no memory before its first allocation. The caller owns the object and frees
// it with `forebay_pool_destroy`. NULL options: the defaults, changed by the FOREBAY_* variables. Any thread.
enum forebay_status forebay_pool_create(const struct forebay_options *options, struct forebay_pool **out);

// Frees the object. With the last object of a pool made by `forebay_pool_create` the pool ends: it waits for the
// device and gives everything back, blocks that are still live included. NULL is fine.
void forebay_pool_destroy(struct forebay_pool *pool);

// "cuda" or "host"; NULL for a NULL pool. Static. Any thread.
const char *forebay_driver_name(const struct forebay_pool *pool);

// How many devices the pool's driver has. Any thread.
enum forebay_status forebay_device_count(const struct forebay_pool *pool, int32_t *out);

// Memory of a device as the driver sees it, in bytes: free to everybody, and all there is. Any thread.
enum forebay_status forebay_memory_info(const struct forebay_pool *pool,
                                        int32_t device,
                                        uint64_t *free_bytes,
                                        uint64_t *total_bytes);

// From now on, allocations on `stream` come from private pool `id` of `device`, until `forebay_private_end`: call it just
// before `stream` is captured. What is handed out in between is reused within that private pool alone, so a graph that
// was captured can be replayed at any time, until `forebay_private_release`. The first begin of an id makes its private
// pool; each begin takes one hold on it. Ids are the caller's; those of PyTorch's graphs have their own space. Any thread.
enum forebay_status forebay_private_begin(struct forebay_pool *pool,
                                          int32_t device,
                                          uint64_t id,
                                          void *stream);

// Ends the newest `forebay_private_begin` of this id: call it when the capture has ended.
//
// Returns FOREBAY_STATUS_NOT_FOUND if none is under way. Any thread.
enum forebay_status forebay_private_end(struct forebay_pool *pool, int32_t device, uint64_t id);

// Lets go of one hold: call it when the graph was destroyed. With the last hold the private pool's free memory goes
// back to everybody, after a wait for the device; its blocks that are still live follow when they are freed.
//
// Returns FOREBAY_STATUS_NOT_FOUND for an unknown id. Any thread.
enum forebay_status forebay_private_release(struct forebay_pool *pool,
                                            int32_t device,
                                            uint64_t id);

// A device's figures. Set `size` and `version` of `out` before the call. Does not stop allocations; each figure is
// true of a moment, together they may be of several. Any thread.
enum forebay_status forebay_get_stats(const struct forebay_pool *pool,
                                      int32_t device,
                                      struct forebay_stats *out);

// One stream's figures; zeros for a stream that was never used. Set `size` and `version` of `out` before the call.
// Any thread.
enum forebay_status forebay_get_stream_stats(const struct forebay_pool *pool,
                                             int32_t device,
                                             void *stream,
                                             struct forebay_stream_stats *out);

// Makes the present figures the peaks. Any thread.
enum forebay_status forebay_reset_peaks(struct forebay_pool *pool, int32_t device);

// A few lines about a device for a person, as in an out-of-memory message. Writes at most `capacity` bytes, the last
// of them a NUL; `needed` (may be NULL) gets the bytes for the whole text with its NUL. Any thread.
enum forebay_status forebay_report(const struct forebay_pool *pool,
                                   int32_t device,
                                   char *buffer,
                                   size_t capacity,
                                   size_t *needed);

// Verifies every equation of the pool. Slow, and stops allocations meanwhile; for tests.
//
// Returns FOREBAY_STATUS_INVALID_ARGUMENT with a sentence about the first equation that does not hold.
enum forebay_status forebay_check(const struct forebay_pool *pool, int32_t device);

// A short English text for a status; "unknown status" for any other number. Static; never NULL.
// Any thread.
const char *forebay_status_text(uint32_t status);

// What went wrong in this thread's last failing call, in full; "" if none failed yet. Never NULL.
// Valid until this thread's next failing call.
const char *forebay_last_error_message(void);

// Promises that `stream` lives until `forebay_stream_unregister`. Freeing on a stream that is neither registered nor a
// default stream records an event in every free, since its handle may be dead afterwards; registered, it costs nothing.
// Stream 2, the calling thread's default stream, cannot be registered. A registered stream must not be captured without
// `forebay_private_begin`: a request that its front cache serves asks nobody, so that would not be noticed. Any thread.
enum forebay_status forebay_stream_register(struct forebay_pool *pool,
                                            int32_t device,
                                            void *stream);

// Ends the promise. The stream must be alive in this call and may be destroyed after it; no other thread may be
// using it with the pool meanwhile.
//
// Returns FOREBAY_STATUS_NOT_FOUND if it was not registered. Any thread.
enum forebay_status forebay_stream_unregister(struct forebay_pool *pool,
                                              int32_t device,
                                              void *stream);

// Makes a stream on `device` that does not synchronise with the legacy default stream, and registers it. The caller
// owns it and ends it with `forebay_stream_destroy`. Any thread.
enum forebay_status forebay_stream_create(struct forebay_pool *pool,
                                          int32_t device,
                                          void **out);

// Unregisters and destroys a stream made by `forebay_stream_create`. Its queued work still runs, and blocks freed on it
// stay safe. Any thread.
enum forebay_status forebay_stream_destroy(struct forebay_pool *pool,
                                           int32_t device,
                                           void *stream);

// Waits on the host until the work queued on `stream` is done. Any thread.
enum forebay_status forebay_stream_synchronize(struct forebay_pool *pool, int32_t device, void *stream);

// Queues a copy of `bytes` bytes on `stream`; either side may be memory of the device or of the program. Returns before
// the copy is done, except where the driver cannot do it asynchronously (memory that is not pinned). Any thread.
enum forebay_status forebay_copy(struct forebay_pool *pool,
                                 int32_t device,
                                 void *to,
                                 const void *from,
                                 uint64_t bytes,
                                 void *stream);

// Queues setting `bytes` bytes to `value` on `stream`. Any thread.
enum forebay_status forebay_fill(struct forebay_pool *pool,
                                 int32_t device,
                                 void *to,
                                 uint8_t value,
                                 uint64_t bytes,
                                 void *stream);

// Allocates `size` bytes on `device` for work queued on `stream`. Any thread.
//
// A failure is thrown: `c10::OutOfMemoryError` for want of memory where PyTorch's libraries are loaded, else
// `std::runtime_error`; NULL only in a program without libstdc++, or with one that it keeps to itself.
void *forebay_torch_malloc(ptrdiff_t size, int device, void *stream);

// Frees a block in the order of `stream`. The size is not trusted; a pointer that is no live block's is refused and
// changes nothing. Never throws: PyTorch frees in destructors, also while the process ends. Any thread.
void forebay_torch_free(void *ptr,
                        ptrdiff_t _size,
                        int _device,
                        void *stream);

// For `set_init_fn`. Opens the driver, so that a missing one is told at the start. Throws `std::runtime_error`.
void forebay_torch_init(int _device_count);

// For `set_reset_fn`, PyTorch's `empty_cache`: gives all free memory back to the driver. Any thread.
void forebay_torch_reset(void);

// For `set_memory_fraction_fn`: limits the pool to a share of the device's memory. Throws `std::runtime_error` for a
// fraction or device out of range.
void forebay_torch_memory_fraction(double fraction,
                                   int device);

// For `set_base_alloc_fn`: the start of the block that `ptr` points into, and its size. Throws `std::runtime_error` for
// a pointer into no live block.
void *forebay_torch_base_alloc(void *ptr,
                               size_t *size);

// For `set_record_stream_fn`: the block is also used on `stream`, and is reused only after the work that `stream` has
// when the block is freed. A pointer that is no live block's is ignored, as PyTorch's own allocator does. Any thread.
void forebay_torch_record_stream(void *ptr,
                                 void *stream);

// For `set_begin_allocate_to_pool`: allocations on streams that `filter` accepts come from the private pool of this id.
// `filter` is a `std::function<bool(cudaStream_t)>` passed by invisible reference (libstdc++); NULL accepts every stream.
// Throws `std::runtime_error`.
void forebay_torch_begin_allocate_to_pool(int device,
                                          uint64_t id_first,
                                          uint64_t id_second,
                                          void *filter);

// For `set_end_allocate_to_pool_fn`. Throws `std::runtime_error` if none is under way.
void forebay_torch_end_allocate_to_pool(int device, uint64_t id_first, uint64_t id_second);

// For `set_release_pool`: the graph is gone, and its memory goes back to everybody. Never throws: PyTorch calls it
// in destructors.
void forebay_torch_release_pool(int device,
                                uint64_t id_first,
                                uint64_t id_second);

// The version of the library in use, packed as `FOREBAY_VERSION_NUMBER` is. Any thread; cannot fail.
uint32_t forebay_version_number(void);

// The version of the library in use as text, e.g. "0.1.0". Static; never NULL. Any thread.
const char *forebay_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FOREBAY_H */
