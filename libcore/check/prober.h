/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread that runs the probes of a rank, in stages, under one deadline. Used by check_run.c.
 *
 * A probe may hang in a system call. It therefore runs on its own thread, and the caller waits with
 * a timeout. A hanging thread is abandoned: it owns copies of all its input.
 */
#ifndef CHEX_CHECK_PROBER_H
#define CHEX_CHECK_PROBER_H

#include "check/check.h"

struct chex_prober;

/* Starts the thread. Copies checks and context, because a hanging probe may outlive the caller. */
enum chex_status chex_prober_create(const struct chex_check *const *checks, size_t count,
                                    const struct chex_check_context *context, uint64_t timeout_ms,
                                    struct chex_prober **prober_out, struct chex_error *err);

/* Runs the next checks up to index `until` (exclusive), while time is left. Only time inside this
 * call counts. */
void chex_prober_run(struct chex_prober *p, size_t until);

/* Skips the next checks up to index `until` (exclusive), with the reason `why`. */
void chex_prober_skip(struct chex_prober *p, size_t until, const char *why);

/* True: a probe did not answer in time. No further check runs. */
bool chex_prober_stuck(const struct chex_prober *p);
/* True: a collective call hangs or failed. This rank can make no further one, and other ranks may
 * be waiting for it in one. */
bool chex_prober_lost(const struct chex_prober *p);
/* Remaining time in seconds, >= 0. */
double chex_prober_left_s(const struct chex_prober *p);
/* Reduces the remaining time to at most left_s. */
void chex_prober_limit(struct chex_prober *p, double left_s);

/* Copies all answers (count). A probe without an answer fails; the later ones are skipped. */
void chex_prober_answers(struct chex_prober *p, struct chex_check_result *out);

/* Ends the thread, which releases the state of the checks. Abandons it if it is stuck. Collective
 * if a check has used the collectives. NULL allowed. */
void chex_prober_destroy(struct chex_prober *p);

#endif
