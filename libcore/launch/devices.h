/* SPDX-License-Identifier: Apache-2.0
 *
 * GPUs of a node as names, and which rank of the node takes which. No driver is called here.
 *
 * A GPU is known by its PCI bus id, in Linux' form ("0000:1b:00.0"), which is the same whatever a
 * task may see; indices are not, for they count what is visible. Parts of one GPU (MIG) share the
 * bus id and differ in the UUID.
 */
#ifndef CHEX_LAUNCH_DEVICES_H
#define CHEX_LAUNCH_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum { CHEX_GPU_MAX = 16, CHEX_GPU_RANKS = 64, CHEX_PCI_BYTES = 24, CHEX_UUID_BYTES = 48 };

struct chex_gpu {
    char pci_bus_id[CHEX_PCI_BYTES];
    char uuid[CHEX_UUID_BYTES]; /* "GPU-..." or "MIG-..."; "": unknown */
    char name[64];
    int capability; /* 90 for 9.0; 0: unknown */
    uint64_t memory_bytes;
};

struct chex_gpu_list {
    int count;
    struct chex_gpu gpus[CHEX_GPU_MAX];
};

/* "00000000:1B:00.0" to "0000:1b:00.0"; "" from what is no bus id. `out` is returned. */
const char *chex_gpu_pci_id(const char *text, char out[CHEX_PCI_BYTES]);

/* By UUID where both are known (its prefix does not count), else by bus id. */
bool chex_gpu_same(const char *pci_a, const char *uuid_a, const char *pci_b, const char *uuid_b);

/* By bus id, and parts of one GPU by UUID. */
void chex_gpu_sort(struct chex_gpu_list *list);

/* CUDA's MPS lets processes share a GPU: its control daemon's process number, from the folder
 * CUDA_MPS_PIPE_DIRECTORY or the default one, is alive. A daemon outside this container is not
 * seen. */
bool chex_gpu_mps(void);

/* A rank and what it may use. Plain bytes: ranks exchange it as it lies. */
struct chex_gpu_seat {
    int32_t rank, node, count;
    struct {
        char pci_bus_id[CHEX_PCI_BYTES], uuid[CHEX_UUID_BYTES];
        int32_t near_cpus; /* of the rank's CPUs, those that are close to the GPU */
    } gpus[CHEX_GPU_MAX];
};

/* The ranks of one node, in the order of local ranks, 1 to CHEX_GPU_RANKS of them, each with one
 * GPU or more. Each gets one of its own, no two the same; of all such ways that with the most CPUs
 * close to their GPUs, and of these the one in which bus ids rise with ranks. chosen_out[i] is an
 * index of seats[i].gpus. Where there are too few: with `share` they are shared, as evenly as may
 * be, else CHEX_E_ENV with two ranks that would meet. The same seats give the same answer. */
enum chex_status chex_gpu_assign(const struct chex_gpu_seat *seats, int n, bool share,
                                 int *chosen_out, struct chex_error *err);

#endif
