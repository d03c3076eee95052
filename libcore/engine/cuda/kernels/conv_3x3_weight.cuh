/* SPDX-License-Identifier: Apache-2.0
 *
 * Weight gradient of a 3x3 convolution: dW[out][tap][in] = sum over places q of V[q][in] dY[q -
 * tap][out]. V is the activated input, recomputed from the stored map. dY is the gradient of the
 * output. Places, tiles and stages: conv_3x3_tile.cuh.
 *
 * Idea. The gradient is shifted, not V. A warp keeps 64 inputs by 8 outputs by all 9 taps in
 * registers. So each V fragment is used for nine products, and a block reads V and dY once.
 *
 * V contains only the pixels of the strip itself; dY contains its neighbours too. So each product
 * is counted once.
 *
 * Pipeline. A step is a tile. V and dY are copied to one of three stages, changed there, and
 * multiplied; three steps are in progress, as in conv_3x3_product.cuh.
 *
 * Blocks share the tiles (x) and the channels (y). Each writes its part to the workspace. A second
 * kernel adds the parts in double, in a fixed order.
 */
#ifndef CHEX_ENGINE_CUDA_KERNELS_CONV_3X3_WEIGHT_CUH
#define CHEX_ENGINE_CUDA_KERNELS_CONV_3X3_WEIGHT_CUH

#include "engine/cuda/kernels/conv_3x3_tile.cuh"

struct conv3_weight_shared {
    unsigned v, g, x, places, v_scale, g_scale, bytes;
};

struct conv3_weight_args {
    conv3_places places;
    conv3_source v, g;
    gpu_norm v_norm, g_norm; /* g_norm.mean is NULL */
    const float *bsum, *csum;
    int in, out;
    float *parts; /* [block x][out][9][in] */
    conv3_weight_shared shared;
};

/* Shape of a block: warps form a grid of WI by WO; the block has 64 WI inputs and 8 WO outputs. */
template <int WI_> struct conv3_weight_shape {
    static constexpr int WI = WI_, WO = CONV3_WARPS / WI_, IN = 64 * WI, OUT = 8 * WO;
};

enum { CONV3_TAP_PAIRS = 5 };

/* acc[m][tap] += products of a tile: inputs from 16 m on, the warp's 8 outputs. v: places of the
 * tile; g: with both halos. */
template <class T, class S>
__device__ __forceinline__ void
conv3_weight_multiply(const unsigned char *v, const unsigned char *g, const conv3_places &places,
                      int thread, float (&acc)[4][9][4]) {
    const int warp = thread / 32, lane = thread % 32;
    /* matrices: (in 0..7, place 0..7), (in 8.., place 0..), (in 0.., place 8..), both */
    const unsigned char *v_lane =
        v +
        ((warp / S::WO * 8 + (lane >> 3 & 1)) * places.tile + (lane >> 4) * 8 + (lane & 7)) * 16;
    const unsigned char *g_warp = g + (warp % S::WO * places.loaded) * 16;
    int g_lane[CONV3_TAP_PAIRS];
#pragma unroll
    for (int i = 0; i < CONV3_TAP_PAIRS; i++) {
        const int tap = min(2 * i + (lane >> 4), 8);
        g_lane[i] = ((2 - tap / 3) * places.pitch + 2 - tap % 3 + (lane & 15)) * 16;
    }
#pragma unroll 1
    for (int k = 0; k < places.tile; k += 16) {
        uint32_t a[4][4];
#pragma unroll
        for (int m = 0; m < 4; m++)
            gpu_ldmatrix_x4_trans(a[m], v_lane + (2 * m * places.tile + k) * 16);
#pragma unroll
        for (int i = 0; i < CONV3_TAP_PAIRS; i++) {
            uint32_t b[4];
            if (i < CONV3_TAP_PAIRS - 1)
                gpu_ldmatrix_x4_trans(b, g_warp + g_lane[i] + k * 16);
            else
                gpu_ldmatrix_x2_trans(b, g_warp + g_lane[i] + k * 16);
#pragma unroll
            for (int m = 0; m < 4; m++) {
                gpu_mma_16816<T>(acc[m][2 * i], a[m], b);
                if (i < CONV3_TAP_PAIRS - 1)
                    gpu_mma_16816<T>(acc[m][2 * i + 1], a[m], b + 2);
            }
        }
    }
}

template <class S>
__device__ __forceinline__ void conv3_write_part(const conv3_weight_args &p, int in, int out,
                                                 int thread, const float (&acc)[4][9][4]) {
    const int warp = thread / 32, lane = thread % 32;
    float *part = p.parts + (int64_t)blockIdx.x * p.out * 9 * p.in;
    in += warp / S::WO * 64 + lane / 4;
    out += warp % S::WO * 8 + lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < 4; m++)
#pragma unroll
        for (int tap = 0; tap < 9; tap++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                part[((int64_t)(out + i % 2) * 9 + tap) * p.in + in + m * 16 + i / 2 * 8] =
                    acc[m][tap][i];
}

/* A thread's view of its block: the parts of a step. Tile `first + i stride` uses slot i %
 * CONV3_SLOTS for its table of places, stage i % 3, and x_stage i % 2. */
