/* SPDX-License-Identifier: Apache-2.0
 *
 * Results of an evaluation, for people and for programs: the table on stdout, auroc.json,
 * auroc.csv, roc.svg and report.html. report.html is one file without scripts or external
 * resources, with a light and a dark scheme.
 */
#ifndef CHEX_REPORT_REPORT_H
#define CHEX_REPORT_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/text.h"
#include "report/published.h"
#include "stats/figures.h"
#include "stats/gains.h"
#include "stats/scores.h"
#include "stats/shortcuts.h"
#include "stats/subgroups.h"

struct chex_cases; /* infer/cases.h */

struct chex_report {
    const struct chex_scores *scores;
    const struct chex_published *published; /* NULL: no comparison */
    const char *title;                      /* "split test of shards/" */
    const json_t *provenance; /* NULL, or an object of texts, numbers and options, in display order
                               */
    const struct chex_figures *figures;     /* NULL: only AUROCs */
    const struct chex_cases *cases;         /* NULL: no images in report.html */
    const struct chex_subgroups *subgroups; /* NULL: none */
    const struct chex_shortcuts *shortcuts; /* NULL: none */
    const struct chex_gains *gains;         /* of an ensemble; NULL: one network */
    const char *unit, *unit_score; /* "image", "study", "patient"; "max", "mean", NULL for images.
                                      NULL: images */
    const char *command;           /* NULL, or the command line, quoted for a shell */
    const char *table_digest;      /* NULL, or XXH3-128 of predictions.csv, for auroc.json */
};

/* The form of all functions that write a file of a report, or a part of one. */
typedef enum chex_status chex_report_put_fn(FILE *to, const struct chex_report *r,
                                            struct chex_error *err);

#define CHEX_REPORT_KEY "auroc.json" /* moved last: if it exists, all results exist */

/* The files of an evaluation, NULL-terminated: predictions.csv, then those that chex_report_write
 * creates. */
extern const char *const chex_report_files[];

/* Prints the result table.
 * - Columns: class, positives, patients with a positive (if the table has patients), AUROC,
 * interval, published value.
 * - Then the mean, and notes that explain the columns. */
void chex_report_print(const struct chex_report *r, FILE *to);

/* The object of auroc.json, for the caller to release. Undefined numbers are null. NULL: out of
 * memory. */
json_t *chex_report_json(const struct chex_report *r);

/* Writes all files to an existing folder, each atomically. In auroc.csv an undefined number is
 * "nan"; the cell of a class without a published value is empty. */
enum chex_status chex_report_write(const struct chex_report *r, const char *dir,
                                   struct chex_error *err);

/* ---- gains_text.c: an ensemble. c: a class, or the number of classes for the mean ---- */

/* Sets the figures in an object; appends their names to the header of a CSV file; prints three
 * lines on the mean. */
void chex_gains_set(json_t **object, const struct chex_gains *g, int c);
void chex_gains_names(struct chex_text_line *to, const struct chex_gains *g);
void chex_gains_print(FILE *to, const struct chex_gains *g);

/* Further columns of a table of report.html. */
void chex_html_gain_headings(FILE *to);
void chex_html_gain_cells(FILE *to, const struct chex_gain *k);

/* ---- figures_text.c, subgroups_text.c, shortcuts_text.c: CSV files ---- */

/* The list `classes` of auroc.json, for the caller to release. NULL: out of memory. */
json_t *chex_report_classes_json(const struct chex_report *r);

/* - figures.csv: a row for each class, with the figures of its object in auroc.json
 * - curves.csv: class, curve, x, value, ci_low, ci_high. The curves are
 *   - reliability: x is the mean probability of a bin, value the share of positives
 *   - net_benefit, treat_all: x is the threshold
 *   - positives, negatives: histograms; x is the lower end of a bin, value the number of rows
 *   Empty if the scores are no probabilities.
 * - subgroups.csv: a row for each attribute, class and group
 * - shortcuts.csv: a row for each attribute and class
 * r has what they are about. An undefined number is nan. */
chex_report_put_fn chex_figures_put_csv, chex_figures_put_curves, chex_subgroups_put_csv,
    chex_shortcuts_put_csv;

/* ---- svg_*.c: plots ---- */

/* Writes the ROC curves as small multiples: one panel per class and a legend.
 * - file true: a complete SVG file with XML declaration.
 * - file false: an element of report.html; the width of the page sets the panels per row. */
enum chex_status chex_svg_roc(FILE *to, const struct chex_report *r, bool file,
                              struct chex_error *err);

/* Elements of report.html like those of chex_svg_roc. All need r->figures; all but
 * chex_svg_precision_recall need r->figures->probabilities.
 * - reliability: observed frequency against mean probability
 * - histogram: probabilities of the positives and of the negatives
 * - net benefit: decision curves */
chex_report_put_fn chex_svg_precision_recall, chex_svg_reliability, chex_svg_histogram,
    chex_svg_net_benefit;

/* The same for subgroups: the AUROC of each group of an attribute. */
enum chex_status chex_svg_forest(FILE *to, const struct chex_subgroups *s,
                                 const struct chex_subgroup_attribute *a, struct chex_error *err);

/* ---- report.c: parts that the table and report.html share ---- */

/* A row of the AUROC table: a class, or the mean. */
struct chex_report_row {
    const struct chex_class_score *score; /* NULL: the mean */
    double auroc, published;
    const struct chex_figure *within; /* AUROC within folds, if scores->folds */
    struct chex_interval interval;
    bool too_few; /* intervals are asked for, and there are too few clusters for this one */
};
/* c: a class, or the number of classes for the mean. */
struct chex_report_row chex_report_row(const struct chex_report *r, int c);

/* What the AUROC within folds is. */
extern const char chex_report_folds[];

/* Whether the published AUROCs were computed from the same images and labels as ours. */
enum chex_report_rows { CHEX_ROWS_UNKNOWN, CHEX_ROWS_SAME, CHEX_ROWS_OTHER };
enum chex_report_rows chex_report_rows(const struct chex_report *r);

/* Writes the source of the published AUROCs: "FILE: the same images and labels". */
void chex_report_put_source(const struct chex_report *r, FILE *to,
                            void (*put)(FILE *to, const char *text));

/* Describes how the intervals were computed, as the end of a sentence. */
void chex_report_method(const struct chex_scores *s, char *buf, size_t size);

/* The sentence on the intervals for the methods section of a paper. */
enum { CHEX_REPORT_METHODS_BYTES = 768 };
void chex_report_methods(const struct chex_scores *s, char buf[CHEX_REPORT_METHODS_BYTES]);

/* ---- html.c ---- */

/* Writes report.html. */
chex_report_put_fn chex_html_write;

/* The classes for which both the scores and the headline source have an AUROC, and the two means
 * over these classes. NaN: no such class. */
struct chex_report_shared {
    int classes;
    double ours, published;
};
struct chex_report_shared chex_report_shared_mean(const struct chex_report *r);
/* True if the shared mean covers fewer classes than the mean of the scores. The two means are then
 * not comparable, and the report shows both. */
bool chex_report_shares_fewer(const struct chex_report *r);

#endif
