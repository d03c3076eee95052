/* SPDX-License-Identifier: Apache-2.0
 *
 * How well the network works in groups of images: AUROC, sensitivity and false positive rate at the
 * thresholds of the evaluation, and the gaps between groups.
 *
 * Differences of two groups have intervals by MOVER (Zou and Donner 2008) from the intervals of
 * both, with the correlation of the contributions of clusters that have images in both groups. For
 * groups of different patients that correlation is 0.
 */
#ifndef CHEX_STATS_SUBGROUPS_H
#define CHEX_STATS_SUBGROUPS_H

#include "stats/figures.h"
#include "stats/groups.h"

/* A group with fewer clusters (usually patients) that have a positive, or a negative, is too small:
 * its figures have no interval and it takes no part in gaps. */
enum { CHEX_SUBGROUP_MIN_CLUSTERS = 10 };

/* The figures that are compared. */
enum chex_subgroup_figure {
    CHEX_SUBGROUP_AUROC,
    CHEX_SUBGROUP_SENSITIVITY, /* true positive rate */
    CHEX_SUBGROUP_FPR,         /* false positive rate: 1 - specificity */
    CHEX_SUBGROUP_FIGURES
};

struct chex_group_score {
    size_t positives, negatives;
    size_t positive_clusters, negative_clusters;
    bool too_small;
    struct chex_figure figure[CHEX_SUBGROUP_FIGURES];
    /* The same minus that of all rows of other groups. NaN: too small, or the others are. */
    struct chex_figure against_rest[CHEX_SUBGROUP_FIGURES];
};

/* The largest difference between two groups that are not too small. */
struct chex_subgroup_gap {
    int high, low;          /* the groups; -1: fewer than two groups */
    struct chex_figure gap; /* the interval is that of this pair: it ignores that the pair was
                             * chosen as the largest of several */
};

struct chex_subgroup_class {
    struct chex_group_score *group; /* (groups) */
    struct chex_subgroup_gap gap[CHEX_SUBGROUP_FIGURES];
};

struct chex_subgroup_attribute {
    enum chex_attribute attribute;
    struct chex_groups groups;
    struct chex_subgroup_class *per_class; /* (classes) */
};

struct chex_subgroups {
    const struct chex_scores *scores; /* borrowed */
    int count;                        /* attributes */
    struct chex_subgroup_attribute attribute[CHEX_ATTRIBUTE_COUNT];
    bool thresholds; /* sensitivity and false positive rate are known for at least one class */
};

struct chex_subgroups_config {
    unsigned attributes; /* mask of 1 << enum chex_attribute */
    bool asked;          /* the user named them: an attribute with one group is kept too */
    struct chex_age_bands bands;
};

/* Computes all groups of the attributes for which the table has facts.
 * - figures: thresholds and calibration; NULL: only AUROCs.
 * - CHEX_E_DATA: an attribute was asked for, and no row states it. */
enum chex_status chex_subgroups_create(const struct chex_scores *scores,
                                       const struct chex_figures *figures,
                                       const struct chex_subgroups_config *config,
                                       struct chex_subgroups **out, struct chex_error *err);
void chex_subgroups_destroy(struct chex_subgroups *s); /* NULL allowed */

#endif
