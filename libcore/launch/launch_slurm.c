/* SPDX-License-Identifier: Apache-2.0
 *
 * A task of srun without PMIx (srun --mpi=none, or a Slurm without the PMIx plugin). Slurm's
 * environment gives rank and size, but no way to exchange data. So only a step of one task works.
 */
#include <stdlib.h>

#include "launch/methods.h"

/* A batch script also has SLURM_PROCID=0 and the SLURM_NTASKS of the job, but is one process. Only
 * a task of srun has SLURM_STEP_NUM_TASKS. */
static bool present(void) {
    return getenv("SLURM_PROCID") && getenv("SLURM_STEP_ID") && getenv("SLURM_STEP_NUM_TASKS");
}

static enum chex_status init(struct chex_launch *launch, struct chex_error *err) {
    int size = chex_launch_env_int("SLURM_STEP_NUM_TASKS", 1);
    if (size > 1)
        return chex_error_set(
            err, CHEX_E_ENV,
            "task %d of %d: srun started it without PMIx, so the tasks cannot exchange data: "
            "use srun --mpi=pmix (srun --mpi=list prints the types of this Slurm)",
            chex_launch_env_int("SLURM_PROCID", 0), size);
    launch->size = launch->local_size = launch->nodes = 1;
    chex_launch_fill_names(launch);
    return CHEX_OK;
}

const struct chex_launch_method chex_launch_slurm = {
    .name = "slurm", .rank_variable = "SLURM_PROCID", .present = present, .init = init};
