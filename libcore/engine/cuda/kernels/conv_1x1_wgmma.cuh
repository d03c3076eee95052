/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel of forward 1x1 convolutions by TMA and wgmma (capability 9.0 only). Batch norm and
 * ReLU of the input are in the prologue, statistics of the output in the epilogue, as in
 * conv_1x1_gemm.cuh.
 *
 *     out (rows, n) = relu(a x + b) (rows, k) W^T,  W (n, k)
 *
 * Roles. A block has 8 consumer warps in two warpgroups, and a third warpgroup, which gives its
 * registers to them. One of its threads is the producer: it copies tiles of the input and of W into
 * a ring of stages in shared memory (TMA); a stage holds 64 channels. The consumers load their rows
 * into registers (ldmatrix), apply the prologue there, and multiply them by W in shared memory
 * (wgmma). While the tensor cores work on one part of a stage, a warpgroup prepares the next. Each
 * row is prepared once, by one warp.
 *
 * Barriers. full[slot]: the stage's bytes have arrived. empty[slot]: all consumer warps have
 * finished the stage. Consumers and producer otherwise meet only at the start and at the end.
 *
 * Parts. A part is the rows of one wgmma: room for 64, of which `box` are used. Each warpgroup has
 * PARTS / 2 of a tile's parts. `box` is chosen such that every block has the same number of equally
 * high tiles: with 12,544 rows (49 pixels of 256 images) 131 of 132 multiprocessors compute 96 rows
 * each, where tiles of 128 rows would use 98. The room that is left costs tensor operations only.
 *
 * Weights. If a block has several tiles and W's columns of the block fit in shared memory beside
 * the ring (up to 576 channels), they are copied with the first tile and stay. Otherwise they are
 * copied with every tile. Then two blocks with the same columns are a pair (a cluster): each
 * copies half of a stage of W to both (multicast), and a stage is free when both have finished it.
 * Tiles have up to 256 rows. So L2 moves a quarter of the bytes of W that it would for single
 * blocks with tiles of 128 rows. Both blocks of a pair walk through equally many tiles; those past
 * the last row are zeros.
 *
 * Layout. Rows have 128 bytes per stage. TMA permutes the chunks of 16 bytes within them (swizzle
 * of 128 bytes): chunk c of row r is at c ^ (r & 7). wgmma reads W in this layout, and ldmatrix the
 * input without bank conflicts.
 */
#ifndef CHEX_ENGINE_CUDA_KERNELS_CONV_1X1_WGMMA_CUH
#define CHEX_ENGINE_CUDA_KERNELS_CONV_1X1_WGMMA_CUH

#include "engine/cuda/kernels/conv_1x1_gemm.cuh"
#include "engine/cuda/kernels/hopper.cuh"

enum {
    CONV1X1_WGMMA_K = 64, /* channels of a stage */
    CONV1X1_WGMMA_ROW = 2 * CONV1X1_WGMMA_K,
    CONV1X1_WGMMA_PART = 64 * CONV1X1_WGMMA_ROW, /* bytes */
    CONV1X1_WGMMA_THREADS = CONV1X1_THREADS + 128,
    CONV1X1_WGMMA_STAGES = 8,    /* at most */
    CONV1X1_WGMMA_STATIC = 1024, /* static shared memory, with the alignment of the dynamic one */
    /* Registers of a consumer and of a producer thread: 64,512 in all, as many as at the launch. */
    CONV1X1_WGMMA_MORE = 232,
    CONV1X1_WGMMA_FEWER = 40
};
static_assert(gpu_registers_suffice(CONV1X1_THREADS, CONV1X1_WGMMA_MORE, CONV1X1_WGMMA_FEWER),
              "the consumers would wait for ever");

struct conv1x1_wgmma {
    CUtensorMap in, weight;
    unsigned rows;
    int n, k;
    int box;    /* rows of a part, at most 64 */
    int tiles;  /* of each block */
    int stages; /* of the ring */
    gpu_norm norm;
    conv1x1_slice out;
    gpu_stats stats;
};

static inline __host__ __device__ int conv1x1_wgmma_steps(int k) {
    return (k + CONV1X1_WGMMA_K - 1) / CONV1X1_WGMMA_K;
}

/* Shape of a tile: MI parts for each warpgroup, 8 NI columns. PAIR: blocks are pairs, W goes
 * through the ring; else W stays. Layout of shared memory: the ring of input stages, the stages of
 * W, the warps' corners, the factors, the barriers. */
