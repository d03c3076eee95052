/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of predictions: one row per image of a split, with the network's scores and the labels.
 *
 * File format, predictions.csv:
 * - Header `image_id,patient_id`, then `y_<Class>` and `p_<Class>` for each class, then the facts
 * of the images that are known for at least one row (stats/row_facts.h). Of an ensemble
 * `s_<Class>` follows p: the standard deviation of its members' p.
 * - y is 1, 0, -1 (uncertain) or -2 (not stated).
 * - p is written with nine digits, which restore fp32 exactly, and is read in fp64.
 * - The reader finds columns by name, in any order, and ignores other columns.
 * - The reader also accepts gzip files, and true and false (in any case) for 1 and 0.
 */
#ifndef CHEX_STATS_PREDICTIONS_H
#define CHEX_STATS_PREDICTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "label/values.h"

/* What is known about the image of a row. */
struct chex_row_facts {
    char *study_id, *source; /* NULL: unknown. source: name of the set, if there are several */
    enum chex_view view;
    int age_years;           /* -1: unknown */
    char sex;                /* 'M', 'F', 0: unknown */
    int width_px, height_px; /* of the original file; 0: unknown */
    double brightness;       /* mean of the stored pixels, 0 to 1; NaN: unknown */
    int fold; /* of a cross-validation, from 1 on: scored by the network that did not see it; 0:
                 unknown */
};

struct chex_predictions {
    size_t rows;
    int classes;
    char **class_names; /* (classes) */
    char **image_id;    /* (rows) */
    char **patient_id;  /* (rows), or NULL if the file has no such column */
    int8_t *label;      /* (rows, classes); below 0: masked */
    double *score; /* (rows, classes): a finite number. From a network: a probability in fp32 */
    struct chex_row_facts *facts; /* (rows), or NULL: nothing is known */
    int members;                  /* of an ensemble; 0: one network, or unknown */
    double *member_score;         /* (members, rows, classes); a file has their spread alone */
};

/* Creates a zeroed table. The ids are NULL until the caller sets them to malloc'd strings. */
enum chex_status chex_predictions_create(size_t rows, int classes, const char *const *class_names,
                                         struct chex_predictions **p_out, struct chex_error *err);
void chex_predictions_destroy(struct chex_predictions *p); /* NULL allowed */
/* Destroyed when the variable goes out of scope; start with NULL. */
#define CHEX_AUTO_PREDICTIONS __attribute__((cleanup(chex_predictions_auto_destroy)))
static inline void chex_predictions_auto_destroy(struct chex_predictions **p) {
    chex_predictions_destroy(*p);
}

/* Adds `facts`, all unknown, if the table has none. Its strings are malloc'd. */
enum chex_status chex_predictions_add_facts(struct chex_predictions *p, struct chex_error *err);

/* Mean and sample standard deviation of `count` scores, `stride` apart; 0 for one score. */
struct chex_spread {
    double mean, sd;
};
struct chex_spread chex_spread_of(const double *score, int count, size_t stride);

/* Writes the file atomically (temporary name, then rename). */
enum chex_status chex_predictions_write(const char *path, const struct chex_predictions *p,
                                        struct chex_error *err);

/* Writes ",PREFIXCLASS" for each class, quoted if needed. */
void chex_predictions_put_columns(FILE *to, const char *prefix, char *const *class_names,
                                  int classes);

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
 * - a label or a score is invalid, or a score is not of this kind
 * A fact that cannot be read counts as unknown, with a warning: tables of other programs have
 * columns of these names too. */
enum chex_status chex_predictions_read(const char *path, enum chex_score_kind kind,
                                       struct chex_predictions **p_out, struct chex_error *err);

#endif
