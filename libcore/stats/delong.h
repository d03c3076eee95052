/* SPDX-License-Identifier: Apache-2.0
 *
 * The 95 % interval of an AUROC, and of the mean of several.
 *
 * The variance is that of DeLong, DeLong and Clarke-Pearson (1988), with clusters (usually
 * patients) instead of images, as in Obuchowski (1997). With few positives this variance is itself
 * uncertain. It is 0 if the scores separate the positives perfectly. Two steps correct that:
 *
 * 1. A model variance, Newcombe's (2006, method 5), depends only on the AUROC and the counts. The
 * ratio of DeLong's variance to the model variance is averaged with a prior ratio. Each is weighted
 * by its degrees of freedom, as in the moderated t statistic of Smyth (2004).
 * 2. The interval is a score interval: it holds all AUROCs whose distance from the observed one is
 * at most t of their own standard errors. It stays within 0 and 1, and has a width even at 0 and 1.
 *
 * With many positives the result equals DeLong's. doc/intervals.md has the coverage and the
 * simulation that gave the constants. The interval of a mean combines the intervals of its classes
 * by their correlations (MOVER; Zou and Donner 2008). It is never narrower than for uncorrelated
 * classes, because a few patients cannot show that errors cancel.
 */
#ifndef CHEX_STATS_DELONG_H
#define CHEX_STATS_DELONG_H

#include <stdbool.h>

#include "stats/auroc.h"

/* Least clusters with a positive, and least clusters with a negative, for an interval. */
enum { CHEX_DELONG_MIN_CLUSTERS = 2 };

struct chex_delong {
    double auroc;
    double variance; /* of the AUROC; NaN below CHEX_DELONG_MIN_CLUSTERS */
    /* Obuchowski's variance (1997). It differs if clusters have both labels: its factor of the
     * products of both parts is I / (I - 1), with I clusters, instead of the geometric mean of the
     * factors of the squares. */
    double obuchowski;
    double df; /* degrees of freedom of the variance */
    size_t positive_clusters, negative_clusters;
    double effective_positives, effective_negatives; /* as independent images */
};

/* Computes the AUROC of a ranking and its variance.
 * - cluster[row] < clusters for each row of the ranking. NULL: each row is a cluster, and
 * `clusters` is above every row number.
 * - part_out: NULL, or (clusters): each cluster's contribution to the deviation of the AUROC. The
 *   variance is the sum of their squares. All are 0 if the variance is NaN.
 * - CHEX_E_RESOURCE: out of memory. */
enum chex_status chex_delong(const struct chex_ranking *r, const uint32_t *cluster, size_t clusters,
                             double *part_out, struct chex_delong *out, struct chex_error *err);

/* The same, with the contributions of a cluster's positives and of its negatives apart. Their sum
 * is part_out of chex_delong(). Both arrays are (clusters), and must not be NULL. */
enum chex_status chex_delong_split(const struct chex_ranking *r, const uint32_t *cluster,
                                   size_t clusters, double *of_positives_out,
                                   double *of_negatives_out, struct chex_delong *out,
                                   struct chex_error *err);

/* The model variance of step 1 at an AUROC, for the effective sample sizes of `d`. */
double chex_delong_model(const struct chex_delong *d, double auroc);

/* NaN if the variance is NaN. */
struct chex_interval chex_delong_interval(const struct chex_delong *d);

/* The interval of the textbooks: normal on the scale of the logit, with Obuchowski's variance. NaN
 * also at an AUROC of 0 or 1, and if the variance is 0. */
struct chex_interval chex_delong_logit_interval(const struct chex_delong *d);

/* The interval of a mean of AUROCs. Call create, add once per class, mean_interval, release. */
struct chex_delong_mean {
    size_t clusters, classes;
    double least;                 /* lowest possible value: 0; -1 for differences of AUROCs */
    double auroc;                 /* sum over the classes */
    double *low, *high;           /* (clusters) correlated parts of the distances */
    double low_rest, high_rest;   /* squares of the distances that have no such parts */
    double low_alone, high_alone; /* sums of the squares of all distances */
    bool too_few;                 /* a class has no interval */
};
enum chex_status chex_delong_mean_create(struct chex_delong_mean *m, size_t clusters,
                                         struct chex_error *err);
void chex_delong_mean_release(struct chex_delong_mean *m);
/* Released when the variable goes out of scope; start with {0}. */
#define CHEX_AUTO_DELONG_MEAN __attribute__((cleanup(chex_delong_mean_release)))
void chex_delong_mean_add(struct chex_delong_mean *m, const struct chex_delong *d,
                          const struct chex_interval *i, const double *part);
/* NaN if there is no class, or if a class has no interval. */
struct chex_interval chex_delong_mean_interval(const struct chex_delong_mean *m);
/* The same on the scale of the logit, from the covariances of the AUROCs. The interval given to add
 * was then one standard error to each side: chex_delong_one_se(). */
struct chex_interval chex_delong_mean_logit_interval(const struct chex_delong_mean *m);
struct chex_interval chex_delong_one_se(const struct chex_delong *d);

/* The 97.5 % quantile of Student's t; df > 0. */
double chex_student_t(double df);

/* The probability of a value beyond -t or t in Student's distribution; df > 0, INFINITY: normal. */
double chex_student_p(double t, double df);

#endif
