/* SPDX-License-Identifier: Apache-2.0
 *
 * 3x3 convolution of a tile as nine shifted matrix products: forward, and backward with respect to
 * the input, which is the same with the taps turned round.
 *
 * A block walks over tiles and, within a tile, over runs of KC input channels; a step's pixels (and
 * weights, where there is more than one run) are copied while the step before is multiplied. All of
 * a block's N outputs stay in fp32 registers until the tile is done.
 *
 * Sums over pixels are fp32 within a tile and double over a block's tiles.
 */
#ifndef CHEX_ENGINE_CUDA_CONV_3X3_PRODUCT_CUH
#define CHEX_ENGINE_CUDA_CONV_3X3_PRODUCT_CUH

#include "engine/cuda/conv_3x3_tile.cuh"

/* Where things lie in a block's shared memory, in bytes. */
struct conv3_product_shared {
    unsigned weights, stages, x_stages, ahead, places, scale, mask, sums, bytes;
};

struct conv3_product_args {
    conv3_places places;
    conv3_source source;
    gpu_norm source_norm; /* forward: of the input; backward: mean NULL */
    const float *bsum, *csum;
    int in, out;        /* channels of the source and of what is written */
    int runs;           /* in / KC */
    const void *weight; /* (out, 3, 3, in) */
    void *to;
    int64_t to_pitch;
    gpu_stats stats; /* forward */
    /* backward: the map behind the mask, and what is done to `to` */
    const void *x;
    int64_t x_pitch;
    gpu_norm norm;
    bool add, ahead; /* ahead: x is copied to shared memory during the products */
    gpu_sums sums;
    double pixels;
    conv3_product_shared shared;
};

/* A kernel's shape. Warps stand in a grid of WM by WN, each has 16 MT places by 8 NT channels.
 * SPLIT 2: pairs of warps multiply the places of both, each with half of a run's channels, and then
 * exchange what is the other's. Weights' fragments then serve twice as many places: with 32 outputs
 * reading them would else take longer than the products. */
template <int KC_, int MT_, int NT_, int WN_, int SPLIT_ = 1> struct conv3_shape {
    static constexpr int KC = KC_, MT = MT_, NT = NT_, WN = WN_, WM = CONV3_WARPS / WN_;
    static constexpr int SPLIT = SPLIT_, WIDE = MT * SPLIT;
    static constexpr int M = 16 * MT * WM, N = 8 * NT * WN;
    static constexpr int WEIGHT_BYTES = N * 9 * KC * 2;
    static_assert(NT % 4 == 0, "a thread's channels come in eights");
    static_assert(SPLIT == 1 || (WN == 1 && M * KC * 2 >= CONV3_THREADS * MT * NT * 16),
                  "a stage has room for the exchange");
};

/* The weights of outputs [first, first + N) and inputs [run, run + KC) as [tap][8 in][column][in].
 */
template <class T, class S>
__device__ __forceinline__ void conv3_issue_weights(const conv3_product_args &p, int first, int run,
                                                    unsigned char *to, int thread) {
    constexpr int QUADS = S::KC / 32, ITEMS = S::N / 8 * 9 * QUADS;
    const int warp = thread / 32, lane = thread % 32, e = lane % 8;
    for (int item = warp; item < ITEMS; item += CONV3_WARPS) {
        const int quad = item % QUADS, tap = item / QUADS % 9, eight = item / QUADS / 9;
        const int chunk = quad * 4 + lane / 8;
        const int channel = gpu_eights_channel(eight * 8 + e);
        const T *from = (const T *)p.weight + ((int64_t)(first + channel) * 9 + tap) * p.in + run;
        gpu_copy16(to + ((tap * (S::KC / 8) + chunk) * S::N + eight * 8 + e) * 16, from + chunk * 8,
                   true);
    }
}

