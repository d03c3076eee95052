/* SPDX-License-Identifier: Apache-2.0
 *
 * One walk over the ranking with the counts of every stratum (stratified.h).
 *
 * For a row with c pairs in the right order of n pairs within its stratum, the contribution is
 * (c - auroc * n) / pairs. The sums of c and of n by cluster are enough.
 */
#include "stats/stratified.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { STRATA = CHEX_STRATUM_NONE };

struct counts {
    double positives[STRATA], negatives[STRATA];             /* all */
    double positives_below[STRATA], negatives_below[STRATA]; /* with a lower score */
};

struct sums {
    double right, pairs; /* of the rows of one cluster */
};

static void count_rows(const struct chex_ranking *r, const uint8_t *group_of,
                       const uint8_t *stratum_of, struct counts *c) {
    for (size_t g = 0; g < r->tie_count; g++) {
        const struct chex_tie *t = &r->ties[g];
        for (uint32_t i = 0; i < t->negatives + t->positives; i++) {
            const uint8_t s = stratum_of[group_of[r->row[t->start + i]]];
            if (s != CHEX_STRATUM_NONE)
                *(i < t->negatives ? &c->negatives[s] : &c->positives[s]) += 1;
        }
    }
}

/* Adds the rows of one tie group; `tied` counts them by stratum and is zeroed again. */
static void add_tie(const struct chex_ranking *r, const struct chex_tie *t, const uint8_t *group_of,
                    const uint8_t *stratum_of, const struct chex_clusters *k, struct counts *c,
                    double (*tied)[2], struct sums *of_cluster) {
    const uint32_t *row = r->row + t->start;
    const uint32_t count = t->negatives + t->positives;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t s = stratum_of[group_of[row[i]]];
        if (s != CHEX_STRATUM_NONE)
            tied[s][i >= t->negatives]++;
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t s = stratum_of[group_of[row[i]]];
        if (s == CHEX_STRATUM_NONE)
            continue;
        struct sums *sum = &of_cluster[chex_cluster_of(k, row[i])];
        const double above = c->positives[s] - c->positives_below[s] - tied[s][1];
        sum->right +=
            i < t->negatives ? above + tied[s][1] / 2 : c->negatives_below[s] + tied[s][0] / 2;
        sum->pairs += i < t->negatives ? c->positives[s] : c->negatives[s];
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t s = stratum_of[group_of[row[i]]];
        if (s == CHEX_STRATUM_NONE)
            continue;
        c->negatives_below[s] += tied[s][0];
        c->positives_below[s] += tied[s][1];
        tied[s][0] = tied[s][1] = 0;
    }
}

enum chex_status chex_stratified_auroc(const struct chex_ranking *r, const uint8_t *group_of,
                                       const uint8_t *stratum_of, const struct chex_clusters *k,
                                       double *part_out, struct chex_figure *out,
                                       struct chex_error *err) {
    struct counts *c = chex_alloc_zeroed(1, sizeof *c);
    struct sums *of_cluster = chex_alloc_zeroed(k->count, sizeof *of_cluster);
    double tied[STRATA][2] = {{0}}, right = 0, pairs = 0;
    if (!c || !of_cluster) {
        free(c);
        free(of_cluster);
        return chex_error_memory(err, "%zu clusters", k->count);
    }
    count_rows(r, group_of, stratum_of, c);
    for (size_t g = 0; g < r->tie_count; g++)
        add_tie(r, &r->ties[g], group_of, stratum_of, k, c, tied, of_cluster);
    for (size_t i = 0; i < k->count; i++) { /* each pair counts at its positive and its negative */
        right += of_cluster[i].right / 2;
        pairs += of_cluster[i].pairs / 2;
    }
    *out = chex_figure_none();
    memset(part_out, 0, k->count * sizeof *part_out);
    if (pairs > 0) {
        out->value = right / pairs;
        for (size_t i = 0; i < k->count; i++)
            part_out[i] = (of_cluster[i].right - out->value * of_cluster[i].pairs) / pairs;
        const struct chex_error_of e = chex_error_of_parts(part_out, k->count);
        if (k->intervals)
            out->interval = chex_figure_logit_interval(out->value, &e);
    }
    free(c);
    free(of_cluster);
    return CHEX_OK;
}
