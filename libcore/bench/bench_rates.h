/* SPDX-License-Identifier: Apache-2.0
 *
 * The rates of a benchmark: of one rank, and of all.
 */
#ifndef CHEX_BENCH_BENCH_RATES_H
#define CHEX_BENCH_BENCH_RATES_H

#include "launch/group.h"

/* Ranks send it to each other as bytes, so it has no padding. 0: not measured. */
struct chex_bench_rates {
    double images_per_s_median, images_per_s_best;
    double step_s_median, step_s_best;
    double images_per_s; /* over the whole time */
    double bytes_per_s;  /* of pixels read from files */
    double stall_share;  /* waiting for a batch, as a share of the time */
    uint64_t engine_bytes, peak_rss_bytes;
};

struct chex_bench_sum {
    struct chex_bench_rates all;     /* sums of rates, maxima of the rest */
    struct chex_bench_rates slowest; /* of the rank with the lowest median */
    int ranks, slowest_rank;
};

/* Collective. */
enum chex_status chex_bench_gather(struct chex_group *group, const struct chex_bench_rates *mine,
                                   struct chex_bench_sum *out, struct chex_error *err);

/* Sorts the values, which rise then, and returns their median. count: at least 1. */
double chex_bench_median(double *values, size_t count);

#endif
