/* SPDX-License-Identifier: Apache-2.0
 *
 * A matrix product with a prologue on its left operand and an epilogue on its result. It computes
 * the forward 1x1 convolution, and the data gradient if the fused kernel does not fit.
 *
 *     C (rows, n) = epilogue(prologue(A) (rows, k) B^T),  B (n, k)
 *
 * Tiles. A block has 8 warps, WARPS of them along the rows. A warp computes 16 MI rows by 8 NI
 * columns. k advances in steps of 32 through a ring of 3 stages. A block computes several tiles and
 * keeps the ring full between them. Column tiles of the same rows are neighbours in the grid, so A
 * is read from memory once and from L2 otherwise.
 *
 * Prologue. It works on fragments in registers, in each warp that shares the rows: max(a x + b, 0),
 * or g + bsum x + csum from two operands; rounded to T.
 *
 * Epilogue. Results go through a warp's own corner of shared memory, so that stores are 16 bytes
 * wide. The sums of the stored values are fp32 and stay in registers until the block's last tile.
 */
#ifndef CHEX_ENGINE_CUDA_KERNELS_CONV_1X1_GEMM_CUH
#define CHEX_ENGINE_CUDA_KERNELS_CONV_1X1_GEMM_CUH

#include "engine/cuda/kernels/conv_1x1.cuh"

enum { CONV1X1_GEMM_STAGES = 3, CONV1X1_GEMM_K = 32 };
enum conv1x1_prologue { CONV1X1_PLAIN, CONV1X1_NORM, CONV1X1_DEFERRED };
enum conv1x1_epilogue { CONV1X1_STORE, CONV1X1_MASK, CONV1X1_ADD }; /* ADD: MASK without a norm */

struct conv1x1_gemm {
    unsigned rows;
    int n, k;
    conv1x1_slice a, a_x;     /* a_x: second operand of DEFERRED */
    gpu_norm norm;            /* NORM */
    const float *bsum, *csum; /* DEFERRED */
    conv1x1_slice b;
    conv1x1_slice out; /* STORE */
    gpu_stats stats;   /* STORE */
    conv1x1_mask mask; /* MASK, ADD */
};

/* Shape of a tile and layout of shared memory. */
template <int WARPS_, int MI, int NI_, int PRO, int EPI> struct conv1x1_gemm_shape {
    static constexpr int WARPS = WARPS_, NI = NI_; /* warps along the rows */
    static constexpr int WARP_ROWS = 16 * MI, WARP_COLS = 8 * NI;
    static constexpr int ROWS = WARP_ROWS * WARPS, COLS = WARP_COLS * (CONV1X1_WARPS / WARPS);
    static constexpr int A_BYTES = ROWS * 64, A_TOTAL = A_BYTES * (PRO == CONV1X1_DEFERRED ? 2 : 1);
    static constexpr int STAGE = A_TOTAL + COLS * 64;
    /* A warp's corner: 8 rows of T or fp32; 8 extra columns avoid bank conflicts. */
    static constexpr int PITCH = WARP_COLS + 8, CORNER = (EPI == CONV1X1_STORE ? 16 : 32) * PITCH;
    static constexpr int CORNERS = CONV1X1_GEMM_STAGES * STAGE;
    static constexpr int MASKS = CORNERS + CONV1X1_WARPS * CORNER;              /* float4[COLS] */
    static constexpr int TABLE = MASKS + (EPI == CONV1X1_MASK ? COLS * 16 : 0); /* float2[k] */
    /* Blocks per multiprocessor that registers allow. */
    static constexpr int BLOCKS = MI * NI <= (EPI == CONV1X1_STORE ? 16 : 8) ? 2 : 1;
    /* Blocks per multiprocessor for __launch_bounds__: if shared memory fits only one block, that
     * block may use all registers. */
    static constexpr int HELD =
        BLOCKS == 2 && EPI == CONV1X1_STORE && 2 * TABLE < GPU_SHARED_SM ? 2 : 1;
    static constexpr int SUMS = 0; /* float[WARPS][2][COLS]; reuses the stages at the end */

    static constexpr size_t bytes(int k) {
        return (size_t)TABLE + (PRO == CONV1X1_PLAIN ? 0 : (size_t)k * 8);
    }
};

/* A thread's positions in every stage: the channels that it copies (its row is copy / 64), and the
 * byte offsets of its copies, of its lane's parts of A and B, and of the factors of its channels.
 */
