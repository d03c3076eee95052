/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the GPU state through NVML without NVIDIA's headers.
 *
 * The types and constants that are used are written out below. NVIDIA keeps its binary interface: a
 * changed function gets a new name. A function that the driver lacks, or that the GPU does not
 * support, leaves its fields unknown.
 */
#include "launch/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum {
    NVML_OK = 0,
    NVML_NO_PERMISSION = 4,
    NVML_TOO_SMALL = 7,
    NVML_NOT_LOADED = 9,
    NVML_LOST = 15,
    NVML_RESET = 16,
    NVML_MISMATCH = 18,
    MAX_LINKS = 18,
    P2P_NVLINK = 2,
};

typedef void *device_t;
struct pci_info {
    char legacy_id[16];
    unsigned domain, bus, device, ids, subsystem_ids;
    char id[32];
};
struct memory_info {
    unsigned long long total, free, used;
};
struct process_info {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};

/* One line per function: field, arguments, name. The result is always int. The first six are
 * required. */
#define FUNCTIONS(X)                                                                               \
    X(init, (void), "nvmlInit_v2")                                                                 \
    X(shutdown, (void), "nvmlShutdown")                                                            \
    X(count, (unsigned *), "nvmlDeviceGetCount_v2")                                                \
    X(handle, (unsigned, device_t *), "nvmlDeviceGetHandleByIndex_v2")                             \
    X(pci, (device_t, struct pci_info *), "nvmlDeviceGetPciInfo_v3")                               \
    X(driver, (char *, unsigned), "nvmlSystemGetDriverVersion")                                    \
    X(cuda, (int *), "nvmlSystemGetCudaDriverVersion_v2")                                          \
    X(uuid, (device_t, char *, unsigned), "nvmlDeviceGetUUID")                                     \
    X(name, (device_t, char *, unsigned), "nvmlDeviceGetName")                                     \
    X(capability, (device_t, int *, int *), "nvmlDeviceGetCudaComputeCapability")                  \
    X(memory, (device_t, struct memory_info *), "nvmlDeviceGetMemoryInfo")                         \
    X(ecc, (device_t, int, int, unsigned long long *), "nvmlDeviceGetTotalEccErrors")              \
    X(rows, (device_t, unsigned *, unsigned *, unsigned *, unsigned *),                            \
      "nvmlDeviceGetRemappedRows")                                                                 \
    X(pages, (device_t, int *), "nvmlDeviceGetRetiredPagesPendingStatus")                          \
    X(temperature, (device_t, int, unsigned *), "nvmlDeviceGetTemperature")                        \
    X(slowdowns, (device_t, unsigned long long *), "nvmlDeviceGetCurrentClocksThrottleReasons")    \
    X(mig, (device_t, unsigned *, unsigned *), "nvmlDeviceGetMigMode")                             \
    X(link, (device_t, unsigned, int *), "nvmlDeviceGetNvLinkState")                               \
    X(processes, (device_t, unsigned *, struct process_info *),                                    \
      "nvmlDeviceGetComputeRunningProcesses_v3")                                                   \
    X(cpus, (device_t, unsigned, unsigned long *), "nvmlDeviceGetCpuAffinity")                     \
    X(pcie, (device_t, unsigned *), "nvmlDeviceGetCurrPcieLinkGeneration")                         \
    X(pcie_max, (device_t, unsigned *), "nvmlDeviceGetMaxPcieLinkGeneration")                      \
    X(lanes, (device_t, unsigned *), "nvmlDeviceGetCurrPcieLinkWidth")                             \
    X(lanes_max, (device_t, unsigned *), "nvmlDeviceGetMaxPcieLinkWidth")                          \
    X(clock, (device_t, int, unsigned *), "nvmlDeviceGetMaxClockInfo")                             \
    X(bus, (device_t, unsigned *), "nvmlDeviceGetMemoryBusWidth")                                  \
    X(energy, (device_t, unsigned long long *), "nvmlDeviceGetTotalEnergyConsumption")             \
    X(p2p, (device_t, device_t, int, int *), "nvmlDeviceGetP2PStatus")

enum { REQUIRED = 6 };

struct api {
#define FIELD(name, arguments, symbol) int(*name) arguments;
    FUNCTIONS(FIELD)
#undef FIELD
    void *library;
};

