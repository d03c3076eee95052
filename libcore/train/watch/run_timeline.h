/* SPDX-License-Identifier: Apache-2.0
 *
 * The timeline of a run. Nothing is done without --timeline.
 */
#ifndef CHEX_TRAIN_WATCH_RUN_TIMELINE_H
#define CHEX_TRAIN_WATCH_RUN_TIMELINE_H

#include "train/session.h"

/* Starts recording. Collective. */
enum chex_status chex_session_open_timeline(struct chex_session *s, struct chex_error *err);
/* Writes the file after the loop has returned `st`. Returns `st`; if `st` is CHEX_OK and the file
 * cannot be written, returns that error. Collective if all ranks return the same `st`. */
enum chex_status chex_session_end_timeline(struct chex_session *s, enum chex_status st,
                                           struct chex_error *err);
/* For chex_watchdog_on_abort: rank 0 writes its own events. */
void chex_session_write_stalled(struct chex_session *s, const struct chex_mark *mark);
/* Records the pass of logical rank v that began at from_ns. */
void chex_run_trace_pass(struct chex_run_timeline *t, bool on_device, int v, uint64_t from_ns,
                         const struct chex_pass_result *result);

#endif
