/* SPDX-License-Identifier: Apache-2.0
 *
 * A matrix product with a prologue on its left operand and an epilogue on its result: the forward
 * 1x1 convolution, and the gradient of its input where the fused kernel does not fit.
 *
 *     C (rows, n) = epilogue(prologue(A) (rows, k) B^T),  B (n, k)
 *
 * A block of 8 warps, WARPS along the rows, makes tiles of 16 MI rows by 8 NI columns a warp, k in
 * steps of 32 through a ring of 3 stages. It goes on to tile after tile without letting the ring
 * run dry. Column tiles of the same rows are neighbours in the grid, so A comes from memory once
 * and from L2 else.
 *
 * The prologue works on fragments in registers, once for each of the warps that share rows: max(a x
 * + b, 0), or g + bsum x + csum from two operands, rounded to T. Results pass through a warp's own
 * corner of shared memory to be stored 16 bytes at a time. The sums of what was stored are fp32 and
 * stay in registers until the block's last tile.
 */
#ifndef CHEX_ENGINE_CUDA_CONV_1X1_GEMM_CUH
#define CHEX_ENGINE_CUDA_CONV_1X1_GEMM_CUH

#include "engine/cuda/conv_1x1.cuh"

enum { ONE_GEMM_STAGES = 3, ONE_GEMM_K = 32 };
enum one_prologue { ONE_PLAIN, ONE_NORM, ONE_TAKEN };
enum one_epilogue { ONE_STORE, ONE_MASK, ONE_ADD }; /* ADD: MASK without a norm */

struct one_gemm {
    unsigned rows;
    int n, k;
    one_slice a, a_x;         /* a_x: TAKEN's second operand */
    gpu_norm norm;            /* NORM */
    const float *bsum, *csum; /* TAKEN */
    one_slice b;
    one_slice out;   /* STORE */
    gpu_stats stats; /* STORE */
    one_mask mask;   /* MASK, ADD */
};

/* The shape of a tile and where its parts lie in shared memory. */
template <int WARPS_, int MI, int NI_, int PRO, int EPI> struct one_gemm_shape {
    static constexpr int WARPS = WARPS_, NI = NI_; /* warps along the rows */
    static constexpr int WARP_ROWS = 16 * MI, WARP_COLS = 8 * NI;
    static constexpr int ROWS = WARP_ROWS * WARPS, COLS = WARP_COLS * (ONE_WARPS / WARPS);
    static constexpr int A_BYTES = ROWS * 64, A_TOTAL = A_BYTES * (PRO == ONE_TAKEN ? 2 : 1);
    static constexpr int STAGE = A_TOTAL + COLS * 64;
    /* A warp's corner: 8 rows, of T or of fp32; 8 columns more keep the banks apart. */
    static constexpr int PITCH = WARP_COLS + 8, CORNER = (EPI == ONE_STORE ? 16 : 32) * PITCH;
    static constexpr int CORNERS = ONE_GEMM_STAGES * STAGE;
    static constexpr int MASKS = CORNERS + ONE_WARPS * CORNER;              /* float4[COLS] */
    static constexpr int TABLE = MASKS + (EPI == ONE_MASK ? COLS * 16 : 0); /* float2[k] */
    /* Of a multiprocessor, if registers allow. */
    static constexpr int BLOCKS = MI * NI <= (EPI == ONE_STORE ? 16 : 8) ? 2 : 1;
    /* That registers are kept for: where shared memory has room for one, it may have all. */
    static constexpr int HELD =
        BLOCKS == 2 && EPI == ONE_STORE && 2 * TABLE < GPU_SHARED_SM ? 2 : 1;
    static constexpr int SUMS = 0; /* float[WARPS][2][COLS], when the stages are done with */

    static constexpr size_t bytes(int k) {
        return (size_t)TABLE + (PRO == ONE_PLAIN ? 0 : (size_t)k * 8);
    }
};

/* Where a thread is at home in every stage: its channels as it copies (its row is copy / 64), and
 * the bytes where its copies, its lane's parts of A and of B, and the factors of its channels
 * begin.
 */
