/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for libnvidia-ml.so.1 that answers from the text file FAKE_NVML (one of
 * tests/data/gpu): a word and its values a line, those after a `gpu` line are that GPU's. Values
 * that a file does not give are answered with "not supported", as a driver does.
 *
 *   init CODE            what nvmlInit_v2 returns
 *   driver TEXT, cuda N  versions
 *   gpu BUS_ID UUID NAME the name with _ for blanks
 *   code N               what the handle's request returns
 *   memory TOTAL USED    MiB
 *   ecc CORRECTED UNCORRECTED, rows PENDING FAILED, pages PENDING
 *   capability MAJOR MINOR, temperature C, slowdowns 0xN, mig 0|1, cpus 0xN
 *   links UP DOWN, pcie GENERATION MOST WIDTH MOST, memory-bus MHZ BITS
 *   process PID MIB
 *   energy MJ            millijoules when this machine was started; it draws 100 W since then
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define API __attribute__((visibility("default")))

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, TOO_SMALL = 7, GPUS = 32, PROCESSES = 16 };

struct gpu {
    char id[32], uuid[96], name[96];
    int code, has_memory, has_ecc, has_rows, has_pages, has_temperature, has_slowdowns, has_mig;
    unsigned long long total, used, corrected, uncorrected, slowdowns, cpus, energy;
    unsigned pcie[4], clock, bus;
    unsigned rows_pending, rows_failed, pages, temperature, mig, up, down;
    int major, minor, process_count;
    unsigned pids[PROCESSES];
    unsigned long long process_bytes[PROCESSES];
};

static struct gpu gpus[GPUS];
static int gpu_count, init_code, cuda;
static char driver[80];

static void take(const char *line) {
    struct gpu *g = &gpus[gpu_count ? gpu_count - 1 : 0];
    unsigned long long bytes;
    if (sscanf(line, "gpu %31s %95s %95s", gpus[gpu_count].id, gpus[gpu_count].uuid,
               gpus[gpu_count].name) == 3) {
        for (char *p = gpus[gpu_count].name; *p; p++)
            *p = *p == '_' ? ' ' : *p;
        gpu_count += gpu_count < GPUS - 1;
        return;
    }
    sscanf(line, "init %d", &init_code);
    sscanf(line, "driver %79s", driver);
    sscanf(line, "cuda %d", &cuda);
    sscanf(line, "code %d", &g->code);
    sscanf(line, "capability %d %d", &g->major, &g->minor);
    g->has_memory |= sscanf(line, "memory %llu %llu", &g->total, &g->used) == 2;
    g->has_ecc |= sscanf(line, "ecc %llu %llu", &g->corrected, &g->uncorrected) == 2;
    g->has_rows |= sscanf(line, "rows %u %u", &g->rows_pending, &g->rows_failed) == 2;
    g->has_pages |= sscanf(line, "pages %u", &g->pages) == 1;
    g->has_temperature |= sscanf(line, "temperature %u", &g->temperature) == 1;
    g->has_slowdowns |= sscanf(line, "slowdowns %llx", &g->slowdowns) == 1;
    g->has_mig |= sscanf(line, "mig %u", &g->mig) == 1;
    sscanf(line, "cpus %llx", &g->cpus);
    sscanf(line, "energy %llu", &g->energy);
    sscanf(line, "links %u %u", &g->up, &g->down);
    sscanf(line, "pcie %u %u %u %u", &g->pcie[0], &g->pcie[1], &g->pcie[2], &g->pcie[3]);
    sscanf(line, "memory-bus %u %u", &g->clock, &g->bus);
    if (g->process_count < PROCESSES &&
        sscanf(line, "process %u %llu", &g->pids[g->process_count], &bytes) == 2)
        g->process_bytes[g->process_count++] = bytes << 20;
}

API int nvmlInit_v2(void);
API int nvmlInit_v2(void) {
    const char *path = getenv("FAKE_NVML");
    char line[256];
    FILE *f = path ? fopen(path, "r") : NULL;
    if (!f)
        return 12;
    memset(gpus, 0, sizeof gpus);
    gpu_count = init_code = cuda = 0;
    while (fgets(line, sizeof line, f))
        take(line);
    fclose(f);
    return init_code;
}

