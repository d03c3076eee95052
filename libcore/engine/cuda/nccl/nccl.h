/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between the GPUs of all ranks with NCCL: the transport of cuda_reduce.h.
 *
 * Loading. libnccl.so.2 is opened at run time (CHEX_NCCL names another file). A run with one rank
 * needs no NCCL.
 * Set-up. Ranks exchange NCCL's id in their group, so chexnet opens no port. The communicator is
 * non-blocking: each call is polled until it is complete. All work goes to one stream.
 * Failures. A watchdog thread looks for two faults: an error reported by NCCL, and a message that
 * is first in the stream for longer than the timeout. On a fault it does three things:
 *   1. It aborts the communicator, which also ends NCCL's kernels on the device.
 *   2. It asks all ranks through the launcher (roll call), to find the missing or slowest rank.
 *   3. It makes every later call return CHEX_E_LOST.
 *
 * Threads. One thread sends and receives. Any thread may call alloc, free, check and close.
 */
#ifndef CHEX_ENGINE_CUDA_NCCL_NCCL_H
#define CHEX_ENGINE_CUDA_NCCL_NCCL_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "launch/group.h"
#include "launch/launch.h"

struct gpu_nccl;

/* Loads NCCL for the calling thread's device. Not collective.
 *   - launch and stream are borrowed.
 *   - timeout_ms: limit for one message; 0: no limit (the set-up always has one).
 *   - CHEX_E_ENV: the library is missing or too old. */
enum chex_status gpu_nccl_create(struct chex_launch *launch, cudaStream_t stream,
                                 uint64_t timeout_ms, struct gpu_nccl **out,
                                 struct chex_error *err);
/* Makes the communicator of all ranks. Collective: all ranks agree before that gpu_nccl_create()
 * succeeded. CHEX_E_ENV: the library is not the same on all ranks. */
enum chex_status gpu_nccl_connect(struct gpu_nccl *n, struct chex_group *group,
                                  struct chex_error *err);
void gpu_nccl_close(struct gpu_nccl *n); /* NULL allowed; collective */

/* Device memory, registered with NCCL if possible, which saves a copy. NULL: out of memory. Free it
 * before close, and only when no message uses it. */
void *gpu_nccl_alloc(struct gpu_nccl *n, size_t bytes);
void gpu_nccl_free(struct gpu_nccl *n, void *data); /* NULL allowed */

/* Enqueues a message on the stream and returns. */
enum gpu_nccl_kind { GPU_NCCL_SEND, GPU_NCCL_RECEIVE, GPU_NCCL_BROADCAST, GPU_NCCL_SUM };
struct gpu_nccl_message {
    enum gpu_nccl_kind kind;
    void *data; /* float, or double if `doubles`; SEND only reads it */
    size_t count;
    int peer; /* rank: receiver, sender, or root of the broadcast; SUM: not used */
    int tag;  /* SEND, RECEIVE: bucket number, for error messages */
    bool doubles;
};
enum chex_status gpu_nccl_enqueue(struct gpu_nccl *n, const struct gpu_nccl_message *m,
                                  struct chex_error *err);

/* Returns the fault that the watchdog has found, or CHEX_OK. It waits only for a running roll call.
 */
enum chex_status gpu_nccl_check(struct gpu_nccl *n, struct chex_error *err);

#endif
