/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of an engine: never a silent run on the CPU where a GPU was allotted.
 */
#include "engine/choose.h"

#include "base/log.h"
#include "engine/engine.h"
#include "tap.h"
#include "thread_ranks.h"

static struct chex_error err;

static void choose_gpu(const struct chex_launch *launch, struct chex_group *group) {
    const struct chex_binding binding = {.cpus = "2-3"};
    const struct chex_gpu_view view = {.visibility = CHEX_GPU_ALL, .allotted = true};
    struct chex_gpu gpu = {.name = ""};
    const char *spec = NULL;
    bool has = true;
    OK_CALL(chex_choose_gpu(launch, group, &binding, &view, "cpu", &gpu, &has, &err));
    OK(!has, "the cpu engine uses none");
    unsetenv("CUDA_VISIBLE_DEVICES");
    setenv("FAKE_NVML", TEST_DATA "/gpu/two-h200.txt", 1);
    OK_CALL(chex_choose_engine("auto", &view, &spec, &err));
    OK(spec && strcmp(spec, "cuda") == 0, "auto is cuda where a GPU can be used");
    OK_CALL(chex_choose_gpu(launch, group, &binding, &view, "cuda:s1", &gpu, &has, &err));
    OK(has && strcmp(gpu.pci_bus_id, "0000:5d:00.0") == 0, "the GPU that is close to CPUs 2 and 3");
    setenv("FAKE_NVML", TEST_DATA "/gpu/sick.txt", 1);
    OK_CALL(chex_choose_gpu(launch, group, &binding, &view, "cuda", &gpu, &has, &err));
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    OK_STATUS(chex_choose_gpu(launch, group, &binding, &view, "cuda", &gpu, &has, &err),
              CHEX_E_NODE, err, "GPU 0000:1b:00.0 of node");
    OK(!has && strstr(err.text, "3 uncorrected memory errors") && strstr(err.text, "--exclude="),
       "an unhealthy one is the node's fault");
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    OK_STATUS(chex_choose_gpu(launch, group, &binding, &view, "cuda", &gpu, &has, &err), CHEX_E_ENV,
              err, "no GPU is visible");
    memset(&err, 0, sizeof err);
    chex_error_set(&err, CHEX_E_USAGE, "a failure before");
    OK(chex_choose_gpu(launch, group, &binding, &view, NULL, &gpu, &has, &err) == CHEX_E_USAGE &&
           strcmp(err.text, "a failure before") == 0,
       "a rank that has failed before tells the others: %s", err.text);
}

struct chooser {
    bool asked;
    enum chex_precision precision;
    enum chex_status status;
    struct chex_error err;
};

static void choose(struct chex_group *g, void *arg) {
    struct chooser *c = arg;
    g->wait_ms = tap_wait_ms();
    c->status = chex_choose_precision(g, "ref", c->asked, &c->precision, &c->err);
}

static void choose_precision(void) {
    struct chooser c[2] = {{.asked = true, .precision = CHEX_BF16}, {.precision = CHEX_FP16}};
    ranks_run(2, choose, c, sizeof *c);
    OK(c[0].status == CHEX_E_USAGE && c[1].status == CHEX_E_USAGE &&
           strstr(c[0].err.text, "--precision is not the same on all ranks"),
       "a precision that only one rank asks for is refused by all: %s", c[1].err.text);
    c[1] = c[0] = (struct chooser){.asked = true, .precision = CHEX_BF16};
    ranks_run(2, choose, c, sizeof *c);
    OK(c[1].status == CHEX_OK && c[1].precision == CHEX_BF16, "all ranks ask for it: it is used");
}

int main(void) {
    const struct chex_gpu_view none = {.visibility = CHEX_GPU_NONE};
    const struct chex_gpu_view own = {.visibility = CHEX_GPU_OWN,
                                      .allotted = true,
                                      .node_count = 2,
                                      .visible = "1",
                                      .source = "SLURM_GPUS_ON_NODE"};
    const char *spec = NULL;
    chex_log_init("choose", CHEX_LOG_ERROR);
    setenv("CHEX_LIBDIR", "/nonexistent", 1);
    OK_CALL(chex_choose_engine("auto", &none, &spec, &err));
    OK(spec && strcmp(spec, "cpu") == 0, "auto without a GPU is cpu");
    OK_CALL(chex_choose_engine("ref", &own, &spec, &err));
    OK(spec && strcmp(spec, "ref") == 0, "what is asked for by name is taken, GPU or not");
    spec = NULL;
    OK_STATUS(chex_choose_engine("warp", &own, &spec, &err), CHEX_E_USAGE, err,
              "--engine 'warp': expected auto, cpu, ref or cuda");
    OK_STATUS(chex_choose_engine("cudax", &none, &spec, &err), CHEX_E_USAGE, err, "'cudax'");
    OK_STATUS(chex_choose_engine("", &none, &spec, &err), CHEX_E_USAGE, err, "--engine ''");
    OK_STATUS(chex_choose_engine("auto", &own, &spec, &err), CHEX_E_ENV, err,
              "a GPU was allotted (SLURM_GPUS_ON_NODE, CUDA_VISIBLE_DEVICES 1) but cannot be used: "
              "chexnet-cuda.so is not installed here");
    OK(strstr(err.text, "; pass --engine cpu to use the CPU"), "with the remedy");
    struct chex_gpu_view named = own;
    snprintf(named.source, sizeof named.source, "CUDA_VISIBLE_DEVICES");
    OK_STATUS(chex_choose_engine("auto", &named, &spec, &err), CHEX_E_ENV, err,
              "allotted (CUDA_VISIBLE_DEVICES 1) but");
    OK_STATUS(chex_choose_engine("cuda", &none, &spec, &err), CHEX_E_ENV, err,
              "--engine cuda: chexnet-cuda.so is not installed here");
    OK_STATUS(chex_choose_engine("cuda:s1", &own, &spec, &err), CHEX_E_ENV, err, "allotted");
    setenv("CHEX_LIBDIR", TEST_FAKE, 1);
    setenv("CHEX_NVML", TEST_FAKE "/nvml.so", 1);
    setenv("FAKE_NVML", TEST_DATA "/gpu/mismatch.txt", 1);
    OK_STATUS(chex_choose_engine("auto", &own, &spec, &err), CHEX_E_NODE, err,
              "the node needs a reboot; pass --engine cpu");
    OK_STATUS(chex_choose_engine("cuda", &none, &spec, &err), CHEX_E_NODE, err, "--engine cuda: ");
    OK(spec == NULL, "nothing is handed out on failure");
    struct chex_launch launch = {0};
    enum chex_precision precision = CHEX_FP16;
    struct chex_group *group = NULL;
    OK_CALL(chex_launch_init(&launch, &err));
    MUST(chex_group_of_launch(&launch, CHEX_GROUP_START_MS, &group, &err));
    OK_CALL(chex_choose_precision(group, "ref", false, &precision, &err));
    OK(precision == CHEX_FP32, "ref's usual precision is fp32");
    choose_precision();
    choose_gpu(&launch, group);
    chex_group_destroy(group);
    chex_launch_finish(&launch);
    return tap_done();
}
