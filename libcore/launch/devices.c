/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of GPUs, and their assignment to ranks.
 *
 * The assignment is a minimum-cost matching of ranks and GPUs, by successive cheapest augmenting
 * paths. A GPU has one column for each rank that may share it. The cost has three terms. Sharing
 * costs more than any gain in nearness, and nearness more than any gain in order. The weights leave
 * space for CHEX_GPU_RANKS terms of each kind.
 */
#include "launch/devices.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"

const char *chex_gpu_pci_id(const char *text, char out[CHEX_PCI_BYTES]) {
    unsigned domain, bus, device, function;
    int used = 0;
    out[0] = '\0';
    if (sscanf(text, "%x:%x:%x.%x%n", &domain, &bus, &device, &function, &used) == 4 && used > 0 &&
        !text[used])
        snprintf(out, CHEX_PCI_BYTES, "%04x:%02x:%02x.%x", domain, bus & 255, device & 255,
                 function & 15);
    return out;
}

static const char *bare(const char *uuid) {
    const bool named = strncmp(uuid, "GPU-", 4) == 0 || strncmp(uuid, "MIG-", 4) == 0;
    return named ? uuid + 4 : uuid;
}

bool chex_gpu_same(const char *pci_a, const char *uuid_a, const char *pci_b, const char *uuid_b) {
    if (uuid_a[0] && uuid_b[0])
        return strcmp(bare(uuid_a), bare(uuid_b)) == 0;
    return strcmp(pci_a, pci_b) == 0;
}

/* A longer domain number is larger; strcmp alone would not order it so. */
static int compare(const char *pci_a, const char *uuid_a, const char *pci_b, const char *uuid_b) {
    size_t a = strlen(pci_a), b = strlen(pci_b);
    int by_pci = a != b ? (a > b) - (a < b) : strcmp(pci_a, pci_b);
    return by_pci ? by_pci : strcmp(bare(uuid_a), bare(uuid_b));
}

static int by_place(const void *pa, const void *pb) {
    const struct chex_gpu *a = pa, *b = pb;
    return compare(a->pci_bus_id, a->uuid, b->pci_bus_id, b->uuid);
}

void chex_gpu_sort(struct chex_gpu_list *list) {
    qsort(list->gpus, (size_t)list->count, sizeof *list->gpus, by_place);
}

