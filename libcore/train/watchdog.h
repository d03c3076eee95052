/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread that notices when a rank stops moving: says after `warn_ms` who holds the others up, and
 * ends the job with status 7 after `abort_ms`, so that an allocation is not burnt by a hang.
 *
 * A beat is a few stores; while ranks move nothing else happens. Ranks go through a run in stages
 * that begin on all of them at once, behind a collective: the beat that follows PHASE_WAIT begins
 * one. A rank whose stage has lasted as long as the shorter limit leaves a mark (train/stall.h)
 * with the launcher's daemons, again every eighth of that limit (1 s at least, 15 s at most), from
 * this thread: it says where the rank is even if that rank's own work hangs. The stage and its age
 * number the mark, so that others can look for it without having agreed on anything. Then each rank
 * looks for the marks of those below it, and the lowest that answers looks at all marks and speaks
 * for all: one line, from one rank. With 1,000 ranks that are 2,000 questions each time, on the
 * launcher's wires, in a stage that has lasted for so long.
 *
 * What can be told:
 *   - a rank that waits for data, computes, saves, ...: it answers, so its phase, and for how long;
 *   - one that is slow: it answers, and its last beat is recent;
 *   - one that is stopped (SIGSTOP, a frozen cgroup) or whose node is gone or cut off: it does not
 *     answer, and is named with its node; which of these it is cannot be told;
 *   - one that has died: Slurm ends the step at once and names the task, before any limit;
 *   - all answer from the same phase: nobody is behind, so it is the network or a device.
 * Without a launcher that keeps notes (one process) each rank tells its own place.
 */
#ifndef CHEX_TRAIN_WATCHDOG_H
#define CHEX_TRAIN_WATCHDOG_H

#include <stdint.h>

#include "base/error.h"
#include "launch/launch.h"
#include "launch/reduce.h"
#include "train/stall.h"

struct chex_watchdog;

/* 0 switches a limit off. `launch` and `reduce` are borrowed. */
enum chex_status chex_watchdog_create(struct chex_launch *launch, const struct chex_reduce *reduce,
                                      uint64_t warn_ms, uint64_t abort_ms,
                                      struct chex_watchdog **out, struct chex_error *err);
void chex_watchdog_destroy(struct chex_watchdog *w); /* NULL allowed */

/* Called before this process ends the job, from a thread of the watch, with where it stands: to
 * save what would be lost. It must not wait for other ranks, nor for this one's work, which hangs.
 * Before the first beat. */
typedef void (*chex_last_words_fn)(void *arg, const struct chex_mark *mark);
void chex_watchdog_last_words(struct chex_watchdog *w, chex_last_words_fn fn, void *arg);

/* The rank has come to `phase` of step `step`, or is still alive there. From one thread; NULL does
 * nothing. */
void chex_watchdog_beat(struct chex_watchdog *w, enum chex_phase phase, uint64_t step);

/* CHEX_PHASE_WAIT of the same step: before a collective that no rank leaves until all have come. */
void chex_watchdog_wait(struct chex_watchdog *w);

#endif
