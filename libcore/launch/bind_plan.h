/* SPDX-License-Identifier: Apache-2.0
 *
 * What chex_bind decides, apart from the system calls: so that machines other than this one can be
 * tried. CPU sets are lists such as "0-3,8".
 */
#ifndef CHEX_LAUNCH_BIND_PLAN_H
#define CHEX_LAUNCH_BIND_PLAN_H

#include "launch/bind.h"

struct chex_bind_input {
    int local_rank, local_size;
    bool may_bind;   /* false: the system has refused to */
    int wanted_cpus; /* SLURM_CPUS_PER_TASK; 0 not set */
    bool srun_told;  /* SRUN_CPUS_PER_TASK is set */
};

/* On the machine that `synthetic` describes to hwloc ("numa:2 core:4 pu:2"; NULL: this one), for a
 * process that may run on `cpus`. */
enum chex_status chex_bind_plan(const struct chex_bind_input *in, const char *synthetic,
                                const char *cpus, struct chex_binding *out, struct chex_error *err);

#endif