struct one_gemm_places {
    int c, copy, a, b, factors;
};
template <class S>
static __device__ __forceinline__ one_gemm_places one_gemm_places_of(int warp_row, int warp_col,
                                                                     int lane) {
    const int row = (int)threadIdx.x >> 2, chunk = (int)threadIdx.x & 3;
    const int b = S::A_TOTAL + one_at4(warp_col + (lane & 7) + (lane >> 4 << 3), lane >> 3 & 1);
    return one_gemm_places{gpu_fresh(chunk * 8), gpu_fresh(one_at4(row, chunk)),
                           gpu_fresh(one_at4(warp_row + (lane & 15), lane >> 4)), gpu_fresh(b),
                           gpu_fresh(S::TABLE + 16 * (lane & 3))};
}

/* WHOLE: all rows and columns of the tile are there. */
template <class S, int PRO, bool WHOLE>
static __device__ __forceinline__ void one_gemm_load(const one_gemm &p, unsigned char *stage,
                                                     const one_gemm_places &at, unsigned row0,
                                                     int col0, int k0) {
    const int c = k0 + at.c, thread_row = at.copy >> 6;
    const unsigned row = row0 + (unsigned)thread_row;
    unsigned char *const to = stage + at.copy;
    one_copy<S::ROWS / 64, 64, WHOLE>(to, p.a, row, p.rows, c, true);
    if (PRO == ONE_TAKEN)
        one_copy<S::ROWS / 64, 64, WHOLE>(to + S::A_BYTES, p.a_x, row, p.rows, c, true);
    one_copy<S::COLS / 64, 64, WHOLE>(to + S::A_TOTAL, p.b, (unsigned)(col0 + thread_row),
                                      (unsigned)p.n, c, true);
}

/* The prologue on one 16 x 16 fragment; s0, s1: the factors of its lower and upper 8 columns. */
template <class T, int PRO>
static __device__ __forceinline__ void one_gemm_prologue(uint32_t a[4], const uint32_t x[4],
                                                         const float4 &s0, const float4 &s1) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float4 &s = i < 2 ? s0 : s1;
        if (PRO == ONE_NORM) {
            a[i] = one_activate2<T>(a[i], s);
        } else if (PRO == ONE_TAKEN) {
            a[i] = one_take2<T>(a[i], x[i], s);
        }
    }
}

