/* SPDX-License-Identifier: Apache-2.0
 *
 * 3x3 convolution of a tile as nine shifted matrix products: forward, and the data gradient, which
 * is the same product with the taps reversed. Places, tiles and stages: conv_3x3_tile.cuh.
 *
 * Steps. A block loops over its tiles and, in a tile, over runs of 32 input channels. One run of
 * one tile is a step. A step is loaded to a stage in shared memory, transformed there (batch norm
 * and ReLU, or deferred gradient terms), and multiplied. After its last step a tile is finished:
 * stored, with statistics or masks. conv3_block has a function for each of these.
 *
 * Pipeline with three stages. Between two barriers the block multiplies one step, transforms the
 * next one and loads the one after that. Each scheduler has two warps: one multiplies first, the
 * other multiplies last. So tensor cores and the other units work at the same time.
 *
 * Pipeline with two stages (less shared memory). The next step is loaded while the present one is
 * multiplied; then all warps transform it.
 *
 * The results of all N outputs of a block stay in fp32 registers until the tile is complete. Sums
 * over pixels are fp32 within a tile and double over a block's tiles.
 */
#ifndef CHEX_ENGINE_CUDA_KERNELS_CONV_3X3_PRODUCT_CUH
#define CHEX_ENGINE_CUDA_KERNELS_CONV_3X3_PRODUCT_CUH

#include "engine/cuda/kernels/conv_3x3_tile.cuh"

/* Layout of a block's shared memory: offsets in bytes. */
struct conv3_product_shared {
    unsigned weights, stages, x_stages, exchange, places, scale, mask, bytes;
};

struct conv3_product_args {
    conv3_places places;
    conv3_source source;
    gpu_norm source_norm; /* forward: norm of the input; backward: mean NULL */
    const float *bsum, *csum;
    int in, out;        /* channels of the source and of `to` */
    int runs;           /* in / CONV3_KC */
    bool resident;      /* shared memory holds the weights of all runs; else of two runs */
    int stages;         /* 3 or 2 */
    const void *weight; /* (out, 3, 3, in) */
    void *to;
    unsigned to_pitch;
    gpu_stats stats; /* forward */
    /* backward: map and norm of the mask, add to `to` or overwrite it, sums */
    const void *x;
    unsigned x_pitch;
    gpu_norm norm;
    bool add;
    gpu_sums sums;
    double pixels;
    conv3_product_shared shared;
};

enum { CONV3_KC = 32 }; /* input channels of a run */

/* A kernel's shape. Warps form a grid of WM by WN. A warp computes 16 MT places by 8 NT channels.
 * SPLIT 2: a pair of warps multiplies the places of both, each warp with half of a run's input
 * channels; then they exchange their partial sums. So each weight fragment is used for twice as
 * many places. With 32 outputs, loading the fragments would otherwise take longer than the
 * products. */
template <int MT_, int NT_, int WN_, int SPLIT_ = 1> struct conv3_shape {
    static constexpr int MT = MT_, NT = NT_, WN = WN_, WM = CONV3_WARPS / WN_;
    static constexpr int SPLIT = SPLIT_, WIDE = MT * SPLIT;
    static constexpr int M = 16 * MT * WM, N = 8 * NT * WN, GROUPS = NT / 4;
    static constexpr int WEIGHT_BYTES = N * 9 * CONV3_KC * 2, SLOTS = CONV3_SLOTS;
    /* The warp's first row of M; the distance from there to its i-th 8 rows. */
    static __device__ __forceinline__ int first_row(int warp) { return warp / WN * 16 * MT; }
    static __device__ __forceinline__ int row(int i) { return i * 8; }
    static_assert(NT % 4 == 0, "a thread reads its channels as vectors of 8");
    static_assert(SPLIT == 1 || WN == 1, "pairs are neighbours");
};

