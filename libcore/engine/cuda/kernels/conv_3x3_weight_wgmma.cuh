/* SPDX-License-Identifier: Apache-2.0
 *
 * conv_3x3_weight.cuh with wgmma: the same tiles and stages. A warpgroup keeps 64 inputs by 32
 * outputs by all 9 taps in registers. Both operands are transposed: k are places, so a place of 8
 * channels is a row of a core matrix. V comes from registers, since each of its fragments is used
 * for nine products; dY comes from shared memory, by a descriptor for each tap.
 *
 * Pipeline. Between two barriers every warp loads its V fragments, issues all products of a tile,
 * and while the tensor cores work it loads the tile after the next one and transforms the next one.
 */
#ifndef CHEX_ENGINE_CUDA_KERNELS_CONV_3X3_WEIGHT_WGMMA_CUH
#define CHEX_ENGINE_CUDA_KERNELS_CONV_3X3_WEIGHT_WGMMA_CUH

#include "engine/cuda/kernels/conv_3x3_weight.cuh"
#include "engine/cuda/kernels/hopper.cuh"

/* Shape of a block: its two warpgroups have 64 inputs each (WI 2) or 32 outputs each (WI 1). */
template <int WI_> struct conv3_weight_wgmma_shape {
    static constexpr int WI = WI_, IN = 64 * WI, OUT = 64 / WI;
    /* The first input and output of a warp's warpgroup. */
    static __device__ __forceinline__ int first_in(int warp) { return WI == 2 ? warp / 4 * 64 : 0; }
    static __device__ __forceinline__ int first_out(int warp) {
        return WI == 2 ? 0 : warp / 4 * 32;
    }
};

/* Issues the products of a tile of TILE places as one group. v: V fragments of 16 places each,
 * which stay until the wait. */
template <class T, class S, int TILE>
__device__ __forceinline__ void
conv3_weight_issue(const unsigned char *v_stage, const unsigned char *g_stage,
                   const conv3_places &places, int warp, int lane, uint32_t (&v)[TILE / 16][4],
                   float (&acc)[9][4][4]) {
    /* matrices: (in 0..7, place 0..7), (in 8.., place 0..), (in 0.., place 8..), both */
    const int in = S::first_in(warp) / 8 + warp % 4 * 2 + (lane >> 3 & 1);
    const unsigned char *v_lane = v_stage + (in * TILE + (lane >> 4) * 8 + (lane & 7)) * 16;
#pragma unroll
    for (int i = 0; i < TILE / 16; i++)
        gpu_ldmatrix_x4_trans(v[i], v_lane + i * 256);
    const uint64_t g = gpu_matrix(g_stage + S::first_out(warp) / 8 * places.loaded * 16, 128,
                                  (unsigned)places.loaded * 16, 0);
    gpu_wgmma_fence();
#pragma unroll
    for (int tap = 0; tap < 9; tap++) {
        const uint64_t g_tap = gpu_matrix_at(g, ((2 - tap / 3) * places.pitch + 2 - tap % 3) * 16);
#pragma unroll
        for (int i = 0; i < TILE / 16; i++)
            gpu_wgmma_a<T, 32, true>(&acc[tap][0][0], v[i], gpu_matrix_at(g_tap, i * 256), true);
    }
    gpu_wgmma_commit();
}

template <class S>
__device__ __forceinline__ void conv3_weight_write(const conv3_weight_args &p, int in, int out,
                                                   int warp, int lane,
                                                   const float (&acc)[9][4][4]) {
    float *const part = p.parts + (int64_t)blockIdx.x * p.out * 9 * p.in;
    in += S::first_in(warp) + warp % 4 * 16 + lane / 4;
    out += S::first_out(warp) + lane % 4 * 2;
#pragma unroll
    for (int tap = 0; tap < 9; tap++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                part[((int64_t)(out + j * 8 + i % 2) * 9 + tap) * p.in + in + i / 2 * 8] =
                    acc[tap][j][i];
}

template <class T, class S, int TILE>
__global__ void __launch_bounds__(CONV3_THREADS, 1) conv3_weight_wgmma(const conv3_weight_args p) {
    gpu_begin();
    CHEX_DYNAMIC_SHARED(shared);
    const conv3_weight_block<T, S> block = conv3_weight_block_of<T, S>(p, shared);
    const int warp = block.thread / 32, lane = block.thread % 32, stride = (int)gridDim.x;
    int tile = (int)blockIdx.x;
    block.begin(tile, stride);
    gpu_async_fence();
    __syncthreads();

    float acc[9][4][4];
#pragma unroll
    for (int i = 0; i < 9 * 4 * 4; i++)
        acc[i / 16][i / 4 % 4][i % 4] = 0.0f;
    uint32_t v[TILE / 16][4];
    int stage = 0;
    for (int slot = 0; tile < p.places.tiles; tile += stride, slot++) {
        const int next_stage = stage == 2 ? 0 : stage + 1;
        conv3_weight_issue<T, S, TILE>(block.v_stage(stage), block.g_stage(stage), p.places, warp,
                                       lane, v, acc);
        block.load(tile + 2 * stride, slot + 2, next_stage == 2 ? 0 : next_stage + 1);
        gpu_copy_commit();
        block.write_places(tile + 3 * stride, slot + 3);
        gpu_copy_wait<1>(); /* this thread's copies of the next tile */
        block.transform(tile + stride, slot + 1, next_stage);
        gpu_wgmma_wait<0>();
        gpu_async_fence();
        __syncthreads();
        stage = next_stage;
    }
    conv3_weight_write<S>(p, block.in, block.out, warp, lane, acc);
}

#endif
