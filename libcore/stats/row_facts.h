/* SPDX-License-Identifier: Apache-2.0
 *
 * The columns of predictions.csv that describe images: study_id, source, view (PA, AP, LATERAL),
 * age_years, sex (M, F), width_px and height_px of the original file, brightness (mean of the
 * stored pixels, 0 to 1), fold (of a cross-validation). All are optional. An empty cell is unknown.
 */
#ifndef CHEX_STATS_ROW_FACTS_H
#define CHEX_STATS_ROW_FACTS_H

#include <stdio.h>

#include "label/csv.h"
#include "stats/predictions.h"

enum chex_fact {
    CHEX_FACT_STUDY_ID,
    CHEX_FACT_SOURCE,
    CHEX_FACT_VIEW,
    CHEX_FACT_AGE,
    CHEX_FACT_SEX,
    CHEX_FACT_WIDTH,
    CHEX_FACT_HEIGHT,
    CHEX_FACT_BRIGHTNESS,
    CHEX_FACT_FOLD,
    CHEX_FACT_COUNT
};

/* The name of the column. */
extern const char *const chex_fact_names[CHEX_FACT_COUNT];

/* ---- writing: the columns after those of the classes ---- */

/* A mask of 1 << enum chex_fact: the facts that are known for at least one row. */
unsigned chex_facts_known(const struct chex_predictions *p);
/* Writes ",NAME" or ",VALUE" for each fact of the mask. */
void chex_facts_put_names(FILE *to, unsigned mask);
void chex_facts_put_cells(FILE *to, unsigned mask, const struct chex_row_facts *f);

/* ---- reading ---- */

struct chex_fact_columns {
    unsigned mask;               /* facts that the table has */
    int at[CHEX_FACT_COUNT];     /* their columns, from 0 */
    size_t bad[CHEX_FACT_COUNT]; /* cells that could not be read */
};

/* Finds the columns in the current record. CHEX_E_DATA: a name appears twice. */
enum chex_status chex_facts_find(const struct chex_csv *csv, struct chex_fact_columns *c,
                                 struct chex_error *err);

/* Reads the cells of the current record into *f, which is all unknown. */
enum chex_status chex_facts_read(const struct chex_csv *csv, struct chex_fact_columns *c,
                                 struct chex_row_facts *f, struct chex_error *err);

/* Warns about each column with cells that could not be read. */
void chex_facts_warn(const struct chex_fact_columns *c, const char *path);

#endif