/* A step: run `run` of tile `tile`. The table of its places is in slot `slot`. */
struct conv3_step {
    int run, tile, slot;
};
template <int SLOTS>
static __device__ __forceinline__ conv3_step conv3_step_after(const conv3_step &s, int runs,
                                                              int stride) {
    if (s.run + 1 < runs)
        return conv3_step{s.run + 1, s.tile, s.slot};
    return conv3_step{0, s.tile + stride, (s.slot + 1) % SLOTS};
}

/* Copies the weights of outputs [first, first + N) and of 32 inputs from `run` on to shared memory,
 * as [tap][group of 8 inputs][column][8 inputs]. */
template <class T, class S>
__device__ __forceinline__ void conv3_issue_weights(const conv3_product_args &p, int first, int run,
                                                    unsigned char *to, int thread) {
    constexpr int ITEMS = S::N / 8 * 9;
    const int warp = thread / 32, lane = thread % 32, e = lane % 8, chunk = lane / 8;
    for (int item = warp; item < ITEMS; item += CONV3_WARPS) {
        const int tap = item % 9, eight = item / 9;
        const int channel = gpu_vec8_channel(eight * 8 + e);
        const T *from = (const T *)p.weight + ((int64_t)(first + channel) * 9 + tap) * p.in + run;
        gpu_copy16(to + ((tap * 4 + chunk) * S::N + eight * 8 + e) * 16, from + chunk * 8, true);
    }
}

/* acc += the products of a step. With SPLIT 2 the first MT rows of acc are the warp's own places,
 * the others belong to the other warp of the pair. */