struct conv1x1_gemm_places {
    int c, copy, a, b, factors;
};
template <class S>
static __device__ __forceinline__ conv1x1_gemm_places conv1x1_gemm_places_of(int warp_row,
                                                                             int warp_col,
                                                                             int lane) {
    const int row = (int)threadIdx.x >> 2, chunk = (int)threadIdx.x & 3;
    const int b = S::A_TOTAL + conv1x1_at4(warp_col + (lane & 7) + (lane >> 4 << 3), lane >> 3 & 1);
    return conv1x1_gemm_places{gpu_fresh(chunk * 8), gpu_fresh(conv1x1_at4(row, chunk)),
                               gpu_fresh(conv1x1_at4(warp_row + (lane & 15), lane >> 4)),
                               gpu_fresh(b), gpu_fresh(S::TABLE + 16 * (lane & 3))};
}

/* Copies one stage. WHOLE: all rows and columns of the tile exist. */
template <class S, int PRO, bool WHOLE>
static __device__ __forceinline__ void
conv1x1_gemm_load(const conv1x1_gemm &p, unsigned char *stage, const conv1x1_gemm_places &at,
                  unsigned row0, int col0, int k0) {
    const int c = k0 + at.c, thread_row = at.copy >> 6;
    const unsigned row = row0 + (unsigned)thread_row;
    unsigned char *const to = stage + at.copy;
    conv1x1_copy<S::ROWS / 64, 64, WHOLE>(to, p.a, row, p.rows, c, true);
    if (PRO == CONV1X1_DEFERRED)
        conv1x1_copy<S::ROWS / 64, 64, WHOLE>(to + S::A_BYTES, p.a_x, row, p.rows, c, true);
    conv1x1_copy<S::COLS / 64, 64, WHOLE>(to + S::A_TOTAL, p.b, (unsigned)(col0 + thread_row),
                                          (unsigned)p.n, c, true);
}

/* Applies the prologue to a 16 x 16 fragment. s0, s1: factors of its lower and upper 8 columns. */
template <class T, int PRO>
static __device__ __forceinline__ void conv1x1_gemm_prologue(uint32_t a[4], const uint32_t x[4],
                                                             const float4 &s0, const float4 &s1) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float4 &s = i < 2 ? s0 : s1;
        if (PRO == CONV1X1_NORM) {
            a[i] = conv1x1_activate2<T>(a[i], s);
        } else if (PRO == CONV1X1_DEFERRED) {
            a[i] = conv1x1_finish_grad2<T>(a[i], x[i], s);
        }
    }
}

/* acc += the product of one stage. table: factors of the lane's first channels in the stage. */
template <class T, int MI, int NI, class S, int PRO>
static __device__ __forceinline__ void
conv1x1_gemm_step(float acc[MI][NI][4], const unsigned char *stage,
                  const conv1x1_gemm_places &places, const unsigned char *table) {
#pragma unroll
    for (int kk = 0; kk < CONV1X1_GEMM_K / 16; kk++) {
        float4 s0 = {}, s1 = {};
        if (PRO != CONV1X1_PLAIN) {
            s0 = *reinterpret_cast<const float4 *>(table + kk * 128);
            s1 = *reinterpret_cast<const float4 *>(table + kk * 128 + 64);
        }
        uint32_t a[MI][4];
#pragma unroll
        for (int mi = 0; mi < MI; mi++) {
            const int at = (places.a ^ kk << 5) + mi * 1024;
            uint32_t x[4] = {};
            gpu_ldmatrix_x4(a[mi], stage + at);
            if (PRO == CONV1X1_DEFERRED)
                gpu_ldmatrix_x4(x, stage + S::A_BYTES + at);
            conv1x1_gemm_prologue<T, PRO>(a[mi], x, s0, s1);
        }
#pragma unroll
        for (int ni = 0; ni < NI; ni += 2) {
            uint32_t b[4];
            gpu_ldmatrix_x4(b, stage + (places.b ^ kk << 5) + ni * 512);
#pragma unroll
            for (int mi = 0; mi < MI; mi++) {
                gpu_mma_16816<T>(acc[mi][ni], a[mi], b);
                gpu_mma_16816<T>(acc[mi][ni + 1], a[mi], b + 2);
            }
        }
    }
}

/* The two sums of the 8 columns that a lane stores. */
struct conv1x1_lane_sums {
    float first[8], second[8];
};

/* Writes the warp's sums to shared memory: the first at `at`, the second at at + COLS. */
template <int NI, int COLS>
static __device__ __forceinline__ void conv1x1_gemm_gather(conv1x1_lane_sums &sums, float *at,
                                                           int lane) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
