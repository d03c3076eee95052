/* SPDX-License-Identifier: Apache-2.0
 *
 * The assignment is a minimum-cost matching of ranks and GPUs (the Hungarian method in its O(n^2 m)
 * form, with potentials). A GPU has one column for each rank that might share it; a later column
 * costs more than any gain in nearness, nearness more than any gain in order. The weights below
 * leave room for CHEX_GPU_RANKS terms of each kind.
 */
#include "launch/devices.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"

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

/* A long domain is a high one, which strcmp alone would not see. */
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

enum { LEVELS = 64 }; /* of nearness */
#define COST_NEAR (INT64_C(1) << 18)
#define COST_SHARED (INT64_C(1) << 30)
#define COST_UNSEEN (INT64_C(1) << 43)

struct place {
    const char *pci, *uuid;
};

struct plan {
    const struct chex_gpu_seat *seats;
    int ranks, gpus, columns, slots;
    int most_near;
    struct place *places; /* (gpus), sorted */
    int64_t *cost;        /* (ranks, columns) */
    int *rank_of;         /* (columns) -1: nobody's */
};

static int by_name(const void *pa, const void *pb) {
    const struct place *a = pa, *b = pb;
    return compare(a->pci, a->uuid, b->pci, b->uuid);
}

static void collect(struct plan *p) {
    for (int i = 0; i < p->ranks; i++)
        for (int k = 0; k < p->seats[i].count; k++) {
            const char *pci = p->seats[i].gpus[k].pci_bus_id, *uuid = p->seats[i].gpus[k].uuid;
            int j = 0;
            while (j < p->gpus && !chex_gpu_same(p->places[j].pci, p->places[j].uuid, pci, uuid))
                j++;
            if (j == p->gpus)
                p->places[p->gpus++] = (struct place){pci, uuid};
            if (p->seats[i].gpus[k].near_cpus > p->most_near)
                p->most_near = p->seats[i].gpus[k].near_cpus;
        }
    qsort(p->places, (size_t)p->gpus, sizeof *p->places, by_name);
}

/* The index at which rank i knows GPU j, or -1. */
static int index_of(const struct plan *p, int i, int j) {
    for (int k = 0; j < p->gpus && k < p->seats[i].count; k++)
        if (chex_gpu_same(p->places[j].pci, p->places[j].uuid, p->seats[i].gpus[k].pci_bus_id,
                          p->seats[i].gpus[k].uuid))
            return k;
    return -1;
}

static int64_t cost_of(const struct plan *p, int i, int column) {
    const int j = column / p->slots, slot = column % p->slots, k = index_of(p, i, j);
    if (k < 0)
        return COST_UNSEEN;
    const int near_cpus = p->seats[i].gpus[k].near_cpus;
    const int far = p->most_near ? (LEVELS - 1) * (p->most_near - near_cpus) / p->most_near : 0;
    const int64_t apart = llabs((long long)i - j) < LEVELS ? llabs((long long)i - j) : LEVELS - 1;
    return slot * COST_SHARED + far * COST_NEAR + apart * apart;
}

/* Takes up rank i by the cheapest chain of moves. u, v: potentials of ranks and columns; best, from
 * and seen: scratch of a column each. */
static void take_up(struct plan *p, int i, int64_t *u, int64_t *v, int64_t *best, int *from,
                    bool *seen) {
    const int columns = p->columns, none = -1;
    int rank = i, at = none;
    for (int j = 0; j < columns; j++) {
        best[j] = INT64_MAX;
        seen[j] = false;
    }
    do {
        int next = none;
        int64_t step = INT64_MAX;
        if (at != none)
            seen[at] = true;
        for (int j = 0; j < columns; j++) {
            if (seen[j])
                continue;
            const int64_t reduced =
                p->cost[(size_t)rank * (size_t)columns + (size_t)j] - u[rank] - v[j];
            if (reduced < best[j]) {
                best[j] = reduced;
                from[j] = at;
            }
            if (best[j] < step) {
                step = best[j];
                next = j;
            }
        }
        u[i] += step;
        for (int j = 0; j < columns; j++) {
            if (seen[j]) {
                u[p->rank_of[j]] += step;
                v[j] -= step;
            } else {
                best[j] -= step;
            }
        }
        at = next;
        rank = p->rank_of[at];
    } while (rank != none);
    while (from[at] != none) {
        p->rank_of[at] = p->rank_of[from[at]];
        at = from[at];
    }
    p->rank_of[at] = i;
}

