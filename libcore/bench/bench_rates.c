/* SPDX-License-Identifier: Apache-2.0
 *
 * Adds up the rates of all ranks.
 */
#include "bench/bench_rates.h"

#include <math.h>
#include <stdlib.h>

#include "stats/figure.h"

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

static void add(struct chex_bench_sum *s, int rank, const struct chex_bench_rates *r) {
    struct chex_bench_rates *all = &s->all;
    all->images_per_s_median += r->images_per_s_median;
    all->images_per_s_best += r->images_per_s_best;
    all->images_per_s += r->images_per_s;
    all->bytes_per_s += r->bytes_per_s;
    all->stall_share = fmax(all->stall_share, r->stall_share);
    all->engine_bytes = larger(all->engine_bytes, r->engine_bytes);
    all->peak_rss_bytes = larger(all->peak_rss_bytes, r->peak_rss_bytes);
    if (rank == 0 || r->images_per_s_median < s->slowest.images_per_s_median) {
        s->slowest = *r;
        s->slowest_rank = rank;
    }
}

enum chex_status chex_bench_gather(struct chex_group *group, const struct chex_bench_rates *mine,
                                   struct chex_bench_sum *out, struct chex_error *err) {
    CHEX_TRY(chex_group_exchange(group, "bench", mine, sizeof *mine, err));
    const struct chex_bench_rates *all = group->all;
    *out = (struct chex_bench_sum){.ranks = group->size};
    for (int r = 0; r < group->size; r++)
        add(out, r, &all[r]);
    return CHEX_OK;
}

double chex_bench_median(double *values, size_t count) {
    qsort(values, count, sizeof *values, chex_by_value);
    return 0.5 * (values[(count - 1) / 2] + values[count / 2]);
}
