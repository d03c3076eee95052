/* SPDX-License-Identifier: Apache-2.0
 *
 * Assigns one GPU to each rank. The steps, all among all ranks:
 *   1. agree that every rank could list its GPUs
 *   2. exchange whether a rank uses a GPU; if none does, that is all
 *   3. exchange the GPUs that each rank sees, and their distance to its CPUs. Every rank computes
 *      the same assignment of all nodes from it (launch/devices.h).
 *   4. agree that every assigned GPU is healthy
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/choose.h"
#include "launch/nvml.h"

struct message {
    struct chex_gpu_candidate candidate; /* count 0: this rank uses no GPU */
    int32_t local_rank, mps;
};

struct visible {
    struct chex_gpu_list list;
    struct chex_nvml *nvml; /* NULL: unknown */
    struct message message; /* of this rank */
};

/* Lists the GPUs that this rank may use. Health is checked later, for the assigned GPU only. */
static enum chex_status list_gpus(const char *spec, struct visible *visible,
                                  struct chex_error *err) {
    const struct chex_engine_impl *impl;
    struct chex_error why = {0};
    CHEX_TRY(chex_engine_load(spec, &impl, err));
    if (impl->hardware && impl->hardware->devices)
        CHEX_TRY(impl->hardware->devices(&visible->list, err));
    if (visible->list.count == 0)
        return CHEX_OK;
    if (chex_nvml_read(&visible->nvml, &why) != CHEX_OK)
        chex_debug("no management library: %s", why.text);
    return CHEX_OK;
}

static void fill_message(const struct chex_launch *launch, const struct chex_binding *binding,
                         struct visible *visible) {
    struct message *m = &visible->message;
    m->candidate.rank = launch->rank;
    m->candidate.node = launch->node;
    m->candidate.count = visible->list.count;
    m->local_rank = launch->local_rank;
    m->mps = visible->list.count > 0 && chex_gpu_mps();
    for (int i = 0; i < visible->list.count; i++) {
        const struct chex_gpu *g = &visible->list.gpus[i];
        const struct chex_nvml_gpu *known =
            visible->nvml ? chex_nvml_find(visible->nvml, g->pci_bus_id) : NULL;
        memcpy(m->candidate.gpus[i].pci_bus_id, g->pci_bus_id, CHEX_PCI_BYTES);
        memcpy(m->candidate.gpus[i].uuid, g->uuid, CHEX_UUID_BYTES);
        m->candidate.gpus[i].near_cpus =
            known && !known->unread ? chex_nvml_near(known, binding->cpus) : 0;
    }
}

static int by_local_rank(const void *pa, const void *pb) {
    const struct message *a = *(const struct message *const *)pa,
                         *b = *(const struct message *const *)pb;
    return (a->local_rank > b->local_rank) - (a->local_rank < b->local_rank);
}

/* Assigns the GPUs of one node. Sets *mine_out and *shared_out if this rank is on that node. */
static enum chex_status assign_node(const struct message *all, int n, int32_t node, int rank,
                                    int *mine_out, bool *shared_out, struct chex_error *err) {
    CHEX_AUTO_FREE const struct message **sorted = chex_alloc_zeroed((size_t)n, sizeof *sorted);
    CHEX_AUTO_FREE struct chex_gpu_candidate *candidates =
        chex_alloc_zeroed((size_t)n, sizeof *candidates);
    CHEX_AUTO_FREE int *chosen = chex_alloc_zeroed((size_t)n, sizeof *chosen);
    int count = 0;
    bool share = true;
    if (!sorted || !candidates || !chosen)
        return chex_error_memory(err, NULL);
    for (int r = 0; r < n; r++)
        if (all[r].candidate.node == node && all[r].candidate.count > 0)
            sorted[count++] = &all[r];
    qsort((void *)(uintptr_t)sorted, (size_t)count, sizeof *sorted, by_local_rank);
    for (int i = 0; i < count; i++) {
        candidates[i] = sorted[i]->candidate;
        share = share && sorted[i]->mps;
    }
    CHEX_TRY(chex_gpu_assign(candidates, count, share, chosen, err));
    for (int i = 0; i < count; i++)
        if (candidates[i].rank == rank) {
            *mine_out = chosen[i];
            *shared_out = share;
        }
    return CHEX_OK;
}

/* Every rank computes the assignment of every node, so all ranks fail together with one text. */
static enum chex_status assign(const struct message *all, int n, int rank, int *mine_out,
                               bool *shared_out, struct chex_error *err) {
    for (int r = 0; r < n; r++) {
        bool first = all[r].candidate.count > 0;
        for (int k = 0; first && k < r; k++)
            first = all[k].candidate.count == 0 || all[k].candidate.node != all[r].candidate.node;
        if (first)
            CHEX_TRY(assign_node(all, n, all[r].candidate.node, rank, mine_out, shared_out, err));
    }
    return CHEX_OK;
}

