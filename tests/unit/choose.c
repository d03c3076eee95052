/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of an engine: never a silent run on the CPU where a GPU was allotted.
 */
#include "engine/choose.h"

#include "base/log.h"
#include "engine/engine.h"
#include "tap.h"

int main(void) {
    const struct chex_gpu_view none = {.visibility = CHEX_GPU_NONE};
    const struct chex_gpu_view own = {.visibility = CHEX_GPU_OWN,
                                      .allotted = true,
                                      .node_count = 2,
                                      .visible = "1",
                                      .source = "SLURM_GPUS_ON_NODE"};
    struct chex_error err;
    const char *spec = NULL;
    bool has_cuda = false;
    chex_log_init("choose", CHEX_LOG_ERROR);
    for (int i = 0; chex_engines[i]; i++)
        has_cuda = has_cuda || strcmp(chex_engines[i]->name, "cuda") == 0;
    OK_STATUS(chex_choose_engine("auto", &none, &spec, &err), CHEX_OK, err, NULL);
    OK(spec && strcmp(spec, "cpu") == 0, "auto without a GPU is cpu");
    OK_STATUS(chex_choose_engine("ref", &own, &spec, &err), CHEX_OK, err, NULL);
    OK(spec && strcmp(spec, "ref") == 0, "what is asked for by name is taken, GPU or not");
    spec = NULL;
    OK_STATUS(chex_choose_engine("warp", &own, &spec, &err), CHEX_E_USAGE, err,
              "--engine 'warp': expected auto, cpu, ref or cuda");
    OK_STATUS(chex_choose_engine("cudax", &none, &spec, &err), CHEX_E_USAGE, err, "'cudax'");
    OK_STATUS(chex_choose_engine("", &none, &spec, &err), CHEX_E_USAGE, err, "--engine ''");
    if (!has_cuda) {
        OK_STATUS(chex_choose_engine("auto", &own, &spec, &err), CHEX_E_ENV, err,
                  "a GPU was allotted (SLURM_GPUS_ON_NODE, CUDA_VISIBLE_DEVICES 1) but cannot be "
                  "used: this build has no CUDA engine; say --engine cpu");
        struct chex_gpu_view named = own;
        snprintf(named.source, sizeof named.source, "CUDA_VISIBLE_DEVICES");
        OK_STATUS(chex_choose_engine("auto", &named, &spec, &err), CHEX_E_ENV, err,
                  "allotted (CUDA_VISIBLE_DEVICES 1) but");
        OK_STATUS(chex_choose_engine("cuda", &none, &spec, &err), CHEX_E_ENV, err,
                  "--engine cuda: this build has no CUDA engine");
        OK_STATUS(chex_choose_engine("cuda:0", &own, &spec, &err), CHEX_E_ENV, err, "no CUDA");
    }
    OK(spec == NULL, "nothing is handed out on failure");
    struct chex_launch launch = {0};
    enum chex_precision precision = CHEX_FP16;
    OK_STATUS(chex_launch_init(&launch, &err), CHEX_OK, err, NULL);
    OK_STATUS(chex_choose_precision(&launch, "ref", &precision, &err), CHEX_OK, err, NULL);
    OK(precision == CHEX_FP32, "ref's usual precision is fp32");
    chex_launch_finish(&launch);
    return tap_done();
}