#pragma unroll
        for (int by = 16; by >= NI; by /= 2) {
            sums.first[i] += __shfl_xor_sync(0xffffffffu, sums.first[i], by);
            sums.second[i] += __shfl_xor_sync(0xffffffffu, sums.second[i], by);
        }
        if (lane < NI) {
            at[lane * 8 + i] = sums.first[i];
            at[COLS + lane * 8 + i] = sums.second[i];
        }
    }
}

/* Rounds and stores the results, and adds the stored values to the sums. out has n columns. row0,
 * col0: first row and column of the warp; left: number of existing rows. WHOLE: all rows exist. */
template <class T, int MI, int NI, int PITCH, bool WHOLE>
static __device__ __forceinline__ void
conv1x1_gemm_store(const conv1x1_slice &out, int n, const float acc[MI][NI][4],
                   unsigned char *corner, unsigned row0, int left, int col0, int lane,
                   conv1x1_lane_sums &sums) {
    const int chunk = lane & (NI - 1), col = col0 + chunk * 8, row = lane / NI;
    const bool on = col < n;
    T *const tile = reinterpret_cast<T *>(corner);
    T *const to_tile = tile + (lane >> 2) * PITCH + 2 * (lane & 3);
    const T *const from_tile = tile + row * PITCH + chunk * 8;
    unsigned char *to = conv1x1_row(conv1x1_column(out, col), out, row0 + (unsigned)row);
#pragma unroll
    for (int eight = 0; eight < 2 * MI; eight++) {
#pragma unroll
        for (int ni = 0; ni < NI; ni++) {
            const float *const two = acc[eight / 2][ni] + eight % 2 * 2;
            *reinterpret_cast<uint32_t *>(to_tile + ni * 8) = gpu_pack2<T>(two[0], two[1]);
        }
        __syncwarp();
        gpu_run<T, 8> v[NI / 4];
#pragma unroll
        for (int t = 0; t < NI / 4; t++)
            v[t] = gpu_load_run<8>(from_tile + t * (32 / NI) * PITCH);
        __syncwarp();
#pragma unroll
        for (int t = 0; t < NI / 4; t++, to += 32 / NI * out.step) {
            if (!WHOLE && eight * 8 + t * (32 / NI) + row >= left)
                continue;
            if (on)
                gpu_store_run(reinterpret_cast<T *>(to), v[t]);
            float f[8];
            gpu_unpack_run(f, v[t]);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                sums.first[i] += f[i];
                sums.second[i] = __fmaf_rn(f[i], f[i], sums.second[i]);
            }
        }
    }
}

/* The accumulators are dV. Computes G (+)= A dU, S1 and S2. NORM false: G (+)= dV. marks:
 * conv1x1_channel of the warp's columns. left, WHOLE: as in conv1x1_gemm_store. */
template <class T, int MI, int NI, int PITCH, bool NORM, bool WHOLE>
static __device__ __forceinline__ void
conv1x1_gemm_mask(const conv1x1_gemm &p, const float acc[MI][NI][4], unsigned char *corner,
                  const float4 *marks, unsigned row0, int left, int col0, int lane,
                  conv1x1_lane_sums &sums) {
    constexpr int TURNS = NI / 4; /* a warp stores 32 / NI of the 8 rows in each turn */
    const int chunk = lane & (NI - 1), col = col0 + chunk * 8, row = lane / NI;
    const conv1x1_mask &m = p.mask;
    float *const to_tile = reinterpret_cast<float *>(corner) + (lane >> 2) * PITCH + 2 * (lane & 3);
    const float *const dv = reinterpret_cast<const float *>(corner) + row * PITCH + chunk * 8;
    const unsigned char *from = conv1x1_row(conv1x1_column(m.x, col), m.x, row0 + (unsigned)row);
    unsigned char *g = conv1x1_row(conv1x1_column(m.g, col), m.g, row0 + (unsigned)row);
    float4 c[NORM ? 8 : 1];
#pragma unroll
    for (int i = 0; i < 8 && NORM; i++)
        c[i] = marks[chunk * 8 + i];
#pragma unroll
    for (int eight = 0; eight < 2 * MI; eight++) {
        gpu_run<T, 8> x[TURNS] = {}, old[TURNS] = {};
        unsigned char *to[TURNS];
        bool on[TURNS];
#pragma unroll
        for (int t = 0; t < TURNS;
             t++) { /* these loads overlap with the exchange of the fragments */
            on[t] = col < p.n && (WHOLE || eight * 8 + t * (32 / NI) + row < left);
            to[t] = g;
            if (on[t] && NORM)
                x[t] = gpu_load_run<8>(reinterpret_cast<const T *>(from));
            if (on[t] && m.add)
                old[t] = gpu_load_run<8>(reinterpret_cast<const T *>(g));
            from += 32 / NI * m.x.step;
            g += 32 / NI * m.g.step;
        }
#pragma unroll
        for (int ni = 0; ni < NI; ni++) {
            const float *const two = acc[eight / 2][ni] + eight % 2 * 2;
            *reinterpret_cast<float2 *>(to_tile + ni * 8) = make_float2(two[0], two[1]);
        }
        __syncwarp();
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            if (!on[t])
                continue;
            float d[8], xf[8], of[8];
            gpu_read_run<8>(d, dv + t * (32 / NI) * PITCH);
            gpu_unpack_run(xf, x[t]);
            gpu_unpack_run(of, old[t]);
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (NORM)
                    conv1x1_masked(gpu_normed(gpu_ab{c[i].x, c[i].y}, xf[i]), d[i], xf[i], c[i],
                                   of[i], sums.first[i], sums.second[i]);
                else
                    of[i] += d[i];
            gpu_write_run<8>(reinterpret_cast<T *>(to[t]), of);
        }
        __syncwarp();
    }
}

