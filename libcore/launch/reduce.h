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
 * backward makes them ready.
 */
#ifndef CHEX_LAUNCH_REDUCE_H
#define CHEX_LAUNCH_REDUCE_H

#include <stdbool.h>

#include "launch/coll.h"

struct chex_reduce;

struct chex_reduce_config {
    struct chex_coll *coll; /* borrowed; used by the reduce thread between start and finish */
    int logical_ranks;      /* V >= size */
    size_t count;           /* elements of the vector */
    size_t bucket_bytes;    /* target; 0: 4 MiB */
    bool fixed;
};

/* First and last + 1 logical rank of a process. */
void chex_reduce_run(int logical_ranks, int size, int rank, int *from_out, int *to_out);

/* Largest number of leaf vectors that are alive at once, for the run [from, to). */
int chex_reduce_vectors(int logical_ranks, int from, int to);

enum chex_status chex_reduce_create(const struct chex_reduce_config *config,
                                    struct chex_reduce **reduce_out, struct chex_error *err);
void chex_reduce_destroy(struct chex_reduce *r); /* NULL allowed */

/* The vector that the pass of logical rank v (of this process, in rising order) has to fill.
 * Blocks until the vector is free. Owned by the reduce object; count elements, host memory. */
float *chex_reduce_leaf(struct chex_reduce *r, int v);

/* Elements [from, to) of leaf v are final: the chex_grad_ready_fn of the pass, with v set by
 * chex_reduce_leaf. Returns at once. */
void chex_reduce_ready(void *reduce, size_t from, size_t to);

/* Waits until the sum over all logical ranks is complete in *sum_out (owned by the object, valid
 * until the next chex_reduce_leaf). exposed_s_out: seconds spent waiting here. Collective. */
enum chex_status chex_reduce_finish(struct chex_reduce *r, const float **sum_out,
                                    double *exposed_s_out, struct chex_error *err);

#endif
