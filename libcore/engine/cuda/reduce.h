/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients in device memory, added up over all logical ranks while backward goes on: the CUDA
 * engine's struct chex_reduce_memory. The order of additions stays launch/reduce.c's, so with
 * `fixed` the sum has the bits of the CPU's tree.
 *
 * Additions and messages go to a stream of their own, of the highest priority. Nothing here waits
 * on the host but settle: the communication stream waits for events of the pass, and the compute
 * stream for the communication stream before a pass overwrites a vector (leaf) and before the
 * update reads the sum (finish).
 *
 * Messages are not captured with the pass. A graph that holds NCCL's work is launched by all ranks
 * or by none, and a message is captured on all of its ranks or on none (NCCL's guide, "Using NCCL
 * with CUDA Graphs"); but ranks may play different numbers of logical ranks, first passes and short
 * batches are single launches, and what hangs has to be given up. So the pass is captured in
 * segments, with an event behind each, and messages are in flight beside the next ones.
 *
 * What the engine's pass has to do:
 *   - work goes to the compute stream, which is not being captured when leaf or finish is called;
 *     a capture is of mode thread-local or relaxed, for the reduce thread may allocate meanwhile;
 *   - as soon as elements [from, to) of the gradient are final *in stream order*, an event is
 *     recorded behind them (in a graph: an external event node, and the graph has been launched),
 *     then ready(from, to) is called on the host;
 *   - event_of(engine, from) returns the event of the earliest such report whose range begins at or
 *     below `from`: behind it all of [from, count) is written. It is called by the reduce thread,
 *     only for a `from` that has been reported, possibly after the next pass has recorded the same
 *     events again (then more is waited for than need be, which is right, if slower).
 */
#ifndef CHEX_ENGINE_CUDA_REDUCE_H
#define CHEX_ENGINE_CUDA_REDUCE_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "launch/reduce.h"

struct gpu_reduce;

struct gpu_reduce_config {
    struct chex_launch *launch; /* borrowed */
    uint64_t timeout_ms;        /* of one message; 0: no limit */
    int device;                 /* CUDA's index */
    cudaStream_t compute;       /* borrowed; not the default stream */
    cudaEvent_t (*event_of)(void *engine, size_t from);
    void *engine;
};

/* With more than one rank it opens NCCL: CHEX_E_ENV where that cannot be. Collective. */
enum chex_status gpu_reduce_create(const struct gpu_reduce_config *config,
                                   struct gpu_reduce **reduce_out, struct chex_error *err);
/* After the chex_reduce that uses it. NULL allowed; collective. */
void gpu_reduce_destroy(struct gpu_reduce *r);

/* For chex_reduce_config; valid until destroy. */
const struct chex_reduce_memory *gpu_reduce_memory(struct gpu_reduce *r);

/* Device bytes that it holds. */
uint64_t gpu_reduce_bytes(const struct gpu_reduce *r);

#endif
