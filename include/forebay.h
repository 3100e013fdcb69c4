/**
 * @file
 * Forebay: one GPU memory pool that every framework in a process shares.
 *
 * Made from src/abi by cbindgen; do not edit.
 *
 * @par Ownership
 * A forebay_pool that a call gives you is yours: end it with forebay_pool_destroy. Memory from forebay_pool_malloc is
 * yours until forebay_pool_free. Texts that are returned belong to the library. User data of a callback stays yours
 * and must stay valid until the callback is removed.
 *
 * @par Arguments
 * The object comes first; const means that it is only read; outputs come last and are written only on
 * FOREBAY_STATUS_OK. A NULL object or output is FOREBAY_STATUS_NULL_POINTER. Freeing a NULL block or destroying a NULL
 * object is fine. Sizes are bytes. Devices are counted from 0, as CUDA counts them.
 *
 * @par Errors
 * A call that fails changed nothing. Its status says what kind of failure it was, and forebay_last_error_message()
 * says it in full, for the thread that made the call. Given valid memory to read and write, no call lets a panic out,
 * and none aborts the process unless the heap of the process is exhausted.
 *
 * @par Threads
 * Any function may be called from any thread, except where it says otherwise, and except that nothing may use a pool
 * during or after the last forebay_pool_destroy on it. No function may be called from a signal handler: it could wait
 * for a lock that the interrupted thread holds.
 *
 * @par Streams
 * A stream is a CUstream or a cudaStream_t, passed as void *: NULL and 1 are the legacy default stream, 2 is the
 * calling thread's own default stream. Memory is handed out again only where stream order, an event or a finished
 * fence proves that its last use is over. A stream must be alive in the call that names it. After the call its handle
 * is not used again, unless it is a default stream, was registered (forebay_stream_register), or was recorded as a
 * user of a block that is still live.
 *
 * @par Captures
 * Memory for a graph comes from a private pool: forebay_pool_private_begin before the capture,
 * forebay_pool_private_end after it, forebay_pool_private_release when the graph is gone.
 *
 * @par Addresses
 * A block's address never changes while it is live.
 *
 * @par Driver
 * FOREBAY_DRIVER=cuda (the default) or host: RAM instead of a GPU, for tests and machines without one.
 *
 * @par Log
 * What is in no status, such as a bad free through a framework's hook, goes to stderr as warnings; FOREBAY_LOG=off,
 * error, warn, info or debug says otherwise, and forebay_log_set_callback gives it to the program instead.
 *
 * @par Fork
 * CUDA does not work in a child of fork(), and neither does this library once it was used: there every call answers
 * FOREBAY_STATUS_FORKED at once, or NULL or 0 where it has no status. What ends an object or frees memory does
 * nothing, deleters of DLPack tensors included: all of it stays the parent's. Texts, versions and
 * forebay_pool_block_size_for are as ever. exec and spawn are fine.
 *
 * @par Exit
 * The shared pool is not taken down. Freeing while the process ends, also after CUDA is gone, is harmless.
 */

#ifndef FOREBAY_H
#define FOREBAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* DLPack's own, from dlpack.h. */
struct DLManagedTensor;
struct DLManagedTensorVersioned;

/**
 * @defgroup forebay_status Errors, status, version and log
 * @{
 */

/// First part of the version.
#define FOREBAY_VERSION_MAJOR 0

/// Second part of the version.
#define FOREBAY_VERSION_MINOR 1

/// Third part of the version.
#define FOREBAY_VERSION_PATCH 0

/// All parts in one: major * 10000 + minor * 100 + patch.
#define FOREBAY_VERSION_NUMBER 100

/// What a call answers. Numbers never change their meaning; retired ones are not used again.
typedef enum {
  /// Done.
  FOREBAY_STATUS_OK = 0,
  /// A required object or output is NULL.
  FOREBAY_STATUS_NULL_POINTER = 1,
  /// A size, number, option or struct version is out of range.
  FOREBAY_STATUS_INVALID_ARGUMENT = 2,
  /// No memory, after everything that could be given back was.
  FOREBAY_STATUS_OUT_OF_MEMORY = 3,
  /// The pointer is not the start of a live block: foreign, inside a block, or freed before.
  FOREBAY_STATUS_BAD_FREE = 4,
  /// The driver or device lacks what was asked for.
  FOREBAY_STATUS_UNSUPPORTED = 5,
  /// There is no usable driver or device.
  FOREBAY_STATUS_NO_DRIVER = 6,
  /// The device number is out of range.
  FOREBAY_STATUS_BAD_DEVICE = 7,
  /// The driver failed; the message has its name for it.
  FOREBAY_STATUS_DRIVER = 8,
  /// Not possible on a stream that is being captured.
  FOREBAY_STATUS_CAPTURING = 9,
  /// In a child of fork().
  FOREBAY_STATUS_FORKED = 10,
  /// An unknown callback, private pool or stream.
  FOREBAY_STATUS_NOT_FOUND = 11,
  /// Too late: the thing is in use.
  FOREBAY_STATUS_BUSY = 12,
  /// A bug in this library, caught before it reached the caller.
  FOREBAY_STATUS_PANIC = 13,
  /// The resource or buffer is closed.
  FOREBAY_STATUS_CLOSED = 14,
  /// Not allowed: memory of another user, a resource that is not made for sharing, or an allocation from one that
  /// is mapped from another process.
  FOREBAY_STATUS_NOT_PERMITTED = 15,
  /// The other process is gone, or does not answer as it should.
  FOREBAY_STATUS_PEER = 16,
} forebay_status;

/// How much of the log.
typedef enum {
  /// Nothing.
  FOREBAY_LOG_LEVEL_OFF = 0,
  /// What should never happen: bugs, and what could not be undone.
  FOREBAY_LOG_LEVEL_ERROR = 1,
  /// What went wrong and is in no status: a bad free through a framework's hook, memory that stays behind.
  FOREBAY_LOG_LEVEL_WARN = 2,
  /// What is worth knowing.
  FOREBAY_LOG_LEVEL_INFO = 3,
  /// What the pool does when it does more than a hit.
  FOREBAY_LOG_LEVEL_DEBUG = 4,
} forebay_log_level;

/// Told one event: `level` is a FOREBAY_LOG_LEVEL_*, `message` is text without a line end, valid in this call. Called
/// on a thread that is in a call of this library, before that returns, without any of the library's locks held; on
/// several threads at once. Must not call this library, take a lock that is held around calls of it, or throw.
typedef void (*forebay_log_fn)(void *user, uint32_t level, const char *message);

/// A short English text for a status; "unknown status" for any other number. Static; never NULL.
/// Any thread.
const char *forebay_status_text(uint32_t status);

/// What went wrong in this thread's last failing call, in full; "" if none failed yet. Never NULL.
/// Valid until this thread's next failing call.
const char *forebay_last_error_message(void);

/// The version of the library in use, packed as `FOREBAY_VERSION_NUMBER` is. Any thread; cannot fail.
uint32_t forebay_version_number(void);

/// The version of the library in use as text, e.g. "0.1.0". Static; never NULL. Any thread.
const char *forebay_version(void);

/// Has `callback` told every event up to `level` from now on, until another one is set; NULL ends it. When this returns
/// the old callback is not called any more. What happens on the library's own threads is told by the next call of any
/// other. The same callback with the same `user` again gets another level, at once. While there is a callback nothing
/// is printed but what the variable FOREBAY_LOG asks for. Any thread, but not inside of the callback.
///
/// Returns FOREBAY_STATUS_BUSY inside of the callback, FOREBAY_STATUS_INVALID_ARGUMENT for another level.
forebay_status forebay_log_set_callback(forebay_log_fn callback,
                                        void *user,
                                        uint32_t level);

/** @} */

/**
 * @defgroup forebay_objects Objects
 * @{
 */

/// A buffer.
typedef struct forebay_buffer forebay_buffer;

/// A pool. Holds a reference to one memory pool per device of its driver; several objects may refer to the
/// same pool, as all from `forebay_pool_shared` do.
typedef struct forebay_pool forebay_pool;

/// A memory resource. Several objects may refer to one resource.
typedef struct forebay_resource forebay_resource;

/** @} */

/**
 * @defgroup forebay_pool Pool
 * @{
 */

/// Layout of `forebay_pool_options`.
#define FOREBAY_POOL_OPTIONS_VERSION 1

/// How a pool behaves. Fill with `forebay_pool_options_init`, then change what you want changed.
typedef struct {
  /// sizeof(forebay_pool_options), as the caller was compiled.
  uint32_t size;
  /// FOREBAY_POOL_OPTIONS_VERSION.
  uint32_t version;
  /// "cuda", "host", or NULL: the variable FOREBAY_DRIVER, else cuda. Read during the call only.
  const char *driver;
  /// Most physical memory to hold per device, in bytes; 0: no limit but the device's. FOREBAY_LIMIT.
  uint64_t limit;
  /// The same as a share of the device's memory, above 0 and up to 1; 0: none. FOREBAY_FRACTION.
  double fraction;
  /// Largest chunk of physical memory in bytes, a power of two of 2 MiB or more; 0: follows the pool.
  /// FOREBAY_MAX_CHUNK.
  uint64_t max_chunk;
  /// Where the memory lies: FOREBAY_LOCATION_DEVICE, or FOREBAY_LOCATION_HOST_NUMA for pinned memory of the host.
  uint32_t location;
  /// For pinned memory: the NUMA node; -1: the one nearest to each device, as far as the driver knows.
  int32_t numa_id;
  /// 1: take new memory rather than make a stream wait for another stream's. FOREBAY_GROW_FIRST.
  uint32_t grow_first;
  /// Memory that was not needed for so many milliseconds goes back to the driver, by a thread of the pool; 0: only
  /// when asked for. FOREBAY_GIVE_BACK_MS.
  uint32_t give_back_ms;
  /// Zero.
  uint64_t reserved[7];
} forebay_pool_options;