template <class T, class S>
__device__ __forceinline__ void conv3_multiply(const unsigned char *stage, int loaded, int pitch,
                                               const unsigned char *weights, int warp, int lane,
                                               float (&acc)[S::WIDE][S::NT][4]) {
    constexpr int STEPS = CONV3_KC / 16 / S::SPLIT;
    const int part = S::SPLIT == 2 ? warp % 2 * 2 : 0; /* the warp's first group of 8 channels */
    const unsigned char *a_lane = stage + ((part + (lane >> 4)) * loaded + (lane & 15)) * 16;
    const unsigned char *a_rows[S::SPLIT];
#pragma unroll
    for (int i = 0; i < S::SPLIT; i++)
        a_rows[i] = a_lane + ((warp ^ i) / S::WN * 16 * S::MT) * 16;
    const int column = warp % S::WN * 8 * S::NT + (lane & 7) + (lane >> 4) * 8;
    const unsigned char *b_lane = weights + ((part + (lane >> 3 & 1)) * S::N + column) * 16;
#pragma unroll 1
    for (int ky = 0; ky < 3; ky++) {
#pragma unroll
        for (int kx = 0; kx < 3; kx++) {
            const int a_tap = (ky * pitch + kx) * 16;
            const unsigned char *b_tap = b_lane + (ky * 3 + kx) * (4 * S::N * 16);
#pragma unroll
            for (int k = 0; k < STEPS; k++) {
                uint32_t a[S::WIDE][4];
#pragma unroll
                for (int m = 0; m < S::WIDE; m++)
                    gpu_ldmatrix_x4(a[m], a_rows[m / S::MT] + a_tap +
                                              (2 * k * loaded + m % S::MT * 16) * 16);
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

template <class S>
static __device__ __forceinline__ void conv3_clear(float (&acc)[S::WIDE][S::NT][4]) {
#pragma unroll
    for (int i = 0; i < S::WIDE * S::NT * 4; i++)
        acc[i / 4 / S::NT][i / 4 % S::NT][i % 4] = 0.0f;
}

/* SPLIT 2, exchange of partial sums. conv3_part keeps the sums of the warp's own places and writes
 * those of the other warp's places to exchange[warp][m][n][lane]. After the next barrier,
 * conv3_meet adds the sums that the other warp has written. */
template <class S>
__device__ __forceinline__ void conv3_part(const float (&wide)[S::WIDE][S::NT][4], float4 *exchange,
                                           int warp, int lane, float (&own)[S::MT][S::NT][4]) {
#pragma unroll
    for (int m = 0; m < S::MT; m++)
#pragma unroll
        for (int n = 0; n < S::NT; n++) {
            const float *const other = wide[S::WIDE - S::MT + m][n];
#pragma unroll
            for (int i = 0; i < 4; i++)
                own[m][n][i] = wide[m][n][i];
            exchange[((warp * S::MT + m) * S::NT + n) * 32 + lane] =
                make_float4(other[0], other[1], other[2], other[3]);
        }
}
template <class S>
__device__ __forceinline__ void conv3_meet(const float4 *exchange, int warp, int lane,
                                           float (&own)[S::MT][S::NT][4]) {
#pragma unroll
    for (int m = 0; m < S::MT; m++)
#pragma unroll
        for (int n = 0; n < S::NT; n++) {
            const float4 got = exchange[(((warp ^ 1) * S::MT + m) * S::NT + n) * 32 + lane];
            own[m][n][0] += got.x;
            own[m][n][1] += got.y;
            own[m][n][2] += got.z;
            own[m][n][3] += got.w;
        }
}

/* A lane's sums over the block's tiles, for each of its column groups: the two totals of
 * gpu_vec8_share. */
template <class S> struct conv3_sums { double two[S::GROUPS][2]; };
template <class S>
__device__ __forceinline__ void conv3_add(conv3_sums<S> &sums, int g, const float (&first)[8],
                                          const float (&second)[8], int lane) {
    const float2 of_tile = gpu_vec8_share(first, second, lane);
    sums.two[g][0] += (double)of_tile.x;
    sums.two[g][1] += (double)of_tile.y;
}

/* The thread's 8 channels in row half `h` of matrix row m, column group g. */
template <class S>
__device__ __forceinline__ void conv3_own(const float (&acc)[S::MT][S::NT][4], int m, int g, int h,
                                          float v[8]) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        v[2 * j] = acc[m][4 * g + j][2 * h];
        v[2 * j + 1] = acc[m][4 * g + j][2 * h + 1];
    }
}

/* The first of a lane's 8 columns in group g; the lane's first row. */
template <class S> static __device__ __forceinline__ int conv3_column(int warp, int lane, int g) {
    return warp % S::WN * 8 * S::NT + 32 * g + lane % 4 * 8;
}
template <class S> static __device__ __forceinline__ int conv3_row(int warp, int lane) {
    return S::first_row(warp) + lane / 4;
}

/* Forward epilogue: rounds, stores, and adds to the sums. */
template <class T, class S>
__device__ __forceinline__ void
conv3_finish_forward(const conv3_product_args &p, int first, const int *places, int warp, int lane,
                     const float (&acc)[S::MT][S::NT][4], conv3_sums<S> &sums) {
    const int row = conv3_row<S>(warp, lane);
#pragma unroll
    for (int g = 0; g < S::GROUPS; g++) {
        T *const to = (T *)p.to + first + conv3_column<S>(warp, lane, g);
        float sum[8] = {0}, squares[8] = {0};
#pragma unroll
        for (int mh = 0; mh < 2 * S::MT; mh++) {
            const int place = places[row + S::row(mh)];
            if (place < 0)
                continue;
            float v[8];
            conv3_own<S>(acc, mh / 2, g, mh % 2, v);
            const gpu_run<T, 8> packed = gpu_pack_run<T, 8>(v);
            gpu_store_run(to + conv3_pixel(place) * (uint64_t)p.to_pitch, packed);
            gpu_unpack_run(v, packed);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                sum[i] += v[i];
                squares[i] = fmaf(v[i], v[i], squares[i]);
            }
        }
        if (p.stats.partial)
            conv3_add<S>(sums, g, sum, squares, lane);
    }
}

/* Prefetched runs of 8 channels of the map x, which the mask needs: row by row, then column group
 * by column group. AHEAD runs are in flight. */
template <class T, class S> struct conv3_prefetched {
    static constexpr int ALL = 2 * S::MT * S::GROUPS, AHEAD = 2 * S::MT < 4 ? 2 * S::MT : 4;
    gpu_run<T, 8> x[AHEAD];
};
/* Starts loading run i if it exists. */
template <class T, class S>
__device__ __forceinline__ void conv3_prefetch(const conv3_product_args &p, int first,
                                               const int *places, int warp, int lane, int i,
                                               conv3_prefetched<T, S> &b) {
    if (i >= b.ALL)
        return;
    const int column = conv3_column<S>(warp, lane, i / (2 * S::MT));
    const int place = places[conv3_row<S>(warp, lane) + S::row(i % (2 * S::MT))];
    b.x[i % b.AHEAD] =
        gpu_load_run<8>((const T *)p.x + first + column + conv3_pixel(place) * (uint64_t)p.x_pitch);
}

/* Applies mask and sums to 8 channels: v becomes A dU. mask: a, b, mean of the channels. */
template <class T>
static __device__ __forceinline__ void conv3_mask(const gpu_run<T, 8> &prefetched,
                                                  const float (&mask)[3][8], float (&v)[8],
                                                  float (&s1)[8], float (&s2)[8]) {
    float x[8];
    gpu_unpack_run(x, prefetched);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (!(gpu_normed(gpu_ab{mask[0][i], mask[1][i]}, x[i]) > 0.0f))
            v[i] = 0.0f;
        s1[i] += v[i];
        s2[i] = fmaf(v[i], x[i] - mask[2][i], s2[i]);
        v[i] *= mask[0][i];
    }
}