template <int MI_, int NI_, bool PAIR_> struct conv1x1_wgmma_shape {
    static constexpr int MI = MI_, NI = NI_, PARTS = 2 * MI, COLS = 8 * NI;
    static constexpr bool PAIR = PAIR_;
    static constexpr int IN_STAGE = PARTS * CONV1X1_WGMMA_PART, W_STAGE = COLS * CONV1X1_WGMMA_ROW;
    static constexpr int W_BOX = PAIR ? COLS / 2 : COLS; /* columns that a block copies at a time */
    static constexpr int PITCH = COLS + 8, CORNER = 16 * PITCH; /* as in conv1x1_gemm_shape */

    static constexpr size_t bytes(int k, int stages) {
        const int steps = conv1x1_wgmma_steps(k);
        return (size_t)stages * IN_STAGE + (size_t)(PAIR ? stages : steps) * W_STAGE +
               CONV1X1_WARPS * CORNER + (size_t)steps * CONV1X1_WGMMA_K * sizeof(float2) +
               2 * CONV1X1_WGMMA_STAGES * sizeof(gpu_barrier);
    }
    /* Stages of the ring that fit beside the rest; may be negative. */
    static constexpr int stages(size_t most_bytes, int k) {
        const int64_t room = (int64_t)most_bytes - (int64_t)bytes(k, 0);
        const int64_t fit = room / (IN_STAGE + (PAIR ? W_STAGE : 0));
        return fit < CONV1X1_WGMMA_STAGES ? (int)fit : (int)CONV1X1_WGMMA_STAGES;
    }
};

struct conv1x1_wgmma_shared {
    unsigned char *in, *weight, *corners;
    float2 *factors;
    gpu_barrier *full, *empty;
};
template <class S>
static __device__ __forceinline__ conv1x1_wgmma_shared
conv1x1_wgmma_shared_of(const conv1x1_wgmma &p, unsigned char *base) {
    const int steps = conv1x1_wgmma_steps(p.k);
    conv1x1_wgmma_shared m;
    m.in = base;
    m.weight = m.in + p.stages * S::IN_STAGE;
    m.corners = m.weight + (S::PAIR ? p.stages : steps) * S::W_STAGE;
    m.factors = reinterpret_cast<float2 *>(m.corners + CONV1X1_WARPS * S::CORNER);
    m.full = reinterpret_cast<gpu_barrier *>(m.factors + steps * CONV1X1_WGMMA_K);
    m.empty = m.full + CONV1X1_WGMMA_STAGES;
    return m;
}

/* A slot of the ring, and the parity of the phase in which it is filled. */
struct conv1x1_wgmma_slot {
    int at;
    unsigned parity;
};
static __device__ __forceinline__ void conv1x1_wgmma_advance(conv1x1_wgmma_slot &slot, int stages) {
    if (++slot.at == stages) {
        slot.at = 0;
        slot.parity ^= 1;
    }
}

template <class S>
static __device__ __forceinline__ void conv1x1_wgmma_barriers(const conv1x1_wgmma &p,
                                                              const conv1x1_wgmma_shared &m) {
    for (int s = 0; s < p.stages; s++) {
        gpu_barrier_init(&m.full[s], 1);
        gpu_barrier_init(&m.empty[s], S::PAIR ? 2 * CONV1X1_WARPS : CONV1X1_WARPS);
    }
    gpu_barrier_init_fence();
}

/* Copies the block's share of step `step` of W. */
template <class S>
static __device__ __forceinline__ void conv1x1_wgmma_load_weight(const conv1x1_wgmma &p,
                                                                 const conv1x1_wgmma_shared &m,
                                                                 int slot, int step, int col0) {
    if (S::PAIR) {
        const int mine = (int)gpu_cluster_block();
        unsigned char *const to = m.weight + slot * S::W_STAGE + mine * (S::W_STAGE / 2);
        gpu_tile_load_all(to, &p.weight, step * CONV1X1_WGMMA_K, col0 + mine * S::W_BOX,
                          &m.full[slot], 3);
    } else {
        gpu_tile_load(m.weight + step * S::W_STAGE, &p.weight, step * CONV1X1_WGMMA_K, col0,
                      &m.full[slot]);
    }
}

/* The producer, one thread: copies all stages of all tiles of the block, in order. Rows and
 * channels that do not exist are zeros, and count as bytes. */
