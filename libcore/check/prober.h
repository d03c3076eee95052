/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread on which the probes run, in stages and under one deadline. Between check_run.c and the
 * checks.
 */
#ifndef CHEX_CHECK_PROBER_H
#define CHEX_CHECK_PROBER_H

#include "check/check.h"

struct chex_prober;

/* Copies what it is given: a probe may hang in a system call for longer than the caller lives. */
enum chex_status chex_prober_create(const struct chex_check *const *checks, size_t count,
                                    const struct chex_check_context *context, uint64_t timeout_ms,
                                    struct chex_prober **prober_out, struct chex_error *err);

/* Runs the checks that have not run, up to `until`, for as long as there is time. Time that passes
 * outside of this call does not count. */
void chex_prober_run(struct chex_prober *p, size_t until);

/* Answers for those up to `until` in the place of their probes: skipped, with the reason. */
void chex_prober_skip(struct chex_prober *p, size_t until, const char *why);

/* A probe has not answered: nothing runs here any more. */
bool chex_prober_stuck(const struct chex_prober *p);
/* A collective call has not come back, or failed: this rank can make none, and others may wait for
 * it in one. */
bool chex_prober_lost(const struct chex_prober *p);
double chex_prober_left_s(const struct chex_prober *p);
/* What is left is at most this. */
void chex_prober_limit(struct chex_prober *p, double left_s);

/* All answers (count); a probe that has none fails, those behind it are skipped. */
void chex_prober_answers(struct chex_prober *p, struct chex_check_result *out);

/* Ends the thread, which gives back what the checks hold, or leaves it to itself where it is stuck.
 * Collective where a check has used the collectives. NULL allowed. */
void chex_prober_destroy(struct chex_prober *p);

#endif
