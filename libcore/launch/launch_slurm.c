/* SPDX-License-Identifier: Apache-2.0
 *
 * A task of srun without PMIx and PMI (srun --mpi=none, or a Slurm without these plugins). Slurm's
 * environment gives rank and size, but no way to exchange data. So only a step of one task works.
 */
#include <stdio.h>
#include <stdlib.h>

#include "launch/methods.h"

/* A batch script also has SLURM_PROCID=0 and the SLURM_NTASKS of the job, but is one process. Only
 * a task of srun has SLURM_STEP_NUM_TASKS. */
static bool present(void) {
    return getenv("SLURM_PROCID") && getenv("SLURM_STEP_ID") && getenv("SLURM_STEP_NUM_TASKS");
}

static void why(char *buf, size_t size) {
    snprintf(buf, size, "a task of srun; neither PMIX_NAMESPACE nor PMI_FD is of this step");
}

static enum chex_status init(struct chex_launch *launch, struct chex_error *err) {
    int size = chex_launch_env_int("SLURM_STEP_NUM_TASKS", 1);
    if (size > 1)
        return chex_error_set(
            err, CHEX_E_ENV,
            "task %d of %d: srun started it without PMIx and PMI, so the tasks cannot exchange "
            "data: use srun --mpi=pmix or --mpi=pmi2 (srun --mpi=list prints the types of this "
            "Slurm)",
            chex_launch_env_int("SLURM_PROCID", 0), size);
    launch->size = launch->local_size = launch->nodes = 1;
    chex_launch_fill_names(launch);
    return CHEX_OK;
}

const struct chex_launch_method chex_launch_slurm = {
    .name = "slurm", .rank_variable = "SLURM_PROCID", .present = present, .why = why, .init = init};
