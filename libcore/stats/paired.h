/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares two tables of predictions of the same images: differences of AUROCs with intervals and
 * tests (stats/difference.h), for each finding that both have and for their mean.
 *
 * Rows are joined by image id, findings by name. Rows and findings of one table only are left out
 * and counted. What both state of an image must agree: its label and its patient.
 */
#ifndef CHEX_STATS_PAIRED_H
#define CHEX_STATS_PAIRED_H

#include <stdbool.h>

#include "base/pool.h"
#include "stats/auroc.h"
#include "stats/delong.h"
#include "stats/predictions.h"
#include "stats/scores.h"

struct chex_paired_config {
    enum chex_cluster cluster;
    size_t replicates; /* of the bootstrap; 0: none */
    uint64_t seed;
    double margin;          /* of non-inferiority, above 0; NaN: none */
    struct chex_pool *pool; /* for the bootstrap; NULL: only the calling thread computes */
    /* (classes of the first table + 1), created by the caller: the differences of each class, and
     * the last of all, are added too. NULL: none. */
    struct chex_delong_mean *means;
};

/* A model is non-inferior to the other if the 95 % interval of the difference excludes that it is
 * worse by the margin or more: a one-sided test at 2.5 %. It is superior if the interval is above
 * 0. A superior model is non-inferior too. */
enum chex_margin_verdict { CHEX_MARGIN_NONE, CHEX_NOT_SHOWN, CHEX_NON_INFERIOR, CHEX_SUPERIOR };
/* NULL, "not shown", "non-inferior", "superior". */
extern const char *const chex_margin_verdict_names[];

/* A finding, or the mean. All differences are first minus second. */
struct chex_paired_class {
    const char *name; /* owned by the first table; NULL: the mean */
    double auroc[2];  /* of the joined rows */
    double difference;
    double se, df; /* of the difference, as observed; NaN for the mean */
    struct chex_interval interval;
    double p_value, p_holm;              /* p_holm: NaN for the mean */
    struct chex_interval bootstrap;      /* percentiles of the same patients for both tables */
    enum chex_margin_verdict verdict[2]; /* of the first against the second, and the reverse */
    size_t positives, negatives, masked;
    size_t positive_patients, negative_patients; /* 0 if no table has patients */
    /* Of recipes with several trainings (stats/recipes.h), else NaN. */
    double sd[2];          /* of the AUROCs of the trainings */
    double training_share; /* of the variance: what more trainings would lower */
    double runs_to_halve;  /* trainings of each recipe for an interval of half the width; NaN: more
                              than 1,000, or the patients alone are too few */
    bool too_few;          /* defined, but without interval: see CHEX_DELONG_MIN_CLUSTERS */
};

struct chex_paired {
    struct chex_paired_config config;
    size_t joined, left_out[2]; /* rows of both; rows of one table only */
    size_t patients;            /* of the joined rows; 0 if no table has patients */
    int classes;                /* that both tables have, in the order of the first */
    struct chex_paired_class *per_class;
    struct chex_paired_class mean; /* over the defined classes; no interval if one is too_few */
    int defined, too_few;
    size_t tests;      /* that Holm's correction counts */
    char **missing[2]; /* names of the classes of one table only */
    int missing_count[2];
};

/* Compares two tables. The first one must outlive the result.
 * - names: the files, for error texts.
 * - CHEX_E_DATA: no image or no finding in both; an image with another label or patient in the
 *   second table (the text names the first such image of the first table); clusters by patient, but
 *   no table has patients. */
enum chex_status chex_paired_create(const struct chex_predictions *const tables[2],
                                    const char *const names[2],
                                    const struct chex_paired_config *config,
                                    struct chex_paired **paired_out, struct chex_error *err);

/* Sets the verdicts and p_holm from the intervals and p values. chex_paired_create has done it. */
enum chex_status chex_paired_judge(struct chex_paired *p, struct chex_error *err);
void chex_paired_destroy(struct chex_paired *p); /* NULL allowed */

#endif
