/* SPDX-License-Identifier: Apache-2.0
 *
 * Average precision and its variance by linearisation.
 *
 * Average precision is the mean over the positives of the precision at their score. One more row of
 * score s changes it in two ways: a positive adds its own precision to the mean, and each row
 * changes the precision at all scores up to s. The sum of both is the row's contribution.
 */
#include "stats/precision_recall.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"

static double average_precision(const struct chex_ranking *r) {
    double sum = 0, tp = 0, called = 0;
    for (size_t g = r->tie_count; g-- > 0;) {
        const struct chex_tie *t = &r->ties[g];
        tp += t->positives;
        called += (double)t->positives + t->negatives;
        sum += t->positives * (tp / called);
    }
    return r->positives ? sum / (double)r->positives : NAN;
}

/* By increasing score, so that the sums over all scores up to that of the row grow. */
static void add_parts(const struct chex_ranking *r, const struct chex_clusters *k, double average,
                      double *part) {
    const double P = (double)r->positives;
    double tp = P, called = (double)r->count, of_positive = 0, of_negative = 0;
    for (size_t g = 0; g < r->tie_count; g++) {
        const struct chex_tie *t = &r->ties[g];
        of_positive += t->positives * (called - tp) / (called * called);
        of_negative -= t->positives * tp / (called * called);
        const double own = tp / called - average;
        for (size_t i = 0; i < (size_t)t->negatives + t->positives; i++)
            part[chex_cluster_of(k, r->row[t->start + i])] +=
                (i < t->negatives ? of_negative : own + of_positive) / P;
        tp -= t->positives;
        called -= (double)t->positives + t->negatives;
    }
}

enum chex_status chex_average_precision(const struct chex_ranking *r, const struct chex_clusters *k,
                                        struct chex_figure *out, struct chex_error *err) {
    *out = chex_figure_none();
    out->value = average_precision(r);
    if (!k->intervals || isnan(out->value))
        return CHEX_OK;
    CHEX_AUTO_FREE double *part = chex_alloc_zeroed(k->count, sizeof *part);
    CHEX_AUTO_FREE uint8_t *seen = chex_alloc_zeroed(k->count, sizeof *seen);
    CHEX_ALLOCATED(part && seen, err, "%zu clusters", k->count);
    if (chex_least_clusters(r, k, seen) >= CHEX_PRECISION_MIN_CLUSTERS) {
        add_parts(r, k, out->value, part);
        const struct chex_error_of e = chex_error_of_parts(part, k->count);
        out->interval = chex_figure_logit_interval(out->value, &e);
    }
    return CHEX_OK;
}

enum chex_status chex_precision_recall_create(const struct chex_ranking *r,
                                              struct chex_precision_recall **out,
                                              struct chex_error *err) {
    struct chex_precision_recall *p = chex_alloc_zeroed(1, sizeof *p);
    const size_t count = r->positives ? r->tie_count : 0;
    double tp = 0, called = 0;
    if (p) {
        p->precision = chex_alloc_zeroed(count, sizeof *p->precision);
        p->recall = chex_alloc_zeroed(count, sizeof *p->recall);
    }
    if (!p || !p->precision || !p->recall) {
        chex_precision_recall_destroy(p);
        return chex_error_memory(err, "the precision-recall curve");
    }
    for (; p->count < count; p->count++) {
        const size_t g = count - 1 - p->count;
        tp += r->ties[g].positives;
        called += (double)r->ties[g].positives + r->ties[g].negatives;
        p->precision[p->count] = tp / called;
        p->recall[p->count] = tp / (double)r->positives;
    }
    *out = p;
    return CHEX_OK;
}

void chex_precision_recall_destroy(struct chex_precision_recall *p) {
    if (!p)
        return;
    free(p->precision);
    free(p->recall);
    free(p);
}
