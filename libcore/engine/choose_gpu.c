/* SPDX-License-Identifier: Apache-2.0
 *
 * Each rank tells the others of its node what it sees and what lies close to its CPUs; all work out
 * the same assignment (launch/devices.h). A rank that cannot go on tells that too, so that nobody
 * waits for it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "engine/choose.h"
#include "launch/nvml.h"

enum { WAIT_MS = 60000 };

struct message {
    struct chex_gpu_seat seat; /* count 0: this rank computes on no GPU */
    int32_t local_rank, mps;
};

struct verdict {
    int32_t status, uses_gpu;
    char text[CHEX_ERROR_TEXT_BYTES];
};

struct here {
    struct chex_gpu_list list;
    struct chex_nvml *nvml; /* NULL: unknown */
};

/* What this rank may use. Unhealthy GPUs are told of when one is taken. */
static enum chex_status look(const char *spec, struct here *here, struct chex_error *err) {
    const struct chex_engine_impl *impl;
    struct chex_error why = {0};
    CHEX_TRY(chex_engine_load(spec, &impl, err));
    if (!impl->devices)
        return CHEX_OK;
    CHEX_TRY(impl->devices(&here->list, err));
    here->nvml = chex_mem_zalloc(1, sizeof *here->nvml);
    if (here->nvml && chex_nvml_read(here->nvml, &why) != CHEX_OK) {
        chex_debug("no management library: %s", why.text);
        free(here->nvml);
        here->nvml = NULL;
    }
    return CHEX_OK;
}

static void fill(const struct chex_launch *launch, const struct chex_binding *binding,
                 const struct here *here, struct message *m) {
    m->seat.rank = launch->rank;
    m->seat.node = launch->node;
    m->seat.count = here->list.count;
    m->local_rank = launch->local_rank;
    m->mps = here->list.count > 0 && chex_gpu_mps();
    for (int i = 0; i < here->list.count; i++) {
        const struct chex_gpu *g = &here->list.gpus[i];
        const struct chex_nvml_gpu *known =
            here->nvml ? chex_nvml_find(here->nvml, g->pci_bus_id) : NULL;
        memcpy(m->seat.gpus[i].pci_bus_id, g->pci_bus_id, CHEX_PCI_BYTES);
        memcpy(m->seat.gpus[i].uuid, g->uuid, CHEX_UUID_BYTES);
        m->seat.gpus[i].near_cpus =
            known && !known->unread ? chex_nvml_near(known, binding->cpus) : 0;
    }
}

/* The first rank's trouble is everybody's. *any_out: whether some rank uses a GPU. */
static enum chex_status agree(struct chex_launch *launch, const char *key,
                              const struct verdict *mine, bool *any_out, struct chex_error *err) {
    struct verdict *all = chex_mem_zalloc((size_t)launch->size, sizeof *all);
    if (!all)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    enum chex_status st = chex_launch_exchange(launch, key, mine, sizeof *mine, all, WAIT_MS, err);
    *any_out = false;
    for (int r = 0; st == CHEX_OK && r < launch->size; r++) {
        *any_out = *any_out || all[r].uses_gpu;
        if (all[r].status != CHEX_OK && launch->size == 1)
            st = chex_error_set(err, (enum chex_status)all[r].status, "%s", all[r].text);
        else if (all[r].status != CHEX_OK)
            st =
                chex_error_set(err, (enum chex_status)all[r].status, "rank %d: %s", r, all[r].text);
    }
    free(all);
    return st;
}

static int by_local_rank(const void *pa, const void *pb) {
    const struct message *a = *(const struct message *const *)pa,
                         *b = *(const struct message *const *)pb;
    return (a->local_rank > b->local_rank) - (a->local_rank < b->local_rank);
}

/* One node's assignment; *mine_out where this rank is on it. */
static enum chex_status assign_node(const struct message *all, int n, int32_t node, int rank,
                                    int *mine_out, bool *shared_out, struct chex_error *err) {
    const struct message **sorted = chex_mem_zalloc((size_t)n, sizeof *sorted);
    struct chex_gpu_seat *seats = chex_mem_zalloc((size_t)n, sizeof *seats);
    int *chosen = chex_mem_zalloc((size_t)n, sizeof *chosen);
    int count = 0;
    bool share = true;
    enum chex_status st = CHEX_OK;
    if (!sorted || !seats || !chosen)
        st = chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    for (int r = 0; st == CHEX_OK && r < n; r++)
        if (all[r].seat.node == node && all[r].seat.count > 0)
            sorted[count++] = &all[r];
    if (st == CHEX_OK && count > 0) {
        qsort((void *)(uintptr_t)sorted, (size_t)count, sizeof *sorted, by_local_rank);
        for (int i = 0; i < count; i++) {
            seats[i] = sorted[i]->seat;
            share = share && sorted[i]->mps;
        }
        st = chex_gpu_assign(seats, count, share, chosen, err);
    }
    for (int i = 0; st == CHEX_OK && i < count; i++)
        if (seats[i].rank == rank) {
            *mine_out = chosen[i];
            *shared_out = share;
        }
    free((void *)(uintptr_t)sorted);
    free(seats);
    free(chosen);
    return st;
}

/* Every rank works out every node, so that all fail together, with one text. */
static enum chex_status assign(const struct message *all, int n, int rank, int *mine_out,
                               bool *shared_out, struct chex_error *err) {
    for (int r = 0; r < n; r++) {
        bool first = all[r].seat.count > 0;
        for (int k = 0; first && k < r; k++)
            first = all[k].seat.count == 0 || all[k].seat.node != all[r].seat.node;
        if (first)
            CHEX_TRY(assign_node(all, n, all[r].seat.node, rank, mine_out, shared_out, err));
    }
    return CHEX_OK;
}