/* acc += the product of one stage. table: the factors of the lane's first channels of the stage. */
template <class T, int MI, int NI, class S, int PRO>
static __device__ __forceinline__ void
one_gemm_step(float acc[MI][NI][4], const unsigned char *stage, const one_gemm_places &places,
              const unsigned char *table) {
#pragma unroll
    for (int kk = 0; kk < ONE_GEMM_K / 16; kk++) {
        float4 s0 = {}, s1 = {};
        if (PRO != ONE_PLAIN) {
            s0 = *reinterpret_cast<const float4 *>(table + kk * 128);
            s1 = *reinterpret_cast<const float4 *>(table + kk * 128 + 64);
        }
        uint32_t a[MI][4];
#pragma unroll
        for (int mi = 0; mi < MI; mi++) {
            const int at = (places.a ^ kk << 5) + mi * 1024;
            uint32_t x[4] = {};
            gpu_ldmatrix_x4(a[mi], stage + at);
            if (PRO == ONE_TAKEN)
                gpu_ldmatrix_x4(x, stage + S::A_BYTES + at);
            one_gemm_prologue<T, PRO>(a[mi], x, s0, s1);
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
struct one_lane_sums {
    float first[8], second[8];
};

/* The warp's to shared memory: `at` of the first, at + COLS of the second. */
template <int NI, int COLS>
static __device__ __forceinline__ void one_gemm_gather(one_lane_sums &sums, float *at, int lane) {
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

/* Rounds, stores, and adds what was stored to the sums. row0, col0: the warp's first; left: how
 * many rows are there. WHOLE: all. */
template <class T, int MI, int NI, int PITCH, bool WHOLE>
static __device__ __forceinline__ void
one_gemm_store(const one_gemm &p, const float acc[MI][NI][4], unsigned char *corner, unsigned row0,
               int left, int col0, int lane, one_lane_sums &sums) {
    const int chunk = lane & (NI - 1), col = col0 + chunk * 8, row = lane / NI;
    const bool on = col < p.n;
    T *const tile = reinterpret_cast<T *>(corner);
    T *const to_tile = tile + (lane >> 2) * PITCH + 2 * (lane & 3);
    const T *const from_tile = tile + row * PITCH + chunk * 8;
    unsigned char *to = one_row(one_column(p.out, col), p.out, row0 + (unsigned)row);
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
        for (int t = 0; t < NI / 4; t++, to += 32 / NI * p.out.step) {
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

/* The accumulators are dV: G (+)= A dU, S1 and S2. marks: one_channel of the warp's columns; NORM
 * false: G (+)= dV. left, WHOLE: as in one_gemm_store. */
template <class T, int MI, int NI, int PITCH, bool NORM, bool WHOLE>
static __device__ __forceinline__ void one_gemm_mask(const one_gemm &p, const float acc[MI][NI][4],
                                                     unsigned char *corner, const float4 *marks,
                                                     unsigned row0, int left, int col0, int lane,
                                                     one_lane_sums &sums) {
    constexpr int TURNS = NI / 4; /* lines of 8 rows: a turn of the warp stores 32 / NI of them */
    const int chunk = lane & (NI - 1), col = col0 + chunk * 8, row = lane / NI;
    const one_mask &m = p.mask;
    float *const to_tile = reinterpret_cast<float *>(corner) + (lane >> 2) * PITCH + 2 * (lane & 3);
    const float *const dv = reinterpret_cast<const float *>(corner) + row * PITCH + chunk * 8;
    const unsigned char *from = one_row(one_column(m.x, col), m.x, row0 + (unsigned)row);
    unsigned char *g = one_row(one_column(m.g, col), m.g, row0 + (unsigned)row);
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
        for (int t = 0; t < TURNS; t++) { /* under way while the fragments are exchanged */
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
                    one_masked(gpu_normed(gpu_ab{c[i].x, c[i].y}, xf[i]), d[i], xf[i], c[i], of[i],
                               sums.first[i], sums.second[i]);
                else
                    of[i] += d[i];
            gpu_write_run<8>(reinterpret_cast<T *>(to[t]), of);
        }
        __syncwarp();
    }
}

/* The factors of the prologue and of the epilogue's columns. */
template <int COLS, int PRO, int EPI>
static __device__ __forceinline__ void one_gemm_tables(const one_gemm &p, float2 *table,
                                                       float4 *marks, int col0) {
    if (PRO == ONE_NORM)
        for (int c = (int)threadIdx.x; c < p.k; c += ONE_THREADS) {
            const gpu_ab s = gpu_scale(p.norm, c);
            table[c] = make_float2(s.a, s.b);
        }
    if (PRO == ONE_TAKEN)
        for (int c = (int)threadIdx.x; c < p.k; c += ONE_THREADS)
            table[c] = make_float2(p.bsum[c], p.csum[c]);
    if (EPI == ONE_MASK)
        for (int c = (int)threadIdx.x; c < COLS && col0 + c < p.n; c += ONE_THREADS)
            marks[c] = one_channel(p.mask.norm, col0 + c);
}

/* Which tile of the ring's comes next. */
struct one_gemm_ahead {
    unsigned row0, stride; /* rows of a tile, from one of the block's to the next */
    int k, slot;
};
template <class S, int PRO>
static __device__ __forceinline__ void one_gemm_fetch(const one_gemm &p, unsigned char *shared,
                                                      const one_gemm_places &at, int col0,
                                                      one_gemm_ahead &next) {
    unsigned char *const stage = shared + next.slot * S::STAGE;
    if (next.row0 + S::ROWS <= p.rows && col0 + S::COLS <= p.n)
        one_gemm_load<S, PRO, true>(p, stage, at, next.row0, col0, next.k);
    else if (next.row0 < p.rows)
        one_gemm_load<S, PRO, false>(p, stage, at, next.row0, col0, next.k);
    gpu_copy_commit();
    next.slot = next.slot + 1 == ONE_GEMM_STAGES ? 0 : next.slot + 1;
    next.k += ONE_GEMM_K;
    if (next.k == p.k) {
        next.k = 0;
        next.row0 += next.stride;
    }
}

template <class T, int WARPS, int MI, int NI, int PRO, int EPI>
__global__ void __launch_bounds__(ONE_THREADS, (one_gemm_shape<WARPS, MI, NI, PRO, EPI>::HELD))
    one_gemm_kernel(const one_gemm p) {
    typedef one_gemm_shape<WARPS, MI, NI, PRO, EPI> S;
    CHEX_DYNAMIC_SHARED(dynamic);
    unsigned char *const shared = gpu_held(dynamic);
    float4 *const marks = reinterpret_cast<float4 *>(shared + S::MASKS);
    float *const rows = reinterpret_cast<float *>(shared + S::SUMS);
    float2 *const table = reinterpret_cast<float2 *>(shared + S::TABLE);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int warp_row = warp / (ONE_WARPS / WARPS) * S::WARP_ROWS;
    const int warp_col = warp % (ONE_WARPS / WARPS) * S::WARP_COLS;
    const int col0 = (int)blockIdx.x * S::COLS;
    const unsigned stride = gridDim.y * S::ROWS, start = blockIdx.y * S::ROWS;
    one_gemm_tables<S::COLS, PRO, EPI>(p, table, marks, col0);

    const one_gemm_places places = one_gemm_places_of<S>(warp_row, warp_col, lane);
    one_gemm_ahead next = {start, stride, 0, 0};
    for (int s = 0; s < ONE_GEMM_STAGES - 1; s++)
        one_gemm_fetch<S, PRO>(p, shared, places, col0, next);

    const bool busy = col0 + warp_col < p.n;
    one_lane_sums sums = {};
    int slot = 0;
    for (unsigned row0 = start; row0 < p.rows; row0 += stride) {
        float acc[MI][NI][4] = {};
        for (int k0 = 0; k0 < p.k; k0 += ONE_GEMM_K) {
            gpu_copy_wait<ONE_GEMM_STAGES - 2>();
            __syncthreads(); /* this stage is there for all, and all have left the one before */
            one_gemm_fetch<S, PRO>(p, shared, places, col0, next);
            if (busy)
                one_gemm_step<T, MI, NI, S, PRO>(acc, shared + slot * S::STAGE, places,
                                                 shared + places.factors + k0 * 8);
            slot = slot + 1 == ONE_GEMM_STAGES ? 0 : slot + 1;
        }
        if (!busy)
            continue;
        const int w = gpu_fresh(warp), l = gpu_fresh(lane);
        const unsigned row = row0 + (unsigned)warp_row;
        unsigned char *const corner = shared + S::CORNERS + w * S::CORNER;
        const int left = (int)(p.rows - row), col = col0 + warp_col;
        if (EPI != ONE_STORE && row0 + S::ROWS <= p.rows)
            one_gemm_mask<T, MI, NI, S::PITCH, EPI == ONE_MASK, true>(
                p, acc, corner, marks + warp_col, row, left, col, l, sums);
        else if (EPI != ONE_STORE)
            one_gemm_mask<T, MI, NI, S::PITCH, EPI == ONE_MASK, false>(
                p, acc, corner, marks + warp_col, row, left, col, l, sums);
        else if (row0 + S::ROWS <= p.rows)
            one_gemm_store<T, MI, NI, S::PITCH, true>(p, acc, corner, row, left, col, l, sums);
        else
            one_gemm_store<T, MI, NI, S::PITCH, false>(p, acc, corner, row, left, col, l, sums);
    }

    float *const partial = EPI == ONE_STORE ? p.stats.partial : p.mask.sums.partial;
    if (EPI == ONE_ADD || !partial)
        return;
    __syncthreads();
    if (busy)
        one_gemm_gather<NI, S::COLS>(sums, rows + warp_row / S::WARP_ROWS * 2 * S::COLS + warp_col,
                                     lane);
    __syncthreads();
    const int count = p.n - col0 < S::COLS ? p.n - col0 : S::COLS;
    one_write_partial<S::COLS>(
        rows, WARPS,
        one_partial{partial, p.n, (int)blockIdx.y, EPI == ONE_MASK ? p.mask.norm.inv : nullptr},
        col0, count);
    unsigned *const ticket = (EPI == ONE_STORE ? p.stats.ticket : p.mask.sums.ticket) + blockIdx.x;
    if (!gpu_last_block(ticket, gridDim.y))
        return;
    const int blocks = (int)gridDim.y;
    if (EPI == ONE_STORE)
        gpu_finish_stats(p.stats, p.n, col0, count, blocks, (double)p.rows, (int)threadIdx.x,
                         ONE_THREADS);
    else
        gpu_finish_sums(p.mask.sums, p.mask.norm, p.n, col0, count, blocks, (double)p.rows,
                        (int)threadIdx.x, ONE_THREADS);
}

#endif
