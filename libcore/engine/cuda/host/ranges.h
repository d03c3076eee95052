/* SPDX-License-Identifier: Apache-2.0
 *
 * Named NVTX ranges on the host's time line, for profilers such as Nsight Systems: upload, forward,
 * backward, update, reduce. Without a profiler a range costs one test of a null pointer. Kernels of
 * a captured graph appear under the range that launched the graph.
 */
#ifndef CHEX_ENGINE_CUDA_HOST_RANGES_H
#define CHEX_ENGINE_CUDA_HOST_RANGES_H

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
