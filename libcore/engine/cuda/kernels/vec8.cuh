/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers for kernels in which a thread loads and stores 8 channels of a pixel (16 bytes): order of
 * matrix columns, sums over a warp's pixels, and the sum over the partial results of blocks.
 *
 * Order of columns. mma gives lane l the columns 2 t and 2 t + 1 (t = l % 4) of each 8-column
 * matrix. Kernels that write their weights to shared memory can permute the columns: column 8 j + 2
 * t + e of 32 is output channel 8 t + 2 j + e. Then a lane's columns of four matrices are 8
 * consecutive channels. Stores need neither shuffles nor shared memory.
 */
#ifndef CHEX_ENGINE_CUDA_KERNELS_VEC8_CUH
#define CHEX_ENGINE_CUDA_KERNELS_VEC8_CUH

#include "engine/cuda/kernels/vector.cuh"

/* The output channel of a column. */
static __device__ __forceinline__ int gpu_vec8_channel(int column) {
    return column / 32 * 32 + column / 2 % 4 * 8 + column / 8 % 4 * 2 + column % 2;
}

/* Input: each lane has two sums for 8 channels over its own pixels. gpu_vec8_share adds them over
 * the 8 lanes with the same channels. Output: a lane gets the totals of channels gpu_vec8_own(lane)
 * and gpu_vec8_own(lane) + 1; lanes 0 to 15 get those of the first sum, lanes 16 to 31 of the
 * second. */
static __device__ __forceinline__ int gpu_vec8_own(int lane) { return (lane >> 2 & 3) * 2; }
static __device__ __forceinline__ float2 gpu_vec8_share(const float (&first)[8],
                                                        const float (&second)[8], int lane) {
    float v[8];
    const bool upper = (lane & 16) != 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = (upper ? second[i] : first[i]) +
               __shfl_xor_sync(0xffffffffu, upper ? first[i] : second[i], 16);
#pragma unroll
    for (int kept = 4; kept >= 2; kept /= 2) {
        const bool mine = (lane & 2 * kept) != 0;
#pragma unroll
        for (int i = 0; i < kept; i++)
            v[i] = (mine ? v[kept + i] : v[i]) +
                   __shfl_xor_sync(0xffffffffu, mine ? v[i] : v[kept + i], 2 * kept);
    }
    return make_float2(v[0], v[1]);
}

/* A row of 128 doubles in shared memory, which lanes write 4 elements each and read one each, both
 * without bank conflicts: element i is at gpu_parts_at(i). */
enum { GPU_PARTS_THREADS = 256, GPU_PARTS_ROW = 4 * 36 };
static __device__ __forceinline__ int gpu_parts_at(int i) { return i % 4 * 36 + i / 4; }

/* sums[0][gpu_parts_at(i)] = sum over all parts of element first + i, for i < 128. A part has
 * `count` elements (a multiple of 4). The sum is in double, in a fixed order; each warp adds every
 * eighth part. */
static __device__ __forceinline__ void gpu_add_parts(const float *parts, int part_count,
                                                     int64_t count, int64_t first, int thread,
                                                     double (&sums)[8][GPU_PARTS_ROW]) {
    const int warp = thread / 32, lane = thread % 32;
    const int64_t i = first + lane * 4;
    double sum[4] = {0};
    if (i < count) {
#pragma unroll 8
        for (int s = warp; s < part_count; s += 8) {
            const float4 v = __ldcg((const float4 *)(parts + s * count + i));
            sum[0] += (double)v.x;
            sum[1] += (double)v.y;
            sum[2] += (double)v.z;
            sum[3] += (double)v.w;
        }
    }
    for (int j = 0; j < 4; j++)
        sums[warp][gpu_parts_at(lane * 4 + j)] = sum[j];
    __syncthreads();
    const int at = gpu_parts_at(thread);
    if (thread < 128)
        for (int s = 1; s < 8; s++)
            sums[0][at] += sums[s][at];
    __syncthreads();
}

/* The same for all elements, 128 in a block, rounded. */
static __global__ void __launch_bounds__(GPU_PARTS_THREADS)
    gpu_add_parts_kernel(const float *parts, int part_count, int64_t count, float *to) {
    gpu_begin();
    __shared__ double sums[8][GPU_PARTS_ROW];
    const int thread = (int)threadIdx.x;
    const int64_t first = (int64_t)blockIdx.x * 128;
    gpu_add_parts(parts, part_count, count, first, thread, sums);
    if (thread < 128 && first + thread < count)
        to[first + thread] = (float)sums[0][gpu_parts_at(thread)];
}

/* Adds the parts of a weight gradient that the last kernel of `stream` writes. */
static inline cudaError_t gpu_launch_add_parts(gpu_side *side, const float *parts, int part_count,
                                               int64_t count, float *to, cudaStream_t stream) {
    cudaStream_t sums;
    CHEX_GPU_TRY(gpu_side_stream(side, stream, &sums));
    return CHEX_LAUNCH(gpu_add_parts_kernel, dim3((unsigned)((count + 127) / 128)),
                       dim3(GPU_PARTS_THREADS), 0, sums, parts, part_count, count, to);
}

#endif