static bool match(struct plan *p) {
    const size_t columns = (size_t)p->columns;
    int64_t *u = chex_mem_zalloc((size_t)p->ranks, sizeof *u);
    int64_t *v = chex_mem_zalloc(2 * columns, sizeof *v);
    int *from = chex_mem_zalloc(columns, sizeof *from);
    bool *seen = chex_mem_zalloc(columns, sizeof *seen);
    const bool room = u && v && from && seen;
    for (int j = 0; room && j < p->columns; j++)
        p->rank_of[j] = -1;
    for (int i = 0; room && i < p->ranks; i++)
        take_up(p, i, u, v, v + columns, from, seen);
    free(u);
    free(v);
    free(from);
    free(seen);
    return room;
}

static void plan_release(struct plan *p) {
    free(p->places);
    free(p->cost);
    free(p->rank_of);
}

static enum chex_status solve(struct plan *p, bool share, struct chex_error *err) {
    p->places = chex_mem_zalloc((size_t)p->ranks * CHEX_GPU_MAX, sizeof *p->places);
    if (p->places)
        collect(p);
    p->slots = share ? p->ranks : 1;
    p->columns = p->gpus * p->slots > p->ranks ? p->gpus * p->slots : p->ranks;
    p->cost = chex_mem_zalloc((size_t)p->ranks * (size_t)p->columns, sizeof *p->cost);
    p->rank_of = chex_mem_zalloc((size_t)p->columns, sizeof *p->rank_of);
    bool room = p->places && p->cost && p->rank_of;
    for (int i = 0; room && i < p->ranks; i++)
        for (int j = 0; j < p->columns; j++)
            p->cost[(size_t)i * (size_t)p->columns + (size_t)j] = cost_of(p, i, j);
    room = room && match(p);
    return room ? CHEX_OK : chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
}

/* Two ranks that would meet, from a solution with sharing. */
static enum chex_status refuse(const struct chex_gpu_seat *seats, int n, struct chex_error *err) {
    struct plan p = {.seats = seats, .ranks = n};
    enum chex_status st = solve(&p, true, err);
    int first = 0, second = 0, gpu = 0;
    for (int j = 0; st == CHEX_OK && second == 0 && j < p.columns; j++)
        if (j % p.slots == 1 && p.rank_of[j] >= 0) {
            gpu = j / p.slots;
            first = p.rank_of[j - 1];
            second = p.rank_of[j];
        }
    if (st == CHEX_OK) {
        const int a = seats[first].rank, b = seats[second].rank;
        st =
            chex_error_set(err, CHEX_E_ENV,
                           "ranks %d and %d would share GPU %s: %d rank%s of this node see %d "
                           "GPU%s; start one rank a GPU (srun --gpus-per-task=1), or several under "
                           "CUDA MPS, which is not active",
                           a < b ? a : b, a < b ? b : a, p.places[gpu].pci, n, n == 1 ? "" : "s",
                           p.gpus, p.gpus == 1 ? "" : "s");
    }
    plan_release(&p);
    return st;
}

enum chex_status chex_gpu_assign(const struct chex_gpu_seat *seats, int n, bool share,
                                 int *chosen_out, struct chex_error *err) {
    if (n < 1 || n > CHEX_GPU_RANKS)
        return chex_error_set(err, CHEX_E_ENV, "%d ranks of one node want GPUs: expected 1 to %d",
                              n, (int)CHEX_GPU_RANKS);
    for (int i = 0; i < n; i++)
        if (seats[i].count < 1)
            return chex_error_set(err, CHEX_E_ENV, "rank %d sees no GPU", seats[i].rank);
    struct plan p = {.seats = seats, .ranks = n};
    enum chex_status st = solve(&p, share, err);
    bool all = true;
    for (int j = 0; st == CHEX_OK && j < p.columns; j++) {
        const int i = p.rank_of[j], k = i < 0 ? 0 : index_of(&p, i, j / p.slots);
        all = all && k >= 0;
        if (i >= 0)
            chosen_out[i] = k;
    }
    plan_release(&p);
    if (st == CHEX_OK && !all)
        st = refuse(seats, n, err);
    return st;
}
