/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-train --plan: prints the object of plan/plan.h as text.
 */
#ifndef CHEX_CMD_TRAIN_PLAN_H
#define CHEX_CMD_TRAIN_PLAN_H

#include <jansson.h>

void train_plan_print(const json_t *plan);

#endif