/* Only now is it known which GPU a rank has. */
static enum chex_status check_health(struct chex_launch *launch, const struct here *here,
                                     const struct chex_gpu *gpu, struct chex_error *err) {
    char why[160];
    struct verdict v = {.status = CHEX_OK};
    bool any;
    const struct chex_nvml_gpu *known =
        gpu && here->nvml ? chex_nvml_find(here->nvml, gpu->pci_bus_id) : NULL;
    if (known && chex_nvml_sick(known, why, sizeof why)) {
        v.status = CHEX_E_NODE;
        snprintf(v.text, sizeof v.text,
                 "GPU %s of node %s is unhealthy: %s; leave the node out with --exclude=%s",
                 gpu->pci_bus_id, launch->host, why, launch->host);
    } else if (known && chex_nvml_weak(known, why, sizeof why)) {
        chex_warn("GPU %s: %s", gpu->pci_bus_id, why);
    }
    return agree(launch, "gpuhealth", &v, &any, err);
}

/* What the others of the node are to this GPU. */
static void peers(const struct here *here, const struct chex_gpu_view *view,
                  const struct chex_gpu *gpu, char *buf, size_t size) {
    const int hidden = view->node_count - here->list.count;
    const struct chex_nvml_gpu *mine =
        here->nvml ? chex_nvml_find(here->nvml, gpu->pci_bus_id) : NULL;
    const char *link = mine && mine->links_up ? ", not NVLink" : "";
    int linked = 0;
    for (int i = 0; mine && i < here->nvml->count; i++)
        linked += here->nvml->linked[mine->index][i];
    buf[0] = '\0';
    if (hidden > 0 && here->nvml && !chex_nvml_confined(here->nvml, view->node_count))
        snprintf(buf, size, ", %d more on the node, which NCCL can reach%s", hidden,
                 linked ? " by NVLink" : "");
    else if (hidden > 0)
        snprintf(buf, size,
                 ", %d more on the node out of reach: gradients between them go through host "
                 "memory%s; --gpu-bind=none shows them",
                 hidden, link);
    else if (here->list.count > 1)
        snprintf(buf, size, ", sees %d, %s", here->list.count,
                 linked ? "linked by NVLink" : "no NVLink known of");
}

static void tell(const struct here *here, const struct chex_gpu_view *view,
                 const struct chex_gpu *gpu, bool shared) {
    char neighbours[200];
    peers(here, view, gpu, neighbours, sizeof neighbours);
    chex_log_all("GPU %s, %s, capability %d.%d%s%s", gpu->pci_bus_id, gpu->name,
                 gpu->capability / 10, gpu->capability % 10, neighbours,
                 shared ? ", CUDA MPS is active" : "");
}

/* The assignment of the whole job; *gpu_out NULL where this rank computes on none. */
static enum chex_status meet(struct chex_launch *launch, const struct chex_binding *binding,
                             const struct chex_gpu_view *view, const struct here *here,
                             const struct chex_gpu **gpu_out, struct chex_error *err) {
    struct message *mine = chex_mem_zalloc(1, sizeof *mine);
    struct message *all = chex_mem_zalloc((size_t)launch->size, sizeof *all);
    int index = 0;
    bool shared = false;
    enum chex_status st = CHEX_OK;
    const struct chex_gpu *gpu = NULL;
    if (!mine || !all)
        st = chex_error_errno(err, CHEX_E_RESOURCE, ENOMEM, "the GPUs of %d ranks", launch->size);
    if (st == CHEX_OK) {
        fill(launch, binding, here, mine);
        st = chex_launch_exchange(launch, "gpus", mine, sizeof *mine, all, WAIT_MS, err);
    }
    if (st == CHEX_OK)
        st = assign(all, launch->size, launch->rank, &index, &shared, err);
    if (st == CHEX_OK && here->list.count > 0)
        gpu = &here->list.gpus[index];
    if (st == CHEX_OK)
        st = check_health(launch, here, gpu, err);
    if (st == CHEX_OK && gpu)
        tell(here, view, gpu, shared);
    free(mine);
    free(all);
    *gpu_out = st == CHEX_OK ? gpu : NULL;
    return st;
}

enum chex_status chex_choose_gpu(struct chex_launch *launch, const struct chex_binding *binding,
                                 const struct chex_gpu_view *view, const char *spec,
                                 struct chex_gpu *gpu_out, bool *has_out, struct chex_error *err) {
    struct here *here = chex_mem_zalloc(1, sizeof *here);
    const struct chex_gpu *gpu = NULL;
    struct verdict mine = {.status = CHEX_OK};
    bool any = false;
    if (!here)
        mine.status = chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    else if (!spec)
        mine.status = (int32_t)err->status;
    else
        mine.status = (int32_t)look(spec, here, err);
    mine.uses_gpu = here && here->list.count > 0;
    memcpy(mine.text, mine.status ? err->text : "", mine.status ? sizeof mine.text : 1);
    enum chex_status st = agree(launch, "engine", &mine, &any, err);
    if (st == CHEX_OK && any)
        st = meet(launch, binding, view, here, &gpu, err);
    *has_out = gpu != NULL;
    if (gpu)
        *gpu_out = *gpu;
    if (here)
        free(here->nvml);
    free(here);
    return st;
}
