/* SPDX-License-Identifier: Apache-2.0
 *
 * Progress of long work on stderr: a bar that redraws in place on a terminal, and a plain line
 * every ten seconds elsewhere (a Slurm log). Silent under --quiet and on ranks other than 0.
 */
#ifndef CHEX_BASE_PROGRESS_H
#define CHEX_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct chex_progress;

/* what: "sharding"; unit: "img". total 0 means unknown. Never fails: NULL does nothing below. */
struct chex_progress *chex_progress_create(const char *what, const char *unit, uint64_t total,
                                           bool shown);

/* Sets the count done and an optional note shown behind it ("loss 0.151, data wait 0.2 %").
 * Thread-safe; redraws at most ten times a second. */
void chex_progress_set(struct chex_progress *p, uint64_t done, const char *note);

/* Ends the bar, leaving one final line when `keep`. NULL allowed. */
void chex_progress_destroy(struct chex_progress *p, bool keep);

#endif
