/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the speed of a rank's GPU: copies between host and GPU, memory rate, and its health
 * after the load of level 2.
 *
 * The GPU is the one that training would use, and its engine makes the copies. The steps of
 * check_step.c run between these checks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "check/checks.h"
#include "check/measure.h"
#include "engine/choose.h"
#include "launch/nvml.h"

static const double gpu_s = 8; /* seconds for a context, an engine and the copies */

/* The current state of the GPU from the driver. NULL: unknown. The caller frees *nvml_out. */
static const struct chex_nvml_gpu *driver_view(const struct chex_measure *m,
                                               struct chex_nvml **nvml_out) {
    struct chex_error err = {0};
    return chex_nvml_read(nvml_out, &err) == CHEX_OK
               ? chex_nvml_find(*nvml_out, m->device.pci_bus_id)
               : NULL;
}

/* ---- gpu-copy ---- */

/* The engine that training would use: "cpu" if no GPU was allotted or none works; `why` then has
 * the reason. */
static const char *wanted(const struct chex_check_context *c, char *why, size_t size) {
    const struct chex_engine_impl *impl;
    struct chex_error err = {0};
    char text[128];
    if (!c->gpu.allotted) {
        snprintf(why, size, "no GPU was allotted");
        return "cpu";
    }
    if (chex_engine_load("cuda", &impl, &err) == CHEX_OK &&
        impl->probe(text, sizeof text, &err) == CHEX_OK)
        return "cuda";
    snprintf(why, size, "%s: see gpu", err.text);
    return "cpu";
}

/* Collective: the ranks of a node agree which rank uses which GPU. */
static bool choose(const struct chex_check_context *c, bool in_time) {
    struct chex_measure *m = c->measure;
    struct chex_error err = {0};
    bool has = false;
    const char *spec = wanted(c, m->no_gpu, sizeof m->no_gpu);
    if (chex_choose_gpu(c->launch, chex_check_group(c), c->binding, &c->gpu, in_time ? spec : "cpu",
                        &m->device, &has, &err) != CHEX_OK)
        snprintf(m->no_gpu, sizeof m->no_gpu, "%s: see gpu", err.text);
    return has;
}

static void open_gpu(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_measure *m = c->measure;
    struct chex_error err = {0};
    struct chex_nvml *nvml = NULL;
    const struct chex_nvml_gpu *g = driver_view(m, &nvml);
    if (g)
        m->ecc_before = g->ecc_corrected;
    free(nvml);
    if (chex_step_create("cuda", chex_check_threads(c), &m->device, &m->gpu, &err) == CHEX_OK)
        return;
    snprintf(m->no_gpu, sizeof m->no_gpu, "%s: see gpu-copy", err.text);
    chex_check_not_measured(c, &err, r);
}

/* The rate of a PCIe link in one direction, net of encoding (PCI Express Base Specification). */
static double link_bytes_per_s(int generation, int width) {
    static const double lane[] = {0, 0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9};
    return generation > 0 && generation < (int)(sizeof lane / sizeof lane[0])
               ? lane[generation] * width
               : 0;
}

/* Copies from pinned memory reach about 80 % of the rate of the link, so 60 % is a safe limit. */
static const double min_of_link = 0.6, min_of_memory = 0.6;

/* Call it right after the copies, because an idle link runs slower to save power. */
static void judge_link(const struct chex_measure *m, struct chex_check_result *r) {
    struct chex_nvml *nvml = NULL;
    const struct chex_nvml_gpu *g = driver_view(m, &nvml);
    const double up = m->gpu_limits.upload_bytes_per_s, down = m->gpu_limits.download_bytes_per_s;
    if (g && g->pcie_width > 0) {
        const double link = link_bytes_per_s(g->pcie_generation, g->pcie_width);
        chex_check_found_more(r, ", PCIe %d x%d", g->pcie_generation, g->pcie_width);
        if (g->pcie_generation < g->pcie_generation_max || g->pcie_width < g->pcie_width_max)
            chex_check_worsen(
                r, CHEX_WARN, CHEX_FAULT_NODE,
                "its link could be PCIe %d x%d: reseat the GPU or its riser, check the "
                "settings of the firmware",
                g->pcie_generation_max, g->pcie_width_max);
        else if (link > 0 && (up < min_of_link * link || down < min_of_link * link))
            chex_check_worsen(
                r, CHEX_WARN, CHEX_FAULT_NODE,
                "its link can do %.3g GB/s: other processes copy too, or the rank's CPUs "
                "are far from the GPU",
                link / 1e9);
    }
    free(nvml);
}

