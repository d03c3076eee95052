/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes, writes and prints the results of one evaluated set.
 */
#ifndef CHEX_EVALUATE_RESULTS_H
#define CHEX_EVALUATE_RESULTS_H

#include <jansson.h>
#include <stdio.h>

#include "evaluate/thresholds.h"
#include "infer/cases.h"
#include "stats/published.h"

/* One evaluated set. */
struct chex_eval_done {
    struct chex_predictions *table; /* of images */
    json_t *provenance;
    char *title;
    char *command;            /* of chex_opt_command */
    struct chex_cases *cases; /* the hardest; may be NULL */
};

/* What chex_eval_results_report needs. done: one set, or several for external_results.h. */
struct chex_eval_results {
    const struct chex_eval_settings *s;
    int threads;
    const struct chex_eval_done *done;
    const struct chex_published *published; /* may be NULL */
    const struct chex_eval_figures *figures;
    bool write_table; /* also writes predictions.csv */
    FILE *out;        /* for the table, or with --json the object */
};

/* Computes and prints the scores and figures. With --output it writes all result files or none. */
enum chex_status chex_eval_results_report(const struct chex_eval_results *results,
                                          struct chex_error *err);

#endif