template <class T, class S> struct conv3_weight_block {
    const conv3_weight_args &p;
    unsigned char *shared;
    int thread, in, out; /* in, out: the block's first channels */

    __device__ __forceinline__ int *places_of(int slot) const {
        return (int *)(shared + p.shared.places) + slot % CONV3_SLOTS * p.places.loaded;
    }
    __device__ __forceinline__ unsigned char *v_stage(int stage) const {
        return shared + p.shared.v + stage * (p.places.tile * S::IN * 2);
    }
    __device__ __forceinline__ unsigned char *g_stage(int stage) const {
        return shared + p.shared.g + stage * (p.places.loaded * S::OUT * 2);
    }
    __device__ __forceinline__ unsigned char *x_stage(int slot) const {
        return shared + p.shared.x + (slot & 1) * (p.places.loaded * S::OUT * 2);
    }
    __device__ __forceinline__ float *v_scale() const {
        return (float *)(shared + p.shared.v_scale);
    }
    __device__ __forceinline__ float *g_scale() const {
        return (float *)(shared + p.shared.g_scale);
    }

    __device__ __forceinline__ void write_scales() const {
        if (p.v.scaled)
            conv3_write_scale(p.v_norm, nullptr, nullptr, in, S::IN, v_scale(), thread);
        if (p.g.scaled)
            conv3_write_scale(p.g_norm, p.bsum, p.csum, out, S::OUT, g_scale(), thread);
    }
    __device__ __forceinline__ void write_places(int tile, int slot) const {
        if (tile < p.places.tiles)
            conv3_write_places(p.places, tile, places_of(slot), thread);
    }
    /* Starts the copies of a tile. */
    __device__ __forceinline__ void load(int tile, int slot, int stage) const {
        if (tile >= p.places.tiles)
            return;
        conv3_issue<S::IN, true>(p.v, in, places_of(slot) + p.places.halo, p.places.tile,
                                 v_stage(stage), nullptr, thread);
        conv3_issue<S::OUT, false>(p.g, out, places_of(slot), p.places.loaded, g_stage(stage),
                                   x_stage(slot), thread);
    }
    /* Applies batch norm and ReLU, and the deferred gradient terms, to what was copied. */
    __device__ __forceinline__ void transform(int tile, int slot, int stage) const {
        if (tile >= p.places.tiles)
            return;
        conv3_change<T, S::IN, true, false>(p.v, v_scale(), S::IN, 0,
                                            places_of(slot) + p.places.halo, p.places.tile,
                                            v_stage(stage), nullptr, thread);
        conv3_change<T, S::OUT, false, true>(p.g, g_scale(), S::OUT, 0, places_of(slot),
                                             p.places.loaded, g_stage(stage), x_stage(slot),
                                             thread);
    }
    /* Until tile `first` is transformed, and the copies of the one after it are under way. */
    __device__ __forceinline__ void begin(int first, int stride) const {
        write_scales();
        for (int i = 0; i < 3; i++)
            write_places(first + i * stride, i);
        __syncthreads();
        load(first, 0, 0);
        gpu_copy_commit();
        load(first + stride, 1, 1);
        gpu_copy_commit();
        gpu_copy_wait<1>();
        transform(first, 0, 0);
    }
};

/* The block of this thread. */
template <class T, class S>
__device__ __forceinline__ conv3_weight_block<T, S>
conv3_weight_block_of(const conv3_weight_args &p, unsigned char *shared) {
    const int runs = p.in / S::IN, y = (int)blockIdx.y;
    return conv3_weight_block<T, S>{p, shared, (int)threadIdx.x, y % runs * S::IN,
                                    y / runs * S::OUT};
}

template <class T, class S>
__global__ void __launch_bounds__(CONV3_THREADS) conv3_weight(const conv3_weight_args p) {
    gpu_begin();
    CHEX_DYNAMIC_SHARED(shared);
    const conv3_weight_block<T, S> block = conv3_weight_block_of<T, S>(p, shared);
    const int thread = block.thread, stride = (int)gridDim.x;
    int tile = (int)blockIdx.x;
    block.begin(tile, stride);
    __syncthreads();

    float acc[4][9][4];
#pragma unroll
    for (int m = 0; m < 4; m++)
#pragma unroll
        for (int tap = 0; tap < 9; tap++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                acc[m][tap][i] = 0.0f;
    const int side = thread / 32 / 4; /* which of the two warps of a scheduler */
    int stage = 0;
    for (int slot = 0; tile < p.places.tiles; tile += stride, slot++) {
        const int next_stage = stage == 2 ? 0 : stage + 1;
        block.load(tile + 2 * stride, slot + 2, next_stage == 2 ? 0 : next_stage + 1);
        gpu_copy_commit();
        block.write_places(tile + 3 * stride, slot + 3);
#pragma unroll 1
        for (int turn = 0; turn < 2; turn++) {
            if (turn != side) {
                conv3_weight_multiply<T, S>(block.v_stage(stage), block.g_stage(stage), p.places,
                                            thread, acc);
                continue;
            }
            gpu_copy_wait<1>(); /* this thread's copies of the next tile */
            block.transform(tile + stride, slot + 1, next_stage);
        }
        __syncthreads();
        stage = next_stage;
    }
    conv3_write_part<S>(p, block.in, block.out, thread, acc);
}

#endif
