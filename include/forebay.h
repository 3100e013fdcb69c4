/**
 * @file
 * Forebay: one GPU memory pool that every framework in a process shares.
 *
 * Made from src/abi by cbindgen; do not edit.
 *
 * @par Ownership
 * The caller owns every object that a call returns, and frees it with the destroy function of its type:
 * forebay_pool_destroy, forebay_resource_destroy, forebay_buffer_destroy, forebay_cupy_pool_destroy or
 * forebay_stream_destroy. The caller owns memory from forebay_pool_malloc until forebay_pool_free. The library owns the
 * strings that it returns. The caller owns the user data of a callback, which must stay valid until the callback is
 * removed.
 *
 * @par Arguments
 * The object comes first; const means that the call does not change it. Outputs come last and are written only on
 * FOREBAY_STATUS_OK. A required object or output that is NULL gives FOREBAY_STATUS_NULL_POINTER. Freeing a NULL block
 * and destroying a NULL object do nothing. Sizes are in bytes. Devices are counted from 0, as in CUDA; a device number
 * out of range gives FOREBAY_STATUS_BAD_DEVICE.
 *
 * @par Errors
 * A call that fails changes nothing. Its status gives the kind of failure; forebay_last_error_message() returns the
 * full text, for the calling thread. Given valid memory to read and write, no call lets a panic out, and none aborts
 * the process unless its heap is exhausted.
 *
 * @par Threads
 * Every function may be called from any thread, unless its text says otherwise. No call may use an object during or
 * after the call that destroys it. No function may be called from a signal handler: it could wait for a lock that the
 * interrupted thread holds.
 *
 * @par Streams
 * A stream is a CUstream or a cudaStream_t, passed as void *. NULL and 1 (CU_STREAM_LEGACY) are the legacy default
 * stream, 2 (CU_STREAM_PER_THREAD) is the calling thread's default stream:
 * https://docs.nvidia.com/cuda/cuda-driver-api/stream-sync-behavior.html. The pool reuses memory only where stream
 * order, an event or a passed fence proves that its last use is over. A stream must be alive in the call that names it.
 * After the call the library does not use its handle, unless it is a default stream, is registered
 * (forebay_stream_register), or was recorded as a user of a block that is still live (forebay_pool_record_use).
 *
 * @par Captures
 * Memory for a graph comes from a private pool: call forebay_pool_private_begin before the capture,
 * forebay_pool_private_end after it, and forebay_pool_private_release once the graph is destroyed.
 *
 * @par Addresses
 * A block's address never changes while it is live.
 *
 * @par Driver
 * The variable FOREBAY_DRIVER selects the driver: "cuda" (the default), or "host", which uses RAM instead of a GPU, for
 * tests and for machines without one.
 *
 * @par Log
 * Events that no status reports, such as a bad free through a framework's hook, go to the log. By default stderr gets
 * errors and warnings. The variable FOREBAY_LOG (off, error, warn, info or debug) sets another level;
 * forebay_log_set_callback sends the log to the program instead.
 *
 * @par Fork
 * CUDA does not work in a child of fork(), nor does this library if the parent used it before the fork: in the child
 * every call returns FOREBAY_STATUS_FORKED at once, or NULL or 0 if it has no status. Calls that free memory or destroy
 * an object, and the deleters of DLPack tensors, do nothing there: all memory stays the parent's. Functions that return
 * a text or a version, and forebay_pool_block_size_for, work as before. A child started by exec or spawn works.
 *
 * @par Exit
 * The shared pool is not destroyed when the process ends. Freeing then is harmless, even after CUDA has shut down.
 */

#ifndef FOREBAY_H
#define FOREBAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* DLPack's structs, declared in dlpack.h. */
struct DLManagedTensor;
struct DLManagedTensorVersioned;

/**
 * @defgroup forebay_status Errors, status, version and log
 * @{
 */

/// Major version of this header.
#define FOREBAY_VERSION_MAJOR 0

/// Minor version of this header.
#define FOREBAY_VERSION_MINOR 1

/// Patch version of this header.
#define FOREBAY_VERSION_PATCH 0

/// Version of this header as one number: major * 10000 + minor * 100 + patch.
#define FOREBAY_VERSION_NUMBER 100

/// The result of a call. A number never changes its meaning; retired numbers are not reused.
typedef enum {
  /// Success.
  FOREBAY_STATUS_OK = 0,
  /// A required object or output is NULL.
  FOREBAY_STATUS_NULL_POINTER = 1,
  /// A size, number, option or struct version is out of range.
  FOREBAY_STATUS_INVALID_ARGUMENT = 2,
  /// Out of memory, after the library gave back all memory that it could.
  FOREBAY_STATUS_OUT_OF_MEMORY = 3,
  /// The pointer is not the start of a live block: foreign, inside a block, or freed before.
  FOREBAY_STATUS_BAD_FREE = 4,
  /// The driver or device lacks the requested feature.
  FOREBAY_STATUS_UNSUPPORTED = 5,
  /// There is no usable driver or device.
  FOREBAY_STATUS_NO_DRIVER = 6,
  /// The device number is out of range.
  FOREBAY_STATUS_BAD_DEVICE = 7,
  /// A driver call failed; the message names the call and the error.
  FOREBAY_STATUS_DRIVER = 8,
  /// Not possible on a stream that is being captured.
  FOREBAY_STATUS_CAPTURING = 9,
  /// The process is a child of fork() whose parent used this library.
  FOREBAY_STATUS_FORKED = 10,
  /// No such callback, private pool, stream, mapped pool or shared memory.
  FOREBAY_STATUS_NOT_FOUND = 11,
  /// The object is in use, or was already used, so that it cannot be changed.
  FOREBAY_STATUS_BUSY = 12,
  /// A bug in this library, caught before it reached the caller.
  FOREBAY_STATUS_PANIC = 13,
  /// The resource or buffer is closed.
  FOREBAY_STATUS_CLOSED = 14,
  /// Not permitted: memory of another user, sharing from a resource without IPC, or allocating from a pool that is
  /// mapped from another process.
  FOREBAY_STATUS_NOT_PERMITTED = 15,
  /// The exporting process has ended, or its exchange service gave no valid answer.
  FOREBAY_STATUS_PEER = 16,
} forebay_status;

/// A level of the log. Each level includes those above it in this list.
typedef enum {
  /// Nothing.
  FOREBAY_LOG_LEVEL_OFF = 0,
  /// Bugs in this library, and steps that could not be undone.
  FOREBAY_LOG_LEVEL_ERROR = 1,
  /// Failures that no status reports: a bad free through a framework's hook, memory that could not be freed.
  FOREBAY_LOG_LEVEL_WARN = 2,
  /// Rare events that are no failure.
  FOREBAY_LOG_LEVEL_INFO = 3,
  /// Steps of the slow path.
  FOREBAY_LOG_LEVEL_DEBUG = 4,
} forebay_log_level;

/// Receives one event of the log: `level` is a FOREBAY_LOG_LEVEL_*, `message` is text without a line end, valid during
/// the call only.
///
/// Called on a thread that is inside a call of this library, before that call returns, with none of the library's locks
/// held; possibly on several threads at once. It must not call this library, must not take a lock that the program
/// holds while it calls this library, and must not throw.
typedef void (*forebay_log_fn)(void *user, uint32_t level, const char *message);

/// A short English text for a FOREBAY_STATUS_*; "unknown status" for any other number. Static; never NULL. Any thread.
const char *forebay_status_text(uint32_t status);

/// The full text of the calling thread's last failed call; "" if none failed. Never NULL. Valid until the next failed
/// call of this thread. Any thread.
const char *forebay_last_error_message(void);

/// The version of the loaded library, encoded as `FOREBAY_VERSION_NUMBER` is. Any thread.
uint32_t forebay_version_number(void);

/// The version of the loaded library as text, such as "0.1.0". Static; never NULL. Any thread.
const char *forebay_version(void);

/// Sets the callback that receives every event up to `level`, a FOREBAY_LOG_LEVEL_*, in place of the one before; NULL
/// removes it. When this returns, the old callback is no longer called and its user data may be freed. Events of the
/// library's own threads are delivered by the next call of any other thread. A call with the same `callback` and `user`
/// changes the level, and takes effect at once. While a callback is set, stderr gets only the events up to the level of
/// the variable FOREBAY_LOG, and none if that is not set. Any thread, but not from inside the callback.
///
/// Returns FOREBAY_STATUS_BUSY from inside the callback, and where a Rust program has set its own subscriber of
/// tracing; FOREBAY_STATUS_INVALID_ARGUMENT for an unknown level.
forebay_status forebay_log_set_callback(forebay_log_fn callback,
                                        void *user,
                                        uint32_t level);

/** @} */

/**
 * @defgroup forebay_objects Objects
 * @{
 */

/// A buffer: memory, together with the way to free it.
typedef struct forebay_buffer forebay_buffer;

/// A reference to a pool, which has one part for each device of its driver. Several objects may refer to one pool, as
/// all objects from `forebay_pool_shared` do.
typedef struct forebay_pool forebay_pool;

/// A reference to a memory resource. Several objects may refer to one resource.
typedef struct forebay_resource forebay_resource;

/** @} */

/**
 * @defgroup forebay_pool Pool
 * @{
 */

/// Version of the layout of `forebay_pool_options`.
#define FOREBAY_POOL_OPTIONS_VERSION 1