static enum chex_status open_library(struct api *a, struct chex_error *err) {
    const char *set = getenv("CHEX_NVML"), *path = set && *set ? set : "libnvidia-ml.so.1";
    int at = 0;
    *a = (struct api){.library = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
    if (!a->library)
        return chex_error_set(err, CHEX_E_ENV,
                              "no NVIDIA driver is to be found: %s (in a container, start it with "
                              "the driver: apptainer --nv, docker --gpus all)",
                              dlerror());
#define LOAD(name, arguments, symbol)                                                              \
    {                                                                                              \
        void *address = dlsym(a->library, symbol);                                                 \
        memcpy(&a->name, &address, sizeof address);                                                \
        if (!address && at < REQUIRED) {                                                           \
            dlclose(a->library);                                                                   \
            return chex_error_set(err, CHEX_E_ENV, "NVIDIA driver too old: %s has no %s", path,    \
                                  symbol);                                                         \
        }                                                                                          \
        at++;                                                                                      \
    }
    FUNCTIONS(LOAD)
#undef LOAD
    return CHEX_OK;
}

static enum chex_status refused(int code, struct chex_error *err) {
    if (code == NVML_NOT_LOADED)
        return chex_error_set(err, CHEX_E_NODE,
                              "the NVIDIA driver's library is here, but its kernel module is not "
                              "loaded");
    if (code == NVML_MISMATCH)
        return chex_error_set(err, CHEX_E_NODE,
                              "the NVIDIA driver's library and its kernel module are of two "
                              "versions: the node needs a reboot");
    return chex_error_set(err, CHEX_E_NODE, "the NVIDIA driver does not answer: NVML error %d",
                          code);
}

#define ASK(function, ...) (a->function && a->function(__VA_ARGS__) == NVML_OK)

static void read_memory(const struct api *a, device_t d, struct chex_nvml_gpu *g) {
    struct memory_info memory;
    unsigned long long count = 0;
    unsigned fixed = 0, bad = 0, pending = 0, failed = 0;
    int pages = 0;
    if (ASK(memory, d, &memory)) {
        g->gpu.memory_bytes = memory.total;
        g->used_bytes = memory.used;
    }
    g->ecc_corrected = ASK(ecc, d, 0, 0, &count) ? count : 0;
    g->ecc_uncorrected = ASK(ecc, d, 1, 0, &count) ? count : 0;
    if (ASK(rows, d, &fixed, &bad, &pending, &failed)) {
        g->repair_pending = pending != 0;
        g->repair_failed = failed != 0;
    }
    if (ASK(pages, d, &pages))
        g->repair_pending = g->repair_pending || pages != 0;
}

static void read_processes(const struct api *a, device_t d, struct chex_nvml_gpu *g) {
    struct process_info list[CHEX_NVML_PROCESSES];
    unsigned count = CHEX_NVML_PROCESSES;
    const int code = a->processes ? a->processes(d, &count, list) : NVML_NO_PERMISSION;
    if (code != NVML_OK && code != NVML_TOO_SMALL)
        return;
    g->process_count = (int)count;
    for (unsigned i = 0; code == NVML_OK && i < count && i < CHEX_NVML_PROCESSES; i++) {
        g->processes[i].pid = list[i].pid;
        g->processes[i].bytes = list[i].bytes == ~0ULL ? 0 : list[i].bytes;
    }
}

static void read_state(const struct api *a, device_t d, struct chex_nvml_gpu *g) {
    unsigned value = 0, later = 0;
    unsigned long long bits = 0;
    unsigned long cpus[CHEX_NVML_CPU_WORDS] = {0};
    g->temperature_c = ASK(temperature, d, 0, &value) ? (int)value : -1;
    if (ASK(slowdowns, d, &bits))
        g->slowdowns = bits;
    value = 0;
    g->mig = ASK(mig, d, &value, &later) && value == 1;
    g->energy_mj = !g->mig && ASK(energy, d, &bits) ? bits : 0;
    for (unsigned i = 0; i < MAX_LINKS; i++) {
        int up = 0;
        if (!ASK(link, d, i, &up))
            continue;
        g->links_up += up == 1;
        g->links_down += up != 1;
    }
    if (ASK(cpus, d, CHEX_NVML_CPU_WORDS, cpus))
        for (size_t i = 0; i < CHEX_NVML_CPU_WORDS; i++)
            g->cpus[i] = cpus[i];
}

/* Double data rate: each wire of the memory bus moves two bits per clock. */
static void read_buses(const struct api *a, device_t d, struct chex_nvml_gpu *g) {
    enum { MEMORY_CLOCK = 2 };
    unsigned value = 0, bits = 0;
    g->pcie_generation = ASK(pcie, d, &value) ? (int)value : 0;
    g->pcie_generation_max = ASK(pcie_max, d, &value) ? (int)value : 0;
    g->pcie_width = ASK(lanes, d, &value) ? (int)value : 0;
    g->pcie_width_max = ASK(lanes_max, d, &value) ? (int)value : 0;
    if (ASK(clock, d, MEMORY_CLOCK, &value) && ASK(bus, d, &bits))
        g->memory_bytes_per_s = 2e6 * value * bits / 8;
}

static void read_gpu(const struct api *a, device_t d, struct chex_nvml_gpu *g) {
    struct pci_info pci;
    int major = 0, minor = 0;
    memset(&pci, 0, sizeof pci);
    g->unread = a->pci(d, &pci);
    if (g->unread != NVML_OK)
        return;
    chex_gpu_pci_id(pci.id, g->gpu.pci_bus_id);
    if (!ASK(uuid, d, g->gpu.uuid, sizeof g->gpu.uuid))
        g->gpu.uuid[0] = '\0';
    if (!ASK(name, d, g->gpu.name, sizeof g->gpu.name))
        snprintf(g->gpu.name, sizeof g->gpu.name, "GPU");
    if (ASK(capability, d, &major, &minor))
        g->gpu.capability = 10 * major + minor;
    read_memory(a, d, g);
    read_processes(a, d, g);
    read_state(a, d, g);
    read_buses(a, d, g);
}

/* NVML numbers GPUs in the order of bus ids (NVML manual). */
static enum chex_status read_all(const struct api *a, struct chex_nvml *out,
                                 struct chex_error *err) {
    device_t handles[CHEX_GPU_MAX] = {NULL};
    unsigned count = 0;
    int code = a->count(&count);
    if (code != NVML_OK)
        return refused(code, err);
    if (a->driver(out->driver, sizeof out->driver) != NVML_OK)
        snprintf(out->driver, sizeof out->driver, "unknown");
    if (!ASK(cuda, &out->cuda))
        out->cuda = 0;
    const int known = count < CHEX_GPU_MAX ? (int)count : CHEX_GPU_MAX;
    out->count = known;
    for (int i = 0; i < known; i++) {
        struct chex_nvml_gpu *g = &out->gpus[i];
        g->index = i;
        g->unread = a->handle((unsigned)i, &handles[i]);
        g->denied = g->unread == NVML_NO_PERMISSION;
        if (g->unread == NVML_OK)
            read_gpu(a, handles[i], g);
        for (int j = 0; j < i; j++) {
            int status = -1;
            out->linked[i][j] = !g->unread && !out->gpus[j].unread &&
                                ASK(p2p, handles[i], handles[j], P2P_NVLINK, &status) &&
                                status == 0;
            out->linked[j][i] = out->linked[i][j];
        }
    }
    return CHEX_OK;
}

enum chex_status chex_nvml_read(struct chex_nvml **nvml_out, struct chex_error *err) {
    struct api a;
    *nvml_out = NULL;
    CHEX_TRY(open_library(&a, err));
    const int code = a.init();
    struct chex_nvml *nvml = calloc(1, sizeof *nvml);
    enum chex_status st = code != NVML_OK ? refused(code, err)
                          : nvml          ? read_all(&a, nvml, err)
                                          : chex_error_memory(err, NULL);
    if (code == NVML_OK)
        a.shutdown();
    dlclose(a.library);
    if (st == CHEX_OK)
        *nvml_out = nvml;
    else
        free(nvml);
    return st;
}

bool chex_nvml_sick(const struct chex_nvml_gpu *g, char *why_out, size_t size) {
    if (g->denied)
        return false;
    if (g->unread == NVML_LOST)
        snprintf(why_out, size, "it has fallen off the bus");
    else if (g->unread == NVML_RESET)
        snprintf(why_out, size, "it needs a reset");
    else if (g->unread)
        snprintf(why_out, size, "it does not answer (NVML error %d)", g->unread);
    else if (g->repair_failed)
        snprintf(why_out, size, "faulty memory rows can no longer be replaced");
    else if (g->ecc_uncorrected)
        snprintf(why_out, size, "%llu uncorrected memory error%s since the driver was loaded",
                 (unsigned long long)g->ecc_uncorrected, g->ecc_uncorrected == 1 ? "" : "s");
    else
        return false;
    return true;
}

bool chex_nvml_weak(const struct chex_nvml_gpu *g, char *why_out, size_t size) {
    if (g->denied || g->unread)
        return false;
    if (g->repair_pending)
        snprintf(why_out, size, "a memory repair waits for a reset");
    else if (g->slowdowns & CHEX_GPU_POWER_BRAKE)
        snprintf(why_out, size, "it is slowed down by a power brake");
    else if (g->slowdowns & (CHEX_GPU_HW_THERMAL | CHEX_GPU_SW_THERMAL))
        snprintf(why_out, size, "it is slowed down by heat (%d degrees C)", g->temperature_c);
    else if (g->slowdowns & CHEX_GPU_HW_SLOWDOWN)
        snprintf(why_out, size, "it is slowed down by its hardware");
    else if (g->links_up && g->links_down)
        snprintf(why_out, size, "%d of %d NVLinks are down", g->links_down,
                 g->links_up + g->links_down);
    else
        return false;
    return true;
}

/* ---- what the task sees ---- */

/* Of the GPUs that are not denied, the one at `position`, or -1. */
static int by_position(const struct chex_nvml *nvml, long position) {
    for (int i = 0; i < nvml->count; i++)
        if (!nvml->gpus[i].denied && position-- == 0)
            return i;
    return -1;
}

/* UUIDs may be abbreviated ("GPU-1a2b"). NVML does not list the UUIDs of MIG instances: if exactly
 * one GPU has MIG enabled, the instance belongs to it. */
static int by_uuid(const struct chex_nvml *nvml, const char *uuid, size_t n) {
    int parted = -1, parted_count = 0;
    for (int i = 0; i < nvml->count; i++) {
        if (strncmp(nvml->gpus[i].gpu.uuid, uuid, n) == 0)
            return i;
        if (nvml->gpus[i].mig) {
            parted = i;
            parted_count++;
        }
    }
    return strncmp(uuid, "MIG-", 4) == 0 && parted_count == 1 ? parted : -1;
}

enum chex_status chex_nvml_visible(const struct chex_nvml *nvml, int *mine_out, int *count_out,
                                   struct chex_error *err) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int count = 0;
    for (int i = 0; !visible && i < nvml->count; i++)
        if (!nvml->gpus[i].denied)
            mine_out[count++] = i;
    for (const char *p = visible; p && *p && count < CHEX_GPU_MAX;) {
        char *end;
        const size_t n = strcspn(p, ",");
        const long position = strtol(p, &end, 10);
        if (n == 0 || *p == '-' || strncmp(p, "No", 2) == 0)
            break;
        const int found = end == p + n ? by_position(nvml, position) : by_uuid(nvml, p, n);
        if (found < 0)
            return chex_error_set(
                err, CHEX_E_ENV,
                "CUDA_VISIBLE_DEVICES %.160s: '%.*s' is none of the %d GPU%s that the "
                "driver shows to this task",
                visible, (int)n, p, nvml->count, nvml->count == 1 ? "" : "s");
        mine_out[count++] = found;
        p += n + (p[n] == ',');
    }
    *count_out = count;
    return CHEX_OK;
}

int chex_nvml_near(const struct chex_nvml_gpu *g, const char *cpus) {
    int near_cpus = 0;
    for (long from, to; chex_text_next_range(&cpus, &from, &to);)
        for (long i = from; i >= 0 && i <= to && i < 64 * CHEX_NVML_CPU_WORDS; i++)
            near_cpus += (int)(g->cpus[i / 64] >> (i % 64) & 1);
    return near_cpus;
}

const struct chex_nvml_gpu *chex_nvml_find(const struct chex_nvml *nvml, const char *pci_bus_id) {
    for (int i = 0; i < nvml->count; i++)
        if (strcmp(nvml->gpus[i].gpu.pci_bus_id, pci_bus_id) == 0)
            return &nvml->gpus[i];
    return NULL;
}

bool chex_nvml_confined(const struct chex_nvml *nvml, int node_count) {
    int answer = 0;
    for (int i = 0; i < nvml->count; i++)
        answer += !nvml->gpus[i].denied;
    return answer < node_count;
}
