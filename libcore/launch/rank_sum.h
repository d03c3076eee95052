/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of small vectors over all logical ranks, in the middle of their passes (--sync-bn).
 *
 * Problem. Batch norm over the whole batch of a step needs a sum over all logical ranks at each
 * batch norm, forward and backward. So all logical ranks of the run must be at the same operation
 * at the same time, also those of one process.
 *
 * Threads. Each logical rank of a process runs its pass in its own thread and joins each sum. The
 * thread that comes last adds the vectors of the process and exchanges messages. The other threads
 * of the process sleep meanwhile, so one thread at a time calls the collective library.
 *
 * Messages. The reduction of the gradients (launch/reduce.h) uses the same library. It must be idle
 * during passes: the caller reports gradients to it after the passes of the step.
 *
 * Exactness. The additions are those of the fixed binary tree of launch/reduce.h, in double. Every
 * logical rank gets the same bits, for any number of processes.
 *
 * Failures. After an error all sums of this process fail with it: its threads return from their
 * passes. Other processes learn of it when the caller ends the job. If another process is lost, the
 * library returns an error or the stall watch ends the job, as in the reduction.
 */
#ifndef CHEX_LAUNCH_RANK_SUM_H
#define CHEX_LAUNCH_RANK_SUM_H

#include <stdbool.h>

#include "launch/coll.h"

struct chex_rank_sum;

/* coll: borrowed. logical_ranks >= coll->size. count: elements of the longest vector. Not
 * collective. */
enum chex_status chex_rank_sum_create(struct chex_coll *coll, int logical_ranks, size_t count,
                                      struct chex_rank_sum **sum_out, struct chex_error *err);
void chex_rank_sum_destroy(struct chex_rank_sum *s); /* NULL allowed; no sum may be running */

/* Replaces `values` by their sum over all logical ranks. All logical ranks must call it the same
 * number of times with the same counts, each logical rank `v` of a process in its own thread. */
enum chex_status chex_rank_sum_add(struct chex_rank_sum *s, int v, double *values, size_t count,
                                   struct chex_error *err);

/* A logical rank of this process cannot go on: present and later sums of the process return
 * `error`. The first error counts. */
void chex_rank_sum_fail(struct chex_rank_sum *s, const struct chex_error *error);

/* For a stall report, any thread: this process waits for messages of others. */
bool chex_rank_sum_waits(const struct chex_rank_sum *s);

#endif
