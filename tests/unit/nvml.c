/* SPDX-License-Identifier: Apache-2.0
 *
 * What is read of NVML, on the stand-in fake/nvml.c and the nodes of data/gpu.
 */
#include "launch/nvml.h"

#include "dir.h"
#include "tap.h"

static struct chex_nvml nvml;
static struct chex_error err;

static enum chex_status read_into_nvml(void) {
    struct chex_nvml *read;
    memset(&err, 0, sizeof err);
    const enum chex_status st = chex_nvml_read(&read, &err);
    if (read)
        nvml = *read;
    free(read);
    return st;
}

static enum chex_status read_node(const char *file) {
    setenv("CHEX_NVML", TEST_FAKE "/nvml.so", 1);
    setenv("FAKE_NVML", data_path("gpu/%s", file), 1);
    return read_into_nvml();
}

/* The indices that CUDA_VISIBLE_DEVICES shows, as digits, or the error's text. */
static const char *seen(const char *visible) {
    static char text[CHEX_ERROR_TEXT_BYTES];
    int mine[CHEX_GPU_MAX], count = 0;
    if (visible)
        setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    else
        unsetenv("CUDA_VISIBLE_DEVICES");
    if (chex_nvml_visible(&nvml, mine, &count, &err) != CHEX_OK)
        return err.text;
    for (int i = 0; i < count; i++)
        text[i] = (char)('0' + mine[i]);
    text[count] = '\0';
    return text;
}

static void two(void) {
    OK(read_node("two-h200.txt") == CHEX_OK, "a node with two H200: %s", err.text);
    const struct chex_nvml_gpu *g = &nvml.gpus[1];
    OK(nvml.count == 2 && nvml.cuda == 13000 && strcmp(nvml.driver, "580.65.06") == 0, "versions");
    OK(strcmp(g->gpu.pci_bus_id, "0000:5d:00.0") == 0 && strcmp(g->gpu.name, "NVIDIA H200") == 0 &&
           g->gpu.capability == 90 && g->gpu.memory_bytes == (uint64_t)143771 << 20 &&
           g->used_bytes == 4 << 20,
       "a GPU's name, capability and memory");
    OK(!g->ecc_corrected && !g->ecc_uncorrected && g->temperature_c == 33 && g->links_up == 18 &&
           g->links_down == 0 && !g->mig && g->process_count == 0,
       "its state");
    OK(g->pcie_generation == 5 && g->pcie_generation_max == 5 && g->pcie_width == 16 &&
           g->pcie_width_max == 16 && g->memory_bytes_per_s > 4.9e12 &&
           g->memory_bytes_per_s < 4.95e12,
       "its link and its memory's bus: %.0f GB/s", g->memory_bytes_per_s / 1e9);
    OK(nvml.linked[0][1] && nvml.linked[1][0] && !nvml.linked[0][0], "NVLink between the two");
    OK(chex_nvml_near(g, "0-3") == 2 && chex_nvml_near(g, "0,2,64-70") == 1 &&
           chex_nvml_near(g, "") == 0 && chex_nvml_near(g, "x") == 0,
       "CPUs close to it");
    OK(chex_nvml_find(&nvml, "0000:5d:00.0") == g && !chex_nvml_find(&nvml, "0000:00:00.0"),
       "found by bus id");
}

static void visible(void) {
    OK(strcmp(seen(NULL), "01") == 0, "unset: all");
    OK(strcmp(seen("1"), "1") == 0 && strcmp(seen("1,0"), "10") == 0, "indices, in their order");
    OK(strcmp(seen("GPU-5d00c0de"), "1") == 0, "a UUID's beginning");
    OK(strcmp(seen("0,-1,1"), "0") == 0 && strcmp(seen(""), "") == 0 &&
           strcmp(seen("NoDevFiles"), "") == 0,
       "what follows -1 is hidden");
    OK(strcmp(seen("GPU-1b00c0de-0001-4000-8000-00000000001b,GPU-5d00c0de-0002-4000-8000-"
                   "00000000005d"),
              "01") == 0,
       "a list as long as it likes");
    OK(strstr(seen("2"), "'2' is none of the 2 GPUs"), "an index too far: %s", err.text);
    OK(strstr(seen("0,GPU-77"), "'GPU-77' is none"), "an unknown UUID: %s", err.text);
    read_node("own.txt");
    OK(nvml.gpus[1].denied && strcmp(seen(NULL), "0") == 0 && strcmp(seen("0"), "0") == 0,
       "a GPU that the cgroup hides does not count");
    read_node("mig.txt");
    OK(nvml.gpus[0].mig && strcmp(seen("MIG-8f00"), "0") == 0,
       "a part of the one that is in parts");
}

static void health(void) {
    char why[160] = "";
    read_node("two-h200.txt");
    OK(nvml.gpus[0].energy_mj == 0, "a driver without a counter of energy leaves it unknown");
    OK(!chex_nvml_sick(&nvml.gpus[0], why, sizeof why) &&
           !chex_nvml_weak(&nvml.gpus[0], why, sizeof why),
       "a healthy one");
    read_node("sick.txt");
    OK(chex_nvml_sick(&nvml.gpus[0], why, sizeof why) && strstr(why, "3 uncorrected memory errors"),
       "memory errors: %s", why);
    OK(!chex_nvml_sick(&nvml.gpus[1], why, sizeof why) &&
           chex_nvml_weak(&nvml.gpus[1], why, sizeof why) && strstr(why, "heat (88 degrees C)"),
       "heat is no illness, but costs: %s", why);
    nvml.gpus[1].slowdowns = 0;
    OK(chex_nvml_weak(&nvml.gpus[1], why, sizeof why) && strstr(why, "2 of 18 NVLinks"), "%s", why);
    nvml.gpus[1].repair_failed = true;
    OK(chex_nvml_sick(&nvml.gpus[1], why, sizeof why), "no spare rows: %s", why);
    read_node("lost.txt");
    OK(chex_nvml_sick(&nvml.gpus[1], why, sizeof why) && strstr(why, "fallen off the bus"), "%s",
       why);
    OK(!chex_nvml_sick(&nvml.gpus[0], why, sizeof why), "the one beside it is well");
    read_node("busy.txt");
    OK(nvml.gpus[0].process_count == 1 && nvml.gpus[0].processes[0].pid == 999999999 &&
           nvml.gpus[0].processes[0].bytes == (uint64_t)40956 << 20,
       "a process and its memory");
}

static void failures(void) {
    OK(read_node("unloaded.txt") == CHEX_E_NODE && strstr(err.text, "not loaded"), "%s", err.text);
    OK(read_node("mismatch.txt") == CHEX_E_NODE && strstr(err.text, "two versions"), "%s",
       err.text);
    OK(read_node("nosuch.txt") == CHEX_E_NODE && strstr(err.text, "NVML error 12"), "%s", err.text);
    setenv("CHEX_NVML", "/nonexistent/libnvidia-ml.so.1", 1);
    OK(read_into_nvml() == CHEX_E_ENV && strstr(err.text, "no NVIDIA driver") &&
           strstr(err.text, "--nv"),
       "%s", err.text);
    setenv("CHEX_NVML", TEST_FAKE "/chexnet-cuda.so", 1);
    OK(read_into_nvml() == CHEX_E_ENV && strstr(err.text, "has no nvmlInit_v2"),
       "another library in its place: %s", err.text);
}

int main(void) {
    two();
    visible();
    health();
    failures();
    return tap_done();
}