template <class S>
static __device__ __forceinline__ void
conv1x1_wgmma_produce(const conv1x1_wgmma &p, const conv1x1_wgmma_shared &m, int col0) {
    const int tile_rows = S::PARTS * p.box, steps = conv1x1_wgmma_steps(p.k);
    int row0 = (int)blockIdx.y * tile_rows;
    conv1x1_wgmma_slot slot = {0, 0};
    for (int tile = 0; tile < p.tiles; tile++, row0 += (int)gridDim.y * tile_rows)
        for (int step = 0; step < steps; step++) {
            const bool with_weight = S::PAIR || tile == 0;
            gpu_barrier_wait(&m.empty[slot.at], slot.parity ^ 1);
            gpu_barrier_expect(&m.full[slot.at], (unsigned)(tile_rows * CONV1X1_WGMMA_ROW +
                                                            (with_weight ? (int)S::W_STAGE : 0)));
            if (with_weight)
                conv1x1_wgmma_load_weight<S>(p, m, slot.at, step, col0);
            for (int i = 0; i < S::PARTS; i++)
                gpu_tile_load(m.in + slot.at * S::IN_STAGE + i * CONV1X1_WGMMA_PART, &p.in,
                              step * CONV1X1_WGMMA_K, row0 + i * p.box, &m.full[slot.at]);
            conv1x1_wgmma_advance(slot, p.stages);
        }
}

/* ---- consumers ---- */

/* Writes the factors of the prologue, while the first copies are on their way. Channels past the
 * last one have factors 0, so their products are 0. All consumers call it. */
static __device__ __forceinline__ void conv1x1_wgmma_factors(const conv1x1_wgmma &p,
                                                             float2 *factors) {
    for (int c = (int)threadIdx.x; c < conv1x1_wgmma_steps(p.k) * CONV1X1_WGMMA_K;
         c += CONV1X1_THREADS) {
        const gpu_ab s = c < p.k ? gpu_scale(p.norm, c) : gpu_ab{0.0f, 0.0f};
        factors[c] = make_float2(s.a, s.b);
    }
    gpu_warps_sync(1, CONV1X1_THREADS);
}

/* A consumer thread: its warp, its lane's place in a part, its lane's first factors; its slot, and
 * the step that it multiplies. */
struct conv1x1_wgmma_consumer {
    int warp, lane;
    int at;
    const unsigned char *factors;
    conv1x1_wgmma_slot slot;
    int step;
};

/* Loads the warp's rows of part `mi` and applies the prologue. a: fragments of 16 channels each. */
template <class T, class S, int PRO>
static __device__ __forceinline__ void
conv1x1_wgmma_prepare(uint32_t (&a)[4][4], const conv1x1_wgmma_shared &m,
                      const conv1x1_wgmma_consumer &c, int step, int mi) {
    const unsigned char *const part =
        m.in + c.slot.at * S::IN_STAGE + (c.warp / 4 * S::MI + mi) * CONV1X1_WGMMA_PART;
    const unsigned char *const factors = c.factors + step * CONV1X1_WGMMA_K * (int)sizeof(float2);
    const uint32_t none[4] = {};
#pragma unroll
    for (int kk = 0; kk < 4; kk++) {
        float4 s0 = {}, s1 = {};
        if (PRO != CONV1X1_PLAIN) {
            s0 = *reinterpret_cast<const float4 *>(factors + kk * 128);
            s1 = *reinterpret_cast<const float4 *>(factors + kk * 128 + 64);
        }
        gpu_ldmatrix_x4(a[kk], part + (c.at ^ kk << 5));
        conv1x1_gemm_prologue<T, PRO>(a[kk], none, s0, s1);
    }
}

/* Starts acc += a W^T for one part of a stage. */
template <class T, class S>
static __device__ __forceinline__ void conv1x1_wgmma_multiply(float (&acc)[S::NI][4],
                                                              const uint32_t (&a)[4][4],
                                                              const unsigned char *weight) {
    const uint64_t b = gpu_matrix(weight, 16, 8 * CONV1X1_WGMMA_ROW, CONV1X1_WGMMA_ROW);
    gpu_wgmma_fence();
#pragma unroll
    for (int kk = 0; kk < 4; kk++)
        gpu_wgmma_a<T, S::COLS>(&acc[0][0], a[kk], gpu_matrix_at(b, kk * 32), true);
    gpu_wgmma_commit();
}