/// Fills `options` with the defaults, changed by the FOREBAY_* variables. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT if a variable cannot be read, or means nothing; `options` is then not
/// written.
forebay_status forebay_pool_options_init(forebay_pool_options *options);

/// Says how the shared pool is to be made, before its first use. NULL: from the environment, as without this call.
///
/// Returns FOREBAY_STATUS_BUSY once the shared pool exists. Any thread.
forebay_status forebay_pool_configure_shared(const forebay_pool_options *options);

/// The shared pool of the process, which the hooks of PyTorch and CuPy use. Made on first use; lives until the
/// process ends. Every call gives a new object: the caller owns it and frees it with `forebay_pool_destroy`,
/// which leaves the shared pool itself alone. Any thread.
///
/// Returns FOREBAY_STATUS_NO_DRIVER where there is no usable driver; the message says what is missing.
forebay_status forebay_pool_shared(forebay_pool **out);

/// Makes a pool of your own. Takes no memory before its first allocation. The caller owns the object and frees
/// it with `forebay_pool_destroy`. NULL options: the defaults, changed by the FOREBAY_* variables. Any thread.
forebay_status forebay_pool_create(const forebay_pool_options *options,
                                   forebay_pool **out);

/// Frees the object. With the last object of a pool made by `forebay_pool_create` the pool ends: it waits for the
/// device and gives everything back, blocks that are still live included. NULL is fine.
void forebay_pool_destroy(forebay_pool *pool);

/// "cuda" or "host"; NULL for a NULL pool. Static. Any thread.
const char *forebay_pool_driver_name(const forebay_pool *pool);

/// How many devices the pool's driver has. Any thread.
forebay_status forebay_pool_device_count(const forebay_pool *pool, int32_t *out);

/// Memory of a device as the driver sees it, in bytes: free to everybody, and all there is. Any thread.
forebay_status forebay_pool_memory_info(const forebay_pool *pool,
                                        int32_t device,
                                        uint64_t *free_bytes,
                                        uint64_t *total_bytes);

/// A destructor for Python capsules that hold a pool object and are named "forebay_pool": frees the object, with
/// Python's lock given up. Python's cycle collector calls what is written in Python before it ends anything, and
/// capsules when their last reference is gone: who keeps the capsule keeps the pool. Pass its address to PyCapsule_New.
void forebay_pool_capsule_delete(void *capsule);

/** @} */

/**
 * @defgroup forebay_blocks Blocks
 * @{
 */

/// Who asked for a block: how the figures tell users apart.
typedef enum {
  /// forebay_pool_malloc.
  FOREBAY_FRAMEWORK_C = 0,
  /// The PyTorch hooks.
  FOREBAY_FRAMEWORK_TORCH = 1,
  /// The CuPy hooks.
  FOREBAY_FRAMEWORK_CUPY = 2,
  /// Numba's memory manager.
  FOREBAY_FRAMEWORK_NUMBA = 3,
  /// cuda.core's memory resource.
  FOREBAY_FRAMEWORK_CUDA_CORE = 4,
  /// RMM's memory resource.
  FOREBAY_FRAMEWORK_RMM = 5,
} forebay_framework;

/// Allocates `bytes` on `device`, aligned to 512 bytes, usable by work queued on `stream` from now on.
/// `stream` is a CUstream or cudaStream_t; NULL is the legacy default stream. It must be alive in this call.
/// 0 bytes give NULL and FOREBAY_STATUS_OK. Any thread. Free with `forebay_pool_free`.
///
/// Returns FOREBAY_STATUS_OUT_OF_MEMORY with the pool's report as the message when nothing more can be given back,
/// FOREBAY_STATUS_CAPTURING on a stream that is being captured without a private pool, FOREBAY_STATUS_UNSUPPORTED on a
/// device that has neither virtual memory management nor stream-ordered pools of the driver, and for pinned memory
/// before CUDA 12.2. `out` is then not written.
forebay_status forebay_pool_malloc(forebay_pool *pool,
                                   uint64_t bytes,
                                   int32_t device,
                                   void *stream,
                                   void **out);

/// The same for a framework's plug-in: `framework`, a FOREBAY_FRAMEWORK_*, is whom the figures count the block for.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for a number that is no framework's, else as `forebay_pool_malloc`.
forebay_status forebay_pool_malloc_for(forebay_pool *pool,
                                       uint32_t framework,
                                       uint64_t bytes,
                                       int32_t device,
                                       void *stream,
                                       void **out);

/// Allocates memory that nothing queued on any stream uses, so that the host may touch it at once: for pools of pinned
/// memory, whose blocks from `forebay_pool_malloc` are ready in the order of `stream` only. Slower than that, and holds
/// more memory while the device is behind. Otherwise as `forebay_pool_malloc`.
forebay_status forebay_pool_malloc_ready(forebay_pool *pool,
                                         uint64_t bytes,
                                         int32_t device,
                                         void *stream,
                                         void **out);

/// Frees a block in the order of `stream`: what is queued on it until now may still use the block, and the block is
/// handed out again only where that work is proven to come first. Uses on other streams must be ordered before this by
/// the caller, or recorded with `forebay_pool_record_use`. `stream` need not be the one of the allocation; it must be
/// alive in this call. NULL `ptr` is fine. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE, and changes nothing, unless a live block starts at `ptr`.
forebay_status forebay_pool_free(forebay_pool *pool,
                                 void *ptr,
                                 void *stream);

/// Frees a block, ordered after all work of all streams of its device until now, whoever queued it: for memory whose
/// users do not say which streams they used. Slower than `forebay_pool_free`: the block is handed out again once all of
/// that work is done. NULL `ptr` is fine. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE, and changes nothing, unless a live block starts at `ptr`.
forebay_status forebay_pool_free_after_all(forebay_pool *pool,
                                           void *ptr);

/// Notes that the block is also used on `stream`: once freed, it is handed out again only after the work that
/// `stream` has at that time is done. `stream` must live until the block is freed. Any thread.
forebay_status forebay_pool_record_use(forebay_pool *pool, void *ptr, void *stream);

/// The size in bytes of the live block that starts at `ptr`: what was asked for, rounded up to 512, and if that is more
/// than 64 KiB and up to 1 MiB, to the next of 64 sizes in each doubling, which is less than 1/64 more. All of it may
/// be used. Any thread.
forebay_status forebay_pool_block_size(forebay_pool *pool,
                                       const void *ptr,
                                       uint64_t *out);

/// The size in bytes of the block that a request of so many gets, wherever it is made. Any thread; makes no pool.
uint64_t forebay_pool_block_size_for(uint64_t bytes);

/// The live block that `ptr` points into: its start and its size in bytes. Slower for pointers deep inside a large
/// block. Any thread.
forebay_status forebay_pool_base_address(forebay_pool *pool,
                                         const void *ptr,
                                         void **base,
                                         uint64_t *bytes);

/// `forebay_pool_malloc_for` on the fast path alone: from what the stream freed last, or from free memory that is
/// mapped. Takes no lock under which anybody waits. Asks the driver at most which stream the handle names and whether
/// it is captured. For callers that hold a lock which others need meanwhile, such as an interpreter's. Any thread.
///
/// Returns 1 and writes `out`, or 0: nothing happened then, and `forebay_pool_malloc_for` does it or says why not.
uint32_t forebay_pool_try_malloc(forebay_pool *pool,
                                 uint32_t framework,
                                 uint64_t bytes,
                                 int32_t device,
                                 void *stream,
                                 void **out);

/// `forebay_pool_free` on the fast path alone, as `forebay_pool_try_malloc` allocates. Records no event. Any thread.
///
/// Returns 1, or 0: nothing happened then, and `forebay_pool_free` does it or says why not.
uint32_t forebay_pool_try_free(forebay_pool *pool,
                               void *ptr,
                               void *stream);

/** @} */

/**
 * @defgroup forebay_streams Streams, copies and page-locked memory
 * @{
 */

/// Promises that `stream` lives until `forebay_stream_unregister`. Freeing on a stream that is neither registered nor a
/// default stream records an event in every second free in a row, since its handle may be dead afterwards, and asks the
/// driver who it is in every call; registered, it does neither. Stream 2, the calling thread's default stream, cannot
/// be registered. A registered stream must not be captured without `forebay_pool_private_begin`: a request that its
/// stream cache serves asks nobody, so that would not be noticed. Any thread.
forebay_status forebay_stream_register(forebay_pool *pool,
                                       int32_t device,
                                       void *stream);

