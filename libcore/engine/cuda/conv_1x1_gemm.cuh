/* SPDX-License-Identifier: Apache-2.0
 *
 * A matrix product with a prologue on its left operand and an epilogue on its result: the forward
 * 1x1 convolution, and the gradient of its input where the fused kernel does not fit.
 *
 *     C (rows, n) = epilogue(prologue(A) (rows, k) B^T),  B (n, k)
 *
 * A block of 8 warps makes 64 MI rows by 16 NI columns, 4 by 2 warps of 16 MI rows by 8 NI columns
 * each, k in steps of 32 through a ring of 3 stages. It goes on to tile after tile without letting
 * the ring run dry. Column tiles of the same rows are neighbours in the grid, so A comes from
 * memory once and from L2 else.
 *
 * The prologue works on fragments in registers: max(a x + b, 0), or g + bsum x + csum from two
 * operands, rounded to T. Sums are fp32; results pass through a warp's own corner of shared memory
 * to be stored 16 bytes at a time, and the sums of what was stored are kept there as well.
 */
#ifndef CHEX_ENGINE_CUDA_CONV_1X1_GEMM_CUH
#define CHEX_ENGINE_CUDA_CONV_1X1_GEMM_CUH

#include "engine/cuda/conv_1x1.cuh"

enum { ONE_GEMM_STAGES = 3, ONE_GEMM_K = 32 };
enum one_prologue { ONE_PLAIN, ONE_NORM, ONE_TAKEN };
enum one_epilogue { ONE_STORE, ONE_MASK };

struct one_gemm {
    int64_t rows;
    int n, k;
    one_slice a, a_x;         /* a_x: TAKEN's second operand */
    gpu_norm norm;            /* NORM */
    const float *bsum, *csum; /* TAKEN */
    const void *b;
    one_slice out;   /* STORE */
    gpu_stats stats; /* STORE */
    one_mask mask;   /* MASK */
    int col_tiles;
};

/* The shape of a tile and where its parts lie in shared memory. */
template <int MI, int NI, int PRO, int EPI> struct one_gemm_shape {
    static constexpr int ROWS = 64 * MI, COLS = 16 * NI;
    static constexpr int A_BYTES = ROWS * 64, A_TOTAL = A_BYTES * (PRO == ONE_TAKEN ? 2 : 1);
    static constexpr int STAGE = A_TOTAL + COLS * 64;
    /* A warp's corner: 16 rows of T, or 8 of fp32; 8 columns more keep the banks apart. */
    static constexpr int PITCH = 8 * NI + 8, CORNER = 32 * PITCH;
    static constexpr int CORNERS = ONE_GEMM_STAGES * STAGE;
    static constexpr int MASKS = CORNERS + ONE_WARPS * CORNER;             /* float4[COLS] */
    static constexpr int SUMS = MASKS + (EPI == ONE_MASK ? COLS * 16 : 0); /* float[4][2][COLS] */
    static constexpr int TABLE = SUMS + COLS * 32;                         /* float2[k] */

    static constexpr size_t bytes(int k) {
        return (size_t)TABLE + (PRO == ONE_PLAIN ? 0 : (size_t)k * 8);
    }
};

template <class T, class S, int PRO>
static __device__ __forceinline__ void one_gemm_load(const one_gemm &p, unsigned char *stage,
                                                     int64_t row0, int col0, int k0) {
    const int thread = gpu_fresh((int)threadIdx.x), chunk = thread % 4, c = k0 + chunk * 8;
    const int at = one_at4(thread / 4, chunk);
#pragma unroll
    for (int i = 0; i < S::ROWS / 64; i++) {
        const int row = thread / 4 + i * 64;
        const bool on = row0 + row < p.rows;
        const int64_t r = on ? row0 + row : 0;
        gpu_copy16(stage + at + i * 4096, one_element<T>(p.a, r, c), on);
        if (PRO == ONE_TAKEN)
            gpu_copy16(stage + S::A_BYTES + at + i * 4096, one_element<T>(p.a_x, r, c), on);
    }
#pragma unroll
    for (int i = 0; i < S::COLS / 64; i++) {
        const int row = thread / 4 + i * 64;
        const bool on = col0 + row < p.n;
        const T *b = static_cast<const T *>(p.b) + (on ? col0 + row : 0) * p.k + c;
        gpu_copy16(stage + S::A_TOTAL + at + i * 4096, b, on);
    }
}

