/* SPDX-License-Identifier: Apache-2.0
 *
 * The output folder of chex-eval predict.
 */
#ifndef CHEX_EVALUATE_PREDICT_OUTPUT_H
#define CHEX_EVALUATE_PREDICT_OUTPUT_H

#include <jansson.h>
#include <stdio.h>

#include "evaluate/output.h"
#include "infer/predict_images.h"

struct chex_eval_output chex_eval_predict_output(const struct chex_eval_settings *s);

/* Writes all result files or none, then removes the unfinished results. facts: members of
 * predict.json besides the counts. */
enum chex_status chex_eval_predict_publish(const struct chex_eval_settings *s,
                                           const struct chex_predict_config *config, json_t *facts,
                                           struct chex_predict_result *result,
                                           struct chex_error *err);

/* Prints the counts and warns about flags. */
enum chex_status chex_eval_predict_print(const struct chex_eval_settings *s, const json_t *facts,
                                         const struct chex_predict_result *result, FILE *out,
                                         struct chex_error *err);

#endif