bool chex_gpu_mps(void) {
    const char *set = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char *path = chex_fs_format("%s/nvidia-cuda-mps-control.pid",
                                set && *set ? set : "/tmp/nvidia-mps"),
         *text = NULL;
    long pid = 0;
    if (path && chex_fs_read(path, 64, &text, NULL, NULL) == CHEX_OK)
        pid = strtol(text, NULL, 10);
    free(text);
    free(path);
    return pid > 0 && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

/* ---- assignment ---- */

enum { LEVELS = 64 }; /* levels of nearness (CPUs close to the GPU) */
#define COST_NEAR (INT64_C(1) << 18)
#define COST_SHARED (INT64_C(1) << 30)
#define COST_UNSEEN (INT64_C(1) << 43)

struct place {
    const char *pci, *uuid;
};

struct assignment {
    const struct chex_gpu_candidate *candidates;
    int ranks, gpus, columns, slots;
    int max_near;
    struct place *places; /* (gpus), sorted */
    int64_t *cost;        /* (ranks, columns) */
    int *rank_of;         /* (columns) the rank that has this column; -1: free */
};

static int by_name(const void *pa, const void *pb) {
    const struct place *a = pa, *b = pb;
    return compare(a->pci, a->uuid, b->pci, b->uuid);
}

static void collect(struct assignment *p) {
    for (int i = 0; i < p->ranks; i++)
        for (int k = 0; k < p->candidates[i].count; k++) {
            const char *pci = p->candidates[i].gpus[k].pci_bus_id,
                       *uuid = p->candidates[i].gpus[k].uuid;
            int j = 0;
            while (j < p->gpus && !chex_gpu_same(p->places[j].pci, p->places[j].uuid, pci, uuid))
                j++;
            if (j == p->gpus)
                p->places[p->gpus++] = (struct place){pci, uuid};
            if (p->candidates[i].gpus[k].near_cpus > p->max_near)
                p->max_near = p->candidates[i].gpus[k].near_cpus;
        }
    qsort(p->places, (size_t)p->gpus, sizeof *p->places, by_name);
}

/* The index of GPU j in the list of rank i, or -1. */
static int index_of(const struct assignment *p, int i, int j) {
    for (int k = 0; j < p->gpus && k < p->candidates[i].count; k++)
        if (chex_gpu_same(p->places[j].pci, p->places[j].uuid, p->candidates[i].gpus[k].pci_bus_id,
                          p->candidates[i].gpus[k].uuid))
            return k;
    return -1;
}

static int64_t cost_of(const struct assignment *p, int i, int column) {
    const int j = column / p->slots, slot = column % p->slots, k = index_of(p, i, j);
    if (k < 0)
        return COST_UNSEEN;
    const int near_cpus = p->candidates[i].gpus[k].near_cpus;
    const int far = p->max_near ? (LEVELS - 1) * (p->max_near - near_cpus) / p->max_near : 0;
    const int64_t apart = llabs((long long)i - j) < LEVELS ? llabs((long long)i - j) : LEVELS - 1;
    return slot * COST_SHARED + far * COST_NEAR + apart * apart;
}

/* Adds rank i to the matching along the cheapest augmenting path. least, from: scratch, one entry
 * per column. least[j] is the change of the whole cost if a path from rank i ends at column j: its
 * ranks move on, each from its column `from[..]` to the next one. Found as in Bellman and Ford. */
static void augment(struct assignment *p, int i, int64_t *least, int *from) {
    const size_t columns = (size_t)p->columns;
    int at = -1;
    for (int j = 0; j < p->columns; j++) {
        least[j] = p->cost[(size_t)i * columns + (size_t)j];
        from[j] = -1;
    }
    for (bool cheaper = true; cheaper;) {
        cheaper = false;
        for (int k = 0; k < p->columns; k++) {
            const int64_t *cost =
                p->rank_of[k] < 0 ? NULL : p->cost + (size_t)p->rank_of[k] * columns;
            for (int j = 0; cost && j < p->columns; j++) {
                if (least[k] - cost[k] + cost[j] >= least[j])
                    continue;
                least[j] = least[k] - cost[k] + cost[j];
                from[j] = k;
                cheaper = true;
            }
        }
    }
    for (int j = 0; j < p->columns; j++)
        if (p->rank_of[j] < 0 && (at < 0 || least[j] < least[at]))
            at = j;
    for (; from[at] >= 0; at = from[at])
        p->rank_of[at] = p->rank_of[from[at]];
    p->rank_of[at] = i;
}

static bool match(struct assignment *p) {
    int64_t *least = chex_alloc_zeroed((size_t)p->columns, sizeof *least);
    int *from = chex_alloc_zeroed((size_t)p->columns, sizeof *from);
    const bool allocated = least && from;
    for (int j = 0; allocated && j < p->columns; j++)
        p->rank_of[j] = -1;
    for (int i = 0; allocated && i < p->ranks; i++)
        augment(p, i, least, from);
    free(least);
    free(from);
    return allocated;
}

static void assignment_release(struct assignment *p) {
    free(p->places);
    free(p->cost);
    free(p->rank_of);
}

static enum chex_status solve(struct assignment *p, bool share, struct chex_error *err) {
    p->places = chex_alloc_zeroed((size_t)p->ranks * CHEX_GPU_MAX, sizeof *p->places);
    if (p->places)
        collect(p);
    p->slots = share ? p->ranks : 1;
    p->columns = p->gpus * p->slots > p->ranks ? p->gpus * p->slots : p->ranks;
    p->cost = chex_alloc_zeroed((size_t)p->ranks * (size_t)p->columns, sizeof *p->cost);
    p->rank_of = chex_alloc_zeroed((size_t)p->columns, sizeof *p->rank_of);
    bool allocated = p->places && p->cost && p->rank_of;
    for (int i = 0; allocated && i < p->ranks; i++)
        for (int j = 0; j < p->columns; j++)
            p->cost[(size_t)i * (size_t)p->columns + (size_t)j] = cost_of(p, i, j);
    allocated = allocated && match(p);
    return allocated ? CHEX_OK : chex_error_memory(err, NULL);
}

/* Reports two ranks that would share a GPU, from a solution with sharing. */
static enum chex_status refuse(const struct chex_gpu_candidate *candidates, int n,
                               struct chex_error *err) {
    struct assignment p = {.candidates = candidates, .ranks = n};
    enum chex_status st = solve(&p, true, err);
    int first = 0, second = 0, gpu = 0;
    for (int j = 0; st == CHEX_OK && second == 0 && j < p.columns; j++)
        if (j % p.slots == 1 && p.rank_of[j] >= 0) {
            gpu = j / p.slots;
            first = p.rank_of[j - 1];
            second = p.rank_of[j];
        }
    if (st == CHEX_OK) {
        const int a = candidates[first].rank, b = candidates[second].rank;
        st =
            chex_error_set(err, CHEX_E_ENV,
                           "ranks %d and %d would share GPU %s: %d rank%s of this node see %d "
                           "GPU%s; start one rank a GPU (srun --gpus-per-task=1), or several under "
                           "CUDA MPS, which is not active",
                           a < b ? a : b, a < b ? b : a, p.places[gpu].pci, n, n == 1 ? "" : "s",
                           p.gpus, p.gpus == 1 ? "" : "s");
    }
    assignment_release(&p);
    return st;
}

enum chex_status chex_gpu_assign(const struct chex_gpu_candidate *candidates, int n, bool share,
                                 int *chosen_out, struct chex_error *err) {
    if (n < 1 || n > CHEX_GPU_RANKS)
        return chex_error_set(err, CHEX_E_ENV, "GPUs of a node: %d ranks (expected 1 to %d)", n,
                              (int)CHEX_GPU_RANKS);
    for (int i = 0; i < n; i++)
        if (candidates[i].count < 1)
            return chex_error_set(err, CHEX_E_ENV, "rank %d sees no GPU", candidates[i].rank);
    struct assignment p = {.candidates = candidates, .ranks = n};
    enum chex_status st = solve(&p, share, err);
    bool all = true;
    for (int j = 0; st == CHEX_OK && j < p.columns; j++) {
        const int i = p.rank_of[j], k = i < 0 ? 0 : index_of(&p, i, j / p.slots);
        all = all && k >= 0;
        if (i >= 0)
            chosen_out[i] = k;
    }
    assignment_release(&p);
    if (st == CHEX_OK && !all)
        st = refuse(candidates, n, err);
    return st;
}
