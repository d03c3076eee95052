/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes, writes and prints the results of evaluated sets.
 */
#ifndef CHEX_EVALUATE_RESULTS_H
#define CHEX_EVALUATE_RESULTS_H

#include <jansson.h>
#include <stdio.h>

#include "evaluate/output.h"
#include "evaluate/thresholds.h"
#include "infer/cases.h"
#include "report/published.h"
#include "shard/sources.h"

/* One evaluated set. */
struct chex_eval_done {
    struct chex_predictions *table; /* of images */
    json_t *provenance;
    char *title;
    char *command;            /* of chex_opt_command */
    struct chex_cases *cases; /* the hardest; may be NULL */
};

/* What chex_eval_results_report needs. done: one set, or several for external_results.c. */
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

/* ---- external_results.c: several sets ---- */

/* The names of the sets, which are those of their folders in --output: NULL-terminated, for the
 * caller to free; the names belong to `sets`. NULL: out of memory. */
const char **chex_eval_external_dirs(const struct chex_sources *sets);

/* The output of an evaluation of several sets. dirs: of chex_eval_external_dirs, borrowed. */
struct chex_eval_output chex_eval_external_output(const struct chex_eval_settings *s,
                                                  const char *const *dirs);

/* Computes, prints and writes the results of several sets: OUT/NAME/ for each, external.json and
 * external.csv, all or none. q->done: (sets->count) */
enum chex_status chex_eval_external_report(const struct chex_eval_results *q,
                                           const struct chex_sources *sets, struct chex_error *err);

#endif
