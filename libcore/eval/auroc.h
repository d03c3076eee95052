/* SPDX-License-Identifier: Apache-2.0
 *
 * Area under the ROC curve, exact with ties: the share of (positive, negative) pairs that the
 * score puts in the right order, a tie counting one half. Sums are integers, so the value depends
 * on nothing but the data; it is rounded once, in the last division.
 *
 * A class's scores are ranked once; AUROC, its variance, the ROC curve and every bootstrap
 * replicate walk that ranking.
 */
#ifndef CHEX_EVAL_AUROC_H
#define CHEX_EVAL_AUROC_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Items [start, start + negatives + positives) of a ranking share one score; the negatives come
 * first. */
struct chex_tie {
    uint32_t start, negatives, positives;
};

struct chex_ranking {
    size_t count;     /* rows whose label is 0 or 1 */
    size_t positives; /* P */
    size_t negatives; /* N */
    uint32_t *row;    /* (count) the caller's row numbers, scores rising */
    struct chex_tie *ties;
    size_t tie_count;
    double *score; /* (tie_count) the score that a group shares */
};

/* The most rows of one ranking: with bootstrap weights up to 255 twice their sum stays in u32. */
enum { CHEX_RANKING_MAX_ROWS = 1 << 23 };

/* Ranks score[i * stride] of the rows i < rows whose label[i * stride] is 1 or 0; rows with a label
 * below 0 are masked and left out. -0 equals 0. CHEX_E_DATA: a score that is not a number, a label
 * above 1, too many rows; the text names the row, counted from 0. */
enum chex_status chex_ranking_create(const double *score, const int8_t *label, size_t rows,
                                     size_t stride, struct chex_ranking **ranking_out,
                                     struct chex_error *err);
void chex_ranking_destroy(struct chex_ranking *r); /* NULL allowed */

/* NaN where there is no positive or no negative. */
double chex_ranking_auroc(const struct chex_ranking *r);

/* Variance by DeLong, DeLong and Clarke-Pearson (1988): sample variances of the placements of the
 * positives among the negatives and the other way round. Images count as independent here. NaN
 * with fewer than two positives or two negatives. */
double chex_ranking_delong_variance(const struct chex_ranking *r);

/* The ROC curve from (0, 0) to (1, 1), thresholds falling, one point per tie group and the origin;
 * points within a straight run are left out, which changes no area. */
struct chex_roc {
    size_t count;
    double *fpr, *tpr; /* (count) */
};
enum chex_status chex_roc_create(const struct chex_ranking *r, struct chex_roc **roc_out,
                                 struct chex_error *err);
void chex_roc_destroy(struct chex_roc *roc); /* NULL allowed */

#endif
