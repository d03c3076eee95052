/* SPDX-License-Identifier: Apache-2.0
 *
 * Figures, subgroups, shortcuts and sets as JSON and as tables for people. One list of columns
 * names each figure, so that files, tables, report.html and the model card have the same ones.
 */
#ifndef CHEX_REPORT_FIGURES_TEXT_H
#define CHEX_REPORT_FIGURES_TEXT_H

#include "report/table.h"
#include "stats/external.h"
#include "stats/figures.h"
#include "stats/shortcuts.h"
#include "stats/subgroups.h"

/* Rows are struct chex_class_figures. The last two columns of operating need a prevalence. */
enum { CHEX_CLASS_COLUMNS = 6, CHEX_OPERATING_COLUMNS = 7 };
extern const struct chex_column chex_class_columns[CHEX_CLASS_COLUMNS],
    chex_operating_columns[CHEX_OPERATING_COLUMNS];

/* Sets the figures of class c in its object of auroc.json, and `operating` with the decisions at
 * the threshold. As chex_json_set. */
void chex_figures_class_json(const struct chex_figures *f, int c, json_t **object);

/* What holds for all classes: source and rule of the thresholds, recalibration. `optimistic` is
 * true if the thresholds were chosen on the evaluated rows. NULL: out of memory. */
json_t *chex_figures_json(const struct chex_figures *f);

/* The tables of --table, and how the thresholds were chosen. */
void chex_figures_print_operating(FILE *to, const struct chex_scores *s,
                                  const struct chex_figures *f);
void chex_figures_print_calibration(FILE *to, const struct chex_scores *s,
                                    const struct chex_figures *f);

/* ---- subgroups_text.c, shortcuts_text.c ---- */

/* The objects `subgroups` and `shortcuts` of auroc.json. NULL: out of memory. */
json_t *chex_subgroups_json(const struct chex_subgroups *s);
json_t *chex_shortcuts_json(const struct chex_shortcuts *s);

/* A short table: for each attribute and group the number of images and the mean AUROC, then the
 * largest gaps whose intervals exclude 0. */
void chex_subgroups_print(FILE *to, const struct chex_subgroups *s);

/* Rows are struct chex_shortcut. */
enum { CHEX_SHORTCUT_COLUMNS = 4 };
extern const struct chex_column chex_shortcut_columns[CHEX_SHORTCUT_COLUMNS];

/* ---- external_text.c ---- */

/* external.json. NULL: out of memory. */
json_t *chex_external_json(const struct chex_external *x);
/* external.csv: one line for each class and set. */
enum chex_status chex_external_put_csv(FILE *to, const struct chex_external *x,
                                       struct chex_error *err);
/* The table on stdout: AUROC of each class and set, and the drop from the first set. */
void chex_external_print(FILE *to, const struct chex_external *x);

#endif
