/* SPDX-License-Identifier: Apache-2.0
 *
 * The AUROC within strata: the share of (positive, negative) pairs of the same stratum in which the
 * positive has the higher score. An attribute that is constant within a stratum cannot help to
 * order such pairs. Each pair has the same weight, so strata count by their positives times
 * negatives.
 *
 * The variance is DeLong's by clusters for this sum: each row contributes the deviation of the
 * pairs it is part of, and the contributions of a cluster are added. With one stratum it is that of
 * stats/delong.h without its corrections for few positives.
 */
#ifndef CHEX_STATS_STRATIFIED_H
#define CHEX_STATS_STRATIFIED_H

#include "base/error.h"
#include "stats/figure.h"

/* - group_of: (rows of the table); stratum_of: (256) the stratum of each group;
 *   CHEX_STRATUM_NONE: its rows are left out
 * - part_out: (clusters) the contributions of the clusters, whose sum is 0
 * - The value is NaN without a pair. The interval is on the logit scale, NaN at 0 and 1.
 * - CHEX_E_RESOURCE: out of memory */
enum { CHEX_STRATUM_NONE = 255 };
enum chex_status chex_stratified_auroc(const struct chex_ranking *r, const uint8_t *group_of,
                                       const uint8_t *stratum_of, const struct chex_clusters *k,
                                       double *part_out, struct chex_figure *out,
                                       struct chex_error *err);

#endif
