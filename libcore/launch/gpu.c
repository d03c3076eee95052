/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPUs of this task according to Slurm's environment. Observed with Slurm 22.05 for each kind
 * of request:
 *
 *   request                          CUDA_VISIBLE_DEVICES  SLURM_GPUS_ON_NODE  SLURM_STEP_GPUS
 *   --gpus-per-task=1                0 or 1                2                   0 or 1
 *   --gpus-per-node=2, --gres=gpu:2  0,1                   2                   0,1
 *   --gpu-bind=none                  unset                 2                   unset
 *   the same, one task on the node   0,1                   2                   unset
 *   --gpu-bind=single:1, map_gpu     one                   2                   the one
 *   none                             unset                 unset               unset
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/bind.h"
#include "launch/methods.h"

const char *const chex_gpu_visibility_names[] = {"none", "own", "all", "unbound", NULL};

/* Counts the entries of a list of indices or UUIDs. CUDA stops at the first entry that is no
 * device; users write -1 or NoDevFiles to hide all GPUs. */
static int list_count(const char *list) {
    int n = 0;
    for (const char *p = list; *p;) {
        size_t len = strcspn(p, ",");
        if (len == 0 || *p == '-' || strncmp(p, "No", 2) == 0)
            break;
        n++;
        p += len + (p[len] == ',');
    }
    return n;
}

static void decide(struct chex_gpu_view *out, enum chex_gpu_visibility visibility,
                   const char *source) {
    out->visibility = visibility;
    snprintf(out->source, sizeof out->source, "%s", source);
}

void chex_gpu_view(struct chex_gpu_view *out) {
    const char *cuda = getenv("CUDA_VISIBLE_DEVICES");
    const char *const by_cuda = "CUDA_VISIBLE_DEVICES", *const by_node = "SLURM_GPUS_ON_NODE";
    const int visible = cuda ? list_count(cuda) : 0;
    *out = (struct chex_gpu_view){.node_count = chex_launch_env_int(by_node, 0)};
    if (snprintf(out->visible, sizeof out->visible, "%s", cuda ? cuda : "") >=
        (int)sizeof out->visible)
        memcpy(out->visible + sizeof out->visible - 4, "...", 4);
    out->allotted = out->node_count > 0 || visible > 0;
    if (!out->allotted)
        decide(out, CHEX_GPU_NONE, cuda ? by_cuda : by_node);
    else if (!cuda)
        decide(out, CHEX_GPU_UNBOUND, by_node);
    else if (visible == 0)
        decide(out, CHEX_GPU_NONE, by_cuda); /* allotted, but hidden from CUDA */
    else
        decide(out, visible == out->node_count ? CHEX_GPU_ALL : CHEX_GPU_OWN, by_cuda);
}
