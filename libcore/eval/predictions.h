/* SPDX-License-Identifier: Apache-2.0
 *
 * What a network said of each image of a split, and what the labels say: one row an image.
 *
 * predictions.csv: a header `image_id,patient_id`, then `y_<Class>` and `p_<Class>` for each class;
 * y is 1, 0, -1 (uncertain) or -2 (not stated), p is written with nine digits, so that fp32 comes
 * back to the bit, and read in fp64. Columns go by name, in any order; other columns are passed
 * over.
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
    char **patient_id;  /* (rows), or NULL where the file had no such column */
    int8_t *label;      /* (rows, classes); below 0: masked */
    double *score;      /* (rows, classes): any finite number; of a network a probability in fp32 */
};

/* A table of `rows` rows, zeroed; the ids are NULL until they are set (malloc'd strings). */
enum chex_status chex_predictions_create(size_t rows, int classes, const char *const *class_names,
                                         struct chex_predictions **p_out, struct chex_error *err);
void chex_predictions_destroy(struct chex_predictions *p); /* NULL allowed */

/* Written whole or not at all. */
enum chex_status chex_predictions_write(const char *path, const struct chex_predictions *p,
                                        struct chex_error *err);

/* CHEX_E_DATA with file, line and column: not a table, a class with y and no p or the other way
 * round, no class at all, a column named twice, a row of another width, a label or a score that is
 * none, an image that stands twice (each image counts once), no row. */
enum chex_status chex_predictions_read(const char *path, struct chex_predictions **p_out,
                                       struct chex_error *err);

#endif
