/* SPDX-License-Identifier: Apache-2.0
 *
 * Results for people and for programs: the table on stdout, auroc.json, auroc.csv, roc.svg and
 * report.html (one file, no scripts, nothing loaded from elsewhere, light and dark).
 */
#ifndef CHEX_EVAL_REPORT_H
#define CHEX_EVAL_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "eval/published.h"
#include "eval/scores.h"

struct chex_report {
    const struct chex_scores *scores;
    const struct chex_published *published; /* NULL: no comparison */
    const char *title;                      /* "split test of shards/" */
    const json_t *provenance; /* object of strings and numbers, in the order of showing; NULL */
};

/* The names that chex_report_write gives its files, NULL-terminated. */
extern const char *const chex_report_files[];

/* class, positives, AUROC, interval, published value; the mean; the split of the published
 * column. */
void chex_report_print(const struct chex_report *r, FILE *to);

/* The object that auroc.json holds; undefined numbers are null. The caller decrefs. */
enum chex_status chex_report_json(const struct chex_report *r, json_t **json_out,
                                  struct chex_error *err);

/* All files into an existing folder, each whole or not at all. auroc.csv: undefined numbers are
 * "nan", and a class without a published value has an empty cell. */
enum chex_status chex_report_write(const struct chex_report *r, const char *dir,
                                   struct chex_error *err);

/* ---- the parts, in svg.c ---- */

/* Small multiples of the ROC curves, one panel a class and a legend: one <svg> with the XML
 * declaration before it where it is to be a file, otherwise an element of report.html that breaks
 * its rows of panels by the width of the page. */
enum chex_status chex_svg_roc(FILE *to, const struct chex_report *r, bool file,
                              struct chex_error *err);

/* Observed frequency against mean score in ten bins of equal count, one panel a class. Only for
 * scores that are probabilities. */
enum chex_status chex_svg_reliability(FILE *to, const struct chex_report *r,
                                      struct chex_error *err);
bool chex_svg_are_probabilities(const struct chex_predictions *table);

/* ---- in html.c ---- */
enum chex_status chex_html_write(FILE *to, const struct chex_report *r, struct chex_error *err);

/* The classes that both the scores and the headline source define, and the mean of each over them;
 * NaN where there is none. */
struct chex_report_shared {
    int classes;
    double ours, published;
};
struct chex_report_shared chex_report_shared_mean(const struct chex_report *r);
/* Of fewer classes than the mean of the scores: the two do not compare, and are told apart. */
bool chex_report_shares_fewer(const struct chex_report *r);

#endif
