/* SPDX-License-Identifier: Apache-2.0
 *
 * What stands between cuDNN's graphs and the engine's vectors: small kernels over channels, and the
 * widening of 16-bit weight gradients. Launchers as in gpu.h.
 */
#ifndef CHEX_ENGINE_CUDA_DNN_VECTORS_H
#define CHEX_ENGINE_CUDA_DNN_VECTORS_H

#include "engine/cuda/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* a_out, b_out (channels): the norm as y = a x + b. */
cudaError_t gpu_dnn_scale(const struct gpu_norm *norm, int channels, float *a_out, float *b_out,
                          cudaStream_t stream);
/* sums: channels of sums, then of sums of squares, over `pixels` values. Writes the statistics. */
cudaError_t gpu_dnn_stats(const float *sums, int channels, int64_t pixels,
                          const struct gpu_stats *stats, cudaStream_t stream);
/* sums: channels of sum dU, then of sum dU (x - mean); the latter are scaled by inv in place. */
cudaError_t gpu_dnn_sums(float *sums, const struct gpu_norm *norm, int channels, int64_t pixels,
                         const struct gpu_sums *sums_out, cudaStream_t stream);
/* count 16-bit values as fp32. */
cudaError_t gpu_dnn_widen(enum gpu_type type, const void *from, size_t count, float *out,
                          cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
