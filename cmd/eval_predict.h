/* SPDX-License-Identifier: Apache-2.0
 *
 * The output folder of chex-eval predict.
 */
#ifndef CHEX_CMD_EVAL_PREDICT_H
#define CHEX_CMD_EVAL_PREDICT_H

#include "eval_commands.h"
#include "infer/predict_images.h"

/* CHEX_E_USAGE if --output holds results and --force was not given; the text lists them. */
enum chex_status eval_predict_refuse(const struct eval_settings *s, struct chex_error *err);

/* Creates and locks the folder, and begins or goes on with the unfinished results. lines: of
 * chex_partial_begin. End with eval_results_end. */
enum chex_status eval_predict_begin(const struct eval_settings *s, const char *const *lines,
                                    struct eval_output *o, struct chex_error *err);

/* Writes all result files or none, then removes the unfinished results. facts: members of
 * predict.json besides the counts. */
enum chex_status eval_predict_publish(const struct eval_settings *s,
                                      const struct chex_predict_config *config, json_t *facts,
                                      struct chex_predict_result *result, struct chex_error *err);

/* Prints the counts and warns about flags. */
enum chex_status eval_predict_print(const struct eval_settings *s, const json_t *facts,
                                    const struct chex_predict_result *result,
                                    struct chex_error *err);

#endif
