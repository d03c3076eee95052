/* SPDX-License-Identifier: Apache-2.0
 *
 * Eight channels of a pixel, 16 bytes, are what a thread loads and stores; here are their sums over
 * a warp's pixels, and the sum of parts that blocks left behind.
 *
 * Columns. mma gives lane l columns 2 t and 2 t + 1 (t = l % 4) of each matrix of 8. Kernels that
 * lay down their weights themselves choose the columns' order: column 8 j + 2 t + e of 32 is output
 * channel 8 t + 2 j + e. So a lane's columns of four matrices are 8 channels in a row, and stores
 * need neither shuffles nor shared memory.
 */
#ifndef CHEX_ENGINE_CUDA_EIGHTS_CUH
#define CHEX_ENGINE_CUDA_EIGHTS_CUH

#include "engine/cuda/vector.cuh"

/* The channel of a column. */
static __device__ __forceinline__ int gpu_eights_channel(int column) {
    return column / 32 * 32 + column / 2 % 4 * 8 + column / 8 % 4 * 2 + column % 2;
}

/* A lane has two sums of 8 channels over its pixels. Adds them up over the 8 lanes with the same
 * channels and shares them out: the lane gets, of the first sums in lanes 0 to 15 and of the second
 * in the others, those of channel gpu_eights_own(lane) of the 8 and of the next. */
static __device__ __forceinline__ int gpu_eights_own(int lane) { return (lane >> 2 & 3) * 2; }
static __device__ __forceinline__ float2 gpu_eights_share(const float (&first)[8],
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

/* sums[0][i] = sum of the parts' elements first + i, i below 128, of `count` each (a multiple of
 * 4): in double, in an order that does not depend on timing. Warps have each eighth part. */
enum { GPU_PARTS_THREADS = 256 };
static __device__ __forceinline__ void gpu_add_parts(const float *parts, int part_count,
                                                     int64_t count, int64_t first, int thread,
                                                     double (&sums)[8][128]) {
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
        sums[warp][lane * 4 + j] = sum[j];
    __syncthreads();
    if (thread < 128)
        for (int s = 1; s < 8; s++)
            sums[0][thread] += sums[s][thread];
    __syncthreads();
}

#endif
