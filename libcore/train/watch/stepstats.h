/* SPDX-License-Identifier: Apache-2.0
 *
 * Step times: finds the bottleneck of an epoch from the times of all ranks, and gives one sentence
 * of advice.
 */
#ifndef CHEX_TRAIN_WATCH_STEPSTATS_H
#define CHEX_TRAIN_WATCH_STEPSTATS_H

/* Seconds of one step (or summed over several) on one rank. */
struct chex_step_times {
    double data; /* waiting for input */
    double forward, backward;
    double exposed; /* reduction of the gradients after the end of backward */
    double update, other, total;
};

void chex_step_times_add(struct chex_step_times *sum, const struct chex_step_times *t);

struct chex_bottleneck {
    double data_share, forward_share, backward_share, reduce_share, update_share, other_share;
    int slowest_rank;     /* the most time in data, forward and backward */
    double slowest_ratio; /* that time over the mean of all ranks */
    char advice[200];     /* one sentence */
};

/* times: (ranks) sums over the epoch. Shares are of the time of all ranks together. */
void chex_bottleneck_find(const struct chex_step_times *times, int ranks,
                          struct chex_bottleneck *out);

#endif
