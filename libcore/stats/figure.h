/* SPDX-License-Identifier: Apache-2.0
 *
 * A figure with its 95 % interval, and what all figures of a class have in common: the clusters of
 * the rows, and the interval of a proportion.
 *
 * All figures of a class are computed from its ranking (stats/auroc.h), in which only rows with a
 * stated label stand. `cluster` gives the cluster of each row of the table, usually its patient.
 */
#ifndef CHEX_STATS_FIGURE_H
#define CHEX_STATS_FIGURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stats/auroc.h"

struct chex_figure {
    double value;                  /* NaN: undefined, as a share of no rows */
    struct chex_interval interval; /* NaN: undefined, not asked for, or too few clusters */
};

/* The clusters of a table. of_row NULL: each row is a cluster, and `count` is above every row. */
struct chex_clusters {
    const uint32_t *of_row; /* (rows) */
    size_t count;
    bool intervals; /* false: no figure gets an interval */
};

static inline uint32_t chex_cluster_of(const struct chex_clusters *k, uint32_t row) {
    return k->of_row ? k->of_row[row] : row;
}

/* Compares two doubles, for qsort. */
int chex_by_value(const void *a, const void *b);
/* A quantile of sorted values, linear between neighbours as numpy's default. */
double chex_quantile(const double *sorted, size_t count, double level);

/* The least of the clusters with a positive and of those with a negative. seen: (k->count), zeroed.
 */
size_t chex_least_clusters(const struct chex_ranking *r, const struct chex_clusters *k,
                           uint8_t *seen);

/* An undefined figure. */
struct chex_figure chex_figure_none(void);

/* Least clusters for the interval of a proportion: with one cluster nothing says how much another
 * would differ. */
enum { CHEX_PROPORTION_MIN_CLUSTERS = 2 };

/* What the interval of a proportion needs. Cluster k has n_k rows; x_k of them count. */
struct chex_proportion {
    double x, n;       /* sums over the clusters of x_k and n_k */
    double xx, xn, nn; /* sums of x_k * x_k, x_k * n_k, n_k * n_k */
    double n3, n4;     /* sums of the third and fourth powers of n_k */
    double clusters;   /* with n_k > 0 */
};

static inline void chex_proportion_add(struct chex_proportion *p, double x, double n) {
    p->x += x;
    p->n += n;
    p->xx += x * x;
    p->xn += x * n;
    p->nn += n * n;
    p->n3 += n * n * n;
    p->n4 += n * n * n * n;
    p->clusters += n > 0;
}

/* The variance of a proportion by clusters, divided by that of independent rows; at least 1. It is
 * an estimate with df degrees of freedom: INFINITY with one row per cluster. */
struct chex_design_effect {
    double size, df;
};
struct chex_design_effect chex_proportion_design_effect(const struct chex_proportion *p);

/* The proportion x / n with Wilson's score interval (1927) for an effective number of rows, n
 * divided by the design effect of the clusters (Kish 1965), and with the quantile of Student's t
 * (Korn and Graubard 1998; Dean and Pagano 2015). With one row per cluster this is Wilson's
 * interval. NaN if n is 0; without interval below CHEX_PROPORTION_MIN_CLUSTERS. */
struct chex_figure chex_proportion_figure(const struct chex_proportion *p);

/* A standard error from the contributions of the clusters to the deviation of a figure, which add
 * up to 0. Degrees of freedom: the number of equal contributions that would have the same kurtosis,
 * minus 1 (Satterthwaite 1946). A few positives that dominate a sum count as few. */
struct chex_error_of {
    double se, df;
};
struct chex_error_of chex_error_of_parts(const double *part, size_t clusters);

/* Least degrees of freedom of a standard error for an interval, that is two equal contributions.
 * With fewer one patient decides the figure, and the quantile of Student's t grows without limit.
 * That is so for an average precision near 1, and for a slope whose fit almost separates the
 * labels. */
#define CHEX_ERROR_MIN_DF 1.0

/* Value +- Student's t times the standard error, on the scale of the figure or of its logit. NaN if
 * the standard error is not above 0, or has fewer than CHEX_ERROR_MIN_DF degrees of freedom. */
struct chex_interval chex_figure_interval(double value, const struct chex_error_of *e);
struct chex_interval chex_figure_logit_interval(double value, const struct chex_error_of *e);

/* ---- the difference of two figures ---- */

/* a minus b, with the interval of MOVER (Zou and Donner 2008): the distances of the ends of both
 * intervals from their figures are combined as standard errors are. correlation: of the two
 * estimates, 0 for different patients. The interval is NaN if one of the intervals is. */
struct chex_figure chex_gap(const struct chex_figure *a, const struct chex_figure *b,
                            double correlation);

/* The correlation of two estimates from the contributions of the same clusters. 0 if one of them
 * has no variance. */
double chex_gap_correlation(const double *a, const double *b, size_t clusters);

#endif
