/* SPDX-License-Identifier: Apache-2.0
 *
 * Results of several sets: a folder for each, external.json and external.csv.
 */
#ifndef CHEX_EVALUATE_EXTERNAL_RESULTS_H
#define CHEX_EVALUATE_EXTERNAL_RESULTS_H

#include "evaluate/output.h"
#include "evaluate/results.h"
#include "shard/sources.h"

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
