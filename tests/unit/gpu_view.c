/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPU view for the environments that Slurm 22.05 was seen to make, and a few others.
 */
#include "launch/bind.h"

#include "tap.h"

struct row {
    const char *what, *cuda, *node, *step;
    enum chex_gpu_visibility visibility;
    bool allotted;
    int node_count;
    const char *line; /* the end of the rank's line */
};

static const struct row rows[] = {
    {"--gpus-per-task=1, first", "0", "2", "0", CHEX_GPU_OWN, true, 2, "gpu own 0 (of 2)"},
    {"--gpus-per-task=1, second", "1", "2", "1", CHEX_GPU_OWN, true, 2, "gpu own 1 (of 2)"},
    {"--gpus-per-node=2", "0,1", "2", "0,1", CHEX_GPU_ALL, true, 2, "gpu all 0,1 (of 2)"},
    {"--gpu-bind=none", NULL, "2", NULL, CHEX_GPU_UNBOUND, true, 2, "gpu unbound (2)"},
    {"the same, one task a node", "0,1", "2", NULL, CHEX_GPU_ALL, true, 2, "gpu all 0,1 (of 2)"},
    {"--gpu-bind=map_gpu:1,0", "1", "2", "1", CHEX_GPU_OWN, true, 2, "gpu own 1 (of 2)"},
    {"no GPU asked", NULL, NULL, NULL, CHEX_GPU_NONE, false, 0, "gpu none"},
    {"the node's only GPU", "0", "1", "0", CHEX_GPU_ALL, true, 1, "gpu all 0 (of 1)"},
    {"allotted but hidden", "", "2", "0", CHEX_GPU_NONE, true, 2, "gpu none visible (of 2)"},
    {"outside Slurm, one named", "3", NULL, NULL, CHEX_GPU_OWN, true, 0, "gpu own 3"},
    {"outside Slurm, UUIDs", "GPU-1a,MIG-2b", NULL, NULL, CHEX_GPU_OWN, true, 0,
     "gpu own GPU-1a,MIG-2b"},
    {"outside Slurm, hidden", "-1", NULL, NULL, CHEX_GPU_NONE, false, 0, "gpu none"},
    {"outside Slurm, empty", "", NULL, NULL, CHEX_GPU_NONE, false, 0, "gpu none"},
    {"NoDevFiles", "NoDevFiles", NULL, NULL, CHEX_GPU_NONE, false, 0, "gpu none"},
    {"what follows -1 is hidden", "0,-1,1", "2", NULL, CHEX_GPU_OWN, true, 2,
     "gpu own 0,-1,1 (of 2)"},
    {"no number", NULL, "many", NULL, CHEX_GPU_NONE, false, 0, "gpu none"},
    {"none on this node", NULL, "0", NULL, CHEX_GPU_NONE, false, 0, "gpu none"},
};

static void set(const char *name, const char *value) {
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

int main(void) {
    const struct chex_launch launch = {.method = "pmix",
                                       .rank = 2,
                                       .size = 4,
                                       .local_size = 2,
                                       .node = 1,
                                       .nodes = 2,
                                       .host = "n1"};
    const struct chex_binding binding = {.cpus = "0-3", .cpu_count = 4, .numa = "0", .threads = 4};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *w = &rows[i];
        struct chex_gpu_view v;
        char line[256], expect[256];
        set("CUDA_VISIBLE_DEVICES", w->cuda);
        set("SLURM_GPUS_ON_NODE", w->node);
        set("SLURM_STEP_GPUS", w->step);
        chex_gpu_view(&v);
        OK(v.visibility == w->visibility && v.allotted == w->allotted &&
               v.node_count == w->node_count && v.source[0] &&
               strcmp(v.visible, w->cuda ? w->cuda : "") == 0,
           "%s: %s by %s", w->what, chex_gpu_visibility_names[v.visibility], v.source);
        snprintf(expect, sizeof expect, "rank 2/4, n1, local 0/2, cores 0-3 (4), NUMA 0, %s",
                 w->line);
        chex_bind_line(&launch, &binding, &v, line, sizeof line);
        OK(strcmp(line, expect) == 0, "%s", line);
    }
    return tap_done();
}