/// Ends the promise. The stream must be alive in this call and may be destroyed after it; no other thread may be
/// using it with the pool meanwhile.
///
/// Returns FOREBAY_STATUS_NOT_FOUND if it was not registered. Any thread.
forebay_status forebay_stream_unregister(forebay_pool *pool,
                                         int32_t device,
                                         void *stream);

/// Makes a stream on `device` that does not synchronise with the legacy default stream, and registers it. The caller
/// owns it and ends it with `forebay_stream_destroy`. Any thread.
forebay_status forebay_stream_create(forebay_pool *pool,
                                     int32_t device,
                                     void **out);

/// Destroys a stream made by `forebay_stream_create`, and unregisters it unless it was unregistered before. Its queued
/// work still runs, and blocks freed on it stay safe. Any thread.
forebay_status forebay_stream_destroy(forebay_pool *pool,
                                      int32_t device,
                                      void *stream);

/// Waits on the host until the work queued on `stream` is done: a stream of any device, or the default one of `device`.
/// Any thread.
forebay_status forebay_stream_synchronize(forebay_pool *pool,
                                          int32_t device,
                                          void *stream);

/// Queues a copy of `bytes` bytes on `stream`; either side may be memory of the device or of the program. Returns
/// before the copy is done, except where the driver cannot do it asynchronously (memory that is not pinned). Any
/// thread.
forebay_status forebay_pool_copy(forebay_pool *pool,
                                 int32_t device,
                                 void *to,
                                 const void *from,
                                 uint64_t bytes,
                                 void *stream);

/// Queues setting `bytes` bytes to `value` on `stream`. Any thread.
forebay_status forebay_pool_fill(forebay_pool *pool,
                                 int32_t device,
                                 void *to,
                                 uint8_t value,
                                 uint64_t bytes,
                                 void *stream);

/// Page-locks `bytes` bytes at `ptr` (cuMemHostRegister), so that copies between them and `device` run at full speed
/// and beside other work. `portable` 1: for every device's context. `mapped` 1: kernels may use the memory. It stays
/// the caller's, who calls `forebay_pool_host_unregister` before it is freed. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for 0 bytes, FOREBAY_STATUS_DRIVER where the driver refuses, as it does for
/// memory that is page-locked already.
forebay_status forebay_pool_host_register(const forebay_pool *pool,
                                          int32_t device,
                                          void *ptr,
                                          uint64_t bytes,
                                          uint32_t portable,
                                          uint32_t mapped);

/// Ends what `forebay_pool_host_register` began at `ptr`. The caller waits first for the work that uses the memory. Any
/// thread.
forebay_status forebay_pool_host_unregister(const forebay_pool *pool,
                                            int32_t device,
                                            void *ptr);

/** @} */

/**
 * @defgroup forebay_limits Limits and pressure
 * @{
 */

/// Called before a request of `bytes` fails for want of memory; says whether it gave anything back. No lock is
/// held: it may free into the pool. It is not called again by an allocation that it makes itself.
typedef bool (*forebay_pressure_fn)(void *user, int32_t device, uint64_t bytes);

/// Gives free memory back to the driver until the pool holds at most `keep` bytes on `device`. Waits on the host for
/// work that still uses freed memory. `released` (may be NULL) gets the bytes given back. Any thread.
forebay_status forebay_pool_trim(forebay_pool *pool,
                                 int32_t device,
                                 uint64_t keep,
                                 uint64_t *released);

/// Sets the most bytes to hold on `device`; 0 for no limit. What is held above it stays until trimmed. Any thread.
forebay_status forebay_pool_set_limit(forebay_pool *pool,
                                      int32_t device,
                                      uint64_t bytes);

/// Sets the limit to a share of the device's memory, above 0 and up to 1. Any thread.
forebay_status forebay_pool_set_fraction(forebay_pool *pool, int32_t device, double fraction);

/// The limit of `device` in bytes; 0 for none. Any thread.
forebay_status forebay_pool_get_limit(const forebay_pool *pool, int32_t device, uint64_t *out);

/// Adds a pressure callback; `id` gets a number for `forebay_pool_remove_pressure_callback`. It is called on whichever
/// thread runs out of memory, possibly on several at once; `user` is passed on as it is and must stay valid until it is
/// removed. Any thread.
forebay_status forebay_pool_add_pressure_callback(forebay_pool *pool,
                                                  forebay_pressure_fn callback,
                                                  void *user,
                                                  uint64_t *id);

/// Removes a pressure callback. A call of it under way on another thread may still be running when this returns.
///
/// Returns FOREBAY_STATUS_NOT_FOUND for a number that is not one. Any thread.
forebay_status forebay_pool_remove_pressure_callback(forebay_pool *pool,
                                                     uint64_t id);

/** @} */

/**
 * @defgroup forebay_statistics Statistics
 * @{
 */

/// Layout of `forebay_pool_stats` and `forebay_stream_stats`.
#define FOREBAY_STATS_VERSION 1

/// Layout of `forebay_block`.
#define FOREBAY_BLOCK_VERSION 1

/// What a block is.
typedef enum {
  /// Mapped, and not given out.
  FOREBAY_BLOCK_STATE_FREE = 0,
  /// Given out.
  FOREBAY_BLOCK_STATE_LIVE = 1,
  /// Given back, and waiting for work that may still use it.
  FOREBAY_BLOCK_STATE_PENDING = 2,
} forebay_block_state;

/// What became of a range of addresses.
typedef enum {
  /// It has memory of the device now.
  FOREBAY_MAPPING_MAPPED = 0,
  /// It has none any more.
  FOREBAY_MAPPING_UNMAPPED = 1,
} forebay_mapping;

/// A device's figures: bytes, and counts since the pool was made.
typedef struct {
  /// sizeof(forebay_pool_stats); set by the caller.
  uint32_t size;
  /// FOREBAY_STATS_VERSION; set by the caller.
  uint32_t version;
  /// Given out: the sizes of the blocks, as `forebay_pool_block_size` tells them.
  uint64_t live;
  /// The most that was live at once: exact where one stream allocates, with several it may be low by 1 MiB for each.
  uint64_t live_peak;
  /// Memory of the device held.
  uint64_t physical;
  /// The most that was held.
  uint64_t physical_peak;
  /// Most that may be held; 0 for no limit.
  uint64_t limit;
  /// Held and not live.
  uint64_t free_bytes;
  /// The longest free block.
  uint64_t largest_free;
  /// Free memory that belongs to private pools.
  uint64_t private_bytes;
  /// Requests served.
  uint64_t allocations;
  /// Blocks taken back.
  uint64_t frees;
  /// Requests served by a stream's cache.
  uint64_t hits;
  /// Requests that came to the arena.
  uint64_t misses;
  /// Chunks moved to where they were needed; of pinned memory also those mapped there for a part of them.
  uint64_t steals;
  /// Chunks created.
  uint64_t growths;
  /// Times a stream was made to wait for another's fence.
  uint64_t waits;
  /// Chunks given back to the driver.
  uint64_t releases;
  /// Requests that failed for want of memory.
  uint64_t out_of_memory;
  /// Live bytes by forebay_framework.
  uint64_t live_by_framework[8];
  /// Streams known.
  uint64_t streams;
  /// Driver calls made by all pools of the process, where the driver counts them (the host driver does).
  uint64_t driver_calls;
  /// What they would have cost on the GPU they are priced from, in nanoseconds.
  uint64_t driver_ns;
  /// Free blocks, those that streams keep at hand included.
  uint64_t free_blocks;
  /// Nanoseconds that requests spent on making room: looking for it, and calls of the driver.
  uint64_t making_ns;
  /// Nanoseconds that requests waited: for work to be done, and for others to give memory back.
  uint64_t waiting_ns;
  /// Zero.
  uint64_t reserved[5];
} forebay_pool_stats;

/// One stream's figures.
typedef struct {
  /// sizeof(forebay_stream_stats); set by the caller.
  uint32_t size;
  /// FOREBAY_STATS_VERSION; set by the caller.
  uint32_t version;
  /// Bytes live that were allocated on the stream.
  uint64_t live;
  /// The most of them.
  uint64_t live_peak;
  /// Requests served.
  uint64_t allocations;
  /// Blocks taken back that were allocated on it.
  uint64_t frees;
  /// Requests served by its stream cache.
  uint64_t hits;
  /// Zero.
  uint64_t reserved[4];
} forebay_stream_stats;

/// A block of a pool, as it was at one moment.
typedef struct {
  /// sizeof(forebay_block), as the library was compiled.
  uint32_t size;
  /// FOREBAY_BLOCK_VERSION.
  uint32_t version;
  /// Where it begins.
  uint64_t address;
  /// Its size in bytes.
  uint64_t bytes;
  /// A FOREBAY_BLOCK_STATE_*.
  uint32_t state;
  /// A FOREBAY_FRAMEWORK_*: who has it; 0 unless it is live.
  uint32_t framework;
  /// The stream that it was allocated on, or in whose order it is free.
  uint64_t stream;
  /// 1: `stream` says something. 0: it is nobody's, any stream can have it.
  uint32_t has_stream;
  /// 1: it belongs to the private pool of the ids below.
  uint32_t is_private;
  /// First part of the private pool's id, as PyTorch's hooks have it; all ones for `forebay_pool_private_begin`.
  uint64_t private_first;
  /// Second part.
  uint64_t private_second;
  /// How many bytes its user asked for; 0 unless it is live.
  uint64_t requested;
  /// Zero.
  uint64_t reserved;
} forebay_block;

