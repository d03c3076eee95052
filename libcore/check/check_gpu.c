/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the GPUs through the management library of the NVIDIA driver (NVML). In a job: the GPUs
 * that this task may use. In the prolog: all GPUs of the node.
 *
 * NVML needs no CUDA, and no CUDA context that would use GPU memory. If there is no GPU and none
 * was requested, the checks are skipped.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/units.h"
#include "check/checks.h"
#include "check/measure.h"
#include "engine/engine_cuda.h"
#include "launch/nvml.h"

/* The GPUs of the node, and the indices of those of this task. */
struct node {
    struct chex_nvml *nvml; /* the caller frees it */
    int mine[CHEX_GPU_MAX], count;
};

/* Whether GPUs were requested. In the prolog only SLURM_JOB_GPUS describes the job; the other
 * variables of the environment do not belong to it. A health check wants all that the node has. */
static bool wanted(const struct chex_check_context *c) {
    const char *job = getenv("SLURM_JOB_GPUS");
    return c->mode == CHEX_MODE_HEALTH   ? true
           : c->mode == CHEX_MODE_PROLOG ? job && *job
                                         : c->gpu.allotted;
}

/* Whether the GPUs may be examined. In a job, only allotted ones. Outside of a job, on a
 * workstation, all. */
static bool may_examine(const struct chex_check_context *c) {
    return c->mode != CHEX_MODE_JOB || c->gpu.allotted || !getenv("SLURM_JOB_ID");
}

/* The worst verdict of a GPU problem. If no GPU was requested, it only warns. */
static enum chex_verdict worst(const struct chex_check_context *c) {
    return wanted(c) ? CHEX_FAIL : CHEX_WARN;
}

/* Reads the current state of the node's GPUs. False: nothing to check; *r is then a skip with the
 * reason, and nothing is to free. gpu-driver and gpu-visible report the cause as a failure. */
static bool open_node(const struct chex_check_context *c, struct node *n,
                      struct chex_check_result *r) {
    struct chex_error err = {0};
    *n = (struct node){.count = 0};
    if (chex_nvml_read(&n->nvml, &err) != CHEX_OK) {
        chex_check_skip(r, "%s",
                        err.status == CHEX_E_RESOURCE ? err.text
                        : wanted(c)                   ? "not known without a driver: see gpu-driver"
                                    : "no GPU was allotted, and there is no driver");
        return false;
    }
    if (c->mode == CHEX_MODE_JOB) {
        if (chex_nvml_visible(n->nvml, n->mine, &n->count, &err) != CHEX_OK)
            n->count = 0;
    } else {
        for (int i = 0; i < n->nvml->count; i++)
            if (!n->nvml->gpus[i].denied)
                n->mine[n->count++] = i;
    }
    if (n->count > 0 && may_examine(c))
        return true;
    chex_check_skip(r, "%s",
                    wanted(c) ? "none is visible: see gpu-visible" : "no GPU was allotted");
    free(n->nvml);
    return false;
}

/* ---- gpu-driver ---- */

static void probe_driver(const struct chex_check_context *c, struct chex_check_result *r) {
    const int built = chex_cuda_runtime();
    struct chex_error err = {0};
    bool needed = wanted(c);
    struct chex_nvml *nvml;
    if (built)
        chex_check_expect(r, "one for CUDA %d.%d or newer", built / 1000, built % 1000 / 10);
    else
        chex_check_expect(r, !needed ? "none is needed"
                             : c->mode == CHEX_MODE_HEALTH
                                 ? "one that answers, if the node has GPUs"
                                 : "one, as a GPU was allotted");
    const enum chex_status st = chex_nvml_read(&nvml, &err);
    if (st == CHEX_OK)
        chex_check_found(r, "%s, for CUDA %d.%d", nvml->driver, nvml->cuda / 1000,
                         nvml->cuda % 1000 / 10);
    else if ((needed = needed && (st == CHEX_E_NODE || c->mode != CHEX_MODE_HEALTH)) ||
             st == CHEX_E_NODE)
        chex_check_found(r, "%s", err.text);
    else
        chex_check_skip(r, "none, and no GPU was allotted");
    if (st == CHEX_E_NODE)
        chex_check_worsen(r, worst(c), CHEX_FAULT_NODE, "reload the driver, or reboot the node");
    else if (st != CHEX_OK && needed)
        chex_check_worsen(r, CHEX_FAIL,
                          c->mode == CHEX_MODE_PROLOG ? CHEX_FAULT_NODE : CHEX_FAULT_USER,
                          "install the NVIDIA driver on this node, start the container with it, or "
                          "request no GPU");
    else if (st == CHEX_OK && built && nvml->cuda / 1000 < built / 1000)
        chex_check_worsen(r, worst(c), CHEX_FAULT_USER,
                          "use a chexnet built with CUDA %d, or a newer driver", nvml->cuda / 1000);
    free(nvml);
}