template <class T, class S>
__device__ __forceinline__ void conv3_multiply(const unsigned char *stage, int loaded, int pitch,
                                               const unsigned char *weights, int thread,
                                               float (&acc)[S::WIDE][S::NT][4]) {
    constexpr int STEPS = S::KC / 16 / S::SPLIT;
    const int warp = thread / 32, lane = thread % 32;
    const int part = S::SPLIT == 2 ? warp % 2 * 2 * STEPS : 0; /* first of the warp's 8 channels */
    const int row = warp / S::WN / S::SPLIT * 16 * S::WIDE + (lane & 15);
    const unsigned char *a_lane = stage + ((part + (lane >> 4)) * loaded + row) * 16;
    const int column = warp % S::WN * 8 * S::NT + (lane & 7) + (lane >> 4) * 8;
    const unsigned char *b_lane = weights + ((part + (lane >> 3 & 1)) * S::N + column) * 16;
#pragma unroll 1
    for (int ky = 0; ky < 3; ky++) {
#pragma unroll(STEPS == 2 ? 3 : 1)
        for (int kx = 0; kx < 3; kx++) {
            const unsigned char *a_tap = a_lane + (ky * pitch + kx) * 16;
            const unsigned char *b_tap = b_lane + (ky * 3 + kx) * (S::KC / 8 * S::N * 16);
#pragma unroll
            for (int k = 0; k < STEPS; k++) {
                uint32_t a[S::WIDE][4];
#pragma unroll
                for (int m = 0; m < S::WIDE; m++)
                    gpu_ldmatrix_x4(a[m], a_tap + (2 * k * loaded + m * 16) * 16);
#pragma unroll
                for (int n = 0; n < S::NT; n += 2) {
                    uint32_t b[4];
                    gpu_ldmatrix_x4(b, b_tap + (2 * k * S::N + n * 8) * 16);
#pragma unroll
                    for (int m = 0; m < S::WIDE; m++) {
                        gpu_mma_16816<T>(acc[m][n], a[m], b);
                        gpu_mma_16816<T>(acc[m][n + 1], a[m], b + 2);
                    }
                }
            }
        }
    }
}

/* SPLIT 2: to the other warp of the pair its half of the rows, in the stage that all are done with.
 */
template <class S>
__device__ __forceinline__ void conv3_exchange(const float (&wide)[S::WIDE][S::NT][4], float4 *room,
                                               int thread, float (&acc)[S::MT][S::NT][4]) {
    const int warp = thread / 32, lane = thread % 32;
    const bool second = warp % 2 != 0;
    __syncthreads();
#pragma unroll
    for (int m = 0; m < S::MT; m++)
#pragma unroll
        for (int n = 0; n < S::NT; n++) {
            float sent[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                acc[m][n][i] = second ? wide[S::MT + m][n][i] : wide[m][n][i];
                sent[i] = second ? wide[m][n][i] : wide[S::MT + m][n][i];
            }
            room[((warp * S::MT + m) * S::NT + n) * 32 + lane] =
                make_float4(sent[0], sent[1], sent[2], sent[3]);
        }
    __syncthreads();
#pragma unroll
    for (int m = 0; m < S::MT; m++)
#pragma unroll
        for (int n = 0; n < S::NT; n++) {
            const float4 got = room[(((warp ^ 1) * S::MT + m) * S::NT + n) * 32 + lane];
            acc[m][n][0] += got.x;
            acc[m][n][1] += got.y;
            acc[m][n][2] += got.z;
            acc[m][n][3] += got.w;
        }
}

/* The 8 channels that this thread has of row `h` of matrix row m, in column group g. */
template <class S>
__device__ __forceinline__ void conv3_own(const float (&acc)[S::MT][S::NT][4], int m, int g, int h,
                                          float v[8]) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        v[2 * j] = acc[m][4 * g + j][2 * h];
        v[2 * j + 1] = acc[m][4 * g + j][2 * h + 1];
    }
}