API int nvmlShutdown(void);
API int nvmlShutdown(void) { return OK; }

API int nvmlDeviceGetCount_v2(unsigned *count);
API int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = (unsigned)gpu_count;
    return OK;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned i, struct gpu **handle);
API int nvmlDeviceGetHandleByIndex_v2(unsigned i, struct gpu **handle) {
    if (i >= (unsigned)gpu_count)
        return INVALID;
    *handle = &gpus[i];
    return gpus[i].code;
}

struct pci_info {
    char legacy_id[16];
    unsigned words[5];
    char id[32];
};
API int nvmlDeviceGetPciInfo_v3(const struct gpu *g, struct pci_info *pci);
API int nvmlDeviceGetPciInfo_v3(const struct gpu *g, struct pci_info *pci) {
    snprintf(pci->id, sizeof pci->id, "%s", g->id);
    return OK;
}

static int text(const char *from, char *to, unsigned size) {
    return snprintf(to, size, "%s", from) < (int)size ? OK : TOO_SMALL;
}
API int nvmlSystemGetDriverVersion(char *to, unsigned size);
API int nvmlSystemGetDriverVersion(char *to, unsigned size) { return text(driver, to, size); }
API int nvmlDeviceGetUUID(const struct gpu *g, char *to, unsigned size);
API int nvmlDeviceGetUUID(const struct gpu *g, char *to, unsigned size) {
    return text(g->uuid, to, size);
}
API int nvmlDeviceGetName(const struct gpu *g, char *to, unsigned size);
API int nvmlDeviceGetName(const struct gpu *g, char *to, unsigned size) {
    return text(g->name, to, size);
}

API int nvmlSystemGetCudaDriverVersion_v2(int *version);
API int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = cuda;
    return cuda ? OK : UNSUPPORTED;
}
API int nvmlDeviceGetCudaComputeCapability(const struct gpu *g, int *major, int *minor);
API int nvmlDeviceGetCudaComputeCapability(const struct gpu *g, int *major, int *minor) {
    *major = g->major;
    *minor = g->minor;
    return g->major ? OK : UNSUPPORTED;
}

API int nvmlDeviceGetMemoryInfo(const struct gpu *g, unsigned long long memory[3]);
API int nvmlDeviceGetMemoryInfo(const struct gpu *g, unsigned long long memory[3]) {
    memory[0] = g->total << 20;
    memory[1] = (g->total - g->used) << 20;
    memory[2] = g->used << 20;
    return g->has_memory ? OK : UNSUPPORTED;
}
API int nvmlDeviceGetTotalEccErrors(const struct gpu *g, int kind, int counter,
                                    unsigned long long *count);
API int nvmlDeviceGetTotalEccErrors(const struct gpu *g, int kind, int counter,
                                    unsigned long long *count) {
    *count = kind == 0 ? g->corrected : g->uncorrected;
    return g->has_ecc && counter == 0 ? OK : UNSUPPORTED;
}
API int nvmlDeviceGetRemappedRows(const struct gpu *g, unsigned *fixed, unsigned *bad,
                                  unsigned *pending, unsigned *failed);
API int nvmlDeviceGetRemappedRows(const struct gpu *g, unsigned *fixed, unsigned *bad,
                                  unsigned *pending, unsigned *failed) {
    *fixed = *bad = 0;
    *pending = g->rows_pending;
    *failed = g->rows_failed;
    return g->has_rows ? OK : UNSUPPORTED;
}
API int nvmlDeviceGetRetiredPagesPendingStatus(const struct gpu *g, int *pending);
API int nvmlDeviceGetRetiredPagesPendingStatus(const struct gpu *g, int *pending) {
    *pending = (int)g->pages;
    return g->has_pages ? OK : UNSUPPORTED;
}
API int nvmlDeviceGetTemperature(const struct gpu *g, int sensor, unsigned *degrees);
API int nvmlDeviceGetTemperature(const struct gpu *g, int sensor, unsigned *degrees) {
    *degrees = g->temperature;
    return sensor == 0 && g->has_temperature ? OK : UNSUPPORTED;
}
API int nvmlDeviceGetCurrentClocksThrottleReasons(const struct gpu *g, unsigned long long *bits);
API int nvmlDeviceGetCurrentClocksThrottleReasons(const struct gpu *g, unsigned long long *bits) {
    *bits = g->slowdowns;
    return g->has_slowdowns ? OK : UNSUPPORTED;
}
API int nvmlDeviceGetMigMode(const struct gpu *g, unsigned *now, unsigned *later);
API int nvmlDeviceGetMigMode(const struct gpu *g, unsigned *now, unsigned *later) {
    *now = *later = g->mig;
    return g->has_mig ? OK : UNSUPPORTED;
}
API int nvmlDeviceGetNvLinkState(const struct gpu *g, unsigned link, int *up);
API int nvmlDeviceGetNvLinkState(const struct gpu *g, unsigned link, int *up) {
    *up = link < g->up;
    return link < g->up + g->down ? OK : UNSUPPORTED;
}

