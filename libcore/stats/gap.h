/* SPDX-License-Identifier: Apache-2.0
 *
 * The difference of two figures with its 95 % interval (MOVER; Zou and Donner 2008): the distances
 * of the ends of both intervals from their figures are combined as standard errors are.
 */
#ifndef CHEX_STATS_GAP_H
#define CHEX_STATS_GAP_H

#include "stats/figure.h"

/* a minus b. correlation: of the two estimates, 0 for different patients. The interval is NaN if
 * one of the intervals is. */
struct chex_figure chex_gap(const struct chex_figure *a, const struct chex_figure *b,
                            double correlation);

/* The correlation of two estimates from the contributions of the same clusters. 0 if one of them
 * has no variance. */
double chex_gap_correlation(const double *a, const double *b, size_t clusters);

#endif