/* Forward: rounded, stored, counted. */
template <class T, class S>
__device__ __forceinline__ void conv3_finish_forward(const conv3_product_args &p, int first,
                                                     const int *places, double *sums, int thread,
                                                     const float (&acc)[S::MT][S::NT][4]) {
    const int warp = thread / 32, lane = thread % 32;
    const int row = warp / S::WN * 16 * S::MT + lane / 4;
#pragma unroll
    for (int g = 0; g < S::NT / 4; g++) {
        const int column = warp % S::WN * 8 * S::NT + 32 * g + lane % 4 * 8;
        float sum[8] = {0}, squares[8] = {0};
#pragma unroll
        for (int mh = 0; mh < 2 * S::MT; mh++) {
            const int place = places[row + mh * 8];
            if (place < 0)
                continue;
            float v[8];
            conv3_own<S>(acc, mh / 2, g, mh % 2, v);
            const gpu_run<T, 8> packed = gpu_pack_run<T, 8>(v);
            gpu_store_run((T *)p.to + place * p.to_pitch + first + column, packed);
            gpu_unpack_run(v, packed);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                sum[i] += v[i];
                squares[i] = fmaf(v[i], v[i], squares[i]);
            }
        }
        if (p.stats.partial)
            gpu_eights_add(sum, squares, sums + warp / S::WN * 2 * S::N + column, S::N, lane);
    }
}

/* What a thread reads of x in the ending of a tile, copied by the thread itself: [g][m, h]. */
template <class T, class S>
__device__ __forceinline__ void conv3_issue_ahead(const conv3_product_args &p, int first,
                                                  const int *places, uint4 *to, int thread) {
    const int warp = thread / 32, lane = thread % 32;
    const int row = warp / S::WN * 16 * S::MT + lane / 4;
#pragma unroll 1
    for (int g = 0; g < S::NT / 4; g++) {
        const int column = warp % S::WN * 8 * S::NT + 32 * g + lane % 4 * 8;
#pragma unroll
        for (int mh = 0; mh < 2 * S::MT; mh++) {
            const int place = places[row + mh * 8];
            gpu_copy16(to + (g * 2 * S::MT + mh) * CONV3_THREADS + thread,
                       (const T *)p.x + max(place, 0) * p.x_pitch + first + column, place >= 0);
        }
    }
}

/* Backward: masked, counted, scaled, added or stored. mask: a, b, mean, inv of the N channels. */
template <class T, class S>
__device__ __forceinline__ void conv3_finish_backward(const conv3_product_args &p, int first,
                                                      const int *places, const uint4 *ahead,
                                                      const float *mask, double *sums, int thread,
                                                      const float (&acc)[S::MT][S::NT][4]) {
    const int warp = thread / 32, lane = thread % 32;
    const int row = warp / S::WN * 16 * S::MT + lane / 4;
    const bool normed = p.norm.mean != nullptr;
#pragma unroll
    for (int g = 0; g < S::NT / 4; g++) {
        const int column = warp % S::WN * 8 * S::NT + 32 * g + lane % 4 * 8;
        float s1[8] = {0}, s2[8] = {0};
        float a[8] = {0}, b[8] = {0}, mean[8] = {0}, inv[8] = {0};
        if (normed) {
            gpu_read_run<8>(a, mask + column);
            gpu_read_run<8>(b, mask + S::N + column);
            gpu_read_run<8>(mean, mask + 2 * S::N + column);
            gpu_read_run<8>(inv, mask + 3 * S::N + column);
        }
#pragma unroll
        for (int m = 0; m < S::MT; m++) {
            gpu_run<T, 8> x[2] = {}, old[2] = {};
            T *to[2];
            int place[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                place[h] = places[row + (2 * m + h) * 8];
                const int64_t pixel = max(place[h], 0);
                to[h] = (T *)p.to + pixel * p.to_pitch + first + column;
                /* Two loads, not one of two addresses: that would be of no memory in particular. */
                if (normed && p.ahead)
                    x[h] = gpu_load_run<8>(
                        (const T *)(ahead + (g * 2 * S::MT + 2 * m + h) * CONV3_THREADS + thread));
                else if (normed)
                    x[h] = gpu_load_run<8>((const T *)p.x + pixel * p.x_pitch + first + column);
                if (p.add && place[h] >= 0) /* pixel 0 is another thread's to write */
                    old[h] = gpu_load_run<8>(to[h]);
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                if (place[h] < 0)
                    continue;
                float v[8], was[8];
                conv3_own<S>(acc, m, g, h, v);
                if (normed) {
                    float xs[8];
                    gpu_unpack_run(xs, x[h]);
#pragma unroll
                    for (int i = 0; i < 8; i++) {
                        if (p.norm.relu && !(gpu_normed(gpu_ab{a[i], b[i]}, xs[i]) > 0.0f))
                            v[i] = 0.0f;
                        s1[i] += v[i];
                        s2[i] = fmaf(v[i], (xs[i] - mean[i]) * inv[i], s2[i]);
                        v[i] *= a[i];
                    }
                }
                if (p.add) {
                    gpu_unpack_run(was, old[h]);
#pragma unroll
                    for (int i = 0; i < 8; i++)
                        v[i] += was[i];
                }
                gpu_write_run<8>(to[h], v);
            }
        }
        if (p.sums.partial)
            gpu_eights_add(s1, s2, sums + warp / S::WN * 2 * S::N + column, S::N, lane);
    }
}