/// Takes one block. Must not throw; may use the pool.
typedef void (*forebay_block_fn)(void *context, const forebay_block *block);

/// Told that a range was mapped or unmapped: `what` is a FOREBAY_MAPPING_*. Called under the pool's locks: must not
/// call this library, wait for anybody who may be in it, or throw.
typedef void (*forebay_mapping_fn)(void *user, int32_t device, uint32_t what, void *ptr, uint64_t bytes);

/// A device's figures. Set `size` and `version` of `out` before the call. Does not stop allocations; each figure is
/// true of a moment, together they may be of several. Any thread.
forebay_status forebay_pool_get_stats(const forebay_pool *pool,
                                      int32_t device,
                                      forebay_pool_stats *out);

/// One stream's figures; zeros for a stream that was never used. Set `size` and `version` of `out` before the call.
/// Any thread.
forebay_status forebay_pool_get_stream_stats(const forebay_pool *pool,
                                             int32_t device,
                                             void *stream,
                                             forebay_stream_stats *out);

/// Makes the present figures the peaks. Any thread.
forebay_status forebay_pool_reset_peaks(forebay_pool *pool, int32_t device);

/// A few lines about a device for a person, as in an out-of-memory message. Writes at most `capacity` bytes, the last
/// of them a NUL; `needed` (may be NULL) gets the bytes for the whole text with its NUL. Any thread.
forebay_status forebay_pool_report(const forebay_pool *pool,
                                   int32_t device,
                                   char *buffer,
                                   size_t capacity,
                                   size_t *needed);

/// Verifies every equation of the pool. Slow; for tests. Any thread, but no other one may use the pool meanwhile: a
/// block on its way from one place to another is in neither, and the sums would not fit.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT with a sentence about the first equation that does not hold.
forebay_status forebay_pool_check(const forebay_pool *pool,
                                  int32_t device);

/// Calls `visit` with every block of a device's pool that has memory, in address order; memory between two blocks that
/// do not touch is not mapped. All blocks are of one moment; they may have changed by the time of the call. Any thread.
forebay_status forebay_pool_snapshot(const forebay_pool *pool,
                                     int32_t device,
                                     forebay_block_fn visit,
                                     void *context);

/// Tells `observer` of every range of a device's pool that is mapped or unmapped from now on, until another one is set;
/// NULL ends it. A moved chunk is mapped at its new place before it is unmapped at the old one. `user` must stay valid
/// until then. On a device without virtual memory management the driver maps, and `observer` is never called. Any
/// thread.
forebay_status forebay_pool_set_mapping_observer(forebay_pool *pool,
                                                 int32_t device,
                                                 forebay_mapping_fn observer,
                                                 void *user);

/** @} */

/**
 * @defgroup forebay_graphs Graphs
 * @{
 */

/// From now on, allocations on `stream` come from private pool `id` of `device`, until `forebay_pool_private_end`: call
/// it just before `stream` is captured. What is handed out in between is reused within that private pool alone, so a
/// graph that was captured can be replayed at any time, until `forebay_pool_private_release`. The first begin of an id
/// makes its private pool; each begin takes one hold on it. Ids are the caller's; those of PyTorch's graphs have their
/// own space. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED on a device without virtual memory management.
forebay_status forebay_pool_private_begin(forebay_pool *pool,
                                          int32_t device,
                                          uint64_t id,
                                          void *stream);

/// Ends the newest `forebay_pool_private_begin` of this id: call it when the capture has ended.
///
/// Returns FOREBAY_STATUS_NOT_FOUND if none is under way, FOREBAY_STATUS_UNSUPPORTED as the begin does. Any thread.
forebay_status forebay_pool_private_end(forebay_pool *pool,
                                        int32_t device,
                                        uint64_t id);

/// Lets go of one hold: call it when the graph was destroyed. With the last hold the private pool's free memory goes
/// back to everybody, after a wait for the device; its blocks that are still live follow when they are freed.
///
/// Returns FOREBAY_STATUS_NOT_FOUND for an unknown id, FOREBAY_STATUS_UNSUPPORTED as the begin does. Any thread.
forebay_status forebay_pool_private_release(forebay_pool *pool,
                                            int32_t device,
                                            uint64_t id);

/// Gives back the memory that graphs captured through CuPy hold on `device`, once the device is done with it: CuPy does
/// not say when a graph is destroyed, so what it allocates during a capture stays with that capture until this is
/// called. Blocks that are still live follow when they are freed. Those graphs must not be launched again, and no such
/// capture may be under way. `captures`, if not NULL, gets how many captures that were. Any thread.
forebay_status forebay_pool_release_captures(forebay_pool *pool,
                                             int32_t device,
                                             uint64_t *captures);

/** @} */

/**
 * @defgroup forebay_resources Resources
 * @{
 */

/// Layout of the option structs below.
#define FOREBAY_RESOURCE_OPTIONS_VERSION 1

/// Layout of `forebay_resource_info` and `forebay_buffer_info`.
#define FOREBAY_INFO_VERSION 1

/// What kind of memory resource.
typedef enum {
  /// The driver's stream-ordered pool of a device.
  FOREBAY_RESOURCE_KIND_DEVICE = 0,
  /// A stream-ordered pool of pinned host memory.
  FOREBAY_RESOURCE_KIND_PINNED = 1,
  /// The driver's stream-ordered pool of managed memory.
  FOREBAY_RESOURCE_KIND_MANAGED = 2,
  /// Virtual memory: buffers that can grow.
  FOREBAY_RESOURCE_KIND_VIRTUAL = 3,
  /// Page-locked host memory without streams.
  FOREBAY_RESOURCE_KIND_HOST = 4,
  /// A forebay_pool.
  FOREBAY_RESOURCE_KIND_POOL = 5,
} forebay_resource_kind;

/// Which pool of the driver a resource stands for.
typedef enum {
  /// A new one, which the resource owns.
  FOREBAY_POOL_SOURCE_NEW = 0,
  /// The one that is current.
  FOREBAY_POOL_SOURCE_CURRENT = 1,
  /// The driver's default one.
  FOREBAY_POOL_SOURCE_DEFAULT = 2,
  /// The CUmemoryPool in the options.
  FOREBAY_POOL_SOURCE_HANDLE = 3,
} forebay_pool_source;

/// Where memory lies.
typedef enum {
  /// On a device.
  FOREBAY_LOCATION_DEVICE = 0,
  /// On the host, wherever the system puts it.
  FOREBAY_LOCATION_HOST = 1,
  /// On a NUMA node of the host.
  FOREBAY_LOCATION_HOST_NUMA = 2,
  /// On the NUMA node that the calling thread runs on.
  FOREBAY_LOCATION_HOST_NUMA_CURRENT = 3,
  /// No preference.
  FOREBAY_LOCATION_NONE = 4,
} forebay_location;

/// How memory can leave the process.
typedef enum {
  /// Not at all.
  FOREBAY_HANDLE_TYPE_NONE = 0,
  /// As a POSIX file descriptor.
  FOREBAY_HANDLE_TYPE_POSIX_FD = 1,
  /// Whatever the platform has; not on Linux.
  FOREBAY_HANDLE_TYPE_GENERIC = 2,
  /// A Windows handle; not on Linux.
  FOREBAY_HANDLE_TYPE_WIN32 = 3,
  /// A Windows kernel handle; not on Linux.
  FOREBAY_HANDLE_TYPE_WIN32_KMT = 4,
  /// A fabric handle.
  FOREBAY_HANDLE_TYPE_FABRIC = 5,
} forebay_handle_type;

/// Which granularity sizes are rounded to.
typedef enum {
  /// The smallest that works.
  FOREBAY_GRANULARITY_MINIMUM = 0,
  /// The one that the driver recommends for speed.
  FOREBAY_GRANULARITY_RECOMMENDED = 1,
} forebay_granularity;

/// What somebody may do with memory.
typedef enum {
  /// Nothing.
  FOREBAY_ACCESS_NONE = 0,
  /// Read.
  FOREBAY_ACCESS_READ = 1,
  /// Read and write.
  FOREBAY_ACCESS_READ_WRITE = 2,
} forebay_access;

/// What virtual memory is made of.
typedef enum {
  /// Pinned where it is.
  FOREBAY_ALLOCATION_TYPE_PINNED = 0,
  /// Managed.
  FOREBAY_ALLOCATION_TYPE_MANAGED = 1,
} forebay_allocation_type;

/// An attribute of a pool; CUDA's CU_MEMPOOL_ATTR_* by their numbers.
typedef enum {
  /// Memory freed on one stream may serve another that waited for an event behind the free. 0 or 1.
  FOREBAY_ATTRIBUTE_REUSE_FOLLOW_EVENT_DEPENDENCIES = 1,
  /// Memory whose free has completed may serve any stream. 0 or 1.
  FOREBAY_ATTRIBUTE_REUSE_ALLOW_OPPORTUNISTIC = 2,
  /// The pool may make a stream wait in order to reuse memory. 0 or 1.
  FOREBAY_ATTRIBUTE_REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
  /// Bytes to keep from the system.
  FOREBAY_ATTRIBUTE_RELEASE_THRESHOLD = 4,
  /// Bytes of physical memory held. Read only.
  FOREBAY_ATTRIBUTE_RESERVED_MEM_CURRENT = 5,
  /// Their highest value. Writing 0 makes the present value the highest.
  FOREBAY_ATTRIBUTE_RESERVED_MEM_HIGH = 6,
  /// Bytes in use. Read only.
  FOREBAY_ATTRIBUTE_USED_MEM_CURRENT = 7,
  /// Their highest value. Writing 0 makes the present value the highest.
  FOREBAY_ATTRIBUTE_USED_MEM_HIGH = 8,
} forebay_attribute;

