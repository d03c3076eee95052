/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU and memory binding of this rank (hwloc), its number of threads, and the GPUs that Slurm gave
 * it (environment). Call before any thread starts.
 */
#ifndef CHEX_LAUNCH_BIND_H
#define CHEX_LAUNCH_BIND_H

#include <stdbool.h>

#include "base/error.h"
#include "launch/launch.h"

/* Buffer sizes of lists. Every second of 1,024 CPUs takes 2,500 bytes; 16 GPU UUIDs take 660. A
 * list that does not fit ends in "...". */
enum { CHEX_CPUS_BYTES = 2560, CHEX_NUMA_BYTES = 64, CHEX_VISIBLE_BYTES = 768 };

struct chex_binding {
    char cpus[CHEX_CPUS_BYTES]; /* "0-3,8" */
    int cpu_count;
    char numa[CHEX_NUMA_BYTES]; /* "0", "0-1" */
    int threads;                /* the value of --threads 0 */
    bool narrowed;  /* chex_bind bound the process, because several ranks shared all cores of the
                       node */
    char note[200]; /* a warning to log, or "" (example: one core under -c 2) */
};

/* Reads the affinity that Slurm or taskset set.
 * - Unbound (several ranks of a node may run on all its CPUs): each rank is bound to its contiguous
 *   share of the cores.
 * - Otherwise the affinity does not change.
 * - If all cores are in one NUMA node, memory is bound to that node.
 * - No thread may have started. */
enum chex_status chex_bind(const struct chex_launch *launch, struct chex_binding *out,
                           struct chex_error *err);

/* The decisions of chex_bind without its system calls, so that tests can run them for other
 * machines. */
struct chex_bind_input {
    int local_rank, local_size;
    bool may_bind;      /* false: the system refused to bind */
    int wanted_cpus;    /* SLURM_CPUS_PER_TASK; 0 not set */
    bool srun_cpus_set; /* SRUN_CPUS_PER_TASK is set */
};

/* The binding of a process that may run on `cpus`, a list such as "0-3,8". synthetic: a machine in
 * hwloc's notation ("numa:2 core:4 pu:2"); NULL: this machine. */
enum chex_status chex_bind_choose(const struct chex_bind_input *in, const char *synthetic,
                                  const char *cpus, struct chex_binding *out,
                                  struct chex_error *err);

enum chex_gpu_visibility {
    CHEX_GPU_NONE,    /* no GPU allotted, none requested */
    CHEX_GPU_OWN,     /* the task sees only its own GPUs (--gpus-per-task, --gpu-bind=single) */
    CHEX_GPU_ALL,     /* the task sees all GPUs of the job on this node */
    CHEX_GPU_UNBOUND, /* allotted, but CUDA_VISIBLE_DEVICES is unset (--gpu-bind=none) */
};
extern const char *const chex_gpu_visibility_names[];

struct chex_gpu_view {
    enum chex_gpu_visibility visibility;
    bool allotted;  /* Slurm gave this step a GPU here, or CUDA_VISIBLE_DEVICES names one */
    int node_count; /* SLURM_GPUS_ON_NODE; 0 unknown */
    char visible[CHEX_VISIBLE_BYTES]; /* CUDA_VISIBLE_DEVICES, "" when unset */
    char source[48];                  /* the environment variable that decided */
};

/* Reads the environment only: SLURM_GPUS_ON_NODE and CUDA_VISIBLE_DEVICES. */
void chex_gpu_view(struct chex_gpu_view *out);

/* The start-up line of a rank: "rank 2/4, n1, local 0/2, cores 0-3 (4), NUMA 0, gpu none". Long
 * lists end in "...", so the line fits in CHEX_BIND_LINE_BYTES. Returns buf. */
enum { CHEX_BIND_LINE_BYTES = 512 };
const char *chex_bind_line(const struct chex_launch *launch, const struct chex_binding *binding,
                           const struct chex_gpu_view *gpu, char *buf, size_t size);

#endif
