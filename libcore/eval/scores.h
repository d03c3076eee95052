/* SPDX-License-Identifier: Apache-2.0
 *
 * A predictions table summed up: AUROC of each class with its interval, and their mean.
 *
 * A class without a positive or without a negative is undefined: NaN, left out of the mean, and
 * counted.
 */
#ifndef CHEX_EVAL_SCORES_H
#define CHEX_EVAL_SCORES_H

#include <stdint.h>

#include "base/pool.h"
#include "eval/auroc.h"
#include "eval/bootstrap.h"
#include "eval/predictions.h"

enum chex_cluster { CHEX_CLUSTER_PATIENT, CHEX_CLUSTER_IMAGE };
extern const char *const chex_cluster_names[]; /* "patient", "image", NULL */

struct chex_scores_config {
    size_t replicates; /* 0: no intervals */
    uint64_t seed;
    enum chex_cluster cluster;
    struct chex_pool *pool; /* NULL: the calling thread alone */
};

struct chex_class_score {
    const char *name; /* the table's */
    double auroc;     /* NaN: undefined */
    double delong_se;
    size_t positives, negatives, masked;
    struct chex_interval interval;
};

struct chex_scores {
    const struct chex_predictions *table; /* borrowed: outlives this */
    struct chex_scores_config config;
    int classes, defined;
    struct chex_class_score *per_class; /* (classes) */
    struct chex_ranking **rankings;     /* (classes) */
    double mean;                        /* over the defined classes; NaN where there is none */
    struct chex_interval mean_interval;
    size_t patients; /* distinct ids; 0 where the table has no patients and none were asked for */
};

/* CHEX_E_DATA where patients are to be drawn and the table has no column of them, or an empty
 * cell. */
enum chex_status chex_scores_create(const struct chex_predictions *table,
                                    const struct chex_scores_config *config,
                                    struct chex_scores **scores_out, struct chex_error *err);
void chex_scores_destroy(struct chex_scores *s); /* NULL allowed */

#endif