/// How a buffer's memory came into this process.
typedef enum {
  /// It is this process's own.
  FOREBAY_IPC_PATH_NONE = 0,
  /// Through a pool of the driver, shared as a file descriptor.
  FOREBAY_IPC_PATH_POOL = 1,
  /// As physical memory, by file descriptors over a UNIX socket.
  FOREBAY_IPC_PATH_FD = 2,
  /// As physical memory, by fabric handles.
  FOREBAY_IPC_PATH_FABRIC = 3,
  /// By a cuIpc handle.
  FOREBAY_IPC_PATH_LEGACY = 4,
} forebay_ipc_path;

/// For `forebay_device_resource_create`.
typedef struct {
  /// sizeof(forebay_device_resource_options).
  uint32_t size;
  /// FOREBAY_RESOURCE_OPTIONS_VERSION.
  uint32_t version;
  /// A FOREBAY_POOL_SOURCE_*. The fields below are for new pools.
  uint32_t source;
  /// 1: the pool can be shared with other processes.
  uint32_t ipc_enabled;
  /// Most bytes that the pool holds; 0: the driver's own limit.
  uint64_t max_size;
  /// For FOREBAY_POOL_SOURCE_HANDLE: the CUmemoryPool. It stays the caller's, and must live as long as the resource.
  uint64_t handle;
  /// Zero.
  uint64_t reserved[4];
} forebay_device_resource_options;

/// For `forebay_pinned_resource_create`.
typedef struct {
  /// sizeof(forebay_pinned_resource_options).
  uint32_t size;
  /// FOREBAY_RESOURCE_OPTIONS_VERSION.
  uint32_t version;
  /// A FOREBAY_POOL_SOURCE_*. The fields below are for new pools.
  uint32_t source;
  /// 1: the pool can be shared with other processes.
  uint32_t ipc_enabled;
  /// The NUMA node that the memory lies on. -1: with IPC the node nearest to `device`, else left to the system.
  int32_t numa_id;
  /// In whose context the pool's calls are made. -1: the current device's, which is device 0's where no context is
  /// current. Streams of every device can be used.
  int32_t device;
  /// 1: Forebay's own pinned pool, whatever the driver has.
  uint32_t own_pool;
  /// Zero.
  uint32_t reserved0;
  /// Most bytes that the pool holds; 0: the driver's own limit.
  uint64_t max_size;
  /// For FOREBAY_POOL_SOURCE_HANDLE: the CUmemoryPool. It stays the caller's, and must live as long as the resource.
  uint64_t handle;
  /// Zero.
  uint64_t reserved[4];
} forebay_pinned_resource_options;

/// For `forebay_managed_resource_create`.
typedef struct {
  /// sizeof(forebay_managed_resource_options).
  uint32_t size;
  /// FOREBAY_RESOURCE_OPTIONS_VERSION.
  uint32_t version;
  /// A FOREBAY_POOL_SOURCE_*.
  uint32_t source;
  /// Where the memory lies by preference: FOREBAY_LOCATION_NONE, _DEVICE, _HOST or _HOST_NUMA.
  uint32_t preferred_location_type;
  /// The device or the NUMA node of it; -1 for a node: the one nearest to `device`.
  int32_t preferred_location;
  /// In whose context the pool's calls are made. -1: the current device's, which is device 0's where no context is
  /// current.
  int32_t device;
  /// For FOREBAY_POOL_SOURCE_HANDLE: the CUmemoryPool. It stays the caller's, and must live as long as the resource.
  uint64_t handle;
  /// Zero.
  uint64_t reserved[4];
} forebay_managed_resource_options;

/// For `forebay_virtual_resource_create` and `forebay_resource_modify_allocation`. Each is held against what the device
/// has.
typedef struct {
  /// sizeof(forebay_virtual_resource_options).
  uint32_t size;
  /// FOREBAY_RESOURCE_OPTIONS_VERSION.
  uint32_t version;
  /// A FOREBAY_ALLOCATION_TYPE_*.
  uint32_t allocation_type;
  /// A FOREBAY_LOCATION_*, not NONE. HOST_NUMA is the node nearest to the device.
  uint32_t location_type;
  /// A FOREBAY_HANDLE_TYPE_*: how other processes can have the memory.
  uint32_t handle_type;
  /// A FOREBAY_GRANULARITY_*: what sizes are rounded up to.
  uint32_t granularity;
  /// 1: network cards can reach the memory.
  uint32_t gpu_direct_rdma;
  /// A FOREBAY_ACCESS_*: what the resource's device may do, and for memory of the host also the host.
  uint32_t self_access;
  /// A FOREBAY_ACCESS_*: what the peers may do.
  uint32_t peer_access;
  /// How many `peers` there are.
  uint32_t peer_count;
  /// Further devices that may use the memory. Read during the call only.
  const int32_t *peers;
  /// Where to reserve addresses if that is possible; 0: anywhere.
  uint64_t addr_hint;
  /// Alignment of the addresses in bytes, a power of two; 0: the granularity.
  uint64_t addr_align;
  /// Zero.
  uint64_t reserved[4];
} forebay_virtual_resource_options;

/// For `forebay_host_resource_create`.
typedef struct {
  /// sizeof(forebay_host_resource_options).
  uint32_t size;
  /// FOREBAY_RESOURCE_OPTIONS_VERSION.
  uint32_t version;
  /// 1: pinned for every context, not only for `device`'s.
  uint32_t portable;
  /// 1: kernels can reach it.
  uint32_t mapped;
  /// 1: write-combined: faster over the bus, slow for the host to read.
  uint32_t write_combined;
  /// Zero.
  uint32_t reserved0;
  /// In whose context the calls are made. -1: the current device's, which is device 0's where no context is current.
  int32_t device;
  /// Zero.
  uint32_t reserved1;
  /// Zero.
  uint64_t reserved[4];
} forebay_host_resource_options;

/// What is known of a resource. Set `size` and `version` before asking.
typedef struct {
  /// sizeof(forebay_resource_info).
  uint32_t size;
  /// FOREBAY_INFO_VERSION.
  uint32_t version;
  /// A FOREBAY_RESOURCE_KIND_*.
  uint32_t kind;
  /// The device that the memory belongs to; -1 for memory of the host.
  int32_t device_id;
  /// The NUMA node that pinned memory lies on; -1: left to the system, or not memory of the host.
  int32_t numa_id;
  /// 1: closing the resource ends the pool behind it. 0: closing has no effect.
  uint32_t is_handle_owned;
  /// 1: kernels can use the memory.
  uint32_t is_device_accessible;
  /// 1: the host can use the memory.
  uint32_t is_host_accessible;
  /// 1: it is managed memory.
  uint32_t is_managed;
  /// 1: the memory can be shared with other processes.
  uint32_t is_ipc_enabled;
  /// 1: another process's pool, mapped here; nothing can be allocated from it.
  uint32_t is_mapped;
  /// 1: it was closed.
  uint32_t is_closed;
  /// 1: `uuid` says something.
  uint32_t has_uuid;
  /// A FOREBAY_LOCATION_*: where managed memory lies by preference.
  uint32_t preferred_location_type;
  /// The device or NUMA node of it; -1: none.
  int32_t preferred_location;
  /// Zero.
  uint32_t reserved0;
  /// The pool's name among processes.
  uint8_t uuid[16];
  /// The CUmemoryPool; 0 where there is none.
  uint64_t handle;
  /// Zero.
  uint64_t reserved[4];
} forebay_resource_info;

/// Fills `options`: a new pool, not shared, with the driver's own limit. Any thread.
forebay_status forebay_device_resource_options_init(forebay_device_resource_options *options);

/// Fills `options`: a new pool of the driver for the current device, not shared, placed by the system. Any thread.
forebay_status forebay_pinned_resource_options_init(forebay_pinned_resource_options *options);

/// Fills `options`: a new pool for the current device, without a preferred location. Any thread.
forebay_status forebay_managed_resource_options_init(forebay_managed_resource_options *options);

/// Fills `options`: pinned memory of the device that can leave as a file descriptor, in recommended granules, for the
/// device alone. Any thread.
forebay_status forebay_virtual_resource_options_init(forebay_virtual_resource_options *options);

/// Fills `options`: portable and mapped, for the current device. Any thread.
forebay_status forebay_host_resource_options_init(forebay_host_resource_options *options);

/// The driver's stream-ordered pool of `device` as a resource. NULL options: the pool that is current, or the default
/// one where none was set; the resource does not own it, and closing has no effect. The caller owns the object and
/// frees it with `forebay_resource_destroy`. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED where the driver has no pools, or cannot share them and `ipc_enabled` is 1.
forebay_status forebay_device_resource_create(int32_t device,
                                              const forebay_device_resource_options *options,
                                              forebay_resource **out);