/* The prologue on one 16 x 16 fragment; s0, s1: the factors of its lower and upper 8 columns. */
template <class T, int PRO>
static __device__ __forceinline__ void one_gemm_prologue(uint32_t a[4], const uint32_t x[4],
                                                         const float4 &s0, const float4 &s1) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float4 &s = i < 2 ? s0 : s1;
        if (PRO == ONE_NORM) {
            const float2 v = gpu_unpack2<T>(a[i]);
            a[i] = gpu_pack2_relu<T>(__fmaf_rn(s.x, v.x, s.y), __fmaf_rn(s.z, v.y, s.w));
        } else if (PRO == ONE_TAKEN) {
            a[i] = one_take2<T>(a[i], x[i], s);
        }
    }
}

/* acc += the product of one stage. table: the factors of the stage's first channel. */
template <class T, int MI, int NI, class S, int PRO>
static __device__ __forceinline__ void one_gemm_step(float acc[MI][NI][4],
                                                     const unsigned char *stage,
                                                     const float2 *table, int warp, int lane) {
    const int a_at = one_at4(warp / 2 * 16 * MI + (lane & 15), lane >> 4);
    const int b_at =
        S::A_TOTAL + one_at4(warp % 2 * 8 * NI + (lane & 7) + (lane >> 4 << 3), lane >> 3 & 1);
#pragma unroll
    for (int kk = 0; kk < ONE_GEMM_K / 16; kk++) {
        float4 s0 = {}, s1 = {};
        if (PRO != ONE_PLAIN) {
            const float2 *s = table + kk * 16 + 2 * (lane % 4);
            s0 = *reinterpret_cast<const float4 *>(s);
            s1 = *reinterpret_cast<const float4 *>(s + 8);
        }
        uint32_t a[MI][4];
#pragma unroll
        for (int mi = 0; mi < MI; mi++) {
            const int at = (a_at ^ kk << 5) + mi * 1024;
            uint32_t x[4] = {};
            gpu_ldmatrix_x4(a[mi], stage + at);
            if (PRO == ONE_TAKEN)
                gpu_ldmatrix_x4(x, stage + S::A_BYTES + at);
            one_gemm_prologue<T, PRO>(a[mi], x, s0, s1);
        }
#pragma unroll
        for (int ni = 0; ni < NI; ni += 2) {
            uint32_t b[4];
            gpu_ldmatrix_x4(b, stage + (b_at ^ kk << 5) + ni * 512);
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

/* Adds the lanes' to the warp's own in shared memory: `at` of the first, at + COLS of the second.
 */
template <int NI, int COLS>
static __device__ __forceinline__ void one_gemm_add(one_lane_sums &sums, float *at, int lane) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
#pragma unroll
        for (int by = 16; by >= NI; by /= 2) {
            sums.first[i] += __shfl_xor_sync(0xffffffffu, sums.first[i], by);
            sums.second[i] += __shfl_xor_sync(0xffffffffu, sums.second[i], by);
        }
        if (lane < NI) {
            at[lane * 8 + i] += sums.first[i];
            at[COLS + lane * 8 + i] += sums.second[i];
        }
    }
}

/* How many of the rows from row0 on are there, `most` at most. */
static __device__ __forceinline__ int one_rows_left(int64_t rows, int64_t row0, int most) {
    return rows - row0 < most ? (int)(rows - row0) : most;
}

/* Rounds, stores, and adds what was stored to the sums. row0, col0: the warp's first. */
template <class T, int MI, int NI, int PITCH>
static __device__ __forceinline__ void one_gemm_store(const one_gemm &p, const float acc[MI][NI][4],
                                                      unsigned char *corner, int64_t row0, int col0,
                                                      int lane, one_lane_sums &sums) {
    const int chunk = lane % NI, col = col0 + chunk * 8;
    const int left = col < p.n ? one_rows_left(p.rows, row0, 16 * MI) : 0;
    T *const tile = reinterpret_cast<T *>(corner);
    T *to = one_element_to<T>(p.out, row0 + lane / NI, col);
#pragma unroll
    for (int mi = 0; mi < MI; mi++) {
#pragma unroll
        for (int ni = 0; ni < NI; ni++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                *reinterpret_cast<uint32_t *>(tile + (lane / 4 + 8 * h) * PITCH + ni * 8 +
                                              2 * (lane % 4)) =
                    gpu_pack2<T>(acc[mi][ni][2 * h], acc[mi][ni][2 * h + 1]);
        __syncwarp();
#pragma unroll
        for (int t = 0; t < NI / 2; t++, to += 32 / NI * p.out.pitch) {
            const int r = lane / NI + t * (32 / NI);
            if (mi * 16 + r >= left)
                continue;
            const gpu_run<T, 8> v = gpu_load_run<8>(tile + r * PITCH + chunk * 8);
            gpu_store_run(to, v);
            float f[8];
            gpu_unpack_run(f, v);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                sums.first[i] += f[i];
                sums.second[i] = __fmaf_rn(f[i], f[i], sums.second[i]);
            }
        }
        __syncwarp();
    }
}

/* The accumulators are dV: G (+)= A dU, S1 and S2. marks: one_channel of the warp's columns. */
template <class T, int MI, int NI, int PITCH>
static __device__ __forceinline__ void
one_gemm_mask(const one_gemm &p, const float acc[MI][NI][4], unsigned char *corner,
              const float4 *marks, int64_t row0, int col0, int lane, one_lane_sums &sums) {
    constexpr int TURNS = NI / 4; /* lines of 8 rows: a turn of the warp stores 32 / NI of them */
    const int chunk = lane % NI, col = col0 + chunk * 8;
    const one_mask &m = p.mask;
    float *const tile = reinterpret_cast<float *>(corner);
#pragma unroll
    for (int eight = 0; eight < 2 * MI; eight++) {
        const int mi = eight / 2, h = eight % 2;
        gpu_run<T, 8> x[TURNS] = {}, old[TURNS] = {};
        bool on[TURNS];
#pragma unroll
        for (int t = 0; t < TURNS; t++) { /* under way while the fragments are exchanged */
            const int64_t row = row0 + eight * 8 + lane / NI + t * (32 / NI);
            on[t] = row < p.rows && col < p.n;
            if (on[t] && m.norm.mean)
                x[t] = gpu_load_run<8>(one_element<T>(m.x, row, col));
            if (on[t] && m.add)
                old[t] = gpu_load_run<8>(one_element<T>(m.g, row, col));
        }
#pragma unroll
        for (int ni = 0; ni < NI; ni++)
            *reinterpret_cast<float2 *>(tile + lane / 4 * PITCH + ni * 8 + 2 * (lane % 4)) =
                make_float2(acc[mi][ni][2 * h], acc[mi][ni][2 * h + 1]);
        __syncwarp();
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            if (!on[t])
                continue;
            const int r = lane / NI + t * (32 / NI);
            const float *dv = tile + r * PITCH + chunk * 8;
            float xf[8], of[8];
            gpu_unpack_run(xf, x[t]);
            gpu_unpack_run(of, old[t]);
#pragma unroll
            for (int i = 0; i < 8; i++)
                of[i] = m.norm.mean ? one_masked(dv[i], xf[i], marks[chunk * 8 + i], of[i],
                                                 sums.first[i], sums.second[i])
                                    : of[i] + dv[i];
            const int64_t row = row0 + eight * 8 + r;
            gpu_write_run<8>(one_element_to<T>(m.g, row, col), of);
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
    if (EPI == ONE_MASK && p.mask.norm.mean)
        for (int c = (int)threadIdx.x; c < COLS && col0 + c < p.n; c += ONE_THREADS)
            marks[c] = one_channel(p.mask.norm, col0 + c);
}

template <class T, int MI, int NI, int PRO, int EPI>
__global__ void __launch_bounds__(ONE_THREADS, MI <= 2 && EPI == ONE_STORE ? 2 : 1)
    one_gemm_kernel(const one_gemm p) {
    typedef one_gemm_shape<MI, NI, PRO, EPI> S;
    CHEX_DYNAMIC_SHARED(shared);
    float4 *const marks = reinterpret_cast<float4 *>(shared + S::MASKS);
    float *const rows = reinterpret_cast<float *>(shared + S::SUMS);
    float2 *const table = reinterpret_cast<float2 *>(shared + S::TABLE);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int col0 = (int)blockIdx.x % p.col_tiles * S::COLS;
    const int block = (int)blockIdx.x / p.col_tiles, blocks = (int)gridDim.x / p.col_tiles;
    const int tiles = (int)((p.rows + S::ROWS - 1) / S::ROWS);
    one_gemm_tables<S::COLS, PRO, EPI>(p, table, marks, col0);

    int load_tile = block, load_k = 0, slot = 0;
    auto load = [&](int to) {
        if (load_tile < tiles)
            one_gemm_load<T, S, PRO>(p, shared + to * S::STAGE, (int64_t)load_tile * S::ROWS, col0,
                                     load_k);
        gpu_copy_commit();
        load_k += ONE_GEMM_K;
        if (load_k == p.k) {
            load_k = 0;
            load_tile += blocks;
        }
    };
    for (int s = 0; s < ONE_GEMM_STAGES - 1; s++)
        load(s);

    const bool busy = col0 + warp % 2 * 8 * NI < p.n;
    float *const partial = EPI == ONE_STORE ? p.stats.partial : p.mask.sums.partial;
    for (int i = (int)threadIdx.x; i < 4 * 2 * S::COLS; i += ONE_THREADS)
        rows[i] = 0.0f;
    for (int tile = block; tile < tiles; tile += blocks) {
        float acc[MI][NI][4] = {};
        for (int k0 = 0; k0 < p.k; k0 += ONE_GEMM_K) {
            gpu_copy_wait<ONE_GEMM_STAGES - 2>();
            __syncthreads(); /* this stage is there for all, and all have left the one before */
            load(slot ? slot - 1 : ONE_GEMM_STAGES - 1);
            if (busy)
                one_gemm_step<T, MI, NI, S, PRO>(acc, shared + slot * S::STAGE, table + k0, warp,
                                                 lane);
            slot = slot + 1 == ONE_GEMM_STAGES ? 0 : slot + 1;
        }
        if (!busy)
            continue;
        const int w = gpu_fresh(warp), l = gpu_fresh(lane);
        const int64_t row = (int64_t)tile * S::ROWS + w / 2 * 16 * MI;
        const int col = w % 2 * 8 * NI;
        unsigned char *const corner = shared + S::CORNERS + w * S::CORNER;
        one_lane_sums sums = {};
        if (EPI == ONE_STORE)
            one_gemm_store<T, MI, NI, S::PITCH>(p, acc, corner, row, col0 + col, l, sums);
        else
            one_gemm_mask<T, MI, NI, S::PITCH>(p, acc, corner, marks + col, row, col0 + col, l,
                                               sums);
        if (partial)
            one_gemm_add<NI, S::COLS>(sums, rows + w / 2 * 2 * S::COLS + col, l);
    }

    if (!partial)
        return;
    unsigned *const ticket =
        (EPI == ONE_STORE ? p.stats.ticket : p.mask.sums.ticket) + blockIdx.x % p.col_tiles;
    const int count = p.n - col0 < S::COLS ? p.n - col0 : S::COLS;
    __syncthreads();
    one_write_partial<S::COLS>(
        rows, 4, one_partial{partial, p.n, block, EPI == ONE_MASK ? p.mask.norm.inv : nullptr},
        col0, count);
    if (!gpu_last_block(ticket, (unsigned)blocks))
        return;
    if (EPI == ONE_STORE)
        gpu_finish_stats(p.stats, p.n, col0, count, blocks, (double)p.rows, (int)threadIdx.x,
                         ONE_THREADS);
    else
        gpu_finish_sums(p.mask.sums, p.mask.norm, p.n, col0, count, blocks, (double)p.rows,
                        (int)threadIdx.x, ONE_THREADS);
}

#endif
