/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA engine's place in the table of engines: the engine itself is chexnet-cuda.so, which is
 * opened on first use, so that nodes without a GPU need nothing of NVIDIA's.
 */
#include "engine/engine_cuda.h"

#include <string.h>

#include "base/module.h"
#include "engine/engines.h"

/* A module that is not there needs another installation; one that does not load lacks a library,
 * which the loader names. */
static enum chex_status absent(const struct chex_error *why, struct chex_error *err) {
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
        return absent(&why, err);
    *impl_out = symbol;
    return CHEX_OK;
}

static enum chex_status probe(char *text_out, size_t size, struct chex_error *err) {
    const struct chex_engine_impl *impl;
    CHEX_TRY(load(&impl, err));
    return impl->probe(text_out, size, err);
}

static enum chex_precision usual_precision(const char *variant) {
    const struct chex_engine_impl *impl;
    struct chex_error err = {0};
    if (load(&impl, &err) != CHEX_OK || !impl->usual_precision)
        return CHEX_FP32;
    return impl->usual_precision(variant);
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
    .probe = probe,
    .usual_precision = usual_precision,
};
