/* SPDX-License-Identifier: Apache-2.0
 *
 * Small kernels over channels that follow cuDNN's graphs. A graph writes one fp32 sum per channel.
 * From there the formulas are those of the other kernels (gpu_finish_stats, gpu_finish_sums), in
 * double, as if a single block had made the sums.
 */
#include "engine/cuda/cudnn/dnn_vectors.h"
#include "engine/cuda/kernels/vector.cuh"

enum { THREADS = 128, WIDEN_THREADS = 256 };

static unsigned blocks_of(size_t items, unsigned threads) {
    return (unsigned)((items + threads - 1) / threads);
}

static __global__ void scale_kernel(gpu_norm norm, int channels, float *a_out, float *b_out) {
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (c >= channels)
        return;
    const gpu_ab s = gpu_scale(norm, c);
    a_out[c] = s.a;
    b_out[c] = s.b;
}

static __global__ void stats_kernel(gpu_stats stats, int channels, double n) {
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (c < channels)
        gpu_finish_stats(stats, channels, c, 1, 1, n, 0, 1);
}

static __global__ void sums_kernel(gpu_sums sums, gpu_norm norm, int channels, double n) {
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (c >= channels)
        return;
    sums.partial[channels + c] = __fmul_rn(sums.partial[channels + c], norm.inv[c]);
    gpu_finish_sums(sums, norm, channels, c, 1, 1, n, 0, 1);
}

/* One thread converts 8 values: it reads 16 bytes and writes 32. Both arrays are aligned. */
template <class T> static __global__ void widen_kernel(const T *from, size_t count, float *out) {
    const size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (i + 8 <= count) {
        float v[8];
        gpu_read_run<8>(v, from + i);
        gpu_write_run<8>(out + i, v);
        return;
    }
    for (size_t j = i; j < count; j++)
        out[j] = gpu_float(from[j]);
}

extern "C" {

cudaError_t gpu_dnn_scale(const struct gpu_norm *norm, int channels, float *a_out, float *b_out,
                          cudaStream_t stream) {
    return CHEX_LAUNCH(scale_kernel, dim3(blocks_of((size_t)channels, THREADS)), dim3(THREADS), 0,
                       stream, *norm, channels, a_out, b_out);
}

cudaError_t gpu_dnn_stats(const float *sums, int channels, int64_t pixels,
                          const struct gpu_stats *stats, cudaStream_t stream) {
    gpu_stats s = *stats;
    s.partial = const_cast<float *>(sums); /* read only */
    return CHEX_LAUNCH(stats_kernel, dim3(blocks_of((size_t)channels, THREADS)), dim3(THREADS), 0,
                       stream, s, channels, (double)pixels);
}

cudaError_t gpu_dnn_sums(float *sums, const struct gpu_norm *norm, int channels, int64_t pixels,
                         const struct gpu_sums *sums_out, cudaStream_t stream) {
    gpu_sums s = *sums_out;
    s.partial = sums;
    return CHEX_LAUNCH(sums_kernel, dim3(blocks_of((size_t)channels, THREADS)), dim3(THREADS), 0,
                       stream, s, *norm, channels, (double)pixels);
}

cudaError_t gpu_dnn_widen(enum gpu_type type, const void *from, size_t count, float *out,
                          cudaStream_t stream) {
    const dim3 grid(blocks_of((count + 7) / 8, WIDEN_THREADS)), block(WIDEN_THREADS);
    if (type == GPU_BF16)
        return CHEX_LAUNCH((widen_kernel<gpu_bf16>), grid, block, 0, stream,
                           static_cast<const gpu_bf16 *>(from), count, out);
    if (type == GPU_F16)
        return CHEX_LAUNCH((widen_kernel<gpu_f16>), grid, block, 0, stream,
                           static_cast<const gpu_f16 *>(from), count, out);
    return cudaErrorInvalidValue;
}

} /* extern "C" */
