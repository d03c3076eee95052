/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of predictions: one row per image of a split, with the network's scores and the labels.
 *
 * File format, predictions.csv:
 * - Header `image_id,patient_id`, then `y_<Class>` and `p_<Class>` for each class.
 * - y is 1, 0, -1 (uncertain) or -2 (not stated).
 * - p is written with nine digits, which restore fp32 exactly, and is read in fp64.
 * - The reader finds columns by name, in any order, and ignores other columns.
 * - The reader also accepts gzip files, and true and false (in any case) for 1 and 0.
 */
#ifndef CHEX_EVAL_PREDICTIONS_H
#define CHEX_EVAL_PREDICTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct chex_predictions {
    size_t rows;
    int classes;
    char **class_names; /* (classes) */
    char **image_id;    /* (rows) */
    char **patient_id;  /* (rows), or NULL if the file has no such column */
    int8_t *label;      /* (rows, classes); below 0: masked */
    double *score; /* (rows, classes): a finite number. From a network: a probability in fp32 */
};

/* Creates a zeroed table. The ids are NULL until the caller sets them to malloc'd strings. */
enum chex_status chex_predictions_create(size_t rows, int classes, const char *const *class_names,
                                         struct chex_predictions **p_out, struct chex_error *err);
void chex_predictions_destroy(struct chex_predictions *p); /* NULL allowed */

/* Writes the file atomically (temporary name, then rename). */
enum chex_status chex_predictions_write(const char *path, const struct chex_predictions *p,
                                        struct chex_error *err);

/* The values that the p_ columns of a table may have. */
enum chex_score_kind {
    CHEX_SCORE_PROBABILITY, /* 0 to 1 */
    CHEX_SCORE_ANY          /* any finite number, such as a logit */
};
extern const char *const chex_score_kind_names[]; /* "probability", "any", NULL */

/* Reads a table. CHEX_E_DATA with file, line and column:
 * - the file is not a table, or has no row or no class
 * - a class has y without p, or p without y
 * - two columns have the same name, or two rows the same image (each image counts once)
 * - a row has another number of columns than the header
 * - a label or a score is invalid, or a score is not of this kind */
enum chex_status chex_predictions_read(const char *path, enum chex_score_kind kind,
                                       struct chex_predictions **p_out, struct chex_error *err);

#endif