/* The warp has finished a slot; in a pair both producers need to know. */
template <class S>
static __device__ __forceinline__ void conv1x1_wgmma_release(const conv1x1_wgmma_shared &m,
                                                             int slot, int lane) {
    __syncwarp();
    if (S::PAIR && lane < 2)
        gpu_barrier_arrive_in(&m.empty[slot], (unsigned)lane);
    if (!S::PAIR && lane == 0)
        gpu_barrier_arrive(&m.empty[slot]);
}

/* Multiplies the stage at c.slot. now: fragments of its first part. The next stage's first part is
 * prepared in `next` (MI 1) or `now` (MI 2). *last: the slot whose products are still running;
 * negative: none. On return this stage's last part runs. */
template <class T, class S, int PRO>
static __device__ __forceinline__ void
conv1x1_wgmma_stage(const conv1x1_wgmma &p, const conv1x1_wgmma_shared &m,
                    conv1x1_wgmma_consumer &c, float (&acc)[S::MI][S::NI][4], uint32_t (&now)[4][4],
                    uint32_t (&next)[4][4], int &last) {
    const unsigned char *const weight = m.weight + (S::PAIR ? c.slot.at : c.step) * S::W_STAGE;
    conv1x1_wgmma_multiply<T, S>(acc[0], now, weight);
    gpu_wgmma_wait<1>();
    if (last >= 0)
        conv1x1_wgmma_release<S>(m, last, c.lane);
    last = c.slot.at;
    if (S::MI == 2) {
        conv1x1_wgmma_prepare<T, S, PRO>(next, m, c, c.step, 1);
        conv1x1_wgmma_multiply<T, S>(acc[S::MI - 1], next, weight);
        gpu_wgmma_wait<1>();
    }
    conv1x1_wgmma_advance(c.slot, p.stages);
    if (++c.step < conv1x1_wgmma_steps(p.k)) {
        gpu_barrier_wait(&m.full[c.slot.at], c.slot.parity);
        conv1x1_wgmma_prepare<T, S, PRO>(S::MI == 2 ? now : next, m, c, c.step, 0);
    }
}

/* Computes a tile. */
template <class T, class S, int PRO>
static __device__ __forceinline__ void
conv1x1_wgmma_tile(const conv1x1_wgmma &p, const conv1x1_wgmma_shared &m, conv1x1_wgmma_consumer &c,
                   float (&acc)[S::MI][S::NI][4]) {
    const int steps = conv1x1_wgmma_steps(p.k);
    uint32_t a[2][4][4];
    int last = -1;
    c.step = 0;
    gpu_barrier_wait(&m.full[c.slot.at], c.slot.parity);
    conv1x1_wgmma_prepare<T, S, PRO>(a[0], m, c, 0, 0);
    while (c.step < steps) {
        conv1x1_wgmma_stage<T, S, PRO>(p, m, c, acc, a[0], a[1], last);
        if (S::MI == 1 && c.step < steps)
            conv1x1_wgmma_stage<T, S, PRO>(p, m, c, acc, a[1], a[0], last);
    }
    gpu_wgmma_wait<0>();
    conv1x1_wgmma_release<S>(m, last, c.lane);
}

/* Stores the warp's rows of a tile and adds them to the sums. */
template <class T, class S>
static __device__ __forceinline__ void
conv1x1_wgmma_store(const conv1x1_wgmma &p, const conv1x1_wgmma_shared &m,
                    const conv1x1_wgmma_consumer &c, const float (&acc)[S::MI][S::NI][4],
                    unsigned row0, int col0, conv1x1_lane_sums &sums) {
    const int warp = gpu_fresh(c.warp), lane = gpu_fresh(c.lane), first = warp % 4 * 16;
    unsigned char *const corner = m.corners + warp * S::CORNER;
#pragma unroll
    for (int mi = 0; mi < S::MI; mi++) {
        const unsigned row = row0 + (unsigned)((warp / 4 * S::MI + mi) * p.box + first);
        const int left = min((int)(p.rows - row), p.box - first);
        if (left >= 16)
            conv1x1_gemm_store<T, 1, S::NI, S::PITCH, true>(p.out, p.n, &acc[mi], corner, row, left,
                                                            col0, lane, sums);
        else if (left > 0)
            conv1x1_gemm_store<T, 1, S::NI, S::PITCH, false>(p.out, p.n, &acc[mi], corner, row,
                                                             left, col0, lane, sums);
    }
}