/// A stream-ordered pool of pinned host memory as a resource, for streams of every device. NULL options: the pool that
/// is current, or the default one, not owned, for the current device. Where the driver has no host pools, Forebay's own
/// pinned pool answers. A pool with IPC and without a `numa_id` lies on the node nearest to `device`; a `numa_id` is
/// used in any case. The caller owns the object and frees it with `forebay_resource_destroy`. Any thread.
///
/// Memory of the driver's pools is ready in stream order: the host waits for the stream before it touches it. Memory of
/// Forebay's own pool is ready at once.
forebay_status forebay_pinned_resource_create(const forebay_pinned_resource_options *options,
                                              forebay_resource **out);

/// A pool of managed memory as a resource. NULL options: the pool that is current, or the default one, not owned. Where
/// the driver has no such pools (before CUDA 13), each allocation is the driver's own (cuMemAllocManaged). The caller
/// owns the object and frees it with `forebay_resource_destroy`. Any thread.
forebay_status forebay_managed_resource_create(const forebay_managed_resource_options *options,
                                               forebay_resource **out);

/// Virtual memory as a resource: each buffer has addresses of its own and can grow. NULL options: the defaults of
/// `forebay_virtual_resource_options_init`. Sizes are rounded up to the granularity (2 MiB on current GPUs). The caller
/// owns the object and frees it with `forebay_resource_destroy`. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED for an option that the device lacks, and on a device without virtual memory
/// management; the message names what is missing.
forebay_status forebay_virtual_resource_create(int32_t device,
                                               const forebay_virtual_resource_options *options,
                                               forebay_resource **out);

/// Page-locked host memory (cuMemHostAlloc) as a resource, without streams: memory is ready at once, and giving it back
/// waits for the whole device. NULL options: portable and mapped, for the current device. The caller owns the object
/// and frees it with `forebay_resource_destroy`. Any thread.
forebay_status forebay_host_resource_create(const forebay_host_resource_options *options,
                                            forebay_resource **out);

/// One device's part of a Forebay pool as a resource; it holds the pool. Memory of a pinned pool is ready for the host
/// at once. The caller owns the object and frees it with `forebay_resource_destroy`. Any thread.
forebay_status forebay_pool_resource_create(forebay_pool *pool,
                                            int32_t device,
                                            forebay_resource **out);

/// Frees the object. The resource itself lives as long as other objects and open buffers refer to it; a pool that it
/// owns ends with it. NULL is fine.
void forebay_resource_destroy(forebay_resource *resource);

/// Ends the resource: allocations from it answer FOREBAY_STATUS_CLOSED from now on, and a pool that it owns goes back
/// to the system with its last block. Open buffers can still be used and closed. Twice is harmless; no effect on a pool
/// that is not owned. Any thread.
forebay_status forebay_resource_close(forebay_resource *resource);

/// Allocates `bytes`, usable by work queued on `stream` from now on, as a buffer that the caller owns and frees with
/// `forebay_buffer_destroy`. NULL is the legacy default stream. A size that comes in granules is rounded up, and so is
/// the buffer's. 0 bytes give a buffer at NULL. Any thread.
///
/// Returns FOREBAY_STATUS_OUT_OF_MEMORY, FOREBAY_STATUS_CLOSED, FOREBAY_STATUS_NOT_PERMITTED for a mapped pool.
forebay_status forebay_resource_allocate(forebay_resource *resource,
                                         uint64_t bytes,
                                         void *stream,
                                         forebay_buffer **out);

/// `forebay_resource_allocate` on the fast path alone, as `forebay_pool_try_malloc` allocates. Only a resource of a
/// Forebay pool has one. For callers that hold a lock which others need meanwhile, such as an interpreter's. Any
/// thread.
///
/// Returns 1 and writes `out`, or 0: nothing happened then, and `forebay_resource_allocate` does it or says why not.
uint32_t forebay_resource_try_allocate(forebay_resource *resource,
                                       uint64_t bytes,
                                       void *stream,
                                       forebay_buffer **out);

/// As `forebay_resource_allocate`, but a bare pointer, to be given back with `forebay_resource_deallocate`. 0 bytes
/// give NULL. Any thread.
forebay_status forebay_resource_allocate_pointer(forebay_resource *resource,
                                                 uint64_t bytes,
                                                 void *stream,
                                                 void **out);

/// Gives back what `forebay_resource_allocate_pointer` gave, in the order of `stream`, also after the resource was
/// closed. `bytes` is not needed and not trusted. NULL `ptr` is fine. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE for what that function of this resource did not give, as the memory of a buffer,
/// also one that `forebay_buffer_from_handle` made of the pointer, and for what was given back before. Nothing changes
/// then.
forebay_status forebay_resource_deallocate(forebay_resource *resource,
                                           void *ptr,
                                           uint64_t bytes,
                                           void *stream);

/// The same in the order of the stream of the allocation. Any thread.
forebay_status forebay_resource_deallocate_pointer(forebay_resource *resource, void *ptr);

/// What is known of the resource. Any thread.
forebay_status forebay_resource_get_info(const forebay_resource *resource,
                                         forebay_resource_info *out);

/// Reads an attribute of the pool behind the resource: a FOREBAY_ATTRIBUTE_*. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED for a resource without a pool.
forebay_status forebay_resource_get_attribute(const forebay_resource *resource,
                                              uint32_t number,
                                              uint64_t *out);

/// Writes an attribute: the three REUSE_* (0 or 1), RELEASE_THRESHOLD (bytes), and the two *_HIGH (0 only). Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for what can only be read and for a value out of range,
/// FOREBAY_STATUS_UNSUPPORTED where the pool has no such choice.
forebay_status forebay_resource_set_attribute(forebay_resource *resource,
                                              uint32_t number,
                                              uint64_t value);

/// What device `peer` may do with the resource's memory: a FOREBAY_ACCESS_*. Any thread.
forebay_status forebay_resource_get_peer_access(const forebay_resource *resource,
                                                int32_t peer_device,
                                                uint32_t *access);

/// Says what device `peer` may do with the resource's memory, live blocks included. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED where the devices cannot reach each other, or where the resource's options have
/// settled it.
forebay_status forebay_resource_set_peer_access(forebay_resource *resource,
                                                int32_t peer_device,
                                                uint32_t access);

/// Gives idle memory back to the system until at most `keep` bytes are held. Any thread.
forebay_status forebay_resource_trim(forebay_resource *resource, uint64_t keep);

/// Changes the size of a buffer of virtual memory to `new_size` bytes, rounded up to the granularity; contents are
/// kept, as far as it reaches. All or nothing. The buffer keeps its address where the addresses behind it are free,
/// which they are up to the device's memory or twice the first size; else it moves, and the old address is unmapped
/// once `stream` has done what it was given. Shrinking waits for `stream` too. NULL config: the resource's own options.
/// Descriptors of the buffer for other processes end with the change. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED for a resource of another kind, FOREBAY_STATUS_INVALID_ARGUMENT for a buffer of
/// another resource, FOREBAY_STATUS_BUSY while a DLPack tensor of the buffer is alive.
forebay_status forebay_resource_modify_allocation(forebay_resource *resource,
                                                  forebay_buffer *buffer,
                                                  uint64_t new_size,
                                                  const forebay_virtual_resource_options *config,
                                                  void *stream);

/** @} */

/**
 * @defgroup forebay_buffers Buffers
 * @{
 */

/// Told once when memory that it lent is given back. May be called on any thread; must not throw.
typedef void (*forebay_release_fn)(void *context);

/// What is known of a buffer. Set `size` and `version` before asking.
typedef struct {
  /// sizeof(forebay_buffer_info).
  uint32_t size;
  /// FOREBAY_INFO_VERSION.
  uint32_t version;
  /// Where the memory begins.
  uint64_t handle;
  /// Its size in bytes.
  uint64_t bytes;
  /// The stream that the memory goes back on.
  uint64_t stream;
  /// The device that it belongs to; -1 for memory of the host.
  int32_t device_id;
  /// 1: kernels can use it.
  uint32_t is_device_accessible;
  /// 1: the host can use it.
  uint32_t is_host_accessible;
  /// 1: it is managed memory.
  uint32_t is_managed;
  /// 1: it is another process's memory.
  uint32_t is_mapped;
  /// 1: it was closed.
  uint32_t is_closed;
  /// A FOREBAY_IPC_PATH_*: how the memory came into this process.
  uint32_t ipc_path;
  /// 1: it is of a resource.
  uint32_t has_resource;
  /// The device whose stream `stream` is if it is a default one. Not -1 for memory of the host either.
  int32_t stream_device;
  /// Zero.
  uint32_t reserved0;
  /// Zero.
  uint64_t reserved[3];
} forebay_buffer_info;

/// A buffer around memory that is there already. With a resource, closing gives `ptr` back through it, on `stream`;
/// with `release`, closing calls that with `context`, once; with neither, closing does nothing. The caller owns the
/// object and frees it with `forebay_buffer_destroy`. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for both a resource and a release function, and for NULL with a size.
/// Nothing is taken over then.
forebay_status forebay_buffer_from_handle(void *ptr,
                                          uint64_t bytes,
                                          forebay_resource *resource,
                                          forebay_release_fn release,
                                          void *context,
                                          void *stream,
                                          forebay_buffer **out);

