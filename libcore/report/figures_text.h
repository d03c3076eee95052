/* SPDX-License-Identifier: Apache-2.0
 *
 * The figures of stats/figures.h as JSON, as CSV files and as tables for people. One list names
 * each figure, so that all of them have the same columns.
 */
#ifndef CHEX_REPORT_FIGURES_TEXT_H
#define CHEX_REPORT_FIGURES_TEXT_H

#include <jansson.h>
#include <stdio.h>

#include "stats/figures.h"

/* The figures of class c as keys of the class object of auroc.json: NAME, NAME_ci_low, NAME_ci_high
 * for each, and `operating` with the decisions at the threshold. NULL: out of memory. */
json_t *chex_figures_class_json(const struct chex_figures *f, int c);

/* What holds for all classes: source and rule of the thresholds, recalibration. `optimistic` is
 * true if the thresholds were chosen on the evaluated rows. NULL: out of memory. */
json_t *chex_figures_json(const struct chex_figures *f);

/* figures.csv: one row per class, the columns of chex_figures_class_json. An undefined number is
 * nan. */
void chex_figures_put_csv(FILE *to, const struct chex_scores *s, const struct chex_figures *f);

/* curves.csv: class, curve, x, value, ci_low, ci_high. The curves are
 * - reliability: x is the mean probability of a bin, value the share of positives
 * - net_benefit, treat_all: x is the threshold
 * - positives, negatives: histograms; x is the lower end of a bin, value the number of rows
 * Empty if the scores are no probabilities. */
void chex_figures_put_curves(FILE *to, const struct chex_scores *s, const struct chex_figures *f);

/* The tables of --table, and how the thresholds were chosen. */
void chex_figures_print_operating(FILE *to, const struct chex_scores *s,
                                  const struct chex_figures *f);
void chex_figures_print_calibration(FILE *to, const struct chex_scores *s,
                                    const struct chex_figures *f);

/* How the thresholds were chosen, as a sentence without full stop: "thresholds by youden on these
 * images: ...". */
void chex_figures_source(const struct chex_figures *f, char *buf, size_t size);

#endif
