/* SPDX-License-Identifier: Apache-2.0
 *
 * Progress of long work on stderr. On a terminal: a bar that is redrawn in place. Elsewhere (a
 * Slurm log): a plain line from time to time. Nothing with --quiet and on ranks other than 0.
 */
#ifndef CHEX_BASE_PROGRESS_H
#define CHEX_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct chex_progress;

/* Seconds between two plain lines if the first bar of the process started `age_s` seconds ago: 10
 * at first, 600 after an hour. */
double chex_progress_interval_s(double age_s);

/* Starts a bar. what: "sharding"; unit: "img"; total 0: unknown. Never fails: the functions below
 * ignore NULL. */
struct chex_progress *chex_progress_create(const char *what, const char *unit, uint64_t total,
                                           bool shown);

/* Sets the count and an optional note, which is shown after the count ("loss 0.151, data wait 0.2
 * %"). Thread-safe. Redraws at most ten times a second. */
void chex_progress_set(struct chex_progress *p, uint64_t done, const char *note);

/* Ends the bar. keep: prints one final line. NULL allowed. */
void chex_progress_destroy(struct chex_progress *p, bool keep);

#endif
