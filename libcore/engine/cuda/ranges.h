/* SPDX-License-Identifier: Apache-2.0
 *
 * Named ranges on the host's time line, for Nsight Systems and its like: upload, forward, backward,
 * update, reduce. They cost a call through a null pointer where no profiler listens. Kernels that a
 * captured graph launches appear under the range that launched the graph.
 */
#ifndef CHEX_ENGINE_CUDA_RANGES_H
#define CHEX_ENGINE_CUDA_RANGES_H

#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#define CHEX_RANGES 1
#include <nvtx3/nvToolsExt.h>
#endif
#endif

static inline void cuda_range_begin(const char *name) {
#ifdef CHEX_RANGES
    nvtxRangePushA(name);
#else
    (void)name;
#endif
}

static inline void cuda_range_end(void) {
#ifdef CHEX_RANGES
    nvtxRangePop();
#endif
}

#endif