/* Writes the factors of the prologue and of the epilogue's columns to shared memory. */
template <int COLS, int PRO, int EPI>
static __device__ __forceinline__ void conv1x1_gemm_tables(const conv1x1_gemm &p, float2 *table,
                                                           float4 *marks, int col0) {
    if (PRO == CONV1X1_NORM)
        for (int c = (int)threadIdx.x; c < p.k; c += CONV1X1_THREADS) {
            const gpu_ab s = gpu_scale(p.norm, c);
            table[c] = make_float2(s.a, s.b);
        }
    if (PRO == CONV1X1_DEFERRED)
        for (int c = (int)threadIdx.x; c < p.k; c += CONV1X1_THREADS)
            table[c] = make_float2(p.bsum[c], p.csum[c]);
    if (EPI == CONV1X1_MASK)
        for (int c = (int)threadIdx.x; c < COLS && col0 + c < p.n; c += CONV1X1_THREADS)
            marks[c] = conv1x1_channel(p.mask.norm, col0 + c);
}

/* The next stage to load into the ring. */
struct conv1x1_gemm_prefetch {
    unsigned row0, stride; /* first row of the tile; distance between the block's tiles */
    int k, slot;
};
template <class S, int PRO>
static __device__ __forceinline__ void
conv1x1_gemm_fetch(const conv1x1_gemm &p, unsigned char *shared, const conv1x1_gemm_places &at,
                   int col0, conv1x1_gemm_prefetch &next) {
    unsigned char *const stage = shared + next.slot * S::STAGE;
    if (next.row0 + S::ROWS <= p.rows && col0 + S::COLS <= p.n)
        conv1x1_gemm_load<S, PRO, true>(p, stage, at, next.row0, col0, next.k);
    else if (next.row0 < p.rows)
        conv1x1_gemm_load<S, PRO, false>(p, stage, at, next.row0, col0, next.k);
    gpu_copy_commit();
    next.slot = next.slot + 1 == CONV1X1_GEMM_STAGES ? 0 : next.slot + 1;
    next.k += CONV1X1_GEMM_K;
    if (next.k == p.k) {
        next.k = 0;
        next.row0 += next.stride;
    }
}