/* Backward epilogue: with NORMED masks, adds to the sums and scales; then adds to `to` or stores.
 * mask: a, b, mean of the N channels. prefetched: first runs of x. */
template <class T, class S, bool NORMED>
__device__ __forceinline__ void
conv3_finish_backward(const conv3_product_args &p, int first, const int *places, const float *mask,
                      int warp, int lane, const float (&acc)[S::MT][S::NT][4],
                      conv3_prefetched<T, S> &prefetched, conv3_sums<S> &sums) {
    const int row = conv3_row<S>(warp, lane);
#pragma unroll
    for (int g = 0; g < S::GROUPS; g++) {
        const int column = conv3_column<S>(warp, lane, g);
        T *const to = (T *)p.to + first + column;
        float s1[8] = {0}, s2[8] = {0}, factors[3][8] = {{0}};
#pragma unroll
        for (int i = 0; i < 3 && NORMED; i++)
            gpu_read_run<8>(factors[i], mask + i * S::N + column);
#pragma unroll
        for (int mh = 0; mh < 2 * S::MT; mh++) {
            const int place = places[row + S::row(mh)], run = g * 2 * S::MT + mh;
            const gpu_run<T, 8> x = prefetched.x[run % prefetched.AHEAD];
            if (NORMED)
                conv3_prefetch<T, S>(p, first, places, warp, lane, run + prefetched.AHEAD,
                                     prefetched);
            if (place < 0)
                continue;
            T *const at = to + conv3_pixel(place) * (uint64_t)p.to_pitch;
            float v[8];
            conv3_own<S>(acc, mh / 2, g, mh % 2, v);
            if (NORMED)
                conv3_mask<T>(x, factors, v, s1, s2);
            if (p.add) {
                float was[8];
                gpu_read_run<8>(was, at);
#pragma unroll
                for (int i = 0; i < 8; i++)
                    v[i] += was[i];
            }
            gpu_write_run<8>(at, v);
        }
        if (p.sums.partial)
            conv3_add<S>(sums, g, s1, s2, lane);
    }
}

