/* SPDX-License-Identifier: Apache-2.0
 *
 * Exact area under the ROC curve (AUROC), ties included.
 *
 * The AUROC is the share of (positive, negative) pairs in which the positive has the higher score.
 * A tie counts one half. All sums are integers, and the result is rounded once, in the last
 * division. It therefore depends only on the data.
 *
 * The scores of a class are ranked once. The AUROC, its variance (stats/delong.h), the ROC curve
 * and every bootstrap replicate then walk this ranking.
 */
#ifndef CHEX_STATS_AUROC_H
#define CHEX_STATS_AUROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A 95 % interval. NaN: undefined. */
struct chex_interval {
    double low, high;
    size_t undefined; /* bootstrap replicates without a positive or a negative */
};

/* A tie group: items [start, start + negatives + positives) of a ranking have the same score. The
 * negatives come first. */
struct chex_tie {
    uint32_t start, negatives, positives;
};

struct chex_ranking {
    size_t count;     /* rows whose label is 0 or 1 */
    size_t positives; /* P */
    size_t negatives; /* N */
    uint32_t *row;    /* (count) row numbers of the caller, by increasing score */
    struct chex_tie *ties;
    size_t tie_count;
    double *score; /* (tie_count) the score of each tie group */
};

/* Maximum rows of one ranking. With bootstrap weights of up to 255, twice their sum fits in u32. */
enum { CHEX_RANKING_MAX_ROWS = 1 << 23 };

/* Ranks score[i * stride] for the rows i < rows whose label[i * stride] is 0 or 1.
 * - A label below 0 masks its row.
 * - -0 equals 0.
 * - CHEX_E_DATA: a score is NaN, a label is above 1, or there are too many rows. The text names the
 *   row, counted from 0. */
enum chex_status chex_ranking_create(const double *score, const int8_t *label, size_t rows,
                                     size_t stride, struct chex_ranking **ranking_out,
                                     struct chex_error *err);
void chex_ranking_destroy(struct chex_ranking *r); /* NULL allowed */
/* Destroyed when the variable goes out of scope; start with NULL. */
#define CHEX_AUTO_RANKING __attribute__((cleanup(chex_ranking_auto_destroy)))
static inline void chex_ranking_auto_destroy(struct chex_ranking **r) { chex_ranking_destroy(*r); }

/* The ranking of some of its rows: those with keep[group_of[row]]. Linear in the rows of `r`.
 * group_of: (rows of the table); keep: (256). CHEX_E_RESOURCE: out of memory. */
enum chex_status chex_ranking_filter(const struct chex_ranking *r, const uint8_t *group_of,
                                     const bool *keep, struct chex_ranking **ranking_out,
                                     struct chex_error *err);

/* NaN if there is no positive or no negative. */
double chex_ranking_auroc(const struct chex_ranking *r);

/* The ROC curve from (0, 0) to (1, 1), by decreasing threshold: the origin and one point per tie
 * group. Inner points of a straight segment are left out; the area is the same. */
struct chex_roc {
    size_t count;
    double *fpr, *tpr; /* (count) */
};
enum chex_status chex_roc_create(const struct chex_ranking *r, struct chex_roc **roc_out,
                                 struct chex_error *err);
void chex_roc_destroy(struct chex_roc *roc); /* NULL allowed */

#endif
