/* SPDX-License-Identifier: Apache-2.0
 *
 * What the NVIDIA driver says about the GPUs of this node, by its management library (NVML), which
 * is opened at run time: nothing of NVIDIA's is needed to build or to start. It makes no context,
 * takes no memory on a GPU, and knows nothing of CUDA_VISIBLE_DEVICES.
 */
#ifndef CHEX_LAUNCH_NVML_H
#define CHEX_LAUNCH_NVML_H

#include <stddef.h>

#include "launch/devices.h"

enum { CHEX_NVML_PROCESSES = 8, CHEX_NVML_CPU_WORDS = 16 };

struct chex_nvml_gpu {
    struct chex_gpu gpu;
    int index;   /* NVML's */
    int unread;  /* NVML's code where the GPU does not answer: nothing else is known then */
    bool denied; /* it exists, but is not this task's (cgroup) */
    uint64_t used_bytes;
    bool has_ecc;
    uint64_t ecc_corrected, ecc_uncorrected; /* since the driver was loaded */
    bool repair_pending;                     /* rows or pages wait for a reset */
    bool repair_failed;                      /* no spare rows left */
    int temperature_c;                       /* -1: unknown */
    uint64_t slowdowns;                      /* bits of enum chex_gpu_slowdown */
    bool mig;
    int links_up, links_down;        /* NVLink */
    int pcie_generation, pcie_width; /* as the link runs now (an idle one slows down); 0: unknown */
    int pcie_generation_most, pcie_width_most; /* of this GPU in this node */
    double memory_bytes_per_s; /* by clock and width of its memory's bus; 0: unknown */
    int process_count;         /* that compute there; may be more than are listed */
    struct {
        uint32_t pid;
        uint64_t bytes; /* 0: not told */
    } processes[CHEX_NVML_PROCESSES];
    uint64_t cpus[CHEX_NVML_CPU_WORDS]; /* close to it, a bit each; all 0: unknown */
};

/* As NVML numbers them; the others are no illness. */
enum chex_gpu_slowdown {
    CHEX_GPU_HW_SLOWDOWN = 0x8,
    CHEX_GPU_SW_THERMAL = 0x20,
    CHEX_GPU_HW_THERMAL = 0x40,
    CHEX_GPU_POWER_BRAKE = 0x80,
};

struct chex_nvml {
    char driver[48]; /* "580.65.06" */
    int cuda;        /* newest CUDA that the driver serves, 13000 for 13.0; 0: unknown */
    int count;       /* in the order of bus ids; the rest of a node with more is left out */
    struct chex_nvml_gpu gpus[CHEX_GPU_MAX];
    bool linked[CHEX_GPU_MAX][CHEX_GPU_MAX]; /* peer access by NVLink */
};

/* The library is libnvidia-ml.so.1, or the environment's CHEX_NVML. CHEX_E_ENV where it cannot be
 * opened: no driver here, or a container without it; CHEX_E_NODE where it is there and the driver
 * does not answer. */
enum chex_status chex_nvml_read(struct chex_nvml *out, struct chex_error *err);

/* What makes a GPU unfit to compute on ("it has 3 uncorrected memory errors"); false where nothing
 * does. The second: what is no reason to stop, but will cost. */
bool chex_nvml_sick(const struct chex_nvml_gpu *g, char *why_out, size_t size);
bool chex_nvml_weak(const struct chex_nvml_gpu *g, char *why_out, size_t size);

/* Which of nvml's GPUs CUDA shows to this task, by CUDA_VISIBLE_DEVICES: indices count those that
 * are not denied in the order of bus ids, which is CUDA's order where all are of one kind.
 * mine_out: CHEX_GPU_MAX indices; *count_out of them are valid. CHEX_E_ENV with the entry that
 * names none. */
enum chex_status chex_nvml_visible(const struct chex_nvml *nvml, int *mine_out, int *count_out,
                                   struct chex_error *err);

/* Of a list of CPUs ("0-3,8"), how many are close to the GPU; 0 where that is unknown. */
int chex_nvml_near(const struct chex_nvml_gpu *g, const char *cpus);

/* Whether this task cannot reach all of its node's GPUs: fewer answer than Slurm gave the job
 * there, so a cgroup holds the others back. What CUDA_VISIBLE_DEVICES alone hides, NCCL still
 * reaches (since CUDA 10.1). */
bool chex_nvml_confined(const struct chex_nvml *nvml, int node_count);

/* The GPU with this bus id, or NULL. */
const struct chex_nvml_gpu *chex_nvml_find(const struct chex_nvml *nvml, const char *pci_bus_id);

#endif