/* Drivers are compared only if all ranks have a GPU. */
static void across_driver(const struct chex_check_record *records,
                          const struct chex_check_result *const *all, int n,
                          struct chex_check_result *merged) {
    for (int i = 0; i < n; i++)
        if (strcmp(records[i].gpu, chex_gpu_visibility_names[CHEX_GPU_NONE]) == 0)
            return;
    chex_check_same(records, all, n, merged);
}
CHEX_CHECK(gpu_driver, .name = "gpu-driver",
           .question = "is there an NVIDIA driver, and is it new enough?", .modes = CHEX_IN_ALL,
           .fault = CHEX_FAULT_NODE, .probe = probe_driver, .across = across_driver);

/* ---- gpu-visible ---- */

static void probe_visible(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_error err = {0};
    struct node n = {.count = 0};
    chex_check_expect(r, wanted(c) ? "each rank sees its GPUs" : "none was allotted");
    if (!may_examine(c) || chex_nvml_read(&n.nvml, &err) != CHEX_OK) {
        chex_check_skip(r, "%s",
                        wanted(c) ? "not known without a driver: see gpu-driver"
                                  : "no GPU was allotted");
        return;
    }
    if (chex_nvml_visible(n.nvml, n.mine, &n.count, &err) != CHEX_OK) {
        chex_check_found(r, "%s", err.text);
        chex_check_worsen(r, worst(c), CHEX_FAULT_USER,
                          "leave CUDA_VISIBLE_DEVICES to Slurm: unset it in profiles and scripts");
    } else if (n.count == 0 && !wanted(c)) {
        chex_check_skip(r, "no GPU was allotted");
    } else if (n.count == 0) {
        chex_check_found(r, "none (CUDA_VISIBLE_DEVICES %s), of %d", c->gpu.visible, n.nvml->count);
        chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_USER,
                          "unset CUDA_VISIBLE_DEVICES, or request no GPU");
    }
    for (int i = 0; i < n.count; i++) {
        const struct chex_gpu *g = &n.nvml->gpus[n.mine[i]].gpu;
        chex_check_found_more(r, "%s%s %s", i ? ", " : "", g->pci_bus_id, g->name);
    }
    free(n.nvml);
}

/* Ranks that see one GPU each must not see the same one. */
static void across_visible(const struct chex_check_record *records,
                           const struct chex_check_result *const *all, int n,
                           struct chex_check_result *merged) {
    if (n > 1 && merged->verdict == CHEX_PASS)
        chex_check_found(merged, "rank 0: %s; %d more see their own", all[0]->found, n - 1);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) {
            const bool single = all[i]->verdict == CHEX_PASS && !strchr(all[i]->found, ',');
            if (!single || strcmp(records[i].host, records[j].host) != 0 ||
                strcmp(all[i]->found, all[j]->found) != 0 || chex_gpu_mps())
                continue;
            chex_check_found(merged, "ranks %d and %d of %s both see %s alone", j, i,
                             records[i].host, all[i]->found);
            chex_check_worsen(merged, CHEX_FAIL, CHEX_FAULT_USER,
                              "one rank a GPU: srun --gpus-per-task=1, or fewer tasks a node");
            return;
        }
}
CHEX_CHECK(gpu_visible, .name = "gpu-visible", .question = "which GPUs does each rank see?",
           .modes = CHEX_IN_JOB, .fault = CHEX_FAULT_USER, .probe = probe_visible,
           .across = across_visible);