/* Writes the block's sums to global memory. The last block of these channels completes them. */
template <class S, bool BACK>
__device__ __forceinline__ void conv3_finish_sums(const conv3_product_args &p, int first,
                                                  const conv3_sums<S> &sums, double *rows,
                                                  int thread) {
    float *partial = BACK ? p.sums.partial : p.stats.partial;
    unsigned *ticket = BACK ? p.sums.ticket : p.stats.ticket;
    const int warp = thread / 32, lane = thread % 32;
    if (!partial)
        return;
    for (int g = 0; g < S::GROUPS; g++)
        for (int i = 0; i < 2; i++)
            rows[warp / S::WN * 2 * S::N + lane / 16 * S::N + conv3_column<S>(warp, lane, g) +
                 gpu_vec8_own(lane) + i] = sums.two[g][i];
    __syncthreads();
    for (int i = thread; i < 2 * S::N; i += CONV3_THREADS) {
        const int channel = first + i % S::N;
        double sum = 0;
        for (int w = 0; w < S::WM; w++)
            sum += rows[w * 2 * S::N + i];
        if (BACK && i >= S::N)
            sum *= (double)p.norm.inv[channel];
        partial[((size_t)blockIdx.x * 2 + i / S::N) * (size_t)p.out + channel] = (float)sum;
    }
    if (!gpu_last_of_run(ticket, (int)blockIdx.y, (int)blockIdx.x, (int)gridDim.x, partial, p.out,
                         first, S::N, thread, CONV3_THREADS))
        return;
    if (BACK)
        gpu_finish_sums(p.sums, p.norm, p.out, first, S::N, (int)gridDim.x, p.pixels, thread,
                        CONV3_THREADS);
    else
        gpu_finish_stats(p.stats, p.out, first, S::N, (int)gridDim.x, p.pixels, thread,
                         CONV3_THREADS);
}

template <class S, bool BACK>
__device__ __forceinline__ void conv3_write_tables(const conv3_product_args &p, int first,
                                                   float *scale, float *mask, int thread) {
    if (p.source.scaled)
        conv3_write_scale(p.source_norm, p.bsum, p.csum, 0, p.in, scale, thread);
    for (int c = thread; BACK && p.norm.mean && c < S::N; c += CONV3_THREADS) {
        const gpu_ab s = gpu_scale(p.norm, first + c);
        mask[c] = s.a;
        mask[S::N + c] = s.b;
        mask[2 * S::N + c] = p.norm.mean[first + c];
    }
}

/* A thread's view of its block: the parts of a step. Pixels of step i are in stage i % stages,
 * those of x in x_stage i % (stages - 1). */
