/* SPDX-License-Identifier: Apache-2.0
 *
 * The figures of stats/figures.h as JSON, as CSV files and as tables for people. One list names
 * each figure, so that all of them have the same columns.
 */
#ifndef CHEX_REPORT_FIGURES_TEXT_H
#define CHEX_REPORT_FIGURES_TEXT_H

#include "report/table.h"
#include "stats/figures.h"

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

/* figures.csv: one row per class. classes: the list of auroc.json, which this releases. */
enum chex_status chex_figures_put_csv(FILE *to, json_t *classes, struct chex_error *err);

/* curves.csv: class, curve, x, value, ci_low, ci_high. The curves are
 * - reliability: x is the mean probability of a bin, value the share of positives
 * - net_benefit, treat_all: x is the threshold
 * - positives, negatives: histograms; x is the lower end of a bin, value the number of rows
 * Empty if the scores are no probabilities. */
enum chex_status chex_figures_put_curves(FILE *to, const struct chex_scores *s,
                                         const struct chex_figures *f, struct chex_error *err);

/* The tables of --table, and how the thresholds were chosen. */
void chex_figures_print_operating(FILE *to, const struct chex_scores *s,
                                  const struct chex_figures *f);
void chex_figures_print_calibration(FILE *to, const struct chex_scores *s,
                                    const struct chex_figures *f);

/* How the thresholds were chosen, as a sentence without full stop: "thresholds by youden on these
 * images: ...". */
void chex_figures_source(const struct chex_figures *f, char *buf, size_t size);

#endif
