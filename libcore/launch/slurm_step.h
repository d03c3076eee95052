/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks Slurm which nodes still run a job step.
 */
#ifndef CHEX_LAUNCH_SLURM_STEP_H
#define CHEX_LAUNCH_SLURM_STEP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "launch/launch.h"

/* Kills all tasks of the step JOB.STEP by scancel: one request to slurmctld. Returns if it cannot.
 */
void chex_slurm_step_kill(const char *job, const char *step);

/* Which of `count` nodes have no task of the step JOB.STEP any more.
 * - own: the node of this process.
 * - Runs chexnet-slurm-step beside the modules, for wait_ms at most. It sends one request to each
 *   node.
 * - false: unknown (no such program, no answer in time); ended_out is all false. A node without an
 *   answer of its own counts as running. */
bool chex_slurm_step_ended(const char *job, const char *step, const char *own,
                           const char (*nodes)[CHEX_HOST_BYTES], int count, uint64_t wait_ms,
                           bool *ended_out);

/* Marks the ranks of [from, to) whose nodes have left the step, in ended[0, size). Returns how many
 * ranks are marked.
 * - job NULL: this is no step of Slurm.
 * - known_out: Slurm has answered, or there is no other node, or no step. */
int chex_slurm_step_find_ended(const struct chex_launch *launch, const char *job, const char *step,
                               int from, int to, atomic_bool *ended, bool *known_out);

#endif
