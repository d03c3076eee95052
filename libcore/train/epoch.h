/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of an epoch: validation, report and checkpoint.
 */
#ifndef CHEX_TRAIN_EPOCH_H
#define CHEX_TRAIN_EPOCH_H

#include "train/session.h"

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
