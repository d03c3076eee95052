/* SPDX-License-Identifier: Apache-2.0
 *
 * A task of srun without PMIx (srun --mpi=none, or a Slurm without the plugin). Slurm's environment
 * tells who we are, but there is nothing to exchange data with, so only one task can be served.
 */
#include <stdlib.h>

#include "launch/methods.h"

/* A batch script has SLURM_PROCID=0 and the whole job's SLURM_NTASKS too, but is one process: what
 * only a task of srun has is the step's own number of tasks. */
static bool present(void) {
    return getenv("SLURM_PROCID") && getenv("SLURM_STEP_ID") && getenv("SLURM_STEP_NUM_TASKS");
}

static enum chex_status init(struct chex_launch *launch, struct chex_error *err) {
    int size = chex_launch_env_int("SLURM_STEP_NUM_TASKS", 1);
    if (size > 1)
        return chex_error_set(
            err, CHEX_E_ENV,
            "task %d of %d was started by srun without PMIx, so the tasks cannot find each other: "
            "use srun --mpi=pmix (srun --mpi=list names what this Slurm has)",
            chex_launch_env_int("SLURM_PROCID", 0), size);
    launch->size = launch->local_size = launch->nodes = 1;
    chex_launch_fill_names(launch);
    return CHEX_OK;
}

const struct chex_launch_method chex_launch_slurm = {
    .name = "slurm", .rank_variable = "SLURM_PROCID", .present = present, .init = init};
