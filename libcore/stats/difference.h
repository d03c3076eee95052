/* SPDX-License-Identifier: Apache-2.0
 *
 * The difference of two AUROCs on the same images: its 95 % interval and its p value.
 *
 * The two AUROCs are correlated, because hard images are hard for both models. As in DeLong, DeLong
 * and Clarke-Pearson (1988) each image, and as in Obuchowski (1997) each cluster (usually a
 * patient), contributes to both. The variance of the difference is the sum over the clusters of the
 * squared differences of their contributions. Its degrees of freedom are Satterthwaite's (1946), of
 * the clusters with a positive and of those with a negative.
 *
 * The variance that belongs to a difference of `x` is that observed one or, if larger, a model's:
 * 1. The model variances of both AUROCs (stats/delong.h), moved towards or away from each other
 * until they differ by x, and the correlation of the contributions give a variance as a function of
 * x.
 * 2. The ratio of the observed variance to the model's at the observed difference is averaged with
 * a prior ratio. The correlation is averaged with that of the negatives alone, because there
 *    are many more of them.
 *
 * The test takes the variance at a difference of 0. The interval holds every x whose distance from
 * the observed difference is at most t of its own standard errors. So p is below 0.05 exactly where
 * the interval excludes 0. doc/intervals.md has coverage and type-I errors, and the simulation that
 * gave the constants.
 */
#ifndef CHEX_STATS_DIFFERENCE_H
#define CHEX_STATS_DIFFERENCE_H

#include "stats/auroc.h"
#include "stats/delong.h"

struct chex_difference {
    double auroc[2];
    double value;                  /* first minus second; NaN: an AUROC is undefined */
    double variance;               /* observed; NaN below CHEX_DELONG_MIN_CLUSTERS */
    double df;                     /* of the variance; 0 if the variance is 0 */
    double p_value;                /* two-sided; 1 for equal rankings; NaN if the variance is NaN */
    struct chex_interval interval; /* NaN if the variance is NaN; 0 to 0 for equal rankings */
};

/* Contributions of the clusters to one AUROC, or to the mean of several of the same rows. */
struct chex_contributions {
    double *positives, *negatives; /* (clusters) */
    struct chex_delong delong;
};

/* Compares two rankings of the same rows with the same labels.
 * - cluster, clusters: as for chex_delong().
 * - part_out: NULL, or (clusters): each cluster's contribution to the deviation of the difference.
 *   The variance is the sum of their squares. All are 0 if the variance is NaN.
 * - CHEX_E_RESOURCE: out of memory. */
enum chex_status chex_difference(const struct chex_ranking *first,
                                 const struct chex_ranking *second, const uint32_t *cluster,
                                 size_t clusters, double *part_out, struct chex_difference *out,
                                 struct chex_error *err);

/* The same for contributions that the caller has. equal: both rankings are. */
struct chex_difference chex_difference_of(const struct chex_contributions parts[2], size_t clusters,
                                          bool equal, double *part_out);

/* Adds a difference to a mean, which was created with `least` -1. */
void chex_difference_add(struct chex_delong_mean *mean, const struct chex_difference *d,
                         const double *part);

/* The two-sided p value that belongs to an interval: that of a normal value whose 95 % interval
 * extends as far on the side of 0. NaN if the interval is NaN. For the mean of differences. */
double chex_difference_p_of_interval(double value, const struct chex_interval *i);

/* Holm's correction (1979) for `count` tests: the least level at which all tests with a p value up
 * to this one are rejected. p_holm_out: (count). NaN values are no tests; tests_out is the number
 * of the others. CHEX_E_RESOURCE: out of memory. */
enum chex_status chex_difference_holm(const double *p_value, size_t count, double *p_holm_out,
                                      size_t *tests_out, struct chex_error *err);

#endif