template <class T, class S, bool BACK> struct conv3_block {
    const conv3_product_args &p;
    unsigned char *shared;
    int thread, warp, lane;
    int first; /* the block's first output */

    __device__ __forceinline__ bool on(const conv3_step &s) const {
        return s.tile < p.places.tiles;
    }
    __device__ __forceinline__ int *places_of(int slot) const {
        return (int *)(shared + p.shared.places) + slot * p.places.loaded;
    }
    __device__ __forceinline__ unsigned char *stage_of(int stage) const {
        return shared + p.shared.stages + stage * (p.places.loaded * CONV3_KC * 2);
    }
    __device__ __forceinline__ unsigned char *x_stage_of(int stage) const {
        return shared + p.shared.x_stages + stage * (p.places.loaded * CONV3_KC * 2);
    }
    __device__ __forceinline__ unsigned char *weights_of(int run) const {
        return shared + p.shared.weights + run * S::WEIGHT_BYTES;
    }
    __device__ __forceinline__ float *scale() const { return (float *)(shared + p.shared.scale); }
    __device__ __forceinline__ float *mask() const { return (float *)(shared + p.shared.mask); }
    __device__ __forceinline__ float4 *exchange() const {
        return (float4 *)(shared + p.shared.exchange);
    }

    __device__ __forceinline__ void write_places(const conv3_step &s) const {
        if (s.run == 0 && on(s))
            conv3_write_places(p.places, s.tile, places_of(s.slot), thread);
    }

    /* Starts the copies of a step's weights. */
    __device__ __forceinline__ void load_weights(const conv3_step &s, int to) const {
        conv3_issue_weights<T, S>(p, first, s.run * CONV3_KC, weights_of(to), thread);
    }
    /* Starts the copies of a step's pixels. */
    __device__ __forceinline__ void load(const conv3_step &s, int stage, int x_stage) const {
        if (on(s))
            conv3_issue<CONV3_KC, false>(p.source, s.run * CONV3_KC, places_of(s.slot),
                                         p.places.loaded, stage_of(stage), x_stage_of(x_stage),
                                         thread);
    }
    /* Applies batch norm and ReLU, or the deferred gradient terms, to the copied pixels. */
    __device__ __forceinline__ void transform(const conv3_step &s, int stage, int x_stage) const {
        if (on(s))
            conv3_change<T, CONV3_KC, false, BACK>(p.source, scale(), p.in, s.run * CONV3_KC,
                                                   places_of(s.slot), p.places.loaded,
                                                   stage_of(stage), x_stage_of(x_stage), thread);
    }
    /* Backward: starts to load x, which the mask of the tile in this slot needs. */
    __device__ __forceinline__ void prefetch(int slot, conv3_prefetched<T, S> &prefetched) const {
        if (!BACK || !p.norm.mean)
            return;
        const int *const places = places_of(slot) + p.places.halo;
#pragma unroll
        for (int i = 0; i < prefetched.AHEAD; i++)
            conv3_prefetch<T, S>(p, first, places, warp, lane, i, prefetched);
    }
    /* Adds the products of a step to acc. In the last run of a tile it first starts to load x,
     * which the mask needs. weights: index of the run's weights in shared memory. */
    __device__ __forceinline__ void multiply(const conv3_step &s, int stage, int weights,
                                             conv3_prefetched<T, S> &prefetched,
                                             float (&acc)[S::WIDE][S::NT][4]) const {
        if (s.run == p.runs - 1)
            prefetch(s.slot, prefetched);
        conv3_multiply<T, S>(stage_of(stage), p.places.loaded, p.places.pitch, weights_of(weights),
                             warp, lane, acc);
    }
    __device__ __forceinline__ conv3_step after(const conv3_step &s) const {
        return conv3_step_after<S::SLOTS>(s, p.runs, (int)gridDim.x);
    }
    /* Until step `now` is transformed, and the copies of the next ones are under way. */
    __device__ __forceinline__ void begin(const conv3_step &now, const conv3_step &next,
                                          const conv3_step &later) const {
        write_places(now);
        write_places(next);
        write_places(later);
        conv3_write_tables<S, BACK>(p, first, scale(), mask(), thread);
        __syncthreads();
        for (conv3_step s = now; s.run < (p.resident ? p.runs : 1) && s.slot == 0; s = after(s))
            load_weights(s, s.run);
        load(now, 0, 0);
        gpu_copy_commit();
        if (p.stages == 3)
            load(next, 1, 1);
        gpu_copy_commit();
        gpu_copy_wait<1>();
        transform(now, 0, 0);
    }
    /* Starts the copies that a turn has to start: the next step's weights, and pixels. `last` is
     * the step after `later`. */
    __device__ __forceinline__ void load_ahead(const conv3_step &next, const conv3_step &later,
                                               const conv3_step &last, int next_stage,
                                               int parity) const {
        if (!p.resident && on(next))
            load_weights(next, parity ^ 1);
        gpu_copy_commit();
        if (p.stages == 3)
            load(later, next_stage == 2 ? 0 : next_stage + 1, parity);
        else
            load(next, next_stage, 0);
        gpu_copy_commit();
        write_places(last);
    }
    __device__ __forceinline__ void transform_next(const conv3_step &next, int next_stage,
                                                   int parity) const {
        const bool three = p.stages == 3;
        if (three) /* this thread's copies of the next step */
            gpu_copy_wait<2>();
        else
            gpu_copy_wait<0>();
        transform(next, next_stage, three ? parity ^ 1 : 0);
    }
    /* Stores a complete tile, whose table of places is in `slot`, and adds to the sums. */
    __device__ __forceinline__ void finish(int slot, const float (&acc)[S::MT][S::NT][4],
                                           conv3_prefetched<T, S> &prefetched,
                                           conv3_sums<S> &sums) const {
        const int *const places = places_of(slot) + p.places.halo;
        if (!BACK)
            conv3_finish_forward<T, S>(p, first, places, warp, lane, acc, sums);
        else if (p.norm.mean)
            conv3_finish_backward<T, S, true>(p, first, places, mask(), warp, lane, acc, prefetched,
                                              sums);
        else
            conv3_finish_backward<T, S, false>(p, first, places, mask(), warp, lane, acc,
                                               prefetched, sums);
    }
    /* SPLIT 2: completes the sums with those of the other warp of the pair, then as finish. */
    __device__ __forceinline__ void finish_split(int slot, float (&own)[S::MT][S::NT][4],
                                                 conv3_prefetched<T, S> &prefetched,
                                                 conv3_sums<S> &sums) const {
        conv3_meet<S>(exchange(), warp, lane, own);
        finish(slot, own, prefetched, sums);
    }
};

