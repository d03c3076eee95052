/* SPDX-License-Identifier: Apache-2.0
 *
 * Where this rank runs: cores, NUMA node, threads; and which GPUs it was given. By hwloc and the
 * environment, before any thread starts.
 */
#ifndef CHEX_LAUNCH_BIND_H
#define CHEX_LAUNCH_BIND_H

#include <stdbool.h>

#include "base/error.h"
#include "launch/launch.h"

struct chex_binding {
    char cpus[128]; /* "0-3,8" */
    int cpu_count;
    char numa[32];  /* "0", "0-1" */
    int threads;    /* what --threads 0 becomes */
    bool narrowed;  /* we bound the process, because several ranks of the node shared all cores */
    char note[200]; /* a warning worth printing, or "" (one core under -c 2: SRUN_CPUS_PER_TASK) */
};

/* Reads the affinity that Slurm or taskset left. Where several ranks of a node may all run on all
 * its CPUs (no binding) each takes its contiguous share of cores; otherwise nothing is changed.
 * Memory is bound to the local NUMA node where the cores lie in one. No thread may have started. */
enum chex_status chex_bind(const struct chex_launch *launch, struct chex_binding *out,
                           struct chex_error *err);

enum chex_gpu_visibility {
    CHEX_GPU_NONE,    /* none allotted, none asked for */
    CHEX_GPU_OWN,     /* the task sees only its own (--gpus-per-task, --gpu-bind=single) */
    CHEX_GPU_ALL,     /* the task sees all that the node allotted */
    CHEX_GPU_UNBOUND, /* allotted, but CUDA_VISIBLE_DEVICES is unset (--gpu-bind=none) */
};
extern const char *const chex_gpu_visibility_names[];

struct chex_gpu_view {
    enum chex_gpu_visibility visibility;
    bool allotted;  /* Slurm gave this step a GPU on this node, or CUDA_VISIBLE_DEVICES names one */
    int node_count; /* SLURM_GPUS_ON_NODE; 0 unknown */
    char visible[64]; /* CUDA_VISIBLE_DEVICES, "" when unset */
    char source[48];  /* the variable that decided */
};

/* From the environment alone: SLURM_GPUS_ON_NODE, SLURM_STEP_GPUS, CUDA_VISIBLE_DEVICES. */
void chex_gpu_view(struct chex_gpu_view *out);

/* The one line a rank: "rank 2/4, n1, local 0/2, cores 0-3 (4), NUMA 0, gpu none". buf returned. */
const char *chex_bind_line(const struct chex_launch *launch, const struct chex_binding *binding,
                           const struct chex_gpu_view *gpu, char *buf, size_t size);

#endif