/// Options of a pool. Fill them with `forebay_pool_options_init`, then change single fields. The variable at the end of
/// a field's text sets its default.
typedef struct {
  /// sizeof(forebay_pool_options) as the caller was compiled.
  uint32_t size;
  /// FOREBAY_POOL_OPTIONS_VERSION.
  uint32_t version;
  /// "cuda", "host", or NULL for the value of FOREBAY_DRIVER, or "cuda" if that is not set. Read during the call
  /// only; the caller owns the string.
  const char *driver;
  /// The most physical memory that the pool may hold on each device, in bytes; 0: the device's memory. FOREBAY_LIMIT.
  uint64_t limit;
  /// The same limit as a share of the device's memory, above 0 and up to 1; 0: none. The smaller limit applies.
  /// FOREBAY_FRACTION.
  double fraction;
  /// Largest chunk of physical memory in bytes, a power of two of 2 MiB or more; 0: chosen by the pool's size.
  /// FOREBAY_MAX_CHUNK.
  uint64_t max_chunk;
  /// FOREBAY_LOCATION_DEVICE for memory of the devices, or FOREBAY_LOCATION_HOST_NUMA for pinned host memory.
  uint32_t location;
  /// For pinned memory: the NUMA node; -1: the node nearest to each device, if the driver reports it.
  int32_t numa_id;
  /// 1: the pool grows rather than make a stream wait for memory that another stream freed. 0 or 1.
  /// FOREBAY_GROW_FIRST.
  uint32_t grow_first;
  /// Milliseconds after which a thread of the pool gives idle memory back to the driver; 0: no such thread.
  /// FOREBAY_GIVE_BACK_MS.
  uint32_t give_back_ms;
  /// Zero.
  uint64_t reserved[7];
} forebay_pool_options;

/// Fills `options` with the defaults and the values of the FOREBAY_* variables. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT if the value of a variable is invalid, or if a FOREBAY_* variable is
/// unknown; `options` is then not written.
forebay_status forebay_pool_options_init(forebay_pool_options *options);

/// Sets the options of the shared pool, before its first use. NULL: the defaults and the FOREBAY_* variables, as
/// without this call.
///
/// Returns FOREBAY_STATUS_BUSY if the shared pool exists, FOREBAY_STATUS_INVALID_ARGUMENT for an option out of range.
/// Any thread.
forebay_status forebay_pool_configure_shared(const forebay_pool_options *options);

/// Gives the shared pool of the process, which the hooks of PyTorch and CuPy use. The first use creates it; it lives
/// until the process ends. Each call gives a new object, which the caller owns and frees with `forebay_pool_destroy`;
/// that does not affect the shared pool itself. Any thread.
///
/// Returns FOREBAY_STATUS_NO_DRIVER if there is no usable driver; the message says what is missing.
forebay_status forebay_pool_shared(forebay_pool **out);

/// Creates a pool separate from the shared one. It takes no memory before its first allocation. NULL options: the
/// defaults and the values of the FOREBAY_* variables. The caller owns the object and frees it with
/// `forebay_pool_destroy`. Any thread.
///
/// Returns FOREBAY_STATUS_NO_DRIVER if there is no usable driver, FOREBAY_STATUS_INVALID_ARGUMENT for an option or
/// variable out of range.
forebay_status forebay_pool_create(const forebay_pool_options *options,
                                   forebay_pool **out);

/// Frees the object. When the last object of a pool from `forebay_pool_create` is freed, and no resource holds the
/// pool, the pool ends: it waits on the host for the devices, then frees all its memory, live blocks included. NULL
/// does nothing. Any thread, but no other call may use the object.
void forebay_pool_destroy(forebay_pool *pool);

/// The name of the pool's driver: "cuda" or "host"; NULL for a NULL pool. Static. Any thread.
const char *forebay_pool_driver_name(const forebay_pool *pool);

/// Gives the number of devices of the pool's driver. Any thread.
forebay_status forebay_pool_device_count(const forebay_pool *pool, int32_t *out);

/// Gives the free and the total memory of `device` in bytes, as the driver reports them (cuMemGetInfo). Memory that the
/// pool holds is not free. Any thread.
forebay_status forebay_pool_memory_info(const forebay_pool *pool,
                                        int32_t device,
                                        uint64_t *free_bytes,
                                        uint64_t *total_bytes);

/// Destructor of Python capsules that hold a pool object and are named "forebay_pool"; pass its address to
/// PyCapsule_New. It frees the object with the GIL released. Python calls it when the capsule's last reference is gone,
/// also in a cycle collection after all finalizers, so a reference to the capsule keeps the pool alive.
void forebay_pool_capsule_delete(void *capsule);

/** @} */

/**
 * @defgroup forebay_blocks Blocks
 * @{
 */

