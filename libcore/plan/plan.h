/* SPDX-License-Identifier: Apache-2.0
 *
 * --plan: describes a run without doing it. It calls the set-up functions of chex_train_run, so
 * errors have the same status and text as in the run, and sizes come from the same code. It creates
 * and changes no file, starts no input thread and does no step.
 */
#ifndef CHEX_PLAN_PLAN_H
#define CHEX_PLAN_PLAN_H

#include "train/trainer.h"

/* *plan_out: a JSON object on rank 0, which the caller releases, also after an error; else NULL.
 * share/man/chex-train.1 lists its keys; their names end in the unit. *together_out as in
 * chex_train_run. Takes about a second if the engine measures its limits. Collective. */
enum chex_status chex_train_plan(const struct chex_train_config *config,
                                 const struct chex_train_world *world, json_t **plan_out,
                                 bool *together_out, struct chex_error *err);

#endif
