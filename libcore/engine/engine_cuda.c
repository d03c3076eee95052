/* SPDX-License-Identifier: Apache-2.0
 *
 * The entry of the CUDA engine in the table of engines. The engine is the module chexnet-cuda.so.
 * It is opened on first use, so a node without a GPU needs no NVIDIA library.
 */
#include "engine/engine_cuda.h"

#include "base/module.h"
#include "engine/engines.h"

/* Two causes, two remedies: the module is not installed, or a library that it needs is missing. In
 * the second case the loader's text names the library. */
static enum chex_status report_missing(const struct chex_error *why, struct chex_error *err) {
    if (!chex_module_installed("cuda"))
        return chex_error_set(err, CHEX_E_ENV,
                              "chexnet-cuda.so is not installed here: build chexnet with "
                              "CHEX_WITH_CUDA=ON, or load one that has it");
    return chex_error_set(err, CHEX_E_ENV,
                          "the CUDA engine cannot be loaded: %s (libraries of CUDA, cuDNN and NCCL "
                          "are looked for in LD_LIBRARY_PATH)",
                          why->text);
}

static enum chex_status load(const struct chex_engine_impl **impl_out, struct chex_error *err) {
    struct chex_error why = {0};
    void *symbol;
    if (chex_module_symbol("cuda", CHEX_CUDA_SYMBOL, &symbol, &why) != CHEX_OK)
        return report_missing(&why, err);
    *impl_out = symbol;
    return CHEX_OK;
}

int chex_cuda_runtime(void) {
    struct chex_error err = {0};
    void *symbol;
    if (chex_module_symbol("cuda", CHEX_CUDA_RUNTIME_SYMBOL, &symbol, &err) != CHEX_OK)
        return 0;
    return *(const int *)symbol;
}

const struct chex_engine_impl chex_engine_cuda = {
    .name = "cuda",
    .summary = "NVIDIA GPUs, by the module chexnet-cuda.so",
    .load = load,
};
