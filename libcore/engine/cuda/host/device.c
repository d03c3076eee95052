/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds, describes and opens GPUs. CUDA's device indices are used only in this file. Other files
 * name a GPU by its PCI bus id, and a part of a GPU (MIG) also by its UUID.
 */
#include "engine/cuda/host/device.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* The lowest capability that CUDA 13 and CUDA 12 toolkits generate code for. */
enum { OLDEST_13 = 75, OLDEST_12 = 70 };

enum chex_status gpu_error(cudaError_t e, const char *what, struct chex_error *err) {
    enum chex_status st = CHEX_E_FAIL;
    switch (e) {
    case cudaErrorMemoryAllocation: st = CHEX_E_RESOURCE; break;
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch: st = CHEX_E_NODE; break;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable: st = CHEX_E_ENV; break;
    default: break;
    }
    return chex_error_set(err, st, "%s: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
}

/* Sets err to the reason why no device is usable. The driver's version is 0 if libcuda.so.1 is
 * missing. */
static enum chex_status explain_no_device(cudaError_t e, struct chex_error *err) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int driver = 0, runtime = 0;
    cudaGetLastError(); /* clear the error: it is reported here */
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0)
        return chex_error_set(err, CHEX_E_ENV,
                              "no NVIDIA driver is to be found: libcuda.so.1 is missing (in a "
                              "container, start it with the driver: apptainer --nv, docker --gpus "
                              "all)");
    if (e == cudaErrorInsufficientDriver || driver / 1000 < runtime / 1000)
        return chex_error_set(err, CHEX_E_ENV,
                              "the NVIDIA driver is too old: it serves CUDA %d.%d, this chexnet is "
                              "built with CUDA %d.%d; take a newer driver, or a chexnet built with "
                              "CUDA %d",
                              driver / 1000, driver % 1000 / 10, runtime / 1000,
                              runtime % 1000 / 10, driver / 1000);
    if (e == cudaErrorSystemNotReady)
        return chex_error_set(err, CHEX_E_NODE,
                              "the node's GPUs are not ready (%s): is NVIDIA's fabric manager up?",
                              cudaGetErrorString(e));
    if (e != cudaSuccess && e != cudaErrorNoDevice)
        return gpu_error(e, "the GPUs cannot be counted", err);
    return chex_error_set(err, CHEX_E_ENV,
                          "CUDA shows no GPU to this task (CUDA_VISIBLE_DEVICES %s%s); ask for one "
                          "with srun --gpus-per-task=1",
                          visible ? "is " : "is unset",
                          visible && *visible ? visible
                          : visible           ? "empty"
                                              : "");
}

/* Formats the UUID. CUDA gives the bytes, but not whether they name a whole GPU or a part of one.
 */
static void uuid_text(const struct cudaDeviceProp *p, char out[CHEX_UUID_BYTES]) {
    unsigned char b[16], none[16] = {0};
    memcpy(b, &p->uuid, sizeof b);
    out[0] = '\0';
    if (memcmp(b, none, sizeof b) != 0)
        snprintf(out, CHEX_UUID_BYTES,
                 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                 b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                 b[14], b[15]);
}

static enum chex_status describe(int index, struct chex_gpu *out, struct chex_error *err) {
    struct cudaDeviceProp p;
    char id[32];
    memset(&p, 0, sizeof p);
    CHEX_CUDA(cudaGetDeviceProperties(&p, index));
    CHEX_CUDA(cudaDeviceGetPCIBusId(id, sizeof id, index));
    chex_gpu_pci_id(id, out->pci_bus_id);
    uuid_text(&p, out->uuid);
    snprintf(out->name, sizeof out->name, "%.63s", p.name);
    out->capability = 10 * p.major + p.minor;
    out->memory_bytes = p.totalGlobalMem;
    return CHEX_OK;
}

static enum chex_status count_devices(int *count_out, struct chex_error *err) {
    const cudaError_t e = cudaGetDeviceCount(count_out);
    if (e != cudaSuccess || *count_out < 1)
        return explain_no_device(e, err);
    *count_out = *count_out < CHEX_GPU_MAX ? *count_out : CHEX_GPU_MAX;
    return CHEX_OK;
}