/* gpu NULL: this rank uses none. Warns of a GPU that is only weak. */
static enum chex_status check_health(const struct chex_launch *launch,
                                     const struct visible *visible, const struct chex_gpu *gpu,
                                     struct chex_error *err) {
    char why[160];
    const struct chex_nvml_gpu *known =
        gpu && visible->nvml ? chex_nvml_find(visible->nvml, gpu->pci_bus_id) : NULL;
    if (known && chex_nvml_sick(known, why, sizeof why))
        return chex_error_set(
            err, CHEX_E_NODE,
            "GPU %s of node %s is unhealthy: %s; leave the node out with --exclude=%s",
            gpu->pci_bus_id, launch->host, why, launch->host);
    if (known && chex_nvml_weak(known, why, sizeof why))
        chex_warn("GPU %s: %s", gpu->pci_bus_id, why);
    return CHEX_OK;
}

/* How this GPU reaches the other GPUs of the node. */
static void describe_peers(const struct visible *visible, const struct chex_gpu_view *view,
                           const struct chex_gpu *gpu, char *buf, size_t size) {
    const int hidden = view->node_count - visible->list.count;
    const struct chex_nvml_gpu *mine =
        visible->nvml ? chex_nvml_find(visible->nvml, gpu->pci_bus_id) : NULL;
    const char *link = mine && mine->links_up ? ", not NVLink" : "";
    int linked = 0;
    for (int i = 0; mine && i < visible->nvml->count; i++)
        linked += visible->nvml->linked[mine->index][i];
    buf[0] = '\0';
    if (hidden > 0 && visible->nvml && !chex_nvml_confined(visible->nvml, view->node_count))
        snprintf(buf, size, ", %d more on the node, which NCCL can reach%s", hidden,
                 linked ? " by NVLink" : "");
    else if (hidden > 0)
        snprintf(buf, size,
                 ", %d more on the node out of reach: gradients between them go through host "
                 "memory%s; --gpu-bind=none shows them",
                 hidden, link);
    else if (visible->list.count > 1)
        snprintf(buf, size, ", sees %d, %s", visible->list.count,
                 linked ? "linked by NVLink" : "no NVLink known of");
}

static void log_gpu(const struct visible *visible, const struct chex_gpu_view *view,
                    const struct chex_gpu *gpu, bool shared) {
    char neighbours[200];
    describe_peers(visible, view, gpu, neighbours, sizeof neighbours);
    chex_log_all("GPU %s, %s, capability %d.%d%s%s", gpu->pci_bus_id, gpu->name,
                 gpu->capability / 10, gpu->capability % 10, neighbours,
                 shared ? ", CUDA MPS is active" : "");
}

/* Assigns GPUs to all ranks of the job. *gpu_out is NULL if this rank uses none. Collective. */
static enum chex_status assign_gpus(const struct chex_launch *launch, struct chex_group *group,
                                    const struct chex_binding *binding,
                                    const struct chex_gpu_view *view, struct visible *visible,
                                    const struct chex_gpu **gpu_out, struct chex_error *err) {
    int index = 0;
    bool shared = false;
    const struct chex_gpu *gpu = NULL;
    fill_message(launch, binding, visible);
    CHEX_TRY(chex_group_exchange(group, "gpus", &visible->message, sizeof visible->message, err));
    enum chex_status st = assign(group->all, group->size, group->rank, &index, &shared, err);
    if (st == CHEX_OK && visible->list.count > 0)
        gpu = &visible->list.gpus[index];
    if (st == CHEX_OK)
        st = check_health(launch, visible, gpu, err);
    CHEX_TRY(chex_group_agree(group, st, err));
    if (gpu)
        log_gpu(visible, view, gpu, shared);
    *gpu_out = gpu;
    return CHEX_OK;
}

enum chex_status chex_choose_gpu(const struct chex_launch *launch, struct chex_group *group,
                                 const struct chex_binding *binding,
                                 const struct chex_gpu_view *view, const char *spec,
                                 struct chex_gpu *gpu_out, bool *has_out, struct chex_error *err) {
    struct visible *visible = chex_alloc_zeroed(1, sizeof *visible);
    const struct chex_gpu *gpu = NULL;
    enum chex_status st = visible ? CHEX_OK : chex_error_memory(err, NULL);
    if (st == CHEX_OK)
        st = spec ? list_gpus(spec, visible, err) : err->status;
    st = chex_group_agree(group, st, err);
    const char mine = visible && visible->list.count > 0;
    if (st == CHEX_OK)
        st = chex_group_exchange(group, "uses-gpu", &mine, sizeof mine, err);
    if (st == CHEX_OK && memchr(group->all, 1, (size_t)group->size))
        st = assign_gpus(launch, group, binding, view, visible, &gpu, err);
    *has_out = gpu != NULL;
    if (gpu)
        *gpu_out = *gpu;
    if (visible)
        free(visible->nvml);
    free(visible);
    return st;
}
