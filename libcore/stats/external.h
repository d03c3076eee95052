/* SPDX-License-Identifier: Apache-2.0
 *
 * External validation: one network on several sets of images. The first set is the internal one;
 * the figures of every other set are compared with those of the first.
 *
 * The sets hold different patients, so differences have the intervals of independent figures
 * (chex_gap with correlation 0). A patient who is in two sets would make them too wide, not too
 * narrow.
 */
#ifndef CHEX_STATS_EXTERNAL_H
#define CHEX_STATS_EXTERNAL_H

#include "stats/figures.h"

enum chex_external_figure {
    CHEX_EXTERNAL_AUROC,
    CHEX_EXTERNAL_SENSITIVITY,
    CHEX_EXTERNAL_SPECIFICITY,
    CHEX_EXTERNAL_SLOPE,     /* of calibration */
    CHEX_EXTERNAL_INTERCEPT, /* of calibration */
    CHEX_EXTERNAL_FIGURES
};

/* A set. Everything is borrowed. All sets have the same classes in the same order. */
struct chex_external_set {
    const char *name, *data, *title;
    const struct chex_scores *scores;
    const struct chex_figures *figures;
};

struct chex_external_cell {
    struct chex_figure figure[CHEX_EXTERNAL_FIGURES];
    /* The first set minus this one: the drop. NaN for the first set, and if one is undefined. */
    struct chex_figure drop[CHEX_EXTERNAL_FIGURES];
};

/* The mean AUROC over the classes that are defined in the first set and in this one. */
struct chex_external_mean {
    int classes;
    struct chex_figure first, own, drop;
};

struct chex_external {
    int sets, classes;
    const struct chex_external_set *set; /* (sets), borrowed */
    struct chex_external_cell *cell;     /* (classes, sets) */
    struct chex_external_mean *mean;     /* (sets) */
};

enum chex_status chex_external_create(const struct chex_external_set *sets, int count,
                                      struct chex_external **out, struct chex_error *err);
void chex_external_destroy(struct chex_external *x); /* NULL allowed */

#endif