/// The framework that allocated a block, by which statistics count live bytes.
typedef enum {
  /// C and C++: `forebay_pool_malloc`.
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

/// Allocates `bytes` bytes on `device`, aligned to 512 bytes. Work queued on `stream` from now on may use the block;
/// work on other streams must first wait for `stream`. `stream` is a CUstream or cudaStream_t, NULL for the legacy
/// default stream, and must be alive in this call. The caller owns the block and frees it with `forebay_pool_free`. 0
/// bytes give NULL and FOREBAY_STATUS_OK. Any thread.
///
/// Returns FOREBAY_STATUS_OUT_OF_MEMORY, with the pool's report as the message, if reclaim found no memory either;
/// FOREBAY_STATUS_CAPTURING on a stream that is being captured without a private pool; FOREBAY_STATUS_UNSUPPORTED on a
/// device with neither virtual memory management nor stream-ordered pools, and for pinned memory before CUDA 12.2.
/// `out` is then not written.
forebay_status forebay_pool_malloc(forebay_pool *pool,
                                   uint64_t bytes,
                                   int32_t device,
                                   void *stream,
                                   void **out);

/// `forebay_pool_malloc` for a framework's plug-in: statistics count the block for `framework`, a FOREBAY_FRAMEWORK_*.
/// Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for an unknown framework, otherwise the same as `forebay_pool_malloc`.
forebay_status forebay_pool_malloc_for(forebay_pool *pool,
                                       uint32_t framework,
                                       uint64_t bytes,
                                       int32_t device,
                                       void *stream,
                                       void **out);

/// Allocates memory that no queued work uses, so that the host may use it at once. For pools of pinned memory, whose
/// blocks from `forebay_pool_malloc` are ready in the order of `stream` only. Slower than `forebay_pool_malloc`, and
/// the pool holds more memory while queued work is unfinished. Otherwise the same: ownership, errors, any thread.
forebay_status forebay_pool_malloc_ready(forebay_pool *pool,
                                         uint64_t bytes,
                                         int32_t device,
                                         void *stream,
                                         void **out);

/// Frees a block in the order of `stream`: work already queued on `stream` may still use the block, which is reused
/// only after that work. Uses on other streams must be ordered before this call by the caller, or recorded with
/// `forebay_pool_record_use`. `stream` may differ from the stream of the allocation; it must be alive in this call.
/// NULL `ptr` does nothing. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE, and changes nothing, unless a live block starts at `ptr`.
forebay_status forebay_pool_free(forebay_pool *pool,
                                 void *ptr,
                                 void *stream);

/// Frees a block after all work queued until now on any stream of its device: for memory whose uses on streams are
/// unknown. Slower than `forebay_pool_free`: the block is reused only once all of that work is done. NULL `ptr` does
/// nothing. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE, and changes nothing, unless a live block starts at `ptr`.
forebay_status forebay_pool_free_after_all(forebay_pool *pool,
                                           void *ptr);

/// Records that the block is also used on `stream`: once freed, it is reused only after the work that `stream` has at
/// the time of the free. `stream` must live until the block is freed. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE unless a live block starts at `ptr`.
forebay_status forebay_pool_record_use(forebay_pool *pool,
                                       void *ptr,
                                       void *stream);

/// Gives the size in bytes of the live block that starts at `ptr`, all of which may be used: the size requested,
/// rounded up to 512 bytes. Sizes above 64 KiB and up to 1 MiB are rounded up further, by less than 1/64, to one of 64
/// sizes between two powers of two. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE unless a live block starts at `ptr`.
forebay_status forebay_pool_block_size(forebay_pool *pool,
                                       const void *ptr,
                                       uint64_t *out);

/// The size in bytes of the block that a request for `bytes` bytes gets, in any pool. Creates no pool. Any thread.
uint64_t forebay_pool_block_size_for(uint64_t bytes);

/// Gives the start and the size in bytes of the live block that `ptr` points into. Slower the further `ptr` lies behind
/// the start of a large block. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE for a pointer into no live block.
forebay_status forebay_pool_base_address(forebay_pool *pool,
                                         const void *ptr,
                                         void **base,
                                         uint64_t *bytes);

/// `forebay_pool_malloc_for` without waiting: serves the request from the stream cache or from free memory that is
/// mapped. Takes no lock that another thread holds while it waits, and makes no driver call but queries of the stream's
/// identity and capture status. For callers that hold a lock which other threads need, such as Python's GIL. Any
/// thread.
///
/// Returns 1 and writes `out`; or returns 0 and changes nothing: then call `forebay_pool_malloc_for`, which serves the
/// request or returns the error.
uint32_t forebay_pool_try_malloc(forebay_pool *pool,
                                 uint32_t framework,
                                 uint64_t bytes,
                                 int32_t device,
                                 void *stream,
                                 void **out);

/// `forebay_pool_free` without waiting, under the rules of `forebay_pool_try_malloc`. Records no event. Any thread.
///
/// Returns 1; or returns 0 and changes nothing: then call `forebay_pool_free`, which frees the block or returns the
/// error.
uint32_t forebay_pool_try_free(forebay_pool *pool,
                               void *ptr,
                               void *stream);

/** @} */

/**
 * @defgroup forebay_streams Streams, copies and page-locked memory
 * @{
 */

/// Registers `stream`: the caller promises that it lives until `forebay_stream_unregister`, which makes calls on it
/// faster. On a stream that is neither registered nor a default stream, each call queries the driver for the stream's
/// identity, and every second of consecutive frees records an event, since the handle may be destroyed afterwards.
/// Stream 2, the calling thread's default stream, cannot be registered. Do not capture a registered stream without
/// `forebay_pool_private_begin`: its stream cache serves requests without a query of the driver, so the pool would not
/// notice the capture. Any thread.
forebay_status forebay_stream_register(forebay_pool *pool,
                                       int32_t device,
                                       void *stream);

/// Ends the registration. The stream must be alive in this call, and may be destroyed after it. No other thread may use
/// the stream with the pool during the call.
///
/// Returns FOREBAY_STATUS_NOT_FOUND if it was not registered. Any thread.
forebay_status forebay_stream_unregister(forebay_pool *pool,
                                         int32_t device,
                                         void *stream);

/// Creates a stream on `device` that does not synchronize with the legacy default stream (CU_STREAM_NON_BLOCKING), and
/// registers it. The caller owns it and destroys it with `forebay_stream_destroy`. Any thread.
forebay_status forebay_stream_create(forebay_pool *pool,
                                     int32_t device,
                                     void **out);

/// Unregisters and destroys a stream from `forebay_stream_create`. Its queued work still runs, and memory freed on it
/// is reused only after that work. Any thread, but no other thread may use the stream during the call.
forebay_status forebay_stream_destroy(forebay_pool *pool,
                                      int32_t device,
                                      void *stream);

/// Waits on the host until the work queued on `stream` is done. `stream` may be of any device; a default stream is that
/// of `device`. Any thread.
forebay_status forebay_stream_synchronize(forebay_pool *pool,
                                          int32_t device,
                                          void *stream);

/// Queues a copy of `bytes` bytes from `from` to `to` on `stream` (cuMemcpyAsync). Both may be device or host memory.
/// Returns before the copy is done, except for host memory that is not pinned. 0 bytes do nothing. Any thread.
forebay_status forebay_pool_copy(forebay_pool *pool,
                                 int32_t device,
                                 void *to,
                                 const void *from,
                                 uint64_t bytes,
                                 void *stream);

/// Queues a fill of `bytes` bytes at `to` with `value` on `stream` (cuMemsetD8Async). 0 bytes do nothing. Any thread.
forebay_status forebay_pool_fill(forebay_pool *pool,
                                 int32_t device,
                                 void *to,
                                 uint8_t value,
                                 uint64_t bytes,
                                 void *stream);

/// Page-locks `bytes` bytes of host memory at `ptr` (cuMemHostRegister), so that copies between them and `device` run
/// at full speed and overlap other work. `portable` 1: page-locked for the contexts of all devices
/// (CU_MEMHOSTREGISTER_PORTABLE). `mapped` 1: kernels can use the memory (CU_MEMHOSTREGISTER_DEVICEMAP). The caller
/// keeps the memory, and calls `forebay_pool_host_unregister` before freeing it. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for 0 bytes, FOREBAY_STATUS_DRIVER if the driver refuses, for example
/// because the memory is already page-locked.
forebay_status forebay_pool_host_register(const forebay_pool *pool,
                                          int32_t device,
                                          void *ptr,
                                          uint64_t bytes,
                                          uint32_t portable,
                                          uint32_t mapped);

/// Unlocks the memory that `forebay_pool_host_register` page-locked at `ptr` (cuMemHostUnregister). Work that uses the
/// memory must have finished. Any thread.
///
/// Returns FOREBAY_STATUS_DRIVER if no page-locked memory begins at `ptr`.
forebay_status forebay_pool_host_unregister(const forebay_pool *pool,
                                            int32_t device,
                                            void *ptr);

/** @} */

/**
 * @defgroup forebay_limits Limits and pressure
 * @{
 */

/// Called before a request for `bytes` bytes on `device` fails for lack of memory. Returns whether it freed memory. The
/// library holds no lock during the call, so the callback may free into the pool. An allocation inside the callback
/// does not call it again.
typedef bool (*forebay_pressure_fn)(void *user, int32_t device, uint64_t bytes);

/// Gives free memory back to the driver until the pool holds at most `keep` bytes on `device`, or nothing more can go.
/// Waits on the host for work that still uses freed memory. `released` (may be NULL) receives the number of bytes that
/// went back. Any thread.
forebay_status forebay_pool_trim(forebay_pool *pool,
                                 int32_t device,
                                 uint64_t keep,
                                 uint64_t *released);

/// Sets the most physical memory that the pool may hold on `device`, in bytes; 0 for no limit. Memory above a new limit
/// stays held until `forebay_pool_trim`. Any thread.
forebay_status forebay_pool_set_limit(forebay_pool *pool,
                                      int32_t device,
                                      uint64_t bytes);

/// Sets the limit of `device` to a share of its memory, above 0 and up to 1. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for another fraction.
forebay_status forebay_pool_set_fraction(forebay_pool *pool, int32_t device, double fraction);

/// Gives the limit of `device` in bytes; 0 for none. Any thread.
forebay_status forebay_pool_get_limit(const forebay_pool *pool, int32_t device, uint64_t *out);

/// Adds a pressure callback; `id` receives its number for `forebay_pool_remove_pressure_callback`. It runs on the
/// thread whose request found no memory, possibly on several threads at once. The caller owns `user`, which is passed
/// to the callback and must stay valid until the callback is removed. Any thread.
forebay_status forebay_pool_add_pressure_callback(forebay_pool *pool,
                                                  forebay_pressure_fn callback,
                                                  void *user,
                                                  uint64_t *id);

/// Removes a pressure callback. A call of it on another thread may still be running when this returns; its user data
/// must stay valid until that call ends.
///
/// Returns FOREBAY_STATUS_NOT_FOUND for an unknown number. Any thread.
forebay_status forebay_pool_remove_pressure_callback(forebay_pool *pool,
                                                     uint64_t id);

/** @} */

/**
 * @defgroup forebay_statistics Statistics
 * @{
 */

/// Version of the layout of `forebay_pool_stats` and of `forebay_stream_stats`.
#define FOREBAY_STATS_VERSION 1

/// Version of the layout of `forebay_block`.
#define FOREBAY_BLOCK_VERSION 1

/// The state of a block.
typedef enum {
  /// Free and mapped.
  FOREBAY_BLOCK_STATE_FREE = 0,
  /// Allocated.
  FOREBAY_BLOCK_STATE_LIVE = 1,
  /// Freed, while queued work may still use it.
  FOREBAY_BLOCK_STATE_PENDING = 2,
} forebay_block_state;

/// A change of the mapping of a range of addresses.
typedef enum {
  /// The range was mapped to physical memory.
  FOREBAY_MAPPING_MAPPED = 0,
  /// The range was unmapped.
  FOREBAY_MAPPING_UNMAPPED = 1,
} forebay_mapping;

/// Statistics of a pool on one device. Sizes are in bytes; counts begin with the pool.
typedef struct {
  /// sizeof(forebay_pool_stats); set by the caller.
  uint32_t size;
  /// FOREBAY_STATS_VERSION; set by the caller.
  uint32_t version;
  /// Bytes in live blocks, by their sizes as `forebay_pool_block_size` gives them.
  uint64_t live;
  /// Peak of `live`. Exact if one stream allocates; with several it may be up to 1 MiB too low for each stream.
  uint64_t live_peak;
  /// Bytes of physical memory that the pool holds.
  uint64_t physical;
  /// Peak of `physical`.
  uint64_t physical_peak;
  /// The limit of `physical` in bytes; 0 for none.
  uint64_t limit;
  /// Bytes held that are not live.
  uint64_t free_bytes;
  /// Bytes of the largest free block.
  uint64_t largest_free;
  /// Free bytes that belong to private pools.
  uint64_t private_bytes;
  /// Requests served.
  uint64_t allocations;
  /// Blocks freed.
  uint64_t frees;
  /// Requests served by a stream cache.
  uint64_t hits;
  /// Requests that no stream cache could serve, and that went to the arena.
  uint64_t misses;
  /// Chunks moved to other addresses; for pinned memory also chunks of which a part was mapped at other addresses.
  uint64_t steals;
  /// Chunks created.
  uint64_t growths;
  /// Waits of a stream for another stream's fence.
  uint64_t waits;
  /// Chunks given back to the driver.
  uint64_t releases;
  /// Requests that failed for lack of memory.
  uint64_t out_of_memory;
  /// Live bytes of each FOREBAY_FRAMEWORK_*, which is the index.
  uint64_t live_by_framework[8];
  /// Streams that the pool knows.
  uint64_t streams;
  /// Driver calls of all pools of the process; 0 except on the host driver, which counts them.
  uint64_t driver_calls;
  /// Nanoseconds that `driver_calls` would have taken on the GPU whose times the host driver uses as prices.
  uint64_t driver_ns;
  /// Free blocks, those in stream caches included.
  uint64_t free_blocks;
  /// Nanoseconds that requests spent in the slow path: the search for memory, and driver calls.
  uint64_t making_ns;
  /// Nanoseconds that requests waited for queued work to finish, and for pressure callbacks and other pools to free
  /// memory.
  uint64_t waiting_ns;
  /// Zero.
  uint64_t reserved[5];
} forebay_pool_stats;

/// Statistics of one stream.
typedef struct {
  /// sizeof(forebay_stream_stats); set by the caller.
  uint32_t size;
  /// FOREBAY_STATS_VERSION; set by the caller.
  uint32_t version;
  /// Live bytes that were allocated on the stream.
  uint64_t live;
  /// Peak of `live`.
  uint64_t live_peak;
  /// Requests served.
  uint64_t allocations;
  /// Blocks freed that were allocated on the stream.
  uint64_t frees;
  /// Requests served by its stream cache.
  uint64_t hits;
  /// Zero.
  uint64_t reserved[4];
} forebay_stream_stats;

/// A block in a snapshot of a pool.
typedef struct {
  /// sizeof(forebay_block) as the library was compiled.
  uint32_t size;
  /// FOREBAY_BLOCK_VERSION.
  uint32_t version;
  /// Its first address.
  uint64_t address;
  /// Its size in bytes.
  uint64_t bytes;
  /// A FOREBAY_BLOCK_STATE_*.
  uint32_t state;
  /// A FOREBAY_FRAMEWORK_*: the framework that allocated it; 0 unless it is live.
  uint32_t framework;
  /// The stream of its allocation, or, for a free block, the stream in whose order it may be reused.
  uint64_t stream;
  /// 1: `stream` is valid. 0: the block is unowned, so any stream may use it.
  uint32_t has_stream;
  /// 1: it belongs to the private pool of the ids below.
  uint32_t is_private;
  /// First half of the private pool's id as PyTorch's hooks pass it; all bits 1 for `forebay_pool_private_begin`.
  uint64_t private_first;
  /// Second half of the id.
  uint64_t private_second;
  /// The bytes that were requested; 0 unless it is live.
  uint64_t requested;
  /// Zero.
  uint64_t reserved;
} forebay_block;

/// Receives one block, valid during the call only. May use the pool; must not throw.
typedef void (*forebay_block_fn)(void *context, const forebay_block *block);

/// Reports that `bytes` bytes at `ptr` were mapped or unmapped: `what` is a FOREBAY_MAPPING_*. Called under the pool's
/// locks: it must not call this library, wait for a thread that may be inside this library, or throw.
typedef void (*forebay_mapping_fn)(void *user, int32_t device, uint32_t what, void *ptr, uint64_t bytes);

/// Gives the statistics of the pool on `device`. Set `size` and `version` of `out` before the call. Does not stop
/// allocations on other threads, so the values may be of slightly different moments. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for another size or version.
forebay_status forebay_pool_get_stats(const forebay_pool *pool,
                                      int32_t device,
                                      forebay_pool_stats *out);

/// Gives the statistics of `stream`; zeros for a stream that the pool does not know. Set `size` and `version` of `out`
/// before the call. Any thread.
forebay_status forebay_pool_get_stream_stats(const forebay_pool *pool,
                                             int32_t device,
                                             void *stream,
                                             forebay_stream_stats *out);

/// Resets the peaks of the pool on `device` to the present values. Any thread.
forebay_status forebay_pool_reset_peaks(forebay_pool *pool, int32_t device);

/// Writes a short text about the pool on `device` for people to read, the same as in an out-of-memory message. Writes
/// at most `capacity` bytes, the last of them a NUL; `needed` (may be NULL) receives the bytes of the whole text with
/// its NUL. `capacity` 0 writes nothing, so a first call can find the size. Any thread.
forebay_status forebay_pool_report(const forebay_pool *pool,
                                   int32_t device,
                                   char *buffer,
                                   size_t capacity,
                                   size_t *needed);

/// Checks the invariants of the pool on `device`. Slow; for tests. Any thread, but no other thread may use the pool
/// during the call: a block between two lists would be missing from the sums.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT if an invariant does not hold; the message describes the first one.
forebay_status forebay_pool_check(const forebay_pool *pool,
                                  int32_t device);

/// Calls `visit` with every mapped block of the pool on `device`, in address order; addresses between two blocks are
/// not mapped. All blocks are of one moment, before the first call of `visit`. `visit` runs on the calling thread,
/// without a lock. Any thread.
forebay_status forebay_pool_snapshot(const forebay_pool *pool,
                                     int32_t device,
                                     forebay_block_fn visit,
                                     void *context);

/// Sets the observer that is called for every range of the pool on `device` that is mapped or unmapped from now on, in
/// place of the one before; NULL removes it. A chunk that moves is mapped at its new place before it is unmapped at the
/// old one. `user` must stay valid until the observer is replaced. On a device without virtual memory management the
/// driver maps memory itself, and the observer is never called. Any thread.
forebay_status forebay_pool_set_mapping_observer(forebay_pool *pool,
                                                 int32_t device,
                                                 forebay_mapping_fn observer,
                                                 void *user);

/** @} */

/**
 * @defgroup forebay_graphs Graphs
 * @{
 */

/// Makes allocations on `stream` come from private pool `id` of `device`, until `forebay_pool_private_end`. Call it
/// just before the capture of `stream` begins. Memory allocated in between is reused only within this private pool, so
/// the captured graph can be launched at any time before `forebay_pool_private_release`. The first begin of an id
/// creates its private pool; each begin adds one reference to it. The caller chooses the ids; they never collide with
/// those of PyTorch's graphs. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED on a device without virtual memory management.
forebay_status forebay_pool_private_begin(forebay_pool *pool,
                                          int32_t device,
                                          uint64_t id,
                                          void *stream);

/// Ends the newest `forebay_pool_private_begin` of this id. Call it when the capture has ended.
///
/// Returns FOREBAY_STATUS_NOT_FOUND if no begin of this id is open, FOREBAY_STATUS_UNSUPPORTED on a device without
/// virtual memory management. Any thread.
forebay_status forebay_pool_private_end(forebay_pool *pool,
                                        int32_t device,
                                        uint64_t id);

/// Drops one reference to a private pool. Call it when the graph is destroyed. After the last one, and once the device
/// has finished its work, the private pool's free memory returns to the pool; blocks that are still live follow when
/// they are freed.
///
/// Returns FOREBAY_STATUS_NOT_FOUND for an unknown id, FOREBAY_STATUS_UNSUPPORTED on a device without virtual memory
/// management. Any thread.
forebay_status forebay_pool_private_release(forebay_pool *pool,
                                            int32_t device,
                                            uint64_t id);

/// Releases the memory that graphs captured through CuPy hold on `device`, once the device has finished its work. CuPy
/// does not report that a graph is destroyed, so memory allocated during a capture stays with that capture until this
/// call. Blocks that are still live follow when they are freed. The graphs must not be launched again, and no capture
/// through CuPy may be under way. `captures` (may be NULL) receives the number of captures released. Any thread.
forebay_status forebay_pool_release_captures(forebay_pool *pool,
                                             int32_t device,
                                             uint64_t *captures);

/** @} */

/**
 * @defgroup forebay_resources Resources
 * @{
 */

/// Version of the layout of the option structs below.
#define FOREBAY_RESOURCE_OPTIONS_VERSION 1

/// Version of the layout of `forebay_resource_info` and of `forebay_buffer_info`.
#define FOREBAY_INFO_VERSION 1

/// The kind of a memory resource.
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

/// The driver pool that a resource uses.
typedef enum {
  /// A new pool, which the resource owns.
  FOREBAY_POOL_SOURCE_NEW = 0,
  /// The current pool (cuDeviceGetMemPool, cuMemGetMemPool).
  FOREBAY_POOL_SOURCE_CURRENT = 1,
  /// The driver's default pool (cuDeviceGetDefaultMemPool, cuMemGetDefaultMemPool).
  FOREBAY_POOL_SOURCE_DEFAULT = 2,
  /// The CUmemoryPool in the options.
  FOREBAY_POOL_SOURCE_HANDLE = 3,
} forebay_pool_source;

/// The location of memory.
typedef enum {
  /// On a device.
  FOREBAY_LOCATION_DEVICE = 0,
  /// On the host; the system chooses the NUMA node.
  FOREBAY_LOCATION_HOST = 1,
  /// On a NUMA node of the host.
  FOREBAY_LOCATION_HOST_NUMA = 2,
  /// On the NUMA node that the calling thread runs on.
  FOREBAY_LOCATION_HOST_NUMA_CURRENT = 3,
  /// No preference.
  FOREBAY_LOCATION_NONE = 4,
} forebay_location;

/// The handle by which memory is shared with other processes.
typedef enum {
  /// No handle: the memory is not shared.
  FOREBAY_HANDLE_TYPE_NONE = 0,
  /// A POSIX file descriptor.
  FOREBAY_HANDLE_TYPE_POSIX_FD = 1,
  /// The platform's generic handle; not on Linux.
  FOREBAY_HANDLE_TYPE_GENERIC = 2,
  /// A Windows handle; not on Linux.
  FOREBAY_HANDLE_TYPE_WIN32 = 3,
  /// A Windows kernel handle; not on Linux.
  FOREBAY_HANDLE_TYPE_WIN32_KMT = 4,
  /// A fabric handle.
  FOREBAY_HANDLE_TYPE_FABRIC = 5,
} forebay_handle_type;

/// The driver's granularity, to which sizes are rounded up.
typedef enum {
  /// CU_MEM_ALLOC_GRANULARITY_MINIMUM.
  FOREBAY_GRANULARITY_MINIMUM = 0,
  /// CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, which the driver recommends for speed.
  FOREBAY_GRANULARITY_RECOMMENDED = 1,
} forebay_granularity;

/// The access that a device has to memory.
typedef enum {
  /// No access.
  FOREBAY_ACCESS_NONE = 0,
  /// Reads only.
  FOREBAY_ACCESS_READ = 1,
  /// Reads and writes.
  FOREBAY_ACCESS_READ_WRITE = 2,
} forebay_access;

/// The type of the physical memory behind virtual addresses.
typedef enum {
  /// Pinned: it stays at its location.
  FOREBAY_ALLOCATION_TYPE_PINNED = 0,
  /// Managed: the driver migrates it between devices and host.
  FOREBAY_ALLOCATION_TYPE_MANAGED = 1,
} forebay_allocation_type;

/// An attribute of a pool, with the numbers of CUDA's CU_MEMPOOL_ATTR_*.
typedef enum {
  /// 1: memory freed on one stream may be reused on another stream that waited for an event recorded after the free.
  /// 0 or 1.
  FOREBAY_ATTRIBUTE_REUSE_FOLLOW_EVENT_DEPENDENCIES = 1,
  /// 1: memory whose free has completed may be reused on any stream. 0 or 1.
  FOREBAY_ATTRIBUTE_REUSE_ALLOW_OPPORTUNISTIC = 2,
  /// 1: the pool may insert a wait into a stream in order to reuse memory. 0 or 1.
  FOREBAY_ATTRIBUTE_REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
  /// Bytes of idle memory that the pool keeps; above that it gives memory back to the system at synchronization.
  FOREBAY_ATTRIBUTE_RELEASE_THRESHOLD = 4,
  /// Bytes of physical memory that the pool holds. Read only.
  FOREBAY_ATTRIBUTE_RESERVED_MEM_CURRENT = 5,
  /// The peak of RESERVED_MEM_CURRENT, in bytes. Writing 0 resets it to the present value.
  FOREBAY_ATTRIBUTE_RESERVED_MEM_HIGH = 6,
  /// Bytes in live allocations. Read only.
  FOREBAY_ATTRIBUTE_USED_MEM_CURRENT = 7,
  /// The peak of USED_MEM_CURRENT, in bytes. Writing 0 resets it to the present value.
  FOREBAY_ATTRIBUTE_USED_MEM_HIGH = 8,
} forebay_attribute;

/// The path by which a buffer's memory came into this process.
typedef enum {
  /// Not imported: this process allocated it.
  FOREBAY_IPC_PATH_NONE = 0,
  /// A buffer of a driver pool that is mapped here through a file descriptor.
  FOREBAY_IPC_PATH_POOL = 1,
  /// Physical memory, as file descriptors over a UNIX socket.
  FOREBAY_IPC_PATH_FD = 2,
  /// Physical memory, as fabric handles.
  FOREBAY_IPC_PATH_FABRIC = 3,
  /// A legacy handle (cuIpcGetMemHandle).
  FOREBAY_IPC_PATH_LEGACY = 4,
} forebay_ipc_path;

/// Options of `forebay_device_resource_create`, filled by `forebay_device_resource_options_init`.
typedef struct {
  /// sizeof(forebay_device_resource_options).
  uint32_t size;
  /// FOREBAY_RESOURCE_OPTIONS_VERSION.
  uint32_t version;
  /// A FOREBAY_POOL_SOURCE_*. `ipc_enabled` and `max_size` apply to new pools only.
  uint32_t source;
  /// 1: the pool can be shared with other processes.
  uint32_t ipc_enabled;
  /// The most bytes that the pool may hold; 0: the driver's limit.
  uint64_t max_size;
  /// For FOREBAY_POOL_SOURCE_HANDLE: the CUmemoryPool. The caller owns it; it must live as long as the resource.
  uint64_t handle;
  /// Zero.
  uint64_t reserved[4];
} forebay_device_resource_options;

/// Options of `forebay_pinned_resource_create`, filled by `forebay_pinned_resource_options_init`.
typedef struct {
  /// sizeof(forebay_pinned_resource_options).
  uint32_t size;
  /// FOREBAY_RESOURCE_OPTIONS_VERSION.
  uint32_t version;
  /// A FOREBAY_POOL_SOURCE_*. `ipc_enabled`, `max_size` and `numa_id` apply to new pools only.
  uint32_t source;
  /// 1: the pool can be shared with other processes.
  uint32_t ipc_enabled;
  /// The NUMA node of the memory. -1: with IPC the node nearest to `device`, otherwise chosen by the system.
  int32_t numa_id;
  /// The device in whose context the pool's calls are made. -1: the current device, or device 0 if no context is
  /// current. Streams of every device can be used.
  int32_t device;
  /// 1: Forebay's own pinned pool, even if the driver has host pools.
  uint32_t own_pool;
  /// Zero.
  uint32_t reserved0;
  /// The most bytes that the pool may hold; 0: the driver's limit.
  uint64_t max_size;
  /// For FOREBAY_POOL_SOURCE_HANDLE: the CUmemoryPool. The caller owns it; it must live as long as the resource.
  uint64_t handle;
  /// Zero.
  uint64_t reserved[4];
} forebay_pinned_resource_options;

/// Options of `forebay_managed_resource_create`, filled by `forebay_managed_resource_options_init`.
typedef struct {
  /// sizeof(forebay_managed_resource_options).
  uint32_t size;
  /// FOREBAY_RESOURCE_OPTIONS_VERSION.
  uint32_t version;
  /// A FOREBAY_POOL_SOURCE_*.
  uint32_t source;
  /// The preferred location of the memory: FOREBAY_LOCATION_NONE, FOREBAY_LOCATION_DEVICE, FOREBAY_LOCATION_HOST or
  /// FOREBAY_LOCATION_HOST_NUMA.
  uint32_t preferred_location_type;
  /// The device or the NUMA node of the preferred location. For a NUMA node, -1 means the node nearest to `device`.
  int32_t preferred_location;
  /// The device in whose context the pool's calls are made. -1: the current device, or device 0 if no context is
  /// current.
  int32_t device;
  /// For FOREBAY_POOL_SOURCE_HANDLE: the CUmemoryPool. The caller owns it; it must live as long as the resource.
  uint64_t handle;
  /// Zero.
  uint64_t reserved[4];
} forebay_managed_resource_options;

/// Options of `forebay_virtual_resource_create` and of `forebay_resource_modify_allocation`, filled by
/// `forebay_virtual_resource_options_init`. An option that the device lacks is refused with FOREBAY_STATUS_UNSUPPORTED.
typedef struct {
  /// sizeof(forebay_virtual_resource_options).
  uint32_t size;
  /// FOREBAY_RESOURCE_OPTIONS_VERSION.
  uint32_t version;
  /// A FOREBAY_ALLOCATION_TYPE_*.
  uint32_t allocation_type;
  /// A FOREBAY_LOCATION_*, except FOREBAY_LOCATION_NONE. FOREBAY_LOCATION_HOST_NUMA is the node nearest to the
  /// device.
  uint32_t location_type;
  /// A FOREBAY_HANDLE_TYPE_*: the handle by which the memory is shared with other processes.
  uint32_t handle_type;
  /// A FOREBAY_GRANULARITY_*, to which sizes are rounded up.
  uint32_t granularity;
  /// 1: network cards can reach the memory (GPUDirect RDMA).
  uint32_t gpu_direct_rdma;
  /// A FOREBAY_ACCESS_*: the access of the resource's device and, for host memory, of the host.
  uint32_t self_access;
  /// A FOREBAY_ACCESS_*: the access of `peers`.
  uint32_t peer_access;
  /// The number of `peers`.
  uint32_t peer_count;
  /// Other devices that may use the memory. Read during the call only.
  const int32_t *peers;
  /// The address to reserve if it is free; 0: any address.
  uint64_t addr_hint;
  /// Alignment of the addresses in bytes, a power of two; 0: the granularity.
  uint64_t addr_align;
  /// Zero.
  uint64_t reserved[4];
} forebay_virtual_resource_options;

/// Options of `forebay_host_resource_create`, filled by `forebay_host_resource_options_init`.
typedef struct {
  /// sizeof(forebay_host_resource_options).
  uint32_t size;
  /// FOREBAY_RESOURCE_OPTIONS_VERSION.
  uint32_t version;
  /// 1: page-locked for the contexts of all devices, not only for that of `device` (CU_MEMHOSTALLOC_PORTABLE).
  uint32_t portable;
  /// 1: kernels can use the memory (CU_MEMHOSTALLOC_DEVICEMAP).
  uint32_t mapped;
  /// 1: write-combined (CU_MEMHOSTALLOC_WRITECOMBINED): faster transfers, but slow reads by the host.
  uint32_t write_combined;
  /// Zero.
  uint32_t reserved0;
  /// The device in whose context the calls are made. -1: the current device, or device 0 if no context is current.
  int32_t device;
  /// Zero.
  uint32_t reserved1;
  /// Zero.
  uint64_t reserved[4];
} forebay_host_resource_options;

/// Properties of a resource, from `forebay_resource_get_info`. The caller sets `size` and `version` before the call.
typedef struct {
  /// sizeof(forebay_resource_info).
  uint32_t size;
  /// FOREBAY_INFO_VERSION.
  uint32_t version;
  /// A FOREBAY_RESOURCE_KIND_*.
  uint32_t kind;
  /// The device of the memory; -1 for host memory.
  int32_t device_id;
  /// The NUMA node of pinned memory; -1: chosen by the system, or not host memory.
  int32_t numa_id;
  /// 1: closing the resource ends its pool. 0: closing has no effect on the pool.
  uint32_t is_handle_owned;
  /// 1: kernels can use the memory.
  uint32_t is_device_accessible;
  /// 1: the host can use the memory.
  uint32_t is_host_accessible;
  /// 1: it is managed memory.
  uint32_t is_managed;
  /// 1: the memory can be shared with other processes.
  uint32_t is_ipc_enabled;
  /// 1: a pool of another process, mapped here; it cannot allocate.
  uint32_t is_mapped;
  /// 1: the resource is closed.
  uint32_t is_closed;
  /// 1: `uuid` is valid.
  uint32_t has_uuid;
  /// A FOREBAY_LOCATION_*: the preferred location of managed memory.
  uint32_t preferred_location_type;
  /// The device or NUMA node of the preferred location; -1: none.
  int32_t preferred_location;
  /// Zero.
  uint32_t reserved0;
  /// The uuid that names a shared pool in all processes.
  uint8_t uuid[16];
  /// The CUmemoryPool; 0 for none.
  uint64_t handle;
  /// Zero.
  uint64_t reserved[4];
} forebay_resource_info;

/// Fills `options` for a new pool without IPC and with the driver's limit. Any thread.
forebay_status forebay_device_resource_options_init(forebay_device_resource_options *options);

/// Fills `options` for a new driver pool without IPC, for the current device, on a NUMA node that the system chooses.
/// Any thread.
forebay_status forebay_pinned_resource_options_init(forebay_pinned_resource_options *options);

/// Fills `options` for a new pool for the current device, without a preferred location. Any thread.
forebay_status forebay_managed_resource_options_init(forebay_managed_resource_options *options);

/// Fills `options` for pinned memory of the device, which the device alone can use, shareable as a file descriptor,
/// with the recommended granularity. Any thread.
forebay_status forebay_virtual_resource_options_init(forebay_virtual_resource_options *options);

/// Fills `options` for portable and mapped memory, for the current device. Any thread.
forebay_status forebay_host_resource_options_init(forebay_host_resource_options *options);

/// Creates a resource on a stream-ordered pool of the driver on `device`, as cuda.core's DeviceMemoryResource is. NULL
/// options: the device's current pool, which is the default pool unless the program set another; the resource does not
/// own that pool, and closing the resource has no effect on it. The caller owns the object and frees it with
/// `forebay_resource_destroy`. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED if the device has no stream-ordered pools, or if `ipc_enabled` is 1 and it cannot
/// share them.
forebay_status forebay_device_resource_create(int32_t device,
                                              const forebay_device_resource_options *options,
                                              forebay_resource **out);

/// Creates a resource on a stream-ordered pool of pinned host memory, for streams of every device, as cuda.core's
/// PinnedMemoryResource is. NULL options: the current or default pool, not owned, for the current device. If the driver
/// has no host pools, the resource uses Forebay's own pinned pool. A pool with IPC and no `numa_id` lies on the NUMA
/// node nearest to `device`. The caller owns the object and frees it with `forebay_resource_destroy`. Any thread.
///
/// Memory of a driver pool is ready in stream order: synchronize the stream before the host uses it. Memory of
/// Forebay's own pool is ready at once.
forebay_status forebay_pinned_resource_create(const forebay_pinned_resource_options *options,
                                              forebay_resource **out);

/// Creates a resource on a pool of managed memory, as cuda.core's ManagedMemoryResource is. NULL options: the current
/// or default pool, not owned. If the driver has no managed pools (before CUDA 13), each allocation is a call of
/// cuMemAllocManaged. The caller owns the object and frees it with `forebay_resource_destroy`. Any thread.
forebay_status forebay_managed_resource_create(const forebay_managed_resource_options *options,
                                               forebay_resource **out);

/// Creates a resource of virtual memory, as cuda.core's VirtualMemoryResource is: each buffer has its own range of
/// addresses and can grow (`forebay_resource_modify_allocation`). NULL options: the defaults of
/// `forebay_virtual_resource_options_init`. Sizes are rounded up to the granularity (2 MiB on current GPUs). The caller
/// owns the object and frees it with `forebay_resource_destroy`. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED for an option that the device lacks, and on a device without virtual memory
/// management; the message names what is missing.
forebay_status forebay_virtual_resource_create(int32_t device,
                                               const forebay_virtual_resource_options *options,
                                               forebay_resource **out);

/// Creates a resource of page-locked host memory (cuMemHostAlloc), not stream-ordered: memory is ready at once, and
/// freeing it waits on the host for all work of the device. NULL options: portable and mapped, for the current device.
/// The caller owns the object and frees it with `forebay_resource_destroy`. Any thread.
forebay_status forebay_host_resource_create(const forebay_host_resource_options *options,
                                            forebay_resource **out);

/// Creates a resource on the part of a Forebay pool that belongs to `device`. The resource keeps the pool alive. Memory
/// of a pinned pool is ready for the host at once. The caller owns the object and frees it with
/// `forebay_resource_destroy`. Any thread.
forebay_status forebay_pool_resource_create(forebay_pool *pool,
                                            int32_t device,
                                            forebay_resource **out);

/// Frees the object. The resource lives as long as other objects or open buffers refer to it; a pool that it owns ends
/// with it. NULL does nothing. Any thread, but no other call may use the object.
void forebay_resource_destroy(forebay_resource *resource);

/// Closes the resource: allocations from it return FOREBAY_STATUS_CLOSED from now on, and a pool that it owns is
/// destroyed with its last block. Open buffers can still be used and closed. A pool that the resource does not own is
/// not affected. A second call does nothing. Any thread.
forebay_status forebay_resource_close(forebay_resource *resource);

/// Allocates `bytes` bytes as a buffer that work queued on `stream` from now on may use. NULL is the legacy default
/// stream. The size of the buffer may be larger: some resources round sizes up. 0 bytes give a buffer at NULL. The
/// caller owns the buffer and frees it with `forebay_buffer_destroy`. Any thread.
///
/// Returns FOREBAY_STATUS_OUT_OF_MEMORY; FOREBAY_STATUS_CLOSED for a closed resource; FOREBAY_STATUS_NOT_PERMITTED for
/// a mapped pool.
forebay_status forebay_resource_allocate(forebay_resource *resource,
                                         uint64_t bytes,
                                         void *stream,
                                         forebay_buffer **out);

/// `forebay_resource_allocate` without waiting, under the rules of `forebay_pool_try_malloc`. Only a resource on a
/// Forebay pool can; every other one returns 0. Any thread.
///
/// Returns 1 and writes `out`; or returns 0 and changes nothing: then call `forebay_resource_allocate`.
uint32_t forebay_resource_try_allocate(forebay_resource *resource,
                                       uint64_t bytes,
                                       void *stream,
                                       forebay_buffer **out);

/// `forebay_resource_allocate` that gives a pointer instead of a buffer. The caller owns the memory and frees it with
/// `forebay_resource_deallocate`. 0 bytes give NULL. Any thread.
forebay_status forebay_resource_allocate_pointer(forebay_resource *resource,
                                                 uint64_t bytes,
                                                 void *stream,
                                                 void **out);

/// Frees memory from `forebay_resource_allocate_pointer` of the same resource in the order of `stream`, also after the
/// resource was closed. `bytes` is ignored. NULL `ptr` does nothing. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE, and changes nothing, for any other pointer: one that was freed before, or the
/// memory of a buffer, also of a buffer that `forebay_buffer_from_handle` made from the pointer.
forebay_status forebay_resource_deallocate(forebay_resource *resource,
                                           void *ptr,
                                           uint64_t bytes,
                                           void *stream);

/// `forebay_resource_deallocate` in the order of the stream of the allocation, which must be alive. Any thread.
forebay_status forebay_resource_deallocate_pointer(forebay_resource *resource,
                                                   void *ptr);

/// Gives the properties of the resource. Set `size` and `version` of `out` before the call. Any thread.
forebay_status forebay_resource_get_info(const forebay_resource *resource,
                                         forebay_resource_info *out);

/// Reads an attribute of the resource's pool: `number` is a FOREBAY_ATTRIBUTE_*. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED for a resource without a pool.
forebay_status forebay_resource_get_attribute(const forebay_resource *resource,
                                              uint32_t number,
                                              uint64_t *out);

/// Writes an attribute of the resource's pool: the three REUSE_* (0 or 1), RELEASE_THRESHOLD (bytes) and the two *_HIGH
/// (0 only). Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for a read-only attribute and for a value out of range,
/// FOREBAY_STATUS_UNSUPPORTED if the pool does not have the attribute.
forebay_status forebay_resource_set_attribute(forebay_resource *resource,
                                              uint32_t number,
                                              uint64_t value);

/// Gives the access of device `peer_device` to the resource's memory: a FOREBAY_ACCESS_*. Any thread.
forebay_status forebay_resource_get_peer_access(const forebay_resource *resource,
                                                int32_t peer_device,
                                                uint32_t *access);

/// Sets the access of device `peer_device` to the resource's memory, live blocks included: a FOREBAY_ACCESS_*. Any
/// thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED if `peer_device` cannot reach the memory, or if the resource's options fix the
/// access.
forebay_status forebay_resource_set_peer_access(forebay_resource *resource,
                                                int32_t peer_device,
                                                uint32_t access);

/// Gives idle memory back to the system until the resource's pool holds at most `keep` bytes. Does nothing for a
/// resource without a pool. Any thread.
forebay_status forebay_resource_trim(forebay_resource *resource,
                                     uint64_t keep);

/// Changes the size of a buffer of virtual memory to `new_size` bytes, rounded up to the granularity. The contents are
/// kept up to the smaller size. A call that fails leaves the buffer unchanged.
///
/// The buffer keeps its address if the addresses behind it are free, which they are up to the size of the device's
/// memory or twice the buffer's first size. Otherwise it moves: the old addresses are unmapped once the work queued on
/// `stream` is done. Shrinking waits for `stream`, too. NULL `config`: the resource's own options. Descriptors of the
/// buffer for other processes become invalid. Any thread.
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

/// Called once, when the buffer around the memory is closed. Any thread may call it; it must not throw.
typedef void (*forebay_release_fn)(void *context);

/// Properties of a buffer, from `forebay_buffer_get_info`. The caller sets `size` and `version` before the call.
typedef struct {
  /// sizeof(forebay_buffer_info).
  uint32_t size;
  /// FOREBAY_INFO_VERSION.
  uint32_t version;
  /// The address of the memory.
  uint64_t handle;
  /// Its size in bytes.
  uint64_t bytes;
  /// The stream in whose order the memory is freed.
  uint64_t stream;
  /// The device of the memory; -1 for host memory.
  int32_t device_id;
  /// 1: kernels can use the memory.
  uint32_t is_device_accessible;
  /// 1: the host can use the memory.
  uint32_t is_host_accessible;
  /// 1: it is managed memory.
  uint32_t is_managed;
  /// 1: it is memory of another process.
  uint32_t is_mapped;
  /// 1: the buffer is closed.
  uint32_t is_closed;
  /// A FOREBAY_IPC_PATH_*: the path by which the memory came into this process.
  uint32_t ipc_path;
  /// 1: it has a resource.
  uint32_t has_resource;
  /// The device of `stream` if that is a default stream. Never -1, also for host memory.
  int32_t stream_device;
  /// Zero.
  uint32_t reserved0;
  /// Zero.
  uint64_t reserved[3];
} forebay_buffer_info;

/// Makes a buffer of `bytes` bytes of existing memory at `ptr`. With a resource, closing the buffer frees `ptr` to it
/// in the order of `stream`; with `release`, closing calls `release(context)` once; with neither, closing frees
/// nothing. The caller owns the object and frees it with `forebay_buffer_destroy`. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for both a resource and a release function, and for NULL `ptr` with a size.
/// The caller then keeps the memory.
forebay_status forebay_buffer_from_handle(void *ptr,
                                          uint64_t bytes,
                                          forebay_resource *resource,
                                          forebay_release_fn release,
                                          void *context,
                                          void *stream,
                                          forebay_buffer **out);

/// Frees the object, and closes the buffer if it is open. NULL does nothing. Any thread, but no other call may use the
/// object.
void forebay_buffer_destroy(forebay_buffer *buffer);

/// Frees the buffer's memory in the order of the stream of its allocation. If DLPack tensors of the buffer are alive,
/// the memory is freed with the last of them. A second call does nothing. Any thread.
forebay_status forebay_buffer_close(forebay_buffer *buffer);

/// `forebay_buffer_close` without waiting, under the rules of `forebay_pool_try_free`. Any thread.
///
/// Returns 1 if the buffer is closed; or returns 0 and changes nothing: then call `forebay_buffer_close`.
uint32_t forebay_buffer_try_close(forebay_buffer *buffer);

/// `forebay_buffer_close` in the order of `stream`, which must be alive in this call. Any thread.
forebay_status forebay_buffer_close_on(forebay_buffer *buffer, void *stream);

/// Gives the properties of the buffer, also after it was closed. Set `size` and `version` of `out` before the call. Any
/// thread.
forebay_status forebay_buffer_get_info(const forebay_buffer *buffer,
                                       forebay_buffer_info *out);

/// Gives the buffer's resource, as a new object that the caller owns. Any thread.
///
/// Returns FOREBAY_STATUS_NOT_FOUND for a buffer without one.
forebay_status forebay_buffer_get_resource(const forebay_buffer *buffer, forebay_resource **out);

/// Queues a copy of all of `src` to `dst` on `stream`. Keep both open until the copy is done. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for sizes that differ.
forebay_status forebay_buffer_copy(forebay_buffer *dst, const forebay_buffer *src, void *stream);

/// Allocates a new buffer from the resource of `src` and queues a copy of `src` to it, both on `stream`. The caller
/// owns the new buffer and frees it with `forebay_buffer_destroy`. Any thread.
forebay_status forebay_buffer_clone(const forebay_buffer *src,
                                    void *stream,
                                    forebay_buffer **out);

/// Queues a fill of the buffer on `stream` with the low `width` bytes of `value`, repeated: 1, 2 or 4 bytes, in
/// little-endian order. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for another width, for a value that does not fit, and if the buffer's size
/// is not a multiple of the width.
forebay_status forebay_buffer_fill(forebay_buffer *buffer,
                                   uint32_t value,
                                   uint32_t width,
                                   void *stream);

/** @} */

/**
 * @defgroup forebay_sharing Sharing: DLPack and other processes
 * @{
 */

/// Names memory of this process for another process: plain bytes, which may be stored and sent in any way. Every
/// process of the same user that has the bytes can map the memory.
typedef struct {
  /// Opaque.
  uint8_t bytes[256];
} forebay_ipc_descriptor;

/// Exports the buffer as a tensor of one dimension and type int8. The caller owns the tensor and calls its deleter
/// once, or passes it to a library that does; until then the memory stays, also if the buffer is closed. The caller
/// orders the work of both sides. Any thread.
///
/// Returns FOREBAY_STATUS_CLOSED for a closed buffer.
forebay_status forebay_buffer_to_dlpack(forebay_buffer *buffer,
                                        struct DLManagedTensorVersioned **out);

/// `forebay_buffer_to_dlpack` with the struct of DLPack before 1.0.
forebay_status forebay_buffer_to_dlpack_legacy(forebay_buffer *buffer, struct DLManagedTensor **out);

/// Imports a tensor as a buffer: CUDA, pinned, managed or host memory of any shape and type, contiguous in C order. On
/// success the buffer owns the tensor and calls its deleter when it is closed, in the order of `stream`; on failure the
/// caller keeps the tensor. The caller owns the buffer and frees it with `forebay_buffer_destroy`. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED for another major version of DLPack, another kind of device and a read-only
/// tensor; FOREBAY_STATUS_INVALID_ARGUMENT for a tensor that is not contiguous.
forebay_status forebay_buffer_from_dlpack(struct DLManagedTensorVersioned *tensor,
                                          void *stream,
                                          forebay_buffer **out);

/// `forebay_buffer_from_dlpack` with the struct of DLPack before 1.0.
forebay_status forebay_buffer_from_dlpack_legacy(struct DLManagedTensor *tensor,
                                                 void *stream,
                                                 forebay_buffer **out);

/// Destructor of Python capsules that hold a tensor of this library and are named "dltensor" or "dltensor_versioned";
/// pass its address to PyCapsule_New. It calls the tensor's deleter, unless a consumer took the tensor and renamed the
/// capsule. It runs with the GIL held, as every capsule destructor does.
void forebay_dlpack_capsule_delete(void *capsule);

/// Gives the file descriptor and the uuid of a pool created with `ipc_enabled`. Send both to another process, the file
/// descriptor by SCM_RIGHTS. The resource owns the file descriptor, which is close-on-exec, and closes it; duplicate it
/// to keep it. `uuid` points to 16 bytes. Any thread.
///
/// Returns FOREBAY_STATUS_NOT_PERMITTED for a pool without IPC and for a mapped pool, FOREBAY_STATUS_UNSUPPORTED for a
/// resource that is not a driver pool: share its buffers one by one (`forebay_buffer_get_ipc_descriptor`).
forebay_status forebay_resource_get_allocation_handle(forebay_resource *resource,
                                                      int32_t *fd,
                                                      uint8_t *uuid);

/// Maps a pool of another process: gives a resource that owns the mapping, imports that pool's buffers, and cannot
/// allocate.
///
/// `kind` is FOREBAY_RESOURCE_KIND_DEVICE or FOREBAY_RESOURCE_KIND_PINNED, the same as in the exporting process.
/// `device` is the device of the memory; for pinned memory it is the device in whose context calls are made, -1 for the
/// current device. The caller keeps `fd` and may close it after the call. `uuid` registers the mapped pool, so that
/// `forebay_buffer_from_ipc_descriptor` finds it; if a pool is registered under this uuid already, `out` receives that
/// resource and `fd` is not used. NULL `uuid`: not registered. The caller owns the object and frees it with
/// `forebay_resource_destroy`. Any thread.
forebay_status forebay_resource_from_allocation_handle(uint32_t kind,
                                                       int32_t device,
                                                       int32_t fd,
                                                       const uint8_t *uuid,
                                                       forebay_resource **out);

/// Registers a mapped pool under its uuid, so that `forebay_buffer_from_ipc_descriptor` finds it. `out` receives the
/// resource to use, as a new object that the caller owns: the resource that is already registered under this uuid if it
/// is still alive, otherwise `resource`. The registry keeps no resource alive. Any thread.
///
/// Returns FOREBAY_STATUS_NOT_PERMITTED for a pool of this process.
forebay_status forebay_resource_register(forebay_resource *resource,
                                         const uint8_t *uuid,
                                         forebay_resource **out);

/// Gives the mapped pool that is registered under `uuid`, as a new object that the caller owns. Any thread.
///
/// Returns FOREBAY_STATUS_NOT_FOUND if there is none.
forebay_status forebay_resource_from_registry(const uint8_t *uuid, forebay_resource **out);

/// Starts this process's exchange service, a thread that sends exported memory to other processes of this user. The
/// first export starts it, too. Further calls do nothing. Any thread.
forebay_status forebay_ipc_serve(void);

/// Gives a descriptor that names the buffer for other processes. Keep the buffer open until they have mapped it; mapped
/// memory stays valid also after this process has ended. A second call gives the same descriptor. Memory of pools is
/// shared in whole chunks, so a process that maps a buffer can reach other blocks in the same chunks. Any thread.
///
/// Returns FOREBAY_STATUS_NOT_PERMITTED for a resource without IPC, FOREBAY_STATUS_UNSUPPORTED for memory that cannot
/// be shared, such as a Forebay pool's on a device without virtual memory management.
forebay_status forebay_buffer_get_ipc_descriptor(forebay_buffer *buffer,
                                                 forebay_ipc_descriptor *out);

/// Gives the size in bytes of the buffer that a descriptor names. The size is read from the descriptor and not
/// verified; an import compares it with the memory. Any thread.
///
/// Returns FOREBAY_STATUS_INVALID_ARGUMENT for bytes that are no descriptor.
forebay_status forebay_ipc_descriptor_size(const forebay_ipc_descriptor *descriptor,
                                           uint64_t bytes,
                                           uint64_t *size);

/// Maps the memory that a descriptor of another process names, as a buffer; `forebay_buffer_get_info` gives the path
/// that it took. Closing the buffer unmaps it in this process only.
///
/// `resource`: for a buffer of a driver pool, the mapped pool, or NULL if that is registered. For other memory NULL, or
/// a virtual memory resource, whose device and peers then get the access in its options. The descriptor is checked, not
/// trusted. In the exporting process itself, buffers of driver pools and legacy handles cannot be imported. The call
/// waits for the exporting process, at most 10 s for each answer. The caller owns the buffer and frees it with
/// `forebay_buffer_destroy`. Any thread.
///
/// Returns FOREBAY_STATUS_NOT_FOUND for memory that was freed and for a pool that is not mapped, FOREBAY_STATUS_PEER if
/// the exporting process has ended, FOREBAY_STATUS_NOT_PERMITTED if it belongs to another user,
/// FOREBAY_STATUS_INVALID_ARGUMENT for bytes that are no descriptor.
forebay_status forebay_buffer_from_ipc_descriptor(forebay_resource *resource,
                                                  const forebay_ipc_descriptor *descriptor,
                                                  uint64_t bytes,
                                                  void *stream,
                                                  forebay_buffer **out);

/// Gives a descriptor, as `forebay_buffer_get_ipc_descriptor` does, for the memory of a Forebay pool from `ptr`, which
/// may point anywhere into a live block, to the end of that block. Freeing the block makes the descriptor invalid. Any
/// thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE for a pointer that is not in a live block, FOREBAY_STATUS_UNSUPPORTED on a device
/// without virtual memory management.
forebay_status forebay_ipc_export(forebay_pool *pool,
                                  const void *ptr,
                                  forebay_ipc_descriptor *out);

/// Gives a descriptor for `bytes` bytes at `ptr` of memory from cuMemAlloc or cudaMalloc, as a legacy handle
/// (cuIpcGetMemHandle). Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED for memory without such a handle.
forebay_status forebay_ipc_export_foreign(const void *ptr, uint64_t bytes, forebay_ipc_descriptor *out);

/** @} */

/**
 * @defgroup forebay_cupy CuPy's hooks
 * @{
 */

/// A pool for CuPy: one resource for each device, at the index of the device, since one Python object serves all
/// devices.
typedef struct forebay_cupy_pool forebay_cupy_pool;

/// Returns CuPy's current stream of the calling thread on `device`, or -1 with a Python exception set.
typedef ptrdiff_t (*forebay_stream_getter)(int device);

/// Returns the calling thread's memory hooks: a new reference to a Python container. Called with 0, as CuPy calls it.
typedef void *(*forebay_hook_getter)(int skip_dispatch);

/// Sets the function that returns CuPy's current stream on a device: the C function in the capsule
/// `cupy_backends.cuda.stream.__pyx_capi__["get_stream_ptr"]`. NULL, the initial value: the legacy default stream. Any
/// thread.
void forebay_cupy_set_stream_getter(forebay_stream_getter getter);

/// Allocates `size` bytes on `device` in the order of CuPy's current stream on it. `param` is a forebay_pool, NULL for
/// the shared pool, and must live until everything allocated from it is freed. The caller holds the GIL. For
/// cupy.cuda.memory.CFunctionAllocator:
/// <https://docs.cupy.dev/en/stable/reference/generated/cupy.cuda.CFunctionAllocator.html>
///
/// On failure a Python exception is set, and the pointer is -1: `cupy.cuda.memory.OutOfMemoryError` with the pool's
/// report for lack of memory (`MemoryError` if CuPy's class cannot be imported), `RuntimeError` otherwise. In a program
/// without Python a `std::runtime_error` is thrown; without a C++ runtime the pointer is NULL.
void *forebay_cupy_malloc(void *param,
                          size_t size,
                          int device);

/// Frees a block in the order of CuPy's current stream on `device` and of the stream of its allocation, since CuPy
/// frees an array where its last reference ends. `param` is that of the allocation. A pointer that is not the start of
/// a live block goes to the log and changes nothing. The caller holds the GIL. Never raises: CuPy frees in destructors,
/// also while the interpreter ends.
void forebay_cupy_free(void *param,
                       void *ptr,
                       int device);

/// Sets how CuPy's memory hooks are found and called; NULL for both removes them. Any thread.
///
/// `getter` is the C function in the capsule `cupy.cuda.memory_hook.__pyx_capi__["get_memory_hooks"]`. It is called
/// once in each Python thread; the container that it returns is checked in every later call.
///
/// `tell` is a Python function (a `PyObject *`, which the caller keeps alive until it is replaced) of five integers:
/// the event (0 before an allocation, 1 after it, 2 before a free, 3 after it), the device, the bytes, the address (0
/// if there is none) and the bytes by which the pool has grown. It returns whether there are hooks. If it raises, the
/// allocation fails with its exception.
void forebay_cupy_set_memory_hooks(forebay_hook_getter getter,
                                   void *tell);

/// Creates a pool for CuPy from `count` resources, one for each device: `resources[0]` for device 0, and so on. The
/// pool keeps the resources alive. The caller owns the object and frees it with `forebay_cupy_pool_destroy`. Any
/// thread.
forebay_status forebay_cupy_pool_create(const forebay_resource *const *resources,
                                        uint32_t count,
                                        forebay_cupy_pool **out);

/// Frees the object. Free everything that was allocated from it before. NULL does nothing. Any thread, but no other
/// call may use the object.
void forebay_cupy_pool_destroy(forebay_cupy_pool *pool);

/// Sets the limit of the resource of `device` in bytes; 0, the initial value: no limit. An allocation of CuPy's fails
/// if it would raise the bytes in use of that resource's pool, by all its users, above the limit. All pools for CuPy on
/// one resource share its limit. Any thread.
forebay_status forebay_cupy_pool_set_limit(forebay_cupy_pool *pool,
                                           int32_t device,
                                           uint64_t bytes);

/// Gives the limit of the resource of `device` in bytes; 0 for none. Any thread.
forebay_status forebay_cupy_pool_get_limit(const forebay_cupy_pool *pool, int32_t device, uint64_t *out);

/// Allocates `size` bytes, rounded up to 512, from the resource of `device` in the order of CuPy's current stream.
/// `param` is a forebay_cupy_pool, which must live until everything allocated from it is freed. The caller holds the
/// GIL. Fails as `forebay_cupy_malloc` does.
void *forebay_cupy_pool_malloc(void *param,
                               size_t size,
                               int device);

/// Frees a block in the order of CuPy's current stream. If the block was allocated on another stream, which may be
/// destroyed by now, CuPy's current stream first waits for all work of the device. A pointer that no pool for CuPy on
/// the same resource allocated goes to the log and changes nothing. The caller holds the GIL. Never raises.
void forebay_cupy_pool_free(void *param,
                            void *ptr,
                            int device);

/** @} */

/**
 * @defgroup forebay_torch PyTorch's hooks
 * @{
 */

/// A live block that PyTorch allocated.
typedef struct {
  /// Its size in bytes.
  uint64_t bytes;
  /// The bytes that were requested.
  uint64_t requested;
  /// The stream of its allocation. NULL from `forebay_torch_free_while`, which does not look it up.
  void *stream;
  /// Its device.
  int32_t device;
  /// Zero.
  uint32_t reserved;
} forebay_torch_block;

/// Allocates `size` bytes of the shared pool on `device` in the order of `stream`. Any thread. For
/// torch.cuda.memory.CUDAPluggableAllocator:
/// <https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.CUDAPluggableAllocator.html>
///
/// On failure it throws: `c10::OutOfMemoryError` for lack of memory if PyTorch's libraries are loaded, otherwise
/// `std::runtime_error`. It returns NULL only in a program that has no libstdc++, or does not export it.
void *forebay_torch_malloc(ptrdiff_t size,
                           int device,
                           void *stream);

/// Frees a block in the order of `stream`. Size and device are ignored. A pointer that is not the start of a live block
/// goes to the log and changes nothing. Never throws: PyTorch frees in destructors, also while the process ends. Any
/// thread.
void forebay_torch_free(void *ptr,
                        ptrdiff_t _size,
                        int _device,
                        void *stream);

/// For `set_init_fn`. Opens the driver, so that a missing driver is reported at the start. Throws `std::runtime_error`.
void forebay_torch_init(int _device_count);

/// For `set_reset_fn`, which PyTorch's `empty_cache` calls: gives all free memory back to the driver. Never throws. Any
/// thread.
void forebay_torch_reset(void);

/// For `set_memory_fraction_fn`: limits the pool to a share of the device's memory, above 0 and up to 1. Throws
/// `std::runtime_error` for a fraction or device out of range. Any thread.
void forebay_torch_memory_fraction(double fraction,
                                   int device);

/// For `set_base_alloc_fn`: returns the start of the live block that `ptr` points into; `size` (may be NULL) receives
/// its size in bytes. Throws `std::runtime_error` for a pointer into no live block. Any thread.
void *forebay_torch_base_alloc(void *ptr,
                               size_t *size);

/// For `set_record_stream_fn`: records that the block is also used on `stream`, so that it is reused only after the
/// work that `stream` has when the block is freed. A pointer that is not the start of a live block is ignored, as in
/// PyTorch's own allocator. Never throws. Any thread.
void forebay_torch_record_stream(void *ptr,
                                 void *stream);

/// For `set_begin_allocate_to_pool`: allocations on streams that `filter` accepts come from the private pool of this
/// id. `filter` points to a `std::function<bool(cudaStream_t)>` of libstdc++; NULL accepts every stream. Throws
/// `std::runtime_error`, always on a device without virtual memory management, which has no private pools.
void forebay_torch_begin_allocate_to_pool(int device,
                                          uint64_t id_first,
                                          uint64_t id_second,
                                          void *filter);

/// For `set_end_allocate_to_pool_fn`: ends the newest begin of this id. Throws `std::runtime_error` if none is open.
void forebay_torch_end_allocate_to_pool(int device,
                                        uint64_t id_first,
                                        uint64_t id_second);

/// For `set_release_pool`: drops one reference to the private pool. After the last one its memory returns to the shared
/// pool. Never throws: PyTorch calls it in destructors.
void forebay_torch_release_pool(int device,
                                uint64_t id_first,
                                uint64_t id_second);

/// Gives the live block that starts at `ptr`. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE unless a live block that PyTorch allocated starts at `ptr`.
forebay_status forebay_torch_block_at(const void *ptr, forebay_torch_block *out);

/// Frees a block in the order of the stream of its allocation and, unless `has_current` is 0, after the work that
/// stream `current` has now. `current` is the stream that is current where the program frees the block, and that may
/// have used it. A block of a private pool stays in the order of its own stream, and a `current` that is being captured
/// is ignored. `out` receives the block as it was. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE, and changes nothing, unless a live block that PyTorch allocated starts at `ptr`.
forebay_status forebay_torch_free_while(void *ptr,
                                        uint32_t has_current,
                                        void *current,
                                        forebay_torch_block *out);

/// Adds one reference to a private pool, and creates it if it does not exist; `forebay_torch_release_pool` drops one.
/// Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED on a device without virtual memory management.
forebay_status forebay_torch_hold_pool(int device,
                                       uint64_t id_first,
                                       uint64_t id_second);

/// Gives the number of references to a private pool; 0 for an unknown one. Any thread.
///
/// Returns FOREBAY_STATUS_UNSUPPORTED on a device without virtual memory management.
forebay_status forebay_torch_pool_use_count(int device, uint64_t id_first, uint64_t id_second, uint32_t *out);

/// Gives the ids of the private pool of the live block that starts at `ptr`; zeros if it has none. Any thread.
///
/// Returns FOREBAY_STATUS_BAD_FREE unless a live block starts at `ptr`.
forebay_status forebay_torch_pool_of(const void *ptr,
                                     uint64_t *id_first,
                                     uint64_t *id_second);

/// Allocates `bytes` bytes at the address `ptr` again, which a private pool allocated on `stream` before and has free
/// now: puts the private pool back into an earlier state. Any thread.
///
/// Returns FOREBAY_STATUS_NOT_FOUND for an unknown pool, FOREBAY_STATUS_BUSY if that memory is not free,
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
