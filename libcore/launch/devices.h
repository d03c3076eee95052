/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of the GPUs of a node, and the assignment of GPUs to the ranks of a node. Nothing here
 * calls a driver.
 *
 * A GPU is identified by its PCI bus id in Linux form ("0000:1b:00.0"), which is the same for every
 * task. Indices are not, because they count visible GPUs only. MIG instances of one GPU share the
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

/* "00000000:1B:00.0" becomes "0000:1b:00.0". A text that is no bus id gives "". Returns `out`. */
const char *chex_gpu_pci_id(const char *text, char out[CHEX_PCI_BYTES]);

/* Whether two GPUs are the same: by UUID without its prefix if both are known, else by bus id. */
bool chex_gpu_same(const char *pci_a, const char *uuid_a, const char *pci_b, const char *uuid_b);

/* Sorts by bus id, and MIG instances of one GPU by UUID. */
void chex_gpu_sort(struct chex_gpu_list *list);

/* Whether CUDA MPS is active, so that processes can share a GPU: the process in the pid file of the
 * control daemon is alive. The folder is CUDA_MPS_PIPE_DIRECTORY or the default one. A daemon
 * outside this container is not seen. */
bool chex_gpu_mps(void);

/* A rank and the GPUs that it sees. Plain bytes: ranks exchange this struct as it is. */
struct chex_gpu_candidate {
    int32_t rank, node, count;
    struct {
        char pci_bus_id[CHEX_PCI_BYTES], uuid[CHEX_UUID_BYTES];
        int32_t near_cpus; /* the number of the rank's CPUs that are close to the GPU */
    } gpus[CHEX_GPU_MAX];
};

/* Assigns a GPU to each rank of one node.
 * - candidates: (n) in order of local ranks, n from 1 to CHEX_GPU_RANKS, each with one GPU or more.
 * - chosen_out: (n) indices into candidates[i].gpus.
 * - Each rank gets a GPU of its own. Among such assignments, the most CPUs close to their GPUs win;
 *   then the one in which bus ids rise with ranks.
 * - Too few GPUs: with `share` ranks share GPUs as evenly as possible. Otherwise CHEX_E_ENV, with
 *   two ranks that would share.
 * - Equal candidates give equal answers. */
enum chex_status chex_gpu_assign(const struct chex_gpu_candidate *candidates, int n, bool share,
                                 int *chosen_out, struct chex_error *err);

#endif
