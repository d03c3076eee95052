/* SPDX-License-Identifier: Apache-2.0
 *
 * State of the GPUs of this node, read from NVIDIA's management library (NVML). The library is
 * opened at run time, so build and start need nothing from NVIDIA. Reading creates no CUDA context,
 * uses no GPU memory and ignores CUDA_VISIBLE_DEVICES.
 */
#ifndef CHEX_LAUNCH_NVML_H
#define CHEX_LAUNCH_NVML_H

#include <stddef.h>

#include "launch/devices.h"

enum { CHEX_NVML_PROCESSES = 8, CHEX_NVML_CPU_WORDS = 16 };

struct chex_nvml_gpu {
    struct chex_gpu gpu;
    int index;   /* NVML's index */
    int unread;  /* NVML's error if the GPU does not answer; all other fields are then unknown */
    bool denied; /* it exists, but the cgroup does not allow this task to use it */
    uint64_t used_bytes;
    uint64_t ecc_corrected, ecc_uncorrected; /* since the driver was loaded */
    bool repair_pending; /* memory rows or pages are replaced at the next reset */
    bool repair_failed;  /* no spare rows left */
    int temperature_c;   /* -1: unknown */
    uint64_t slowdowns;  /* bit set of enum chex_gpu_slowdown */
    bool mig;
    int links_up, links_down;                /* NVLink */
    int pcie_generation, pcie_width;         /* current link; an idle link slows down; 0: unknown */
    int pcie_generation_max, pcie_width_max; /* maximum of this GPU in this node */
    uint64_t energy_mj; /* since the driver was loaded; 0: unknown, or a part (MIG) is used */
    double memory_bytes_per_s; /* theoretical, from memory clock and bus width; 0: unknown */
    int process_count;         /* compute processes on the GPU; can exceed CHEX_NVML_PROCESSES */
    struct {
        uint32_t pid;
        uint64_t bytes; /* 0: not reported */
    } processes[CHEX_NVML_PROCESSES];
    uint64_t cpus[CHEX_NVML_CPU_WORDS]; /* bit set of the CPUs close to the GPU; all 0: unknown */
};

/* NVML's values of throttling reasons that indicate a fault. Other reasons are normal. */
enum chex_gpu_slowdown {
    CHEX_GPU_HW_SLOWDOWN = 0x8,
    CHEX_GPU_SW_THERMAL = 0x20,
    CHEX_GPU_HW_THERMAL = 0x40,
    CHEX_GPU_POWER_BRAKE = 0x80,
};

struct chex_nvml {
    char driver[48]; /* "580.65.06" */
    int cuda;        /* newest CUDA version that the driver supports, 13000 for 13.0; 0: unknown */
    int count;       /* GPUs, in order of bus ids, at most CHEX_GPU_MAX */
    struct chex_nvml_gpu gpus[CHEX_GPU_MAX];
    bool linked[CHEX_GPU_MAX][CHEX_GPU_MAX]; /* peer access by NVLink */
};

/* Reads the state of all GPUs; the caller frees *nvml_out, which is NULL after a failure. The
 * library is libnvidia-ml.so.1, or the file that CHEX_NVML names.
 * - CHEX_E_ENV: the library cannot be opened: no driver, or a container without the driver.
 * - CHEX_E_NODE: the library is there, but the driver does not answer. */
enum chex_status chex_nvml_read(struct chex_nvml **nvml_out, struct chex_error *err);

/* Whether a GPU has a fault; why_out gets the reason ("it has fallen off the bus").
 * - sick: unfit for computation.
 * - weak: usable, but slower than it should be. */
bool chex_nvml_sick(const struct chex_nvml_gpu *g, char *why_out, size_t size);
bool chex_nvml_weak(const struct chex_nvml_gpu *g, char *why_out, size_t size);

/* The GPUs that CUDA shows to this task, by CUDA_VISIBLE_DEVICES.
 * - Indices count the GPUs that are not denied, in order of bus ids. This is CUDA's order if all
 *   GPUs are of one kind.
 * - mine_out: (CHEX_GPU_MAX) indices into nvml->gpus; the first *count_out are valid.
 * - CHEX_E_ENV: an entry names no GPU; the text contains it. */
enum chex_status chex_nvml_visible(const struct chex_nvml *nvml, int *mine_out, int *count_out,
                                   struct chex_error *err);

/* How many CPUs of a list ("0-3,8") are close to the GPU; 0 if unknown. */
int chex_nvml_near(const struct chex_nvml_gpu *g, const char *cpus);

/* Whether a cgroup hides GPUs of the node from this task: fewer GPUs answer than Slurm gave the job
 * here (node_count). GPUs that only CUDA_VISIBLE_DEVICES hides do not count: NCCL reaches them
 * since CUDA 10.1. */
bool chex_nvml_confined(const struct chex_nvml *nvml, int node_count);

/* The GPU with this bus id, or NULL. */
const struct chex_nvml_gpu *chex_nvml_find(const struct chex_nvml *nvml, const char *pci_bus_id);

#endif