static void probe_copy(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_measure *m = c->measure;
    struct chex_error err = {0};
    chex_check_expect(r, "the rate of its link, and as fast as others");
    const bool in_time = !c->gpu.allotted || chex_check_has_time(c, gpu_s, r);
    if (choose(c, in_time) && in_time)
        open_gpu(c, r);
    if (!in_time || r->verdict != CHEX_PASS || !chex_measure_gpu(c, r))
        return;
    const struct chex_engine *e = chex_step_engine(m->gpu);
    if (!e->impl->capacity) {
        chex_check_skip(r, "not measured by this engine");
        return;
    }
    /* The measurement uses GPU memory up to this limit, and a quarter of it in host memory. */
    const uint64_t max_bytes = 4 * chex_check_memory_share(c);
    if (e->impl->capacity->limits(e->self, max_bytes, &m->gpu_limits, &err) != CHEX_OK) {
        chex_check_not_measured(c, &err, r);
        return;
    }
    r->kind = chex_check_gpu_kind(m);
    r->figures[0] = m->gpu_limits.upload_bytes_per_s / 1e9;
    r->figures[1] = m->gpu_limits.download_bytes_per_s / 1e9;
    chex_check_found(r, "%.3g GB/s to it, %.3g GB/s from it, %s %s", r->figures[0], r->figures[1],
                     m->device.name, m->device.pci_bus_id);
    judge_link(m, r);
}
CHEX_CHECK(gpu_copy, .name = "gpu-copy", .question = "how fast are copies between host and GPU?",
           .modes = CHEX_IN_JOB, .fault = CHEX_FAULT_NODE, .probe = probe_copy, .level = 2,
           .start = CHEX_START_ALL,
           .figures = {{.key = "upload_gb_per_s", .unit = "GB/s", .compared = true},
                       {.key = "download_gb_per_s", .unit = "GB/s", .compared = true}});

/* ---- gpu-memory-rate ---- */

static void probe_memory(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_measure *m = c->measure;
    struct chex_nvml *nvml = NULL;
    chex_check_expect(r, "%.0f %% of the rate of its bus, and as fast as others",
                      100 * min_of_memory);
    if (!chex_measure_gpu(c, r))
        return;
    if (m->gpu_limits.bytes_per_s <= 0) {
        chex_check_skip(r, "not measured: see gpu-copy, or too little of its memory is free");
        return;
    }
    const struct chex_nvml_gpu *g = driver_view(m, &nvml);
    const double peak = g ? g->memory_bytes_per_s : 0;
    r->kind = chex_check_gpu_kind(m);
    r->figures[0] = m->gpu_limits.bytes_per_s / 1e9;
    if (peak > 0)
        chex_check_found(r, "%.4g GB/s of %.4g", r->figures[0], peak / 1e9);
    else
        chex_check_found(r, "%.4g GB/s", r->figures[0]);
    if (m->gpu_limits.bytes_per_s < min_of_memory * peak)
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_NODE,
                          "another process uses the GPU, or the GPU is throttled: see gpu-busy and "
                          "gpu-health");
    free(nvml);
}
CHEX_CHECK(gpu_memory_rate, .name = "gpu-memory-rate", .question = "how fast is the GPU's memory?",
           .modes = CHEX_IN_JOB, .fault = CHEX_FAULT_NODE, .probe = probe_memory, .level = 2,
           .figures = {{.key = "gb_per_s", .unit = "GB/s", .compared = true}});

/* ---- gpu-after ---- */

static void probe_after(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_measure *m = c->measure;
    struct chex_nvml *nvml = NULL;
    char why[160];
    chex_check_expect(r, "no new memory errors, no slowdown");
    if (!chex_measure_gpu(c, r))
        return;
    const struct chex_nvml_gpu *g = driver_view(m, &nvml);
    if (!g) {
        chex_check_skip(r, "the driver does not report the state of the GPU");
    } else if (g->unread != 0 || chex_nvml_sick(g, why, sizeof why)) {
        chex_check_found(r, "GPU %s: %s", m->device.pci_bus_id, g->unread ? "no answer" : why);
        chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_NODE,
                          "leave the node out with --exclude=%s, drain it, reset the GPU",
                          c->launch->host);
    } else if (g->ecc_corrected > m->ecc_before || chex_nvml_weak(g, why, sizeof why)) {
        if (g->ecc_corrected > m->ecc_before)
            snprintf(why, sizeof why, "%llu memory errors were corrected under load",
                     (unsigned long long)(g->ecc_corrected - m->ecc_before));
        chex_check_found(r, "GPU %s: %s", m->device.pci_bus_id, why);
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_NODE,
                          "have the node looked at: nvidia-smi -q shows more");
    } else {
        chex_check_found(r, "healthy, %d C", g->temperature_c);
    }
    free(nvml);
}
CHEX_CHECK(gpu_after, .name = "gpu-after", .question = "is the GPU still healthy after the load?",
           .modes = CHEX_IN_JOB, .fault = CHEX_FAULT_NODE, .probe = probe_after, .level = 2);