/* ---- gpu-count ---- */

/* A GPU that has fallen off the bus may be missing, or may not answer. A node without a driver has
 * none: whether that is right, only its record says. */
static void probe_count(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_error err = {0};
    struct chex_nvml *nvml;
    int count = 0;
    (void)c;
    chex_check_expect(r, "all GPUs of the node (--expect)");
    if (chex_nvml_read(&nvml, &err) == CHEX_OK)
        for (int i = 0; i < nvml->count; i++)
            count += nvml->gpus[i].unread == 0;
    chex_check_found(r, "%d", count);
    free(nvml);
}
CHEX_CHECK(gpu_count, .name = "gpu-count", .question = "how many GPUs answer?",
           .modes = CHEX_IN_PROLOG, .fault = CHEX_FAULT_NODE, .probe = probe_count,
           .is_count = true);

/* ---- gpu-health ---- */

static void probe_health(const struct chex_check_context *c, struct chex_check_result *r) {
    struct node n;
    char why[160];
    bool has_failed = false; /* a failure has been reported; do not replace it with a warning */
    chex_check_expect(r, "no memory errors, no slowdown, all NVLinks up");
    if (!open_node(c, &n, r))
        return;
    chex_check_found(r, "%d healthy", n.count);
    for (int i = 0; i < n.count; i++) {
        const struct chex_nvml_gpu *g = &n.nvml->gpus[n.mine[i]];
        char name[32];
        snprintf(name, sizeof name, "%s", g->gpu.pci_bus_id);
        if (!name[0])
            snprintf(name, sizeof name, "number %d", g->index);
        const bool sick = chex_nvml_sick(g, why, sizeof why);
        if (!sick && (has_failed || !chex_nvml_weak(g, why, sizeof why)))
            continue;
        has_failed = has_failed || sick;
        chex_check_found(r, "GPU %s: %s", name, why);
        chex_check_worsen(r, sick ? worst(c) : CHEX_WARN, CHEX_FAULT_NODE,
                          sick ? "leave the node out with --exclude, drain it, and reset the GPU"
                               : "have the node looked at: nvidia-smi -q shows more");
    }
    free(n.nvml);
}
CHEX_CHECK(gpu_health, .name = "gpu-health", .question = "are the GPUs healthy?",
           .modes = CHEX_IN_JOB | CHEX_IN_PROLOG, .fault = CHEX_FAULT_NODE, .probe = probe_health);

/* ---- gpu-busy ---- */

/* The owner of a process. -1: not visible, for example in another user's container. */
static long owner(uint32_t pid) {
    char path[32];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%u", (unsigned)pid);
    return stat(path, &st) == 0 ? (long)st.st_uid : -1;
}

static void probe_busy(const struct chex_check_context *c, struct chex_check_result *r) {
    struct node n;
    char memory[32];
    chex_check_expect(r, "no other process uses them");
    if (!open_node(c, &n, r))
        return;
    const bool mps = chex_gpu_mps();
    chex_check_found(r, "none%s", mps ? " (CUDA MPS is active)" : "");
    for (int i = 0; i < n.count; i++) {
        const struct chex_nvml_gpu *g = &n.nvml->gpus[n.mine[i]];
        if (g->process_count == 0 || mps)
            continue;
        const long uid = owner(g->processes[0].pid);
        const bool own = uid == (long)getuid() && c->mode == CHEX_MODE_JOB;
        chex_check_found(r, "%d on GPU %s: process %u%s, %s", g->process_count, g->gpu.pci_bus_id,
                         (unsigned)g->processes[0].pid,
                         own       ? " of this user"
                         : uid < 0 ? " (not visible from here)"
                                   : " of another user",
                         chex_format_bytes(memory, sizeof memory, g->processes[0].bytes));
        chex_check_worsen(
            r, CHEX_WARN, own ? CHEX_FAULT_USER : CHEX_FAULT_NODE,
            own ? "wait for it, or end it: two processes on one GPU slow each other down"
                : "an earlier job left it, or two jobs share the GPU: see nvidia-smi "
                  "on the node");
        break;
    }
    free(n.nvml);
}
CHEX_CHECK(gpu_busy, .name = "gpu-busy", .question = "do other processes use the GPUs?",
           .modes = CHEX_IN_JOB | CHEX_IN_PROLOG, .fault = CHEX_FAULT_NODE, .probe = probe_busy);

