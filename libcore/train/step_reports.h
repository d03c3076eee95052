/* SPDX-License-Identifier: Apache-2.0
 *
 * Step reports: what every rank sends to all ranks at the end of a step, and what follows from it.
 * All ranks see the same reports, so they stop, save and notice a diverged loss at the same step.
 */
#ifndef CHEX_TRAIN_STEP_REPORTS_H
#define CHEX_TRAIN_STEP_REPORTS_H

#include <stdbool.h>
#include <stdint.h>

#include "launch/coll.h"
#include "train/watch/stepstats.h"

/* Why a rank wants to stop. If ranks differ, the highest counts. */
enum chex_stop {
    CHEX_STOP_NO,
    CHEX_STOP_BY_FILE, /* train/store/request_files.h: the run ends with status 0 */
    CHEX_STOP_PREEMPT, /* a signal, or the end of the job: the run ends with CHEX_E_PREEMPTED */
    CHEX_STOP_FAILED,  /* a checkpoint could not be written: the ranks agree on its error */
};

/* The losses of the sender's logical ranks follow it in the same message, as doubles. */
struct chex_step_report {
    int32_t wants_stop, wants_save; /* wants_stop: enum chex_stop */
};

struct chex_step_reports {
    int logical_ranks;
    size_t bytes;                 /* of one message; equal on all ranks */
    struct chex_step_report *own; /* the caller fills it before the exchange */
    double *own_losses;           /* of the logical ranks of this rank; part of `own` */
    char *all;                    /* (ranks) messages */

    struct chex_step_times step;         /* of this rank; the caller fills it before the exchange */
    struct chex_step_times epoch, total; /* sums over this rank's steps since the last gathering,
                                            and over all its steps */
    struct chex_step_times *epoch_times; /* (ranks) `epoch` of all ranks at the last gathering */
    struct chex_step_times *total_times; /* (ranks) sums of these */
};

/* The result of an exchange; equal on all ranks. */
struct chex_step_verdict {
    double loss; /* mean over the logical ranks */
    enum chex_stop stop;
    bool save;
};

enum chex_status chex_step_reports_init(struct chex_step_reports *r, int logical_ranks, int ranks,
                                        struct chex_error *err);
void chex_step_reports_release(struct chex_step_reports *r); /* a zeroed one is allowed */

/* Exchanges `own` and adds the step's times to this rank's sums. Losses are added in order of
 * logical rank, so the mean has the same bits for any number of ranks. Allocates nothing.
 * Collective. */
enum chex_status chex_step_reports_exchange(struct chex_step_reports *r, struct chex_coll *coll,
                                            struct chex_step_verdict *verdict_out,
                                            struct chex_error *err);

/* At the end of an epoch: sets epoch_times, adds them to total_times, and sets `epoch` to zero.
 * Only then do ranks learn of each other's times: no step sends them. Collective. */
enum chex_status chex_step_reports_gather_times(struct chex_step_reports *r, struct chex_coll *coll,
                                                struct chex_error *err);

#endif