/* The block's sums to global memory; the last block of these channels completes them. */
template <class S, bool BACK>
__device__ __forceinline__ void conv3_finish_sums(const conv3_product_args &p, int first,
                                                  const double *sums, int thread) {
    float *partial = BACK ? p.sums.partial : p.stats.partial;
    unsigned *ticket = BACK ? p.sums.ticket : p.stats.ticket;
    if (!partial)
        return;
    __syncthreads();
    for (int i = thread; i < 2 * S::N; i += CONV3_THREADS) {
        double sum = 0;
        for (int w = 0; w < S::WM; w++)
            sum += sums[w * 2 * S::N + i];
        partial[((size_t)blockIdx.x * 2 + i / S::N) * (size_t)p.out + first + i % S::N] =
            (float)sum;
    }
    if (!gpu_last_block(ticket + blockIdx.y, gridDim.x))
        return;
    if (BACK)
        gpu_finish_sums(p.sums, p.norm, p.out, first, S::N, (int)gridDim.x, p.pixels, thread,
                        CONV3_THREADS);
    else
        gpu_finish_stats(p.stats, p.out, first, S::N, (int)gridDim.x, p.pixels, thread,
                         CONV3_THREADS);
}

template <class T, class S, bool BACK>
__device__ __forceinline__ void conv3_write_tables(const conv3_product_args &p, int first,
                                                   float *scale, float *mask, double *sums,
                                                   int thread) {
    if (p.source.scaled)
        conv3_write_scale(p.source_norm, p.bsum, p.csum, 0, p.in, scale, thread);
    if (BACK && p.norm.mean) {
        for (int c = thread; c < S::N; c += CONV3_THREADS) {
            const gpu_ab s = gpu_scale(p.norm, first + c);
            mask[c] = s.a;
            mask[S::N + c] = s.b;
            mask[2 * S::N + c] = p.norm.mean[first + c];
            mask[3 * S::N + c] = p.norm.inv[first + c];
        }
    }
    for (int i = thread; i < S::WM * 2 * S::N; i += CONV3_THREADS)
        sums[i] = 0;
}

/* The ending of a tile. */
template <class T, class S, bool BACK>
__device__ __forceinline__ void
conv3_finish(const conv3_product_args &p, int first, const int *places, const uint4 *ahead,
             const float *mask, double *sums, int thread, const float (&acc)[S::MT][S::NT][4]) {
    if (BACK)
        conv3_finish_backward<T, S>(p, first, places, ahead, mask, sums, thread, acc);
    else
        conv3_finish_forward<T, S>(p, first, places, sums, thread, acc);
}

/* Grid: x blocks that share the tiles, y runs of N outputs. Weights of one or two runs stay; those
 * of more come with each step's pixels. */
