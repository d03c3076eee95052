/* SPDX-License-Identifier: Apache-2.0
 *
 * conv_3x3_product.cuh with wgmma: the same steps, stages and epilogues, and the products of a step
 * by two warpgroups. A stage and the weights already have the form of core matrices (8 places or
 * columns of 16 bytes), so a descriptor for each tap is all that a product needs: no thread loads
 * fragments.
 *
 * Pipeline. Between two barriers every warp issues the products of one step, and while the tensor
 * cores work it loads the step after the next one, transforms the next one, and finishes the tile
 * before this one; then it waits for its products. So a tile's sums are kept twice (`own`); shapes
 * with too many sums finish their tile after the wait instead.
 *
 * Proxies. Copies and transforms write a stage by the generic proxy, products read it by the async
 * proxy: every thread calls gpu_async_fence between its writes and the barrier.
 */
#ifndef CHEX_ENGINE_CUDA_KERNELS_CONV_3X3_WGMMA_CUH
#define CHEX_ENGINE_CUDA_KERNELS_CONV_3X3_WGMMA_CUH

#include "engine/cuda/kernels/conv_3x3_product.cuh"
#include "engine/cuda/kernels/hopper.cuh"

/* A kernel's shape: each warpgroup computes 64 MT places by N channels. */
template <int MT_, int N_> struct conv3_wgmma_shape {
    static constexpr int MT = MT_, N = N_, NT = N_ / 8, WN = 1, WM = CONV3_WARPS;
    static constexpr int SPLIT = 1, WIDE = MT_, M = 128 * MT_, GROUPS = NT / 4;
    static constexpr int WEIGHT_BYTES = N * 9 * CONV3_KC * 2;
    static constexpr bool OWN = MT * NT * 4 <= 64; /* registers for a second set of sums */
    static constexpr int SLOTS = CONV3_SLOTS + 1;  /* and that of the tile that is finished */
    static __device__ __forceinline__ int first_row(int warp) {
        return warp / 4 * 64 * MT + warp % 4 * 16;
    }
    static __device__ __forceinline__ int row(int i) { return i / 2 * 64 + i % 2 * 8; }
};

/* Issues the products of a step as one group: acc (+)= stage * weights, + if accumulate. */
template <class T, class S>
__device__ __forceinline__ void
conv3_issue_products(const unsigned char *stage, const conv3_places &g,
                     const unsigned char *weights, int warp, bool accumulate,
                     float (&acc)[S::MT][S::NT][4]) {
    const int group = g.loaded * 16; /* bytes between groups of 8 channels */
    /* One value for all lanes, known to the compiler: descriptors stay in uniform registers. */
    const int warpgroup = __shfl_sync(~0u, warp / 4, 0);
    const uint64_t a = gpu_matrix(stage + warpgroup * (64 * S::MT * 16), (unsigned)group, 128, 0);
    const uint64_t b = gpu_matrix(weights, S::N * 16, 128, 0);
    gpu_wgmma_fence();
#pragma unroll
    for (int ky = 0; ky < 3; ky++) {
#pragma unroll
        for (int i = 0; i < 6; i++) {
            const int kx = i / 2, k = i % 2 * 2;
            const uint64_t a_tap = gpu_matrix_at(a, (ky * g.pitch + kx) * 16 + k * group);
            const uint64_t b_tap = gpu_matrix_at(b, ((ky * 3 + kx) * 4 + k) * (S::N * 16));
#pragma unroll
            for (int m = 0; m < S::MT; m++)
                gpu_wgmma<T, S::N>(&acc[m][0][0], gpu_matrix_at(a_tap, m * (64 * 16)), b_tap,
                                   accumulate);
            accumulate = true;
        }
    }
    gpu_wgmma_commit();
}

/* Grid: x: blocks that share the tiles; y: runs of N outputs. */
template <class T, class S, bool BACK>
__global__ void __launch_bounds__(CONV3_THREADS, 1) conv3_wgmma(const conv3_product_args p) {
    gpu_begin();
    CHEX_DYNAMIC_SHARED(shared);
    const int thread = (int)threadIdx.x, first = (int)blockIdx.y * S::N;
    const conv3_block<T, S, BACK> block = {p, shared, thread, thread / 32, thread % 32, first};
    conv3_step now = {0, (int)blockIdx.x, 0}, next = block.after(now), later = block.after(next);
    block.begin(now, next, later);
    gpu_async_fence();
    __syncthreads();

    float acc[S::MT][S::NT][4], own[S::OWN ? S::MT : 1][S::NT][4];
    conv3_prefetched<T, S> prefetched = {};
    conv3_sums<S> sums = {};
    bool pending = false; /* OWN: a tile is still to be finished */
    int pending_slot = 0, stage = 0, parity = 0;
    while (block.on(now)) {
        const conv3_step last = block.after(later);
        const int next_stage = stage == p.stages - 1 ? 0 : stage + 1;
        const bool ends = now.run == p.runs - 1;
        conv3_issue_products<T, S>(block.stage_of(stage), p.places,
                                   block.weights_of(p.resident ? now.run : parity), block.warp,
                                   now.run > 0, acc);
        if (S::OWN ? pending : ends)
            block.prefetch(S::OWN ? pending_slot : now.slot, prefetched);
        block.load_ahead(next, later, last, next_stage, parity);
        block.transform_next(next, next_stage, parity);
        if constexpr (S::OWN)
            if (pending)
                block.finish(pending_slot, own, prefetched, sums);
        gpu_wgmma_wait<0>();
        if constexpr (S::OWN) {
#pragma unroll
            for (int i = 0; i < S::MT * S::NT * 4; i++)
                own[i / 4 / S::NT][i / 4 % S::NT][i % 4] = acc[i / 4 / S::NT][i / 4 % S::NT][i % 4];
            pending = ends;
            pending_slot = now.slot;
        } else if (ends) {
            block.finish(now.slot, acc, prefetched, sums);
        }
        gpu_copy_wait<1>(); /* the next step's weights */
        gpu_async_fence();
        __syncthreads();
        now = next;
        next = later;
        later = last;
        stage = next_stage;
        parity ^= 1;
    }
    if constexpr (S::OWN)
        if (pending) {
            block.prefetch(pending_slot, prefetched);
            block.finish(pending_slot, own, prefetched, sums);
        }
    conv3_finish_sums<S, BACK>(p, first, sums, (double *)(shared + p.shared.stages), thread);
}

#endif