/* ---- gpu-memory ---- */

enum { USED_PERCENT = 5 };

static void probe_memory(const struct chex_check_context *c, struct chex_check_result *r) {
    struct node n;
    char total[32], used[32];
    chex_check_expect(r, "%d %% of it free", 100 - USED_PERCENT);
    if (!open_node(c, &n, r))
        return;
    int worst = 0;
    double worst_share = -1;
    for (int i = 0; i < n.count; i++) {
        const struct chex_nvml_gpu *g = &n.nvml->gpus[n.mine[i]];
        const double share =
            g->gpu.memory_bytes ? (double)g->used_bytes / (double)g->gpu.memory_bytes : 0;
        if (share > worst_share) {
            worst = n.mine[i];
            worst_share = share;
        }
    }
    const struct chex_nvml_gpu *g = &n.nvml->gpus[worst];
    chex_check_found(r, "%s, %s of it in use%s%s",
                     chex_format_bytes(total, sizeof total, g->gpu.memory_bytes),
                     chex_format_bytes(used, sizeof used, g->used_bytes),
                     n.count > 1 ? ", GPU " : "", n.count > 1 ? g->gpu.pci_bus_id : "");
    if (g->gpu.memory_bytes == 0)
        chex_check_skip(r, "the driver does not report it");
    else if (worst_share * 100 > USED_PERCENT)
        chex_check_worsen(
            r, CHEX_WARN, CHEX_FAULT_NODE,
            "only smaller batches will fit; see gpu-busy and nvidia-smi for the process "
            "that uses it");
    free(n.nvml);
}
CHEX_CHECK(gpu_memory, .name = "gpu-memory", .question = "is the GPUs' memory free?",
           .modes = CHEX_IN_JOB | CHEX_IN_PROLOG, .fault = CHEX_FAULT_NODE, .probe = probe_memory);

/* ---- gpu-peer ---- */

static void probe_peer(const struct chex_check_context *c, struct chex_check_result *r) {
    struct node n;
    int linked = 0, pairs = 0;
    chex_check_expect(r, "GPUs of a node that see each other");
    if (!open_node(c, &n, r))
        return;
    for (int i = 0; i < n.count; i++)
        for (int j = 0; j < i; j++) {
            pairs++;
            linked += n.nvml->linked[n.mine[i]][n.mine[j]];
        }
    const int hidden = c->gpu.node_count - n.count;
    const bool confined = chex_nvml_confined(n.nvml, c->gpu.node_count);
    const struct chex_nvml_gpu *own = &n.nvml->gpus[n.mine[0]];
    if (hidden > 0)
        chex_check_found(r, "%d seen, %d more on the node %s", n.count, hidden,
                         confined ? "out of reach" : "hidden from CUDA, not from NCCL");
    else if (pairs == 0)
        chex_check_found(r, "one GPU");
    else
        chex_check_found(r, "%d GPUs, %d of %d pairs by NVLink", n.count, linked, pairs);
    if (own->mig)
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_USER,
                          "GPU %s is split (MIG), and its parts have no peers: use one rank, or "
                          "request whole GPUs",
                          own->gpu.pci_bus_id);
    else if (confined && c->launch->local_size > 1)
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_USER,
                          "gradients of %d ranks go through host memory%s: add --gpu-bind=none",
                          c->launch->local_size, own->links_up ? ", not NVLink" : "");
    free(n.nvml);
}
CHEX_CHECK(gpu_peer, .name = "gpu-peer", .question = "can the GPUs of a node reach each other?",
           .modes = CHEX_IN_JOB, .fault = CHEX_FAULT_USER, .probe = probe_peer);