struct process_info {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};
API int nvmlDeviceGetComputeRunningProcesses_v3(const struct gpu *g, unsigned *count,
                                                struct process_info *list);
API int nvmlDeviceGetComputeRunningProcesses_v3(const struct gpu *g, unsigned *count,
                                                struct process_info *list) {
    const unsigned room = *count;
    *count = (unsigned)g->process_count;
    if (*count > room)
        return TOO_SMALL;
    for (unsigned i = 0; i < *count; i++)
        list[i] = (struct process_info){g->pids[i], g->process_bytes[i], ~0u, ~0u};
    return OK;
}
API int nvmlDeviceGetTotalEnergyConsumption(const struct gpu *g, unsigned long long *mj);
API int nvmlDeviceGetTotalEnergyConsumption(const struct gpu *g, unsigned long long *mj) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    *mj = g->energy + 100000 * (unsigned long long)t.tv_sec + t.tv_nsec / 10000;
    return g->energy ? OK : UNSUPPORTED;
}
API int nvmlDeviceGetCpuAffinity(const struct gpu *g, unsigned words, unsigned long *set);
API int nvmlDeviceGetCpuAffinity(const struct gpu *g, unsigned words, unsigned long *set) {
    memset(set, 0, words * sizeof *set);
    set[0] = g->cpus;
    return g->cpus ? OK : UNSUPPORTED;
}
static int number(unsigned from, unsigned *to) {
    *to = from;
    return from ? OK : UNSUPPORTED;
}
API int nvmlDeviceGetCurrPcieLinkGeneration(const struct gpu *g, unsigned *value);
API int nvmlDeviceGetCurrPcieLinkGeneration(const struct gpu *g, unsigned *value) {
    return number(g->pcie[0], value);
}
API int nvmlDeviceGetMaxPcieLinkGeneration(const struct gpu *g, unsigned *value);
API int nvmlDeviceGetMaxPcieLinkGeneration(const struct gpu *g, unsigned *value) {
    return number(g->pcie[1], value);
}
API int nvmlDeviceGetCurrPcieLinkWidth(const struct gpu *g, unsigned *value);
API int nvmlDeviceGetCurrPcieLinkWidth(const struct gpu *g, unsigned *value) {
    return number(g->pcie[2], value);
}
API int nvmlDeviceGetMaxPcieLinkWidth(const struct gpu *g, unsigned *value);
API int nvmlDeviceGetMaxPcieLinkWidth(const struct gpu *g, unsigned *value) {
    return number(g->pcie[3], value);
}
API int nvmlDeviceGetMaxClockInfo(const struct gpu *g, int kind, unsigned *value);
API int nvmlDeviceGetMaxClockInfo(const struct gpu *g, int kind, unsigned *value) {
    return kind == 2 ? number(g->clock, value) : UNSUPPORTED;
}
API int nvmlDeviceGetMemoryBusWidth(const struct gpu *g, unsigned *value);
API int nvmlDeviceGetMemoryBusWidth(const struct gpu *g, unsigned *value) {
    return number(g->bus, value);
}

API int nvmlDeviceGetP2PStatus(const struct gpu *a, const struct gpu *b, int kind, int *status);
API int nvmlDeviceGetP2PStatus(const struct gpu *a, const struct gpu *b, int kind, int *status) {
    *status = a->up && b->up ? 0 : 1;
    return kind == 2 ? OK : UNSUPPORTED;
}
