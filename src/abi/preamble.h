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