/// Frees the object; closes the buffer if it is open. NULL is fine.
void forebay_buffer_destroy(forebay_buffer *buffer);

/// Gives the memory back in the order of the stream of its allocation. Twice is harmless. While DLPack tensors of the
/// buffer are alive its memory stays, and goes back with the last of them. Any thread.
forebay_status forebay_buffer_close(forebay_buffer *buffer);

/// `forebay_buffer_close` on the fast path alone, as `forebay_pool_try_free` frees. For callers that hold a lock which
/// others need meanwhile, such as an interpreter's. Any thread.
///
/// Returns 1 if the buffer is closed, or 0: nothing happened then, and `forebay_buffer_close` does it or says why not.
uint32_t forebay_buffer_try_close(forebay_buffer *buffer);

/// Closes as `forebay_buffer_close` does, in the order of `stream`.
forebay_status forebay_buffer_close_on(forebay_buffer *buffer, void *stream);

/// What is known of the buffer, also after it was closed. Any thread.
forebay_status forebay_buffer_get_info(const forebay_buffer *buffer,
                                       forebay_buffer_info *out);

/// The resource that the buffer is of, as a new object that the caller owns. Any thread.
///
/// Returns FOREBAY_STATUS_NOT_FOUND for a buffer without one.
forebay_status forebay_buffer_get_resource(const forebay_buffer *buffer, forebay_resource **out);

/// Copies all of `src` into `dst`, on `stream`. Both stay open until the copy is done. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for sizes that differ.
forebay_status forebay_buffer_copy(forebay_buffer *dst, const forebay_buffer *src, void *stream);

/// Copies `src` into a new buffer that the resource of `src` allocates, on `stream`. The caller owns it. Any thread.
forebay_status forebay_buffer_clone(const forebay_buffer *src,
                                    void *stream,
                                    forebay_buffer **out);

/// Repeats the low `width` bytes of `value` (1, 2 or 4; little end first) over the buffer, on `stream`. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for another width, a value with more bytes, and a size that is no multiple
/// of the width.
forebay_status forebay_buffer_fill(forebay_buffer *buffer,
                                   uint32_t value,
                                   uint32_t width,
                                   void *stream);

/** @} */

/**
 * @defgroup forebay_sharing Sharing: DLPack and other processes
 * @{
 */

/// Names memory of one process for another: plain bytes, which may be stored and sent in any way. Whoever of the same
/// user has them can map the memory.
typedef struct {
  /// Not to be looked into.
  uint8_t bytes[256];
} forebay_ipc_descriptor;

/// A tensor of the buffer: one dimension of signed bytes. Whoever takes it calls its deleter once; until then the
/// memory stays, also when the buffer is closed. Ordering the work of both sides is the caller's. Any thread.
forebay_status forebay_buffer_to_dlpack(forebay_buffer *buffer,
                                        struct DLManagedTensorVersioned **out);

/// The same as the struct of DLPack before 1.0.
forebay_status forebay_buffer_to_dlpack_legacy(forebay_buffer *buffer, struct DLManagedTensor **out);

/// A buffer of a tensor's memory: CUDA, pinned, managed or host memory, any shape and type, contiguous in C order. On
/// success it takes the tensor over and calls its deleter when it is closed; else the tensor stays the caller's.
/// `stream` is what close is ordered by. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED for another major version of DLPack, another kind of device, and read-only
/// tensors; FOREBAY_STATUS_INVALID_ARGUMENT for one that is not contiguous.
forebay_status forebay_buffer_from_dlpack(struct DLManagedTensorVersioned *tensor,
                                          void *stream,
                                          forebay_buffer **out);

/// The same for the struct of DLPack before 1.0.
forebay_status forebay_buffer_from_dlpack_legacy(struct DLManagedTensor *tensor,
                                                 void *stream,
                                                 forebay_buffer **out);

/// A destructor for Python capsules that hold a tensor of this library and are named "dltensor" or
/// "dltensor_versioned": calls the tensor's deleter, unless somebody has consumed it and renamed the capsule. Holds
/// Python's lock, as every destructor of a capsule does. Pass its address to PyCapsule_New.
void forebay_dlpack_capsule_delete(void *capsule);

/// The file descriptor and the uuid of a pool made with `ipc_enabled`, for another process: send both, the descriptor
/// by SCM_RIGHTS or as your platform does. It is close-on-exec, and the resource owns and closes it; duplicate it to
/// keep it. `uuid` has room for 16 bytes. Any thread.
///
/// Returns FOREBAY_STATUS_NOT_PERMITTED for a pool without IPC and for a mapped one, FOREBAY_STATUS_UNSUPPORTED for a
/// resource that is not a pool of the driver: its buffers are shared one by one.
forebay_status forebay_resource_get_allocation_handle(forebay_resource *resource,
                                                      int32_t *fd,
                                                      uint8_t *uuid);

/// Maps a pool of another process: a resource that owns the mapping, refuses to allocate, and takes that pool's
/// buffers. `kind` is FOREBAY_RESOURCE_KIND_DEVICE or _PINNED, as at the exporter; `device` the memory's, or for pinned
/// memory the one in whose context calls are made, -1 for the current device. `fd` stays the caller's, who may close it
/// after the call. NULL `uuid`: the pool's name is not known; with a name that is registered already, that resource is
/// given and `fd` is not looked at. A named pool is registered. Any thread.
forebay_status forebay_resource_from_allocation_handle(uint32_t kind,
                                                       int32_t device,
                                                       int32_t fd,
                                                       const uint8_t *uuid,
                                                       forebay_resource **out);

/// Registers a mapped pool under the uuid of the pool, so that its buffers find it. `out` is the resource to use: the
/// one that was registered before under that key, if it is still held by anybody, else this one; a new object, the
/// caller's. The registry keeps nothing alive. Any thread.
///
/// Returns FOREBAY_STATUS_NOT_PERMITTED for a pool of this process.
forebay_status forebay_resource_register(forebay_resource *resource,
                                         const uint8_t *uuid,
                                         forebay_resource **out);

/// The mapped pool that is registered under a uuid, as a new object that the caller owns. Any thread.
///
/// Returns FOREBAY_STATUS_NOT_FOUND if there is none.
forebay_status forebay_resource_from_registry(const uint8_t *uuid, forebay_resource **out);

/// Starts this process's exchange service: a thread that answers other processes of this user. Exporting starts it too.
/// Again is harmless. Any thread.
forebay_status forebay_ipc_serve(void);

/// Names the buffer for other processes. Keep it open until they have mapped it; what is mapped stays valid whatever
/// becomes of this process. Asking again gives the same descriptor. Memory of pools comes in chunks: who maps a buffer
/// can reach other blocks in the same chunks. Any thread.
///
/// Returns FOREBAY_STATUS_NOT_PERMITTED for a resource without IPC, FOREBAY_STATUS_UNSUPPORTED for memory that cannot
/// be shared, such as a Forebay pool's on a device without virtual memory management.
forebay_status forebay_buffer_get_ipc_descriptor(forebay_buffer *buffer,
                                                 forebay_ipc_descriptor *out);

/// The size in bytes of the buffer that a descriptor names. It is what the descriptor says: an import compares it with
/// the memory. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for bytes that are no descriptor.
forebay_status forebay_ipc_descriptor_size(const forebay_ipc_descriptor *descriptor,
                                           uint64_t bytes,
                                           uint64_t *size);

/// The buffer that another process named; `forebay_buffer_get_info` says by which way it came. Closing it lets go of
/// the memory here and nowhere else. `resource`: for a pool's buffer the mapped pool, or NULL if that is registered;
/// for memory in pieces NULL, or a virtual memory resource whose device and peers get the access that it gives. The
/// descriptor is checked, not trusted. Works in the exporting process too, but for pools and legacy handles. Any
/// thread; waits for the exporter, at most 10 s for each answer.
///
/// Returns FOREBAY_STATUS_NOT_FOUND for memory that was freed and a pool that is not mapped, FOREBAY_STATUS_PEER for an
/// exporter that is gone, FOREBAY_STATUS_NOT_PERMITTED for one of another user.
forebay_status forebay_buffer_from_ipc_descriptor(forebay_resource *resource,
                                                  const forebay_ipc_descriptor *descriptor,
                                                  uint64_t bytes,
                                                  void *stream,
                                                  forebay_buffer **out);

/// Names the memory from `ptr`, anywhere in a live block of a Forebay pool, to the block's end for other processes, as
/// `forebay_buffer_get_ipc_descriptor` does. Freeing the block ends it. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE for a pointer that is not in a live block, FOREBAY_STATUS_UNSUPPORTED on a device
/// without virtual memory management.
forebay_status forebay_ipc_export(forebay_pool *pool,
                                  const void *ptr,
                                  forebay_ipc_descriptor *out);

/// Names `bytes` bytes at `ptr` of plain device memory (cuMemAlloc, cudaMalloc) for other processes, by a legacy
/// handle. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED for memory without such a handle.
forebay_status forebay_ipc_export_foreign(const void *ptr,
                                          uint64_t bytes,
                                          forebay_ipc_descriptor *out);

/** @} */

/**
 * @defgroup forebay_cupy CuPy's hooks
 * @{
 */

