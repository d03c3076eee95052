/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving before the job's time limit, without a signal. Rank 0 asks when the job ends and compares
 * the time left with a margin. If it is reached, rank 0 asks for a stop as a signal does, so the
 * step reports carry the request to all ranks.
 */
#ifndef CHEX_TRAIN_WATCH_SAVE_BEFORE_END_H
#define CHEX_TRAIN_WATCH_SAVE_BEFORE_END_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "launch/slurm_info.h"

/* --save-before-end */
struct chex_save_before_end {
    bool off;
    uint64_t margin_ms; /* 0: auto, the margin comes from measured times */
};

/* All zero: the end is unknown, and nothing is asked for. Seconds. */
struct chex_time_left {
    const struct chex_slurm_library *lib; /* borrowed; NULL: the environment answers */
    struct chex_save_before_end option;
    struct chex_job_end end;
    double asked_s;        /* chex_clock_unix_s of the last question to libslurm */
    double step_s, save_s; /* the longest recent step, and the longest save */
    bool reached;          /* the request has been made and logged */
};

/* Asks for the first time, and logs the end. `why`: why there is no libslurm; logged if the option
 * names a margin and the end is unknown. `bytes`: size of a checkpoint; the first save is taken to
 * write 100 MB/s. */
void chex_time_left_start(struct chex_time_left *t, const struct chex_save_before_end *option,
                          const struct chex_slurm_library *lib, const char *why, uint64_t bytes);

/* After a step or a save that took so many seconds. An old maximum of steps fades by a tenth with
 * each step: the first step also plans and tunes. */
void chex_time_left_step(struct chex_time_left *t, double seconds);
void chex_time_left_save(struct chex_time_left *t, double seconds);

/* Asks for a stop, as a signal does, and logs the reason once, if the time left is the option's, or
 * 20 s for Slurm and the file system, two saves and two steps. In the last 90 s before it asks
 * libslurm again, once a minute: a limit can be changed. Rank 0 knows; the other ranks learn it by
 * the next step reports. */
void chex_time_left_check(struct chex_time_left *t, volatile sig_atomic_t *stop);

#endif