template <class T, class S, bool BACK>
__global__ void __launch_bounds__(CONV3_THREADS, 1) conv3_product(const conv3_product_args p) {
    CHEX_DYNAMIC_SHARED(shared);
    const int thread = (int)threadIdx.x, first = (int)blockIdx.y * S::N;
    const conv3_places &g = p.places;
    const int stride = (int)gridDim.x;
    const int stage_bytes = g.loaded * S::KC * 2;
    const bool resident = p.runs <= 2;
    int *places = (int *)(shared + p.shared.places);
    float *scale = (float *)(shared + p.shared.scale), *mask = (float *)(shared + p.shared.mask);
    double *sums = (double *)(shared + p.shared.sums);
    uint4 *ahead = (uint4 *)(shared + p.shared.ahead);

    /* Stage i serves the steps of i's parity. */
    auto issue_weights = [&](int stage, int run) {
        conv3_issue_weights<T, S>(p, first, run * S::KC,
                                  shared + p.shared.weights + stage * S::WEIGHT_BYTES, thread);
    };
    auto issue = [&](int step, int slot, int run) {
        conv3_issue<T, S::KC, false>(p.source, run * S::KC, places + slot * g.loaded, g.loaded,
                                     shared + p.shared.stages + (step & 1) * stage_bytes,
                                     shared + p.shared.x_stages + (step & 1) * stage_bytes, thread);
        if (!resident)
            issue_weights(step & 1, run);
    };

    for (int run = 0; resident && run < p.runs; run++)
        issue_weights(run, run);
    conv3_write_tables<T, S, BACK>(p, first, scale, mask, sums, thread);
    conv3_write_places(g, (int)blockIdx.x, places, thread);
    if (p.runs == 1)
        conv3_write_places(g, (int)blockIdx.x + stride, places + g.loaded, thread);
    __syncthreads();
    issue(0, 0, 0);
    gpu_copy_commit();

    /* slot: where the tile's places are; the two tiles behind it have the next two. */
    int step = 0, slot = 0;
    for (int tile = (int)blockIdx.x; tile < g.tiles; tile += stride) {
        const int next = slot == 2 ? 0 : slot + 1, later = next == 2 ? 0 : next + 1;
        const int *here = places + slot * g.loaded;
        unsigned char *stage = nullptr;
        float acc[S::WIDE][S::NT][4];
#pragma unroll
        for (int i = 0; i < S::WIDE * S::NT * 4; i++)
            acc[i / 4 / S::NT][i / 4 % S::NT][i % 4] = 0.0f;
        for (int run = 0; run < p.runs; run++, step++) {
            const bool last = run == p.runs - 1;
            stage = shared + p.shared.stages + (step & 1) * stage_bytes;
            gpu_copy_wait<0>();
            conv3_change<T, S::KC, false>(p.source, scale, p.in, run * S::KC, here, g.loaded, stage,
                                          shared + p.shared.x_stages + (step & 1) * stage_bytes,
                                          thread);
            __syncthreads();
            if (BACK && p.ahead && last)
                conv3_issue_ahead<T, S>(p, first, here + g.halo, ahead, thread);
            gpu_copy_commit();
            if (!last)
                issue(step + 1, slot, run + 1);
            else if (tile + stride < g.tiles)
                issue(step + 1, next, 0);
            gpu_copy_commit();
            /* Places are needed one step before their pixels are. */
            if (p.runs == 1)
                conv3_write_places(g, tile + 2 * stride, places + later * g.loaded, thread);
            else if (run == p.runs - 2)
                conv3_write_places(g, tile + stride, places + next * g.loaded, thread);
            conv3_multiply<T, S>(stage, g.loaded, g.pitch,
                                 shared + p.shared.weights +
                                     (resident ? run : step & 1) * S::WEIGHT_BYTES,
                                 thread, acc);
        }
        if (BACK)
            gpu_copy_wait<1>();
        if constexpr (S::SPLIT == 2) {
            float own[S::MT][S::NT][4];
            conv3_exchange<S>(acc, (float4 *)stage, thread, own);
            conv3_finish<T, S, BACK>(p, first, here + g.halo, ahead, mask, sums, thread, own);
        } else {
            conv3_finish<T, S, BACK>(p, first, here + g.halo, ahead, mask, sums, thread, acc);
        }
        slot = next;
    }
    conv3_finish_sums<S, BACK>(p, first, sums, thread);
}

#endif
