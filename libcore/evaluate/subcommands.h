/* SPDX-License-Identifier: Apache-2.0
 *
 * The work of chex-eval and its subcommands. Each function checks the options in `s`, does the
 * work, writes all result files or none, and prints to `out` the table or, with --json, one object.
 * `set` is what chex_opt_parse made of the options: words, and which values the user gave.
 *
 * chex_evaluate, chex_evaluate_deploy, chex_evaluate_export_features and chex_evaluate_predict are
 * collective: all ranks of a job call them and return the same status; each opens its own launch
 * (launch/world.h), prints on rank 0, reports errors itself and leaves err->text empty. The others
 * run in one process.
 */
#ifndef CHEX_EVALUATE_SUBCOMMANDS_H
#define CHEX_EVALUATE_SUBCOMMANDS_H

#include <stdio.h>

#include "evaluate/settings.h"

typedef enum chex_status chex_evaluate_fn(const struct chex_opt_set *set,
                                          const struct chex_eval_settings *s, FILE *out,
                                          struct chex_error *err);
chex_evaluate_fn chex_evaluate, chex_evaluate_score, chex_evaluate_compare, chex_evaluate_predict,
    chex_evaluate_deploy, chex_evaluate_cam;
enum chex_status chex_evaluate_export(const struct chex_eval_settings *s, struct chex_error *err);
enum chex_status chex_evaluate_export_features(const struct chex_opt_set *set,
                                               const struct chex_eval_settings *s,
                                               struct chex_error *err);
enum chex_status chex_evaluate_card(const struct chex_eval_settings *s, struct chex_error *err);

#endif
