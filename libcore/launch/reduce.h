/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of all logical ranks added up, in buckets, while backward goes on.
 *
 * V logical ranks are the leaves of one fixed binary tree: a node over [a, b) splits at
 * a + the largest power of two below b - a, and its value is left + right. Process r of N plays
 * the logical ranks [r V / N, (r + 1) V / N). Whatever N, the same additions are made in the same
 * order, so the sum has the same bits. With `fixed` the tree also rules between processes (point to
 * point, then a broadcast from rank 0); without it processes add their local sums by the
 * collective library, which may be faster and is not bit-equal across N.
 *
 * A thread of its own does the additions and the messages, bucket by bucket in the order in which
 * backward makes them ready. Where the vectors lie in another memory, it only gives orders: see
 * struct chex_reduce_memory.
 */
#ifndef CHEX_LAUNCH_REDUCE_H
#define CHEX_LAUNCH_REDUCE_H

#include <stdbool.h>

#include "base/trace.h"
#include "launch/coll.h"

struct chex_reduce;

/* Where the vectors lie, and how they are added and sent. The order of additions is none of its
 * business. All entries but leaf, finish, settle, alloc and free are called by the reduce thread,
 * one at a time and in the same order on all processes. They may return before their work is done,
 * so long as it is done in the order of the calls; a failure that shows later is returned by any
 * call after it. Entries marked (optional) may be NULL. */
struct chex_reduce_memory {
    const char *name; /* of what carries the messages: "nccl" */
    void *self;
    float *(*alloc)(void *self, size_t count); /* content undefined; NULL: out of memory */
    void (*free)(void *self, float *vector);   /* NULL allowed; with nothing under way */
    /* (optional) What is called from now on waits until the pass under way, which has reported its
     * elements [from, count), has written them. */
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
    /* (optional) On the thread of the passes, before each: what the pass writes comes after
     * everything that has been called so far. */
    enum chex_status (*leaf)(void *self, struct chex_error *err);
    /* (optional) On the same thread, at the end of a step: what the engine does next comes after
     * everything that has been called. *exposed_s_out, where known: how long its work had to wait
     * for that in the step before. */
    enum chex_status (*finish)(void *self, double *exposed_s_out, struct chex_error *err);
    /* (optional) On the same thread, between two steps: waits until all work is done. */
    enum chex_status (*settle)(void *self, struct chex_error *err);
};

struct chex_reduce_config {
    struct chex_coll *coll; /* borrowed; used by the reduce thread between start and finish */
    const struct chex_reduce_memory *memory; /* borrowed; NULL: host memory, messages by coll */
    int logical_ranks;                       /* V >= size */
    size_t count;                            /* elements of the vector */
    size_t bucket_bytes;                     /* target; 0: 4 MiB */
    bool fixed;
    struct chex_trace *trace; /* borrowed; NULL: none. In another memory its spans are those of the
                               * orders, not of what the device then does */
};

/* First and last + 1 logical rank of a process. */
void chex_reduce_run(int logical_ranks, int size, int rank, int *from_out, int *to_out);

enum chex_status chex_reduce_create(const struct chex_reduce_config *config,
                                    struct chex_reduce **reduce_out, struct chex_error *err);
void chex_reduce_destroy(struct chex_reduce *r); /* NULL allowed */

/* The vector that the pass of logical rank v (of this process, in rising order) has to fill.
 * Blocks until the vector is free. Owned by the reduce object; count elements. */
float *chex_reduce_leaf(struct chex_reduce *r, int v);

/* Elements [from, to) of leaf v are final: the chex_grad_ready_fn of the pass, with v set by
 * chex_reduce_leaf. Returns at once. */
void chex_reduce_ready(void *reduce, size_t from, size_t to);

/* Waits until the sum over all logical ranks is complete in *sum_out (owned by the object, valid
 * until the next chex_reduce_leaf). exposed_s_out: seconds spent waiting here. In another memory
 * the sum is complete for what the engine does from now on, which is not waited for, and the
 * seconds hold what the engine's work waited in the step before. Collective. */
enum chex_status chex_reduce_finish(struct chex_reduce *r, const float **sum_out,
                                    double *exposed_s_out, struct chex_error *err);

/* What a reduction takes and sends, for a preview. */
struct chex_reduce_facts {
    const char *carrier; /* "mpi", "nccl"; "" with one process */
    int buckets;
    uint64_t bucket_bytes, memory_bytes; /* of one bucket; of all vectors */
    /* A step's messages of this process: in all-reduces, or (fixed) along the tree and in the
     * broadcasts. */
    uint64_t summed_bytes, sent_bytes, received_bytes, broadcast_bytes;
};
void chex_reduce_facts(const struct chex_reduce *r, struct chex_reduce_facts *out);

/* For a stall report: the bucket whose messages are under way, from 1 (0: none so far in this
 * step), and how many a step has. In another memory messages are ordered ahead of time, and it is
 * 0. Any thread. */
void chex_reduce_at(const struct chex_reduce *r, int *bucket_out, int *buckets_out);

/* Between finish and the next leaf: waits until the sums that were given out are really there. A
 * fault of the wire that shows only after finish comes out here at the latest, so this comes before
 * anything that outlives the step: a checkpoint, a validation. At once in host memory. */
enum chex_status chex_reduce_settle(struct chex_reduce *r, struct chex_error *err);

#endif
