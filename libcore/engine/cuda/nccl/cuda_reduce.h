/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA engine's struct chex_reduce_memory: it sums gradients in device memory over all logical
 * ranks while backward runs. launch/reduce.c fixes the order of additions. In deterministic mode
 * the sum is therefore bit-identical to the CPU's tree.
 *
 * Streams. Additions and messages use a separate communication stream of the highest priority. Only
 * settle waits on the host. All other waits are on the device:
 *   - the communication stream waits for events of the pass;
 *   - the compute stream waits for the communication stream before a pass overwrites a vector
 *     (leaf) and before the update reads the sum (finish).
 *
 * Messages are not captured with the pass. NCCL requires that all ranks launch a graph with NCCL
 * work, or none, and that all ranks of a message capture it, or none (NCCL's guide, "Using NCCL
 * with CUDA Graphs"). This cannot hold here: ranks may compute different numbers of logical ranks,
 * first passes and short batches are single launches, and a hanging message must be aborted. So the
 * pass is captured in segments with an event after each. Messages run while the next segments
 * compute.
 *
 * Obligations of the engine's pass:
 *   - It enqueues its work on the compute stream. The stream is not being captured when leaf or
 *     finish is called. Captures use mode thread-local or relaxed, because the reduce thread may
 *     allocate during a capture.
 *   - When the elements [from, to) of the gradient are final *in stream order*, it records an event
 *     after them (in a graph: an external event node of a launched graph), then calls
 *     ready(from, to) on the host.
 *   - event_of(engine, from) returns the event of the earliest report whose range begins at or
 *     below `from`. After this event all of [from, count) is written.
 *   - The reduce thread calls event_of, only for a `from` that was reported. The next pass may have
 *     recorded the same event again by then. The stream then waits longer than necessary, which is
 *     correct.
 */
#ifndef CHEX_ENGINE_CUDA_NCCL_CUDA_REDUCE_H
#define CHEX_ENGINE_CUDA_NCCL_CUDA_REDUCE_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "launch/reduce.h"

struct gpu_reduce;

struct gpu_reduce_config {
    struct chex_launch *launch; /* borrowed */
    struct chex_group *group;   /* borrowed; used by create only */
    uint64_t timeout_ms;        /* limit for one message; 0: no limit */
    int device;                 /* CUDA's index */
    cudaStream_t compute;       /* borrowed; not the default stream */
    cudaEvent_t (*event_of)(void *engine, size_t from);
    void *engine;
};

/* With more than one rank it opens NCCL. CHEX_E_ENV: NCCL is not usable. Collective: all ranks fail
 * together, except while NCCL connects them. */
enum chex_status gpu_reduce_create(const struct gpu_reduce_config *config,
                                   struct gpu_reduce **reduce_out, struct chex_error *err);
/* Call it after destroying the chex_reduce that uses it. NULL allowed. Collective. */
void gpu_reduce_destroy(struct gpu_reduce *r);

/* The table for chex_reduce_config; valid until destroy. */
const struct chex_reduce_memory *gpu_reduce_memory(struct gpu_reduce *r);

/* Sums of a pass (--sync-bn), over one logical rank of each rank; the compute stream waits for the
 * result, the host does not. Only if connected, between reductions, by the thread of the passes.
 * Collective. */
bool gpu_reduce_connected(const struct gpu_reduce *r); /* has several ranks; NULL allowed */
enum chex_status gpu_reduce_sum(struct gpu_reduce *r, double *data, size_t count,
                                struct chex_error *err);
/* CHEX_E_LOST: another rank is lost, and sums since then are not sums. */
enum chex_status gpu_reduce_check(struct gpu_reduce *r, struct chex_error *err);

/* Device memory allocated for reduction vectors, bytes. */
uint64_t gpu_reduce_bytes(const struct gpu_reduce *r);

#endif
