/* SPDX-License-Identifier: Apache-2.0
 *
 * Sum of the gradients of all logical ranks, in buckets, overlapped with backward.
 *
 * V logical ranks are the leaves of one fixed binary tree. A node over [a, b) splits at a + the
 * largest power of two below b - a. Its value is left + right. Process r of N computes the logical
 * ranks [r V / N, (r + 1) V / N). The additions and their order do not depend on N, so the sum is
 * bit-identical for every N.
 *
 * With `deterministic` the tree also applies between processes: point-to-point messages, then a
 * broadcast from rank 0. Without it, each process adds its own leaves by the tree and the
 * collective library adds the local sums. This is faster, but is not bit-identical across N.
 *
 * Exception: if V and N are powers of two, each process owns a whole subtree. If the library's sum
 * adds along the tree too (chex_coll_impl.sums_by_tree), it gives the same bits, and
 * `deterministic` uses it.
 *
 * One reduce thread does the additions and messages, bucket by bucket, in the order in which
 * backward completes the buckets. If the vectors are in device memory, the thread only enqueues the
 * work: see struct chex_reduce_memory.
 */
#ifndef CHEX_LAUNCH_REDUCE_H
#define CHEX_LAUNCH_REDUCE_H

#include <stdbool.h>

#include "base/trace.h"
#include "launch/coll.h"

struct chex_reduce;

/* Operations on the memory that holds the vectors. The order of additions is decided elsewhere.
 * - The reduce thread calls after, add, send, receive, broadcast and sum: one at a time, in the
 *   same order on all processes. Other threads call leaf, finish, settle, alloc and free.
 * - A call may return before its work is done, if the work is done in the order of the calls.
 * - A failure that appears later is returned by any later call.
 * - Entries marked (optional) may be NULL. */
struct chex_reduce_memory {
    const char *name; /* name of the transport: "nccl" */
    void *self;
    float *(*alloc)(void *self, size_t count); /* content undefined; NULL: out of memory */
    void (*free)(void *self, float *vector);   /* NULL allowed; no work may be pending */
    /* (optional) Later calls wait until the current pass has written the elements [from, count),
     * which it has already reported. */
    enum chex_status (*after)(void *self, size_t from, struct chex_error *err);
    enum chex_status (*add)(void *self, float *to, const float *from, size_t count,
                            struct chex_error *err);
    enum chex_status (*send)(void *self, const float *data, size_t count, int to, int tag,
                             struct chex_error *err);
    enum chex_status (*receive)(void *self, float *data, size_t count, int from, int tag,
                                struct chex_error *err);
    enum chex_status (*broadcast)(void *self, float *data, size_t count, int root,
                                  struct chex_error *err);
    enum chex_status (*sum)(void *self, float *data, size_t count, struct chex_error *err);
    /* (optional) Called before each pass, on the thread that runs passes: the pass writes only
     * after all work enqueued so far. */
    enum chex_status (*leaf)(void *self, struct chex_error *err);
    /* (optional) Called at the end of a step, on the same thread: later work of the engine starts
     * after all work enqueued so far. *exposed_s_out (if known): seconds that the engine's work
     * waited for this in the step before. */
    enum chex_status (*finish)(void *self, double *exposed_s_out, struct chex_error *err);
    /* (optional) Called between two steps, on the same thread: waits until all work is done. */
    enum chex_status (*settle)(void *self, struct chex_error *err);
};

struct chex_reduce_config {
    struct chex_coll *coll; /* borrowed; used by the reduce thread between start and finish */
    const struct chex_reduce_memory *memory; /* borrowed; NULL: host memory, messages by coll */
    int logical_ranks;                       /* V >= size */
    size_t count;                            /* elements of the vector */
    size_t bucket_bytes;                     /* target; 0: 4 MiB */
    bool deterministic;
    struct chex_trace *trace; /* borrowed; NULL: none. With device memory, spans measure the
                                 enqueueing, not the work */
};

/* First and last + 1 logical rank of a process. */
void chex_reduce_run(int logical_ranks, int size, int rank, int *from_out, int *to_out);

enum chex_status chex_reduce_create(const struct chex_reduce_config *config,
                                    struct chex_reduce **reduce_out, struct chex_error *err);
void chex_reduce_destroy(struct chex_reduce *r); /* NULL allowed */

/* The vector that the pass of logical rank v must fill: `count` elements, owned by the reduce
 * object. Call it in rising order of v, for each logical rank of this process. Blocks until the
 * vector is free. */
float *chex_reduce_leaf(struct chex_reduce *r, int v);

/* Reports that elements [from, to) of the current leaf are final. It is the chex_grad_ready_fn of
 * the pass; chex_reduce_leaf selects the leaf. Returns at once. */
void chex_reduce_ready(void *reduce, size_t from, size_t to);

/* Waits until the sum over all logical ranks is complete. Collective.
 * - sum_out: owned by the object, valid until the next chex_reduce_leaf.
 * - exposed_s_out: seconds spent waiting here.
 * - Device memory: the call does not wait for the device. The sum is complete for the engine's
 *   later work, and exposed_s_out includes what that work waited in the step before. */
enum chex_status chex_reduce_finish(struct chex_reduce *r, const float **sum_out,
                                    double *exposed_s_out, struct chex_error *err);

/* Memory and messages of a reduction, for --plan. */
struct chex_reduce_facts {
    const char *carrier; /* "mpi", "nccl"; "" with one process */
    int buckets;
    uint64_t bucket_bytes, memory_bytes; /* one bucket; all vectors and the receive buffer */
    /* Bytes per step of this process: summed_bytes in all-reduces, or (deterministic) sent and
     * received along the tree and broadcast_bytes. */
    uint64_t summed_bytes, sent_bytes, received_bytes, broadcast_bytes;
};
void chex_reduce_facts(const struct chex_reduce *r, struct chex_reduce_facts *out);

/* For a stall report. Any thread.
 * - bucket_out: the bucket whose messages are in progress, from 1; 0: none so far in this step.
 *   Always 0 with device memory, where messages are enqueued ahead of time.
 * - buckets_out: buckets per step. */
void chex_reduce_at(const struct chex_reduce *r, int *bucket_out, int *buckets_out);

/* Waits until the sums that chex_reduce_finish returned are complete. Call it between finish and
 * the next leaf, before anything that outlives the step (checkpoint, validation): a network fault
 * after finish is reported here at the latest. Returns at once with host memory. */
enum chex_status chex_reduce_settle(struct chex_reduce *r, struct chex_error *err);

#endif