/// What CuPy allocates from: a resource for each device, by the device's number, since one Python object serves every
/// device.
typedef struct forebay_cupy_pool forebay_cupy_pool;

/// Gives the stream that CuPy's calling thread uses on a device now.
typedef ptrdiff_t (*forebay_stream_getter)(int device);

/// Gives the calling thread's memory hooks, a new reference to a Python container. CuPy passes 0.
typedef void *(*forebay_hook_getter)(int skip_dispatch);

/// Sets the function that gives CuPy's current stream on a device: the C function inside the capsule
/// `cupy_backends.cuda.stream.__pyx_capi__["get_stream_ptr"]`. NULL, the state at the start: the legacy default
/// stream. Any thread.
void forebay_cupy_set_stream_getter(forebay_stream_getter getter);

/// Allocates `size` bytes on `device` in the order of CuPy's current stream there. `param` is a forebay_pool; NULL: the
/// shared pool.
///
/// On failure a Python exception is pending: `cupy.cuda.memory.OutOfMemoryError` with the pool's report for want of
/// memory (`MemoryError` where CuPy's own is not to be had), `RuntimeError` else. The pointer is then -1, the value
/// after which CuPy's caller looks for an exception. In a program without Python a `std::runtime_error` is thrown; NULL
/// where there is no C++ runtime either.
void *forebay_cupy_malloc(void *param,
                          size_t size,
                          int device);

/// Frees a block in the order of CuPy's current stream on `device`, and of the stream it was allocated on, since CuPy
/// frees an array wherever its last reference goes. A pointer that is no live block's is refused and changes nothing.
/// Never raises: CuPy frees in destructors, also while the interpreter ends.
void forebay_cupy_free(void *param,
                       void *ptr,
                       int device);

/// Says how CuPy's memory hooks are found and called. `getter` is the C function inside the capsule
/// `cupy.cuda.memory_hook.__pyx_capi__["get_memory_hooks"]`; it is asked once in each Python thread, and what it gives
/// there is looked at from then on. `tell` is a Python function (a `PyObject *`, which the caller keeps alive) of five
/// integers: what happens (0 before an allocation, 1 after it, 2 before a free, 3 after it), the device, the bytes, the
/// address (0 if there is none) and by how many bytes the pool has grown. It answers whether there are hooks; an
/// exception of it ends the allocation. NULL for both: nobody is told. Any thread.
void forebay_cupy_set_memory_hooks(forebay_hook_getter getter,
                                   void *tell);

/// A pool for CuPy on a resource for each device: `resources[0]` is device 0's, and so on. It holds the resources. The
/// caller owns the object and frees it with `forebay_cupy_pool_destroy`. Any thread.
forebay_status forebay_cupy_pool_create(const forebay_resource *const *resources,
                                        uint32_t count,
                                        forebay_cupy_pool **out);

/// Frees the object. Everything that was allocated from it is back by then. NULL is fine.
void forebay_cupy_pool_destroy(forebay_cupy_pool *pool);

/// Sets the most bytes that may be in use of the resource of `device`, whoever uses it, when a pool for CuPy allocates
/// from it; 0, as at first: no limit. All pools for CuPy on that resource have one limit. Any thread.
forebay_status forebay_cupy_pool_set_limit(forebay_cupy_pool *pool,
                                           int32_t device,
                                           uint64_t bytes);

/// That limit; 0 for none. Any thread.
forebay_status forebay_cupy_pool_get_limit(const forebay_cupy_pool *pool, int32_t device, uint64_t *out);

/// Allocates `size` bytes, rounded up to 512, of the resource of `device` in the order of CuPy's current stream.
/// `param` is a forebay_cupy_pool. Fails as `forebay_cupy_malloc` does.
void *forebay_cupy_pool_malloc(void *param,
                               size_t size,
                               int device);

/// Frees a block in the order of CuPy's current stream, so that whoever waits for that stream has its memory. If that
/// is not the stream it was allocated on, which may be gone, CuPy's current stream waits for everything the device has.
/// A pointer that was not allocated on `device` by a pool for CuPy on the same resource is refused. Never raises.
void forebay_cupy_pool_free(void *param,
                            void *ptr,
                            int device);

/** @} */

/**
 * @defgroup forebay_torch PyTorch's hooks
 * @{
 */

/// A block that PyTorch has.
typedef struct {
  /// Its size in bytes.
  uint64_t bytes;
  /// How many bytes were asked for.
  uint64_t requested;
  /// The stream of its allocation; NULL in what `forebay_torch_free_while` answers, which does not look for it.
  void *stream;
  /// The device it is on.
  int32_t device;
  /// Zero.
  uint32_t reserved;
} forebay_torch_block;

/// Allocates `size` bytes on `device` for work queued on `stream`. Any thread.
///
/// A failure is thrown: `c10::OutOfMemoryError` for want of memory where PyTorch's libraries are loaded, else
/// `std::runtime_error`; NULL only in a program without libstdc++, or with one that it keeps to itself.
void *forebay_torch_malloc(ptrdiff_t size, int device, void *stream);

/// Frees a block in the order of `stream`. The size is not trusted; a pointer that is no live block's is refused and
/// changes nothing. Never throws: PyTorch frees in destructors, also while the process ends. Any thread.
void forebay_torch_free(void *ptr,
                        ptrdiff_t _size,
                        int _device,
                        void *stream);

/// For `set_init_fn`. Opens the driver, so that a missing one is told at the start. Throws `std::runtime_error`.
void forebay_torch_init(int _device_count);

/// For `set_reset_fn`, PyTorch's `empty_cache`: gives all free memory back to the driver. Any thread.
void forebay_torch_reset(void);

/// For `set_memory_fraction_fn`: limits the pool to a share of the device's memory. Throws `std::runtime_error` for a
/// fraction or device out of range.
void forebay_torch_memory_fraction(double fraction,
                                   int device);

/// For `set_base_alloc_fn`: the start of the block that `ptr` points into, and its size. Throws `std::runtime_error`
/// for a pointer into no live block.
void *forebay_torch_base_alloc(void *ptr,
                               size_t *size);

/// For `set_record_stream_fn`: the block is also used on `stream`, and is reused only after the work that `stream` has
/// when the block is freed. A pointer that is no live block's is ignored, as PyTorch's own allocator does. Any thread.
void forebay_torch_record_stream(void *ptr,
                                 void *stream);

/// For `set_begin_allocate_to_pool`: allocations on streams that `filter` accepts come from the private pool of this
/// id. `filter` is a `std::function<bool(cudaStream_t)>` passed by invisible reference (libstdc++); NULL accepts every
/// stream. Throws `std::runtime_error`, always on a device without virtual memory management, which has no private
/// pools.
void forebay_torch_begin_allocate_to_pool(int device,
                                          uint64_t id_first,
                                          uint64_t id_second,
                                          void *filter);

/// For `set_end_allocate_to_pool_fn`. Throws `std::runtime_error` if none is under way.
void forebay_torch_end_allocate_to_pool(int device, uint64_t id_first, uint64_t id_second);

/// For `set_release_pool`: the graph is gone, and its memory goes back to everybody. Never throws: PyTorch calls it
/// in destructors.
void forebay_torch_release_pool(int device,
                                uint64_t id_first,
                                uint64_t id_second);

/// The live block that starts at `ptr`. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE unless one starts there that PyTorch has.
forebay_status forebay_torch_block_at(const void *ptr, forebay_torch_block *out);

/// Frees a block in the order of the stream of its allocation, and, unless `has_current` is 0, behind what stream
/// `current` has now: the one that is current where a program frees it, and may have used it. A block of a private pool
/// stays in the order of its own stream, and a `current` that is being captured is not asked. `out` learns what the
/// block was. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE, and changes nothing, unless a live block starts at `ptr` that PyTorch has.
forebay_status forebay_torch_free_while(void *ptr,
                                        uint32_t has_current,
                                        void *current,
                                        forebay_torch_block *out);

/// Takes one more hold on a private pool, which is made if there is none; `forebay_torch_release_pool` lets go of one.
/// Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED on a device without virtual memory management.
forebay_status forebay_torch_hold_pool(int device,
                                       uint64_t id_first,
                                       uint64_t id_second);

/// How many holds there are on a private pool; 0 for an unknown one. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED on a device without virtual memory management.
forebay_status forebay_torch_pool_use_count(int device, uint64_t id_first, uint64_t id_second, uint32_t *out);

/// The private pool that the live block at `ptr` came from; zeros for a block of none. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE unless a live block starts at `ptr`.
forebay_status forebay_torch_pool_of(const void *ptr, uint64_t *id_first, uint64_t *id_second);

/// Makes a block of `bytes` bytes at `ptr` live again, which a private pool gave out on `stream` before and got back:
/// how a pool is put back into an earlier state. Any thread.
///
/// Returns FOREBAY_STATUS_NOT_FOUND for an unknown pool, FOREBAY_STATUS_BUSY if that memory is not free there,
/// FOREBAY_STATUS_UNSUPPORTED on a device without virtual memory management.
forebay_status forebay_torch_restore(uint64_t id_first,
                                     uint64_t id_second,
                                     void *ptr,
                                     uint64_t bytes,
                                     void *stream);

/** @} */

#ifdef __cplusplus
}
#endif

#endif /* FOREBAY_H */