template <class T, int WARPS, int MI, int NI, int PRO, int EPI>
__global__ void __launch_bounds__(CONV1X1_THREADS,
                                  (conv1x1_gemm_shape<WARPS, MI, NI, PRO, EPI>::HELD))
    conv1x1_gemm_kernel(const conv1x1_gemm p) {
    gpu_begin();
    typedef conv1x1_gemm_shape<WARPS, MI, NI, PRO, EPI> S;
    CHEX_DYNAMIC_SHARED(dynamic);
    unsigned char *const shared = gpu_resident(dynamic);
    float4 *const marks = reinterpret_cast<float4 *>(shared + S::MASKS);
    float *const rows = reinterpret_cast<float *>(shared + S::SUMS);
    float2 *const table = reinterpret_cast<float2 *>(shared + S::TABLE);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int warp_row = warp / (CONV1X1_WARPS / WARPS) * S::WARP_ROWS;
    const int warp_col = warp % (CONV1X1_WARPS / WARPS) * S::WARP_COLS;
    const int col0 = (int)blockIdx.x * S::COLS;
    const unsigned stride = gridDim.y * S::ROWS, start = blockIdx.y * S::ROWS;
    conv1x1_gemm_tables<S::COLS, PRO, EPI>(p, table, marks, col0);

    const conv1x1_gemm_places places = conv1x1_gemm_places_of<S>(warp_row, warp_col, lane);
    conv1x1_gemm_prefetch next = {start, stride, 0, 0};
    for (int s = 0; s < CONV1X1_GEMM_STAGES - 1; s++)
        conv1x1_gemm_fetch<S, PRO>(p, shared, places, col0, next);

    const bool busy = col0 + warp_col < p.n;
    conv1x1_lane_sums sums = {};
    int slot = 0;
    for (unsigned row0 = start; row0 < p.rows; row0 += stride) {
        float acc[MI][NI][4] = {};
        for (int k0 = 0; k0 < p.k; k0 += CONV1X1_GEMM_K) {
            gpu_copy_wait<CONV1X1_GEMM_STAGES - 2>();
            __syncthreads(); /* all threads see this stage, and have finished the previous one */
            conv1x1_gemm_fetch<S, PRO>(p, shared, places, col0, next);
            if (busy)
                conv1x1_gemm_step<T, MI, NI, S, PRO>(acc, shared + slot * S::STAGE, places,
                                                     shared + places.factors + k0 * 8);
            slot = slot + 1 == CONV1X1_GEMM_STAGES ? 0 : slot + 1;
        }
        if (!busy)
            continue;
        const int w = gpu_fresh(warp), l = gpu_fresh(lane);
        const unsigned row = row0 + (unsigned)warp_row;
        unsigned char *const corner = shared + S::CORNERS + w * S::CORNER;
        const int left = (int)(p.rows - row), col = col0 + warp_col;
        if (EPI != CONV1X1_STORE && row0 + S::ROWS <= p.rows)
            conv1x1_gemm_mask<T, MI, NI, S::PITCH, EPI == CONV1X1_MASK, true>(
                p, acc, corner, marks + warp_col, row, left, col, l, sums);
        else if (EPI != CONV1X1_STORE)
            conv1x1_gemm_mask<T, MI, NI, S::PITCH, EPI == CONV1X1_MASK, false>(
                p, acc, corner, marks + warp_col, row, left, col, l, sums);
        else if (row0 + S::ROWS <= p.rows)
            conv1x1_gemm_store<T, MI, NI, S::PITCH, true>(p.out, p.n, acc, corner, row, left, col,
                                                          l, sums);
        else
            conv1x1_gemm_store<T, MI, NI, S::PITCH, false>(p.out, p.n, acc, corner, row, left, col,
                                                           l, sums);
    }

    float *const partial = EPI == CONV1X1_STORE ? p.stats.partial : p.mask.sums.partial;
    if (EPI == CONV1X1_ADD || !partial)
        return;
    __syncthreads();
    if (busy)
        conv1x1_gemm_gather<NI, S::COLS>(
            sums, rows + warp_row / S::WARP_ROWS * 2 * S::COLS + warp_col, lane);
    __syncthreads();
    const int count = p.n - col0 < S::COLS ? p.n - col0 : S::COLS;
    conv1x1_write_partial<S::COLS>(rows, WARPS,
                                   conv1x1_partial{partial, p.n, (int)blockIdx.y,
                                                   EPI == CONV1X1_MASK ? p.mask.norm.inv : nullptr},
                                   col0, count);
    unsigned *const tickets = EPI == CONV1X1_STORE ? p.stats.ticket : p.mask.sums.ticket;
    const int blocks = (int)gridDim.y;
    if (!gpu_last_of_run(tickets, (int)blockIdx.x, (int)blockIdx.y, blocks, partial, p.n, col0,
                         count, (int)threadIdx.x, CONV1X1_THREADS))
        return;
    if (EPI == CONV1X1_STORE)
        gpu_finish_stats(p.stats, p.n, col0, count, blocks, (double)p.rows, (int)threadIdx.x,
                         CONV1X1_THREADS);
    else
        gpu_finish_sums(p.mask.sums, p.mask.norm, p.n, col0, count, blocks, (double)p.rows,
                        (int)threadIdx.x, CONV1X1_THREADS);
}

#endif