enum chex_status gpu_devices(struct chex_gpu_list *out, struct chex_error *err) {
    int count = 0;
    CHEX_TRY(count_devices(&count, err));
    memset(out, 0, sizeof *out);
    for (int i = 0; i < count; i++)
        CHEX_TRY(describe(i, &out->gpus[i], err));
    out->count = count;
    chex_gpu_sort(out);
    return CHEX_OK;
}

static void format_versions(char *buf, size_t size) {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    snprintf(buf, size, "CUDA %d.%d, driver for %d.%d", runtime / 1000, runtime % 1000 / 10,
             driver / 1000, driver % 1000 / 10);
}

enum chex_status gpu_probe(char *text_out, size_t size, struct chex_error *err) {
    struct chex_gpu_list list;
    char with[64];
    CHEX_TRY(gpu_devices(&list, err));
    format_versions(with, sizeof with);
    snprintf(text_out, size, "%d of %s, capability %d.%d, %s", list.count, list.gpus[0].name,
             list.gpus[0].capability / 10, list.gpus[0].capability % 10, with);
    return CHEX_OK;
}

static enum chex_status find_device(const struct chex_gpu *wanted, int *index_out,
                                    struct chex_gpu *out, struct chex_error *err) {
    struct chex_gpu_list list;
    int count = 0;
    CHEX_TRY(gpu_devices(&list, err));
    const struct chex_gpu *target = wanted ? wanted : &list.gpus[0];
    CHEX_TRY(count_devices(&count, err));
    for (int i = 0; i < count; i++) {
        struct chex_gpu g;
        CHEX_TRY(describe(i, &g, err));
        if (!chex_gpu_same(g.pci_bus_id, g.uuid, target->pci_bus_id, target->uuid))
            continue;
        *index_out = i;
        *out = g;
        return CHEX_OK;
    }
    return chex_error_set(err, CHEX_E_ENV,
                          "GPU %s is not among the %d that CUDA shows to this task",
                          target->pci_bus_id, count);
}

static enum chex_status attribute(int *out, enum cudaDeviceAttr attr, int index,
                                  struct chex_error *err) {
    CHEX_CUDA(cudaDeviceGetAttribute(out, attr, index));
    return CHEX_OK;
}

enum chex_status gpu_device_open(const struct chex_gpu *wanted, struct gpu_device *out,
                                 struct chex_error *err) {
    struct gpu_device d = {.index = 0};
    struct chex_gpu g;
    int shared = 0, l2 = 0, runtime = 0;
    CHEX_TRY(find_device(wanted, &d.index, &g, err));
    cudaRuntimeGetVersion(&runtime);
    const int oldest = runtime >= 13000 ? OLDEST_13 : OLDEST_12;
    if (g.capability < oldest)
        return chex_error_set(err, CHEX_E_ENV,
                              "GPU %s, %s, has capability %d.%d: expected %d.%d or more with CUDA "
                              "%d.%d",
                              g.pci_bus_id, g.name, g.capability / 10, g.capability % 10,
                              oldest / 10, oldest % 10, runtime / 1000, runtime % 1000 / 10);
    CHEX_TRY(attribute(&d.sms, cudaDevAttrMultiProcessorCount, d.index, err));
    CHEX_TRY(attribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, d.index, err));
    CHEX_TRY(attribute(&l2, cudaDevAttrL2CacheSize, d.index, err));
    CHEX_CUDA(cudaSetDevice(d.index));
    CHEX_CUDA(cudaMemGetInfo(&d.free_bytes, &d.memory_bytes));
    d.capability = g.capability;
    d.shared_max = (size_t)shared;
    d.l2_bytes = (size_t)l2;
    memcpy(d.name, g.name, sizeof g.name);
    memcpy(d.pci_bus_id, g.pci_bus_id, sizeof g.pci_bus_id);
    *out = d;
    return CHEX_OK;
}

void gpu_event_destroy(cudaEvent_t event) {
    if (event)
        cudaEventDestroy(event);
}

void gpu_check_clusters(int at_once, int planned, int blocks) {
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    if (at_once < planned && !atomic_flag_test_and_set(&warned))
        chex_warn("cuda: the device runs %d clusters of %d blocks at once (%d were planned): some "
                  "1x1 convolutions of stage s5 take longer; compare with stage s4",
                  at_once, blocks, planned);
}
