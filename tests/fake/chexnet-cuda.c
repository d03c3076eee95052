/* SPDX-License-Identifier: Apache-2.0
 *
 * A module in chexnet-cuda.so's place, for tests of all that surrounds the engine: it sees the GPUs
 * of NVML (fake/nvml.c) as CUDA would, and computes on the processor.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/module.h"
#include "engine/engine_cuda.h"
#include "engine/engines.h"
#include "launch/nvml.h"

CHEX_MODULE_VERSION_SYMBOL

__attribute__((visibility("default"))) extern const int chexnet_cuda_runtime;
const int chexnet_cuda_runtime = 13000;

static enum chex_status list_of(const struct chex_nvml *nvml, struct chex_gpu_list *out,
                                struct chex_error *err) {
    int mine[CHEX_GPU_MAX], count;
    CHEX_TRY(chex_nvml_visible(nvml, mine, &count, err));
    out->count = 0;
    for (int i = 0; i < count; i++)
        out->gpus[out->count++] = nvml->gpus[mine[i]].gpu;
    chex_gpu_sort(out);
    return out->count ? CHEX_OK : chex_error_set(err, CHEX_E_ENV, "no GPU is visible");
}

static enum chex_status devices(struct chex_gpu_list *out, struct chex_error *err) {
    struct chex_nvml *nvml;
    CHEX_TRY(chex_nvml_read(&nvml, err));
    const enum chex_status st = list_of(nvml, out, err);
    free(nvml);
    return st;
}

static enum chex_status probe(char *text_out, size_t size, struct chex_error *err) {
    struct chex_gpu_list list;
    CHEX_TRY(devices(&list, err));
    snprintf(text_out, size, "%d of %s", list.count, list.gpus[0].name);
    return CHEX_OK;
}

static enum chex_status create(const struct chex_engine_config *config, void **self_out,
                               struct chex_error *err) {
    struct chex_engine_config c = *config;
    if (!c.device)
        return chex_error_set(err, CHEX_E_FAIL, "the test's engine was given no device");
    if (c.variant && strcmp(c.variant, "s1") != 0)
        return chex_error_set(err, CHEX_E_USAGE, "--engine cuda:%s: expected cuda:s1", c.variant);
    fprintf(stderr, "test engine on %s\n", c.device->pci_bus_id);
    c.variant = NULL;
    return chex_engine_cpu.create(&c, self_out, err);
}

/* Those of an H200 by PCIe 5, in place of the processor's. */
static enum chex_status limits(void *self, uint64_t most_bytes,
                               struct chex_engine_limits *limits_out, struct chex_error *err) {
    (void)self, (void)most_bytes, (void)err;
    *limits_out = (struct chex_engine_limits){
        .bytes_per_s = 4.1e12, .upload_bytes_per_s = 55e9, .download_bytes_per_s = 54e9};
    return CHEX_OK;
}

/* The rest is the CPU engine's, which is known only at run time. */
__attribute__((visibility("default"))) extern struct chex_engine_impl chexnet_engine_cuda;
struct chex_engine_impl chexnet_engine_cuda;
static struct chex_engine_capacity capacity;
static struct chex_engine_hardware hardware;

__attribute__((constructor)) static void fill(void) {
    chexnet_engine_cuda = chex_engine_cpu;
    chexnet_engine_cuda.name = "cuda";
    chexnet_engine_cuda.summary = "the processor in a GPU's place, for tests";
    chexnet_engine_cuda.probe = probe;
    chexnet_engine_cuda.create = create;
    chexnet_engine_cuda.check = NULL; /* stages are no variants of the processor */
    capacity = *chex_engine_cpu.capacity;
    capacity.limits = limits;
    hardware = *chex_engine_cpu.hardware;
    hardware.devices = devices;
    chexnet_engine_cuda.capacity = &capacity;
    chexnet_engine_cuda.hardware = &hardware;
}
