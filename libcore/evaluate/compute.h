/* SPDX-License-Identifier: Apache-2.0
 *
 * From a table of predictions to a report: units, scores, figures, subgroups, shortcuts.
 */
#ifndef CHEX_EVALUATE_COMPUTE_H
#define CHEX_EVALUATE_COMPUTE_H

#include "evaluate/results.h"
#include "evaluate/settings.h"
#include "report/report.h"
#include "stats/unit_scores.h"

/* Checks --subgroups and --age-bands. */
enum chex_status chex_eval_groups_check(const struct chex_eval_settings *s, struct chex_error *err);

/* Everything that is computed from one table. Starts as {0}. */
struct chex_eval_computed {
    struct chex_predictions *units; /* of --unit study or patient; NULL: images */
    struct chex_scores *scores;     /* of the units */
    struct chex_figures *figures;
    struct chex_subgroups *subgroups;
    struct chex_shortcuts *shortcuts;
    struct chex_gains *gains; /* NULL: one network */
};

/* - table: of images. It and `figures` must outlive `out`.
 * - title: what an error of the table is about
 * - pool: may be NULL
 * The caller calls chex_eval_computed_release, after an error too. */
enum chex_status chex_eval_compute(const struct chex_eval_settings *s, const char *title,
                                   const struct chex_predictions *table,
                                   const struct chex_figures_config *figures,
                                   struct chex_pool *pool, struct chex_eval_computed *out,
                                   struct chex_error *err);
void chex_eval_computed_release(struct chex_eval_computed *c);

/* The report of a table. It borrows everything. */
struct chex_report chex_eval_report_of(const struct chex_eval_settings *s,
                                       const struct chex_eval_computed *c,
                                       const struct chex_eval_done *done,
                                       const struct chex_published *published);

/* Writes the files of a report into an existing folder. predictions: NULL, or the images for
 * predictions.csv. */
enum chex_status chex_eval_write_files(const char *dir, const struct chex_report *report,
                                       const struct chex_predictions *predictions,
                                       struct chex_error *err);

#endif
