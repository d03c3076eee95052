/* SPDX-License-Identifier: Apache-2.0
 *
 * The work of a run: the step loop, which decides when it ends (loop.c), and the end of an epoch
 * (epoch.c): validation, report and checkpoint.
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

/* Rank 0: a loss for run.html, which is rewritten each 30 s until an epoch is complete. */
void chex_session_page_loss(struct chex_session *s, double loss, double now_s);
/* After the last step of an epoch, or the last one that --max-steps allows: saves,
 * validates, reports, and saves again with the result. The learning-rate schedule advances only
 * after whole epochs. Collective. */
enum chex_status chex_session_end_steps(struct chex_session *s, double started_s,
                                        uint64_t first_step, struct chex_error *err);
/* The closing lines of a run; rank 0. */
void chex_session_summarise(const struct chex_session *s);

#endif
