/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints the results of chex-train --plan, --prove, --bench and --bench-input as text.
 */
#ifndef CHEX_CMD_TRAIN_PRINT_H
#define CHEX_CMD_TRAIN_PRINT_H

#include <jansson.h>

/* train_plan.c: the object of plan/plan.h. */
void train_plan_print(const json_t *plan);
/* train_print.c: the object of prove/prove.h; the objects of bench/bench.h. */
void train_prove_print(const json_t *proof);
void train_bench_print(const json_t *result);

#endif
