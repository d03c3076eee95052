/* SPDX-License-Identifier: Apache-2.0
 *
 * --requeue: the run itself asks Slurm to put the job back into the queue, after a save (status 6)
 * or after lost ranks (status 7). It only warns if that is not possible: the statuses stay.
 */
#ifndef CHEX_TRAIN_WATCH_REQUEUE_H
#define CHEX_TRAIN_WATCH_REQUEUE_H

#include "launch/slurm_info.h"

/* At the start, on rank 0: whether the job can be put back. Warns if not. lib NULL: there is no
 * libslurm; `why` is the reason. */
bool chex_requeue_check(const struct chex_slurm_library *lib, const char *why);

/* At the end, on one rank. Does nothing unless status is CHEX_E_PREEMPTED or CHEX_E_LOST. Slurm
 * then sends TERM to all processes of the job. lib NULL: opens it; only for a process that is
 * ending. */
void chex_requeue_ask(const struct chex_slurm_library *lib, enum chex_status status);

#endif
