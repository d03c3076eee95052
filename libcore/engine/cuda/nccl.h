/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between the GPUs of all ranks by NCCL: the wire under engine/cuda/reduce.h.
 *
 * libnccl.so.2 is opened at run time (CHEX_NCCL: another file), so that a run of one rank needs
 * none. The communicator is made over the launcher's exchange, without a port of ours, and does not
 * block: every call is asked for until it is through. Work goes to one stream. A thread watches: an
 * error of NCCL's, or a message that has been first in the stream for longer than the timeout, ends
 * the communicator (so the device's kernels end too), finds out by a roll call over the launcher
 * who is missing, and is CHEX_E_LOST from every call that follows.
 *
 * One thread sends and receives; alloc, free, check and close are called by any other, too.
 */
#ifndef CHEX_ENGINE_CUDA_NCCL_H
#define CHEX_ENGINE_CUDA_NCCL_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "launch/launch.h"

struct gpu_nccl;

/* launch and stream are borrowed; the calling thread's device is taken. timeout_ms 0: no limit but
 * for the set-up itself. CHEX_E_ENV where the library is missing or too old. Collective. */
enum chex_status gpu_nccl_open(struct chex_launch *launch, cudaStream_t stream, uint64_t timeout_ms,
                               struct gpu_nccl **out, struct chex_error *err);
void gpu_nccl_close(struct gpu_nccl *n); /* NULL and half-built allowed; collective */

/* Device memory that NCCL can reach without a copy, where it can; NULL: none left. Freed before
 * close and with nothing under way. */
void *gpu_nccl_alloc(struct gpu_nccl *n, size_t bytes);
void gpu_nccl_free(struct gpu_nccl *n, void *data); /* NULL allowed */

/* Elements are float. They return when the work is in the stream. tag: for messages' texts. */
enum chex_status gpu_nccl_send(struct gpu_nccl *n, const float *data, size_t count, int to, int tag,
                               struct chex_error *err);
enum chex_status gpu_nccl_receive(struct gpu_nccl *n, float *data, size_t count, int from, int tag,
                                  struct chex_error *err);
enum chex_status gpu_nccl_broadcast(struct gpu_nccl *n, float *data, size_t count, int root,
                                    struct chex_error *err);
enum chex_status gpu_nccl_sum(struct gpu_nccl *n, float *data, size_t count,
                              struct chex_error *err);

/* The fault that the watch has found, or CHEX_OK. Waits only for a roll call under way. */
enum chex_status gpu_nccl_check(struct gpu_nccl *n, struct chex_error *err);

#endif
