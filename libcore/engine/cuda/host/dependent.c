/* SPDX-License-Identifier: Apache-2.0
 *
 * Which launches of the calling thread are dependent.
 */
#include "engine/cuda/host/dependent.h"

#include <stdlib.h>
#include <string.h>

#include "engine/cuda/host/gpu.h"

enum { LEAST_CAPABILITY = 90, LEAST_DRIVER = 12030 };

static _Thread_local struct {
    cudaStream_t stream;
    bool on, after_kernel;
} state;

bool gpu_dependents_supported(const struct gpu_device *device) {
    const char *asked = getenv("CHEX_CUDA_DEPENDENT");
    int driver = 0;
    return device->capability >= LEAST_CAPABILITY && !(asked && strcmp(asked, "0") == 0) &&
           cudaDriverGetVersion(&driver) == cudaSuccess && driver >= LEAST_DRIVER &&
           gpu_code_target() >= LEAST_CAPABILITY;
}

void gpu_dependents_begin(cudaStream_t stream) {
    state.stream = stream;
    state.on = true;
    state.after_kernel = false;
}

void gpu_dependents_break(void) { state.after_kernel = false; }

void gpu_dependents_end(void) { state.on = false; }

bool gpu_dependents_next(cudaStream_t stream) {
    if (!state.on || stream != state.stream)
        return false;
    const bool dependent = state.after_kernel;
    state.after_kernel = true;
    return dependent;
}
