/* SPDX-License-Identifier: Apache-2.0
 *
 * A preview of a run (--plan): its set-up, by the very steps of chex_train_run, and what follows
 * from it. No file is made or changed, no thread of the input starts, no step is done. So what is
 * wrong has the status and the text that the run would give, and the numbers are the run's own:
 * memory as engine, reduction and pipeline count it, space as the checkpoints ask for it.
 */
#ifndef CHEX_TRAIN_PLAN_H
#define CHEX_TRAIN_PLAN_H

#include "train/trainer.h"

/* *plan_out: at rank 0 an object (share/man/chex-train.1 tells its keys; the caller releases it),
 * NULL elsewhere. Keys carry their units. together_out as in chex_train_run. Takes about a second
 * where the engine measures its limits. Collective. */
enum chex_status chex_train_plan(const struct chex_train_config *config,
                                 const struct chex_train_world *world, json_t **plan_out,
                                 bool *together_out, struct chex_error *err);

#endif
