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
