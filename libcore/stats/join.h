/* SPDX-License-Identifier: Apache-2.0
 *
 * The join of two tables of predictions: rows by image id, findings by name. What both state of an
 * image must agree: its label and its patient. Rows and findings of one table only are counted.
 */
#ifndef CHEX_STATS_JOIN_H
#define CHEX_STATS_JOIN_H

#include "stats/auroc.h"
#include "stats/predictions.h"
#include "stats/scores.h"

/* row[i][k] is row k of the join in table i, column[i][c] finding c. */
struct chex_join {
    const struct chex_predictions *const *tables;
    const char *const *names;
    size_t rows, left_out[2]; /* in both tables; in one table only */
    int classes;              /* in both tables, in the order of the first */
    char **missing[2];        /* names of the findings of one table only */
    int missing_count[2];
    uint32_t *row[2];
    int *column[2];
    uint32_t *patient; /* (rows) numbers; NULL: no table has patients */
    size_t patients;
    uint32_t *cluster; /* (rows) of the intervals: patient, or 0, 1, ... */
    size_t clusters;
    double *score; /* (rows) buffers of chex_join_rank */
    int8_t *label;
};

/* Joins tables[0] and tables[1], which must outlive the join. names: the files, for error texts.
 * CHEX_E_DATA: no image or no finding in both; an image with another label or patient in the second
 * table (the text names the first such image of the first table); clusters by patient, but no table
 * has patients. chex_join_release accepts {0} and failed joins too. */
enum chex_status chex_join_create(const struct chex_predictions *const tables[2],
                                  const char *const names[2], enum chex_cluster cluster,
                                  struct chex_join *j, struct chex_error *err);
void chex_join_release(struct chex_join *j);

/* Ranks finding c of the joined rows by the scores of table i. */
enum chex_status chex_join_rank(const struct chex_join *j, int i, int c, struct chex_ranking **out,
                                struct chex_error *err);

#endif
