/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the time of the steps goes, per rank, and the one sentence that says what to change.
 */
#ifndef CHEX_TRAIN_STEPSTATS_H
#define CHEX_TRAIN_STEPSTATS_H

#include <stddef.h>
#include <stdint.h>

/* Seconds of one step (or summed over several) on one rank. */
struct chex_step_times {
    double data, forward, backward, exposed, update, other, total;
};

void chex_step_times_add(struct chex_step_times *sum, const struct chex_step_times *t);

struct chex_bottleneck {
    double data_share, forward_share, backward_share, reduce_share, update_share, other_share;
    int slowest_rank;
    double slowest_ratio; /* its compute time over the mean of all ranks */
    char advice[200];     /* one sentence */
};

/* times: the epoch's sums, one entry a rank. */
void chex_bottleneck_find(const struct chex_step_times *times, int ranks,
                          struct chex_bottleneck *out);

#endif
