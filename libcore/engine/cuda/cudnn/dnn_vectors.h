/* SPDX-License-Identifier: Apache-2.0
 *
 * Small kernels that connect cuDNN's graphs with the engine's vectors: batch norm coefficients,
 * final statistics and sums per channel, and 16-bit weight gradients to fp32. Launchers as in
 * gpu.h.
 */
#ifndef CHEX_ENGINE_CUDA_CUDNN_DNN_VECTORS_H
#define CHEX_ENGINE_CUDA_CUDNN_DNN_VECTORS_H

#include "engine/cuda/host/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* a_out, b_out (channels): the coefficients of the norm, y = a x + b. */
cudaError_t gpu_dnn_scale(const struct gpu_norm *norm, int channels, float *a_out, float *b_out,
                          cudaStream_t stream);
/* Writes the statistics from sums: (2, channels), sums and sums of squares over `pixels` values. */
cudaError_t gpu_dnn_stats(const float *sums, int channels, int64_t pixels,
                          const struct gpu_stats *stats, cudaStream_t stream);
/* Completes a batch norm's backward. sums: (2, channels), sum dU and sum dU (x - mean). The second
 * row is multiplied by inv in place. */
cudaError_t gpu_dnn_sums(float *sums, const struct gpu_norm *norm, int channels, int64_t pixels,
                         const struct gpu_sums *sums_out, cudaStream_t stream);
/* Converts count 16-bit values to fp32. */
cudaError_t gpu_dnn_widen(enum gpu_type type, const void *from, size_t count, float *out,
                          cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
