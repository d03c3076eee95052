/* SPDX-License-Identifier: Apache-2.0
 *
 * Summary of a predictions table: AUROC and interval of each class, and their mean.
 *
 * A class without a positive or without a negative is undefined. Its AUROC is NaN, the mean leaves
 * it out, and the report counts it.
 *
 * Cross-validation: each fold has another network, and scores of two networks need not be on one
 * scale. The AUROC of all rows compares them all the same. `within` takes only pairs of the same
 * fold (stats/stratified.h): the mean of the folds' AUROCs, weighted by their pairs. Its variance
 * is the sum of the squared contributions of the clusters to it, as in LeDell, Petersen and van der
 * Laan (Electron J Stat 2015;9:1583-1607), and it is moderated like that of all rows. It takes the
 * networks and the division as given. NaN with no more patients of one label than folds.
 */
#ifndef CHEX_STATS_SCORES_H
#define CHEX_STATS_SCORES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"
#include "stats/figure.h"
#include "stats/predictions.h"

enum chex_cluster { CHEX_CLUSTER_PATIENT, CHEX_CLUSTER_IMAGE };
extern const char *const chex_cluster_names[]; /* "patient", "image", NULL */

/* Method of the intervals: moderated or on the scale of the logit (stats/delong.h), or percentiles
 * of bootstrap replicates (stats/bootstrap.h). */
enum chex_interval_method { CHEX_INTERVAL_DELONG, CHEX_INTERVAL_LOGIT, CHEX_INTERVAL_BOOTSTRAP };
extern const char *const chex_interval_names[]; /* "delong", "logit", "bootstrap", NULL */

struct chex_scores_config {
    size_t replicates; /* of the bootstrap; 0: no intervals, by either method */
    uint64_t seed;
    enum chex_cluster cluster;
    struct chex_pool *pool; /* NULL: only the calling thread computes */
    enum chex_interval_method method;
};

struct chex_class_score {
    const char *name; /* owned by the table */
    double auroc;     /* NaN: undefined */
    double delong_se; /* by cluster, after Obuchowski; NaN: too few clusters */
    size_t positives, negatives, masked;
    size_t positive_patients, negative_patients; /* 0 if the table has no patients */
    struct chex_interval interval;
    struct chex_figure within; /* AUROC within folds, if there are several */
    bool too_few; /* the AUROC is defined, but fewer than CHEX_DELONG_MIN_CLUSTERS clusters have a
                     positive, or a negative: no interval */
    uint64_t rows_digest; /* of ids and labels of the rows that are not masked, independent of row
                             order; never 0 */
};

struct chex_scores {
    const struct chex_predictions *table; /* borrowed; must outlive this */
    struct chex_scores_config config;
    int classes, defined;
    struct chex_class_score *per_class; /* (classes) */
    struct chex_ranking **rankings;     /* (classes) */
    double mean;                        /* over the defined classes; NaN: none */
    struct chex_interval mean_interval; /* NaN if a class is too_few */
    int too_few;                        /* number of such classes */
    int folds;                          /* 0: the rows do not all state one, or it is the same */
    struct chex_figure mean_within;     /* over the classes with one */
    uint32_t *patient;                  /* (rows) numbers; NULL: the table has no patients */
    size_t patients;                    /* distinct patient ids; 0 if the table has no patients */
    const uint32_t *cluster; /* (rows) what intervals take as independent; NULL: each row */
    size_t clusters;
};

/* Scores a table. CHEX_E_DATA: intervals by patient, but the table has no patient_id or an empty
 * one. */
enum chex_status chex_scores_create(const struct chex_predictions *table,
                                    const struct chex_scores_config *config,
                                    struct chex_scores **scores_out, struct chex_error *err);
void chex_scores_destroy(struct chex_scores *s); /* NULL allowed */

struct chex_delong;
struct chex_delong_mean;

/* The interval of a class by the method, and its part in a mean. Not for the bootstrap. */
struct chex_interval chex_scores_add(enum chex_interval_method method, const struct chex_delong *d,
                                     const double *part, struct chex_delong_mean *mean);
struct chex_interval chex_scores_mean_interval(enum chex_interval_method method,
                                               const struct chex_delong_mean *mean);

#endif
