/* SPDX-License-Identifier: Apache-2.0
 *
 * The step loop: does the steps of a run and decides when it ends.
 */
#ifndef CHEX_TRAIN_LOOP_H
#define CHEX_TRAIN_LOOP_H

#include "train/session.h"

/* One step, without the save that *v may ask for. A step with a diverged loss is not counted.
 * Collective. */
enum chex_status chex_session_step(struct chex_session *s, struct chex_step_verdict *v,
                                   struct chex_error *err);
/* Runs all steps. Collective. */
enum chex_status chex_session_loop(struct chex_session *s, struct chex_error *err);
/* Steps from the start of training (not of this process) to its end. */
uint64_t chex_session_all_steps(const struct chex_session *s);
bool chex_session_out_of_steps(const struct chex_session *s); /* --max-steps is reached */
/* The option that ends the run at this position: "epochs", "max-steps" or "stop-after"; NULL: there
 * is more to do. All ranks return the same. */
const char *chex_session_ended_by(const struct chex_session *s);

#endif
