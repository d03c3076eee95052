/* SPDX-License-Identifier: Apache-2.0
 *
 * Precision, recall and average precision.
 *
 * Average precision is the sum over the thresholds of (recall - recall before) * precision, as in
 * average_precision_score of scikit-learn. It depends on the share of positives; a network that
 * knows nothing has about that share.
 */
#ifndef CHEX_STATS_PRECISION_RECALL_H
#define CHEX_STATS_PRECISION_RECALL_H

#include "base/error.h"
#include "stats/figure.h"

/* Least clusters with a positive, and least clusters with a negative, for an interval. */
enum { CHEX_PRECISION_MIN_CLUSTERS = 10 };

/* Computes the average precision of a ranking. NaN if there is no positive.
 * Interval: linearised variance by cluster, on the scale of the logit.
 * CHEX_E_RESOURCE: out of memory. */
enum chex_status chex_average_precision(const struct chex_ranking *r, const struct chex_clusters *k,
                                        struct chex_figure *out, struct chex_error *err);

/* The curve by decreasing threshold, one point per tie group. Empty if there is no positive. */
struct chex_precision_recall {
    size_t count;
    double *precision, *recall; /* (count) */
};
enum chex_status chex_precision_recall_create(const struct chex_ranking *r,
                                              struct chex_precision_recall **out,
                                              struct chex_error *err);
void chex_precision_recall_destroy(struct chex_precision_recall *p); /* NULL allowed */

#endif
