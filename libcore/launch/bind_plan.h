/* SPDX-License-Identifier: Apache-2.0
 *
 * The decisions of chex_bind without its system calls, so that tests can run them for other
 * machines. CPU sets are lists such as "0-3,8".
 */
#ifndef CHEX_LAUNCH_BIND_PLAN_H
#define CHEX_LAUNCH_BIND_PLAN_H

#include "launch/bind.h"

struct chex_bind_input {
    int local_rank, local_size;
    bool may_bind;      /* false: the system refused to bind */
    int wanted_cpus;    /* SLURM_CPUS_PER_TASK; 0 not set */
    bool srun_cpus_set; /* SRUN_CPUS_PER_TASK is set */
};

/* The binding of a process that may run on `cpus`. synthetic: a machine in hwloc's notation
 * ("numa:2 core:4 pu:2"); NULL: this machine. */
enum chex_status chex_bind_plan(const struct chex_bind_input *in, const char *synthetic,
                                const char *cpus, struct chex_binding *out, struct chex_error *err);

#endif