/* Grid: x: blocks that share the tiles; y: runs of N outputs. */
template <class T, class S, bool BACK>
__global__ void __launch_bounds__(CONV3_THREADS, 1) conv3_product(const conv3_product_args p) {
    gpu_begin();
    CHEX_DYNAMIC_SHARED(shared);
    const int thread = (int)threadIdx.x, first = (int)blockIdx.y * S::N;
    const conv3_block<T, S, BACK> block = {p, shared, thread, thread / 32, thread % 32, first};
    conv3_step now = {0, (int)blockIdx.x, 0}, next = block.after(now), later = block.after(next);
    block.begin(now, next, later);
    __syncthreads();

    /* The turn in which the warp transforms; it multiplies in the other. */
    const int side = p.stages == 3 ? block.warp / 4 : 1;
    float acc[S::WIDE][S::NT][4], own[S::MT][S::NT][4] = {};
    conv3_clear<S>(acc);
    conv3_prefetched<T, S> prefetched = {};
    conv3_sums<S> sums = {};
    bool pending = false; /* SPLIT 2: `own` is still to be finished */
    int pending_slot = 0, stage = 0, parity = 0;
    while (block.on(now)) {
        const conv3_step last = block.after(later);
        const int next_stage = stage == p.stages - 1 ? 0 : stage + 1;
        const bool ends = now.run == p.runs - 1;
        block.load_ahead(next, later, last, next_stage, parity);
#pragma unroll 1
        for (int turn = 0; turn < 2; turn++) {
            if (turn == side) {
                block.transform_next(next, next_stage, parity);
                if (S::SPLIT == 2 && pending)
                    block.finish_split(pending_slot, own, prefetched, sums);
                continue;
            }
            block.multiply(now, stage, p.resident ? now.run : parity, prefetched, acc);
            if constexpr (S::SPLIT == 1)
                if (ends) {
                    block.finish(now.slot, acc, prefetched, sums);
                    conv3_clear<S>(acc);
                }
        }
        if constexpr (S::SPLIT == 2) {
            pending = ends;
            if (pending) {
                conv3_part<S>(acc, block.exchange(), block.warp, block.lane, own);
                conv3_clear<S>(acc);
                pending_slot = now.slot;
            }
        }
        gpu_copy_wait<1>(); /* the next step's weights */
        __syncthreads();
        now = next;
        next = later;
        later = last;
        stage = next_stage;
        parity ^= 1;
    }
    if (S::SPLIT == 2 && pending)
        block.finish_split(pending_slot, own, prefetched, sums);
    conv3_finish_sums<S, BACK>(p, first, sums, (double *)(shared + p.shared.stages), thread);
}

#endif