/* A consumer warp: computes and stores all tiles of the block. */
template <class T, class S, int PRO>
static __device__ __forceinline__ void
conv1x1_wgmma_consume(const conv1x1_wgmma &p, const conv1x1_wgmma_shared &m, int warp, int col0,
                      conv1x1_lane_sums &sums) {
    const unsigned tile_rows = (unsigned)(S::PARTS * p.box);
    const int lane = (int)threadIdx.x % 32, row = warp % 4 * 16 + lane % 16;
    conv1x1_wgmma_consumer c = {};
    c.warp = warp;
    c.lane = lane;
    c.at = row * CONV1X1_WGMMA_ROW + ((lane / 16 ^ (row & 7)) << 4);
    c.factors = reinterpret_cast<const unsigned char *>(m.factors) + 16 * (lane & 3);
    unsigned row0 = blockIdx.y * tile_rows;
    for (int tile = 0; tile < p.tiles; tile++, row0 += gridDim.y * tile_rows) {
        float acc[S::MI][S::NI][4] = {};
        conv1x1_wgmma_tile<T, S, PRO>(p, m, c, acc);
        conv1x1_wgmma_store<T, S>(p, m, c, acc, row0, col0, sums);
    }
}

/* Writes the block's sums; the last block of these columns completes the statistics. All consumers
 * call it. */
template <class S>
static __device__ __forceinline__ void conv1x1_wgmma_stats(const conv1x1_wgmma &p,
                                                           const conv1x1_wgmma_shared &m, int warp,
                                                           int col0, conv1x1_lane_sums &sums) {
    float *const rows = reinterpret_cast<float *>(m.corners);
    const int count = min(p.n - col0, (int)S::COLS), blocks = (int)gridDim.y;
    __syncthreads();
    conv1x1_gemm_gather<S::NI, S::COLS>(sums, rows + warp * 2 * S::COLS, (int)threadIdx.x % 32);
    __syncthreads();
    conv1x1_write_partial<S::COLS>(rows, CONV1X1_WARPS,
                                   conv1x1_partial{p.stats.partial, p.n, (int)blockIdx.y, nullptr},
                                   col0, count);
    if (gpu_last_of_run(p.stats.ticket, (int)blockIdx.x, (int)blockIdx.y, blocks, p.stats.partial,
                        p.n, col0, count, (int)threadIdx.x, CONV1X1_THREADS))
        gpu_finish_stats(p.stats, p.n, col0, count, blocks, (double)p.rows, (int)threadIdx.x,
                         CONV1X1_THREADS);
}

/* The producer's warps end early: barriers count only threads that have not ended. */
template <class T, int MI, int NI, bool PAIR, int PRO>
__global__ void __launch_bounds__(CONV1X1_WGMMA_THREADS, 1)
    conv1x1_wgmma_kernel(const __grid_constant__ conv1x1_wgmma p) {
    gpu_begin();
    typedef conv1x1_wgmma_shape<MI, NI, PAIR> S;
    CHEX_DYNAMIC_SHARED_1024(boxes); /* conv_1x1_gemm.cuh has another `dynamic` */
    const conv1x1_wgmma_shared m = conv1x1_wgmma_shared_of<S>(p, gpu_resident(boxes));
    const int warp = (int)threadIdx.x / 32, col0 = (int)blockIdx.x * S::COLS;
    if (threadIdx.x == CONV1X1_THREADS)
        conv1x1_wgmma_barriers<S>(p, m);
    if (PAIR)
        gpu_cluster_sync();
    else
        __syncthreads();
    if (warp >= CONV1X1_WARPS) {
        gpu_registers_fewer<CONV1X1_WGMMA_FEWER>();
        if (threadIdx.x == CONV1X1_THREADS)
            conv1x1_wgmma_produce<S>(p, m, col0);
        return;
    }
    gpu_registers_more<CONV1X1_WGMMA_MORE>();
    if (PRO == CONV1X1_NORM)
        conv1x1_wgmma_factors(p, m.factors);
    conv1x1_lane_sums sums = {};
    conv1x1_wgmma_consume<T, S, PRO>(p, m, warp, col0, sums);
    if (PAIR)
        gpu_cluster_sync(); /* the other block may still arrive at this one's barriers */
    if (p.stats.partial)
        conv1x1_wgmma_stats<S>(p, m, warp, col0, sums);
}

#endif
