/* SPDX-License-Identifier: Apache-2.0
 *
 * The backward of a 1x1 convolution in one pass over the pixels. dZ = g + bsum z + csum is
 * completed after loading, then dU = (dZ W) * mask,  G (+)= A dU,  S1, S2,  and  dW = dZ^T max(a x
 * + b, 0). DGRAD false: computes only dW, for a backward that is split into two kernels.
 *
 * Tiles. A block has up to 128 input channels and up to 128 output channels. It steps over tiles of
 * PIXELS pixels, with STAGES tiles in shared memory. With three stages, two tiles are loaded while
 * one is computed. With two stages, one tile is loaded, and the next load starts as soon as the
 * stage is free. The input channels are cut into nearly equal slices at multiples of 32. Slices are
 * neighbours in the grid, so dZ's operands are read from memory once and from L2 otherwise.
 *
 * Steps of a tile:
 *   1. All 8 warps compute dV: 2 by 4 warps, each PIXELS / 2 pixels by 32 channels. The fragments
 *      of W stay in registers for the whole kernel.
 *   2. A warp replaces the old G in shared memory by the new G, and x by the activated input. It
 *      touches each element once, while it has x and y in registers.
 *   3. All warps compute dW: 2 by 4 warps, each 64 by 32.
 * The sums and dW stay in registers until the block's last tile.
 *
 * The limit is the instruction rate. So values that depend only on the lane are kept in registers,
 * addresses cost one instruction per row, and copies are issued during the first products, which
 * leave most instruction slots free.
 *
 * Each block writes its part of dW to the workspace; gpu_add_parts_kernel adds the parts.
 */
#ifndef CHEX_ENGINE_CUDA_KERNELS_CONV_1X1_FUSED_CUH
#define CHEX_ENGINE_CUDA_KERNELS_CONV_1X1_FUSED_CUH

#include "engine/cuda/kernels/conv_1x1.cuh"
#include "engine/cuda/kernels/vec8.cuh"

struct conv1x1_fused {
    unsigned rows;
    int m, c;                 /* output channels, input channels */
    conv1x1_slice g, z;       /* dZ = g + bsum z + csum */
    const float *bsum, *csum; /* NULL: g alone */
    const void *weight_t;     /* (c, m); DGRAD */
    conv1x1_mask mask;        /* g, add and sums are used if DGRAD */
    float *parts;             /* [split][m][c] */
    int each, more; /* a slice has 32 * each channels; the first `more` slices have 32 more */
};

/* Layout of shared memory. A stage holds the operands of a tile. */
template <int PIXELS_, int STAGES, bool DGRAD> struct conv1x1_fused_shape {
    static constexpr int PIXELS = PIXELS_, TILE = PIXELS * 256, STAGE = TILE * (DGRAD ? 4 : 3);
    static constexpr int DZ = 0, Z = TILE, X = 2 * TILE, G = 3 * TILE; /* offsets in a stage */
    static constexpr int END = STAGES * STAGE;
    static constexpr int DEFERRED = END;          /* float2[128], as conv1x1_factor_at */
    static constexpr int MARKS = DEFERRED + 1024; /* float4[128]; without DGRAD as DEFERRED */
    static constexpr size_t BYTES = (size_t)MARKS + (DGRAD ? 2048 : 1024);
    /* Number of a thread's 16-byte chunks in a tile; they are in one column. */
    static constexpr int CHUNKS = PIXELS * 16 / CONV1X1_THREADS;
};

/* Two factors for each of 128 channels. A thread reads those of 8 neighbouring channels as four
 * float4; 8 threads read them without bank conflicts. */
static __device__ __forceinline__ int conv1x1_factor_at(int c) {
    return (c / 2 % 4 * 16 + c / 8) * 2 + c % 2;
}
struct conv1x1_factors {
    float4 of[4];
};
static __device__ __forceinline__ conv1x1_factors conv1x1_read_factors(const float2 *table, int c) {
    const float4 *const from = reinterpret_cast<const float4 *>(table) + c / 8;
    return conv1x1_factors{{from[0], from[16], from[32], from[48]}};
}

/* The share of a block. */
struct conv1x1_part {
    int c0, width; /* input channels: first, number */
    int m0, depth; /* output channels: first, number */
    int slice, split, splits;
};

/* The grid is (slices, tiles of output channels, splits of the pixels). */
static __device__ __forceinline__ conv1x1_part conv1x1_part_of(const conv1x1_fused &p) {
    conv1x1_part o;
    o.slice = (int)blockIdx.x;
    o.split = (int)blockIdx.z;
    o.splits = (int)gridDim.z;
    o.c0 = (o.slice * p.each + (o.slice < p.more ? o.slice : p.more)) * 32;
    o.width = (p.each + (o.slice < p.more)) * 32;
    o.m0 = (int)blockIdx.y * 128;
    o.depth = p.m - o.m0 < 128 ? p.m - o.m0 : 128;
    return o;
}

/* A thread's chunks of a tile: the same row of every 16 rows, and 8 channels. */
struct conv1x1_chunk {
    int row, c, at; /* at: byte offset of the first chunk; the next is 4096 bytes further */
};
static __device__ __forceinline__ conv1x1_chunk conv1x1_chunk_of_thread() {
    const int thread = gpu_fresh((int)threadIdx.x), row = thread >> 4, chunk = thread & 15;
    return conv1x1_chunk{row, chunk * 8, conv1x1_at16(row, chunk)};
}

/* Copies one of a tile's four operands, 0 to 3. Writes zeros for rows, channels or tiles that do
 * not exist. WHOLE: all rows exist. */
template <class S, bool WHOLE>
static __device__ __forceinline__ void
conv1x1_fused_copy(const conv1x1_fused &p, const conv1x1_part &part, unsigned char *stage,
                   unsigned row0, const conv1x1_chunk &k, int operand) {
    const bool output = operand < 2, on = k.c < (output ? part.depth : part.width);
    const bool wanted = operand == 1 ? p.bsum != nullptr : operand != 3 || p.mask.add;
    const conv1x1_slice &from = operand == 0   ? p.g
                                : operand == 1 ? p.z
                                : operand == 2 ? p.mask.x
                                               : p.mask.g;
    const int c = (output ? part.m0 : part.c0) + (on ? k.c : 0);
    conv1x1_copy<S::CHUNKS, 16, WHOLE>(stage + operand * S::TILE + k.at, from,
                                       row0 + (unsigned)k.row, p.rows, c, on && wanted);
}

/* Copies all operands of a tile and commits the group, also if the tile does not exist. */
template <class S, bool DGRAD>
static __device__ __forceinline__ void conv1x1_fused_fetch(const conv1x1_fused &p,
                                                           const conv1x1_part &part,
                                                           unsigned char *stage, unsigned row0) {
    const conv1x1_chunk k = conv1x1_chunk_of_thread();
    const bool whole = row0 + S::PIXELS <= p.rows;
#pragma unroll
    for (int operand = 0; operand < (DGRAD ? 4 : 3) && row0 < p.rows; operand++) {
        if (k.c >= (operand < 2 ? part.depth : part.width) || (operand == 1 && !p.bsum))
            continue;
        if (whole)
            conv1x1_fused_copy<S, true>(p, part, stage, row0, k, operand);
        else
            conv1x1_fused_copy<S, false>(p, part, stage, row0, k, operand);
    }
    gpu_copy_commit();
}

/* Completes dZ in place. Each thread changes the chunks that it copied. Rows past the end stay 0.
 */
template <class T, class S>
static __device__ __forceinline__ void
conv1x1_fused_take(const conv1x1_fused &p, const conv1x1_part &part, unsigned char *stage,
                   const float2 *deferred_grad, unsigned row0) {
    const conv1x1_chunk k = conv1x1_chunk_of_thread();
    if (!p.bsum || k.c >= part.depth)
        return;
    const conv1x1_factors s = conv1x1_read_factors(deferred_grad, k.c);
    uint4 *const dz = reinterpret_cast<uint4 *>(stage + S::DZ + k.at);
    const uint4 *const z = reinterpret_cast<const uint4 *>(stage + S::Z + k.at);
#pragma unroll
    for (int i = 0; i < S::CHUNKS; i += 2) {
        const uint4 gs[2] = {dz[i * 256], dz[i * 256 + 256]};
        const uint4 zs[2] = {z[i * 256], z[i * 256 + 256]};
#pragma unroll
        for (int j = 0; j < 2; j++)
            dz[(i + j) * 256] = make_uint4(conv1x1_finish_grad2<T>(gs[j].x, zs[j].x, s.of[0]),
                                           conv1x1_finish_grad2<T>(gs[j].y, zs[j].y, s.of[1]),
                                           conv1x1_finish_grad2<T>(gs[j].z, zs[j].z, s.of[2]),
                                           conv1x1_finish_grad2<T>(gs[j].w, zs[j].w, s.of[3]));
    }
    if (row0 + S::PIXELS > p.rows)
        for (int i = 0; i < S::CHUNKS; i++)
            if (row0 + (unsigned)(k.row + 16 * i) >= p.rows)
                dz[i * 256] = uint4{};
}

/* Replaces x by the activated input, in the same way. scale: a, b of each channel, as
 * conv1x1_factor_at. */
template <class T, class S>
static __device__ __forceinline__ void
conv1x1_fused_activate(const conv1x1_part &part, unsigned char *stage, const float2 *scale) {
    const conv1x1_chunk k = conv1x1_chunk_of_thread();
    if (k.c >= part.width)
        return;
    const conv1x1_factors s = conv1x1_read_factors(scale, k.c);
    uint4 *const x = reinterpret_cast<uint4 *>(stage + S::X + k.at);
#pragma unroll 2
    for (int i = 0; i < S::CHUNKS; i++) {
        const uint4 v = x[i * 256];
        x[i * 256] =
            make_uint4(conv1x1_activate2<T>(v.x, s.of[0]), conv1x1_activate2<T>(v.y, s.of[1]),
                       conv1x1_activate2<T>(v.z, s.of[2]), conv1x1_activate2<T>(v.w, s.of[3]));
    }
}

/* A warp's half of the rows and quarter of the columns. The four warps of a half run on four
 * different schedulers. So a tile that is half empty still keeps all schedulers busy. */
struct conv1x1_warp_share {
    int half, quarter;
};
static __device__ __forceinline__ conv1x1_warp_share conv1x1_warp_share_of(int warp) {
    return conv1x1_warp_share{(warp ^ warp >> 2) & 1, warp >> 1};
}

/* Layout of a tile: ROW bytes between rows; a chunk is found by exclusive or as in conv1x1_at16. */
struct conv1x1_wide_rows {
    static constexpr int ROW = 256;
    static __device__ __forceinline__ int at(int row, int chunk) {
        return conv1x1_at16(row, chunk);
    }
};

/* Byte offsets of a lane in a tile: for the product dV, its mask, and the two operands of dW. All
 * other offsets are derived from these in every tile. */
struct conv1x1_places {
    int dgrad, mask, a, b;
};
template <int MI, class LAYOUT>
static __device__ __forceinline__ conv1x1_places conv1x1_places_of(const conv1x1_warp_share &home,
                                                                   int lane) {
    const int rows = home.half * 16 * MI, chunk = home.quarter * 4, matrix = lane >> 3;
    return conv1x1_places{
        gpu_fresh(LAYOUT::at(rows + (lane & 15), lane >> 4)),
        gpu_fresh(LAYOUT::at(rows + (lane >> 2), chunk) + 4 * (lane & 3)),
        gpu_fresh(LAYOUT::at((lane & 7) + (matrix >> 1) * 8, home.half * 8 + (matrix & 1))),
        gpu_fresh(LAYOUT::at((lane & 7) + (matrix & 1) * 8, chunk + (matrix >> 1)))};
}

/* Fragments of W for a warp's 32 input channels: [16 output channels][8 input channels]. */
template <class T>
static __device__ __forceinline__ void
conv1x1_fused_weights(const conv1x1_fused &p, const conv1x1_part &part, uint32_t w[8][4][2],
                      int quarter, int lane) {
    const T *const w_t = static_cast<const T *>(p.weight_t);
#pragma unroll
    for (int kk = 0; kk < 8; kk++)
#pragma unroll
        for (int ni = 0; ni < 4; ni++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int c = quarter * 32 + ni * 8 + lane / 4;
                const int m = kk * 16 + h * 8 + 2 * (lane % 4);
                w[kk][ni][h] = 0;
                if (c < part.width && m < p.m)
                    w[kk][ni][h] =
                        *reinterpret_cast<const uint32_t *>(w_t + (int64_t)(part.c0 + c) * p.m + m);
            }
}

/* dv += dZ W for a warp's pixels and channels, over 64 output channels. meanwhile(0) to
 * meanwhile(3) run while the tensor cores compute. */
template <class T, int MI, int ROW, class F>
static __device__ __forceinline__ void
conv1x1_fused_dgrad(float dv[MI][4][4], const unsigned char *dz, const uint32_t w[4][4][2], int at,
                    F meanwhile) {
#pragma unroll
    for (int kk = 0; kk < 4; kk++) {
        uint32_t a[MI][4];
#pragma unroll
        for (int mi = 0; mi < MI; mi++)
            gpu_ldmatrix_x4(a[mi], dz + (at ^ kk << 5) + mi * 16 * ROW);
#pragma unroll
        for (int mi = 0; mi < MI; mi++)
#pragma unroll
            for (int ni = 0; ni < 4; ni++)
                gpu_mma_16816<T>(dv[mi][ni], a[mi], w[kk][ni]);
        meanwhile(kk);
    }
}

/* S1 and S2 / inv of the 8 columns that a lane holds elements of. */
struct conv1x1_pair_sums {
    float s1[4][2], s2[4][2];
};

/* Operands of the mask for 8 channels: the coefficients of a lane's two channels, and its pairs of
 * x and G. */
template <int MI> struct conv1x1_masks {
    float4 c0, c1;
    uint32_t x[2 * MI], g[2 * MI];
};
template <int MI, bool NORM, int ROW>
static __device__ __forceinline__ conv1x1_masks<MI>
conv1x1_fused_read(const unsigned char *g, const unsigned char *x, const float4 *marks) {
    conv1x1_masks<MI> m;
    if (NORM) {
        m.c0 = marks[0];
        m.c1 = marks[1];
    }
#pragma unroll
    for (int i = 0; i < 2 * MI; i++) {
        if (NORM)
            m.x[i] = *reinterpret_cast<const uint32_t *>(x + i * 8 * ROW);
        m.g[i] = *reinterpret_cast<const uint32_t *>(g + i * 8 * ROW);
    }
    return m;
}

/* Updates G in shared memory from dv; with a norm also replaces x by the activated input. A lane
 * reads and writes only its own elements. The next elements are read before the last ones are
 * written. */
template <class T, int MI, bool NORM, int ROW>
static __device__ __forceinline__ void
conv1x1_fused_mask(const float dv[MI][4][4], unsigned char *g, unsigned char *x,
                   const float4 *marks, int at, conv1x1_pair_sums &sums) {
    conv1x1_masks<MI> next = conv1x1_fused_read<MI, NORM, ROW>(g + at, x + at, marks);
#pragma unroll
    for (int ni = 0; ni < 4; ni++) {
        const conv1x1_masks<MI> m = next;
        if (ni + 1 < 4) {
            const int ahead = at ^ (ni + 1) << 4;
            next = conv1x1_fused_read<MI, NORM, ROW>(g + ahead, x + ahead, marks + (ni + 1) * 8);
        }
#pragma unroll
        for (int i = 0; i < 2 * MI; i++) {
            const float *const d = dv[i / 2][ni] + i % 2 * 2;
            const int to = (at ^ ni << 4) + i * 8 * ROW;
            float2 v = gpu_unpack2<T>(m.g[i]);
            if (NORM) {
                const float2 f = gpu_unpack2<T>(m.x[i]);
                const float y0 = gpu_normed(gpu_ab{m.c0.x, m.c0.y}, f.x);
                const float y1 = gpu_normed(gpu_ab{m.c1.x, m.c1.y}, f.y);
                conv1x1_masked(y0, d[0], f.x, m.c0, v.x, sums.s1[ni][0], sums.s2[ni][0]);
                conv1x1_masked(y1, d[1], f.y, m.c1, v.y, sums.s1[ni][1], sums.s2[ni][1]);
                *reinterpret_cast<uint32_t *>(x + to) = gpu_pack2_relu<T>(y0, y1);
            } else {
                v = make_float2(v.x + d[0], v.y + d[1]);
            }
            *reinterpret_cast<uint32_t *>(g + to) = gpu_pack2<T>(v.x, v.y);
        }
    }
}

/* dw += dZ^T u for a warp's 64 by 32 channels. */
template <class T, int PIXELS, int ROW>
static __device__ __forceinline__ void
conv1x1_fused_wgrad(float dw[4][4][4], const unsigned char *dz, const unsigned char *u, int a_at,
                    int b_at) {
#pragma unroll
    for (int kk = 0; kk < PIXELS / 16; kk++) {
        uint32_t b[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++)
            gpu_ldmatrix_x4_trans(b[i], u + (b_at ^ i << 5) + kk * 16 * ROW);
#pragma unroll
        for (int mi = 0; mi < 4; mi++) {
            uint32_t a[4];
            gpu_ldmatrix_x4_trans(a, dz + (a_at ^ mi << 5) + kk * 16 * ROW);
#pragma unroll
            for (int ni = 0; ni < 4; ni++)
                gpu_mma_16816<T>(dw[mi][ni], a, b[ni / 2] + ni % 2 * 2);
        }
    }
}

/* Writes the new G to global memory. Each thread writes the chunks that it copied. */
template <class S>
static __device__ __forceinline__ void conv1x1_fused_store(const conv1x1_fused &p,
                                                           const conv1x1_part &part,
                                                           const unsigned char *g, unsigned row0) {
    const conv1x1_chunk k = conv1x1_chunk_of_thread();
    if (k.c >= part.width)
        return;
    uint4 v[S::CHUNKS];
#pragma unroll
    for (int i = 0; i < S::CHUNKS; i++)
        v[i] = *reinterpret_cast<const uint4 *>(g + k.at + i * 4096);
    unsigned char *const column = conv1x1_column(p.mask.g, part.c0 + k.c);
#pragma unroll
    for (int i = 0; i < S::CHUNKS; i++) {
        const unsigned row = row0 + (unsigned)(k.row + 16 * i);
        if (row < p.rows)
            *reinterpret_cast<uint4 *>(conv1x1_row(column, p.mask.g, row)) = v[i];
    }
}

static __device__ __forceinline__ void
conv1x1_fused_store_dw(const conv1x1_fused &p, const conv1x1_part &part, const float dw[4][4][4],
                       const conv1x1_warp_share &home, int lane) {
    float *const to = p.parts + ((int64_t)part.split * p.m + part.m0) * p.c + (unsigned)part.c0;
#pragma unroll
    for (int mi = 0; mi < 4; mi++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int m = home.half * 64 + mi * 16 + h * 8 + lane / 4;
            if (m >= part.depth)
                continue;
#pragma unroll
            for (int ni = 0; ni < 4; ni++) {
                const int c = home.quarter * 32 + ni * 8 + 2 * (lane % 4);
                *reinterpret_cast<float2 *>(to + (int64_t)m * p.c + c) =
                    make_float2(dw[mi][ni][2 * h], dw[mi][ni][2 * h + 1]);
            }
        }
}

/* Writes the lanes' sums over pixels to rows[2][2][128] in shared memory. */
static __device__ __forceinline__ void conv1x1_fused_gather(conv1x1_pair_sums &sums, float *rows,
                                                            const conv1x1_warp_share &home,
                                                            int lane) {
#pragma unroll
    for (int ni = 0; ni < 4; ni++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
#pragma unroll
            for (int by = 16; by >= 4; by /= 2) {
                sums.s1[ni][j] += __shfl_xor_sync(0xffffffffu, sums.s1[ni][j], by);
                sums.s2[ni][j] += __shfl_xor_sync(0xffffffffu, sums.s2[ni][j], by);
            }
            if (lane < 4) {
                float *row = rows + home.half * 256 + home.quarter * 32 + ni * 8 + 2 * lane + j;
                row[0] = sums.s1[ni][j];
                row[128] = sums.s2[ni][j];
            }
        }
}

/* Writes the block's sums; the last block of these channels completes them. rows: floats
 * [2][2][128] of shared memory. */
static __device__ __forceinline__ void
conv1x1_fused_finish_sums(const conv1x1_fused &p, const conv1x1_part &part, conv1x1_pair_sums &sums,
                          float *rows, const conv1x1_warp_share &home, int lane) {
    conv1x1_fused_gather(sums, rows, home, lane);
    __syncthreads();
    conv1x1_write_partial<128>(
        rows, 2, conv1x1_partial{p.mask.sums.partial, p.c, part.split, p.mask.norm.inv}, part.c0,
        part.width);
    if (gpu_last_of_run(p.mask.sums.ticket, part.slice, part.split, part.splits,
                        p.mask.sums.partial, p.c, part.c0, part.width, (int)threadIdx.x,
                        CONV1X1_THREADS))
        gpu_finish_sums(p.mask.sums, p.mask.norm, p.c, part.c0, part.width, part.splits,
                        (double)p.rows, (int)threadIdx.x, CONV1X1_THREADS);
}

/* Writes the coefficients of the tiles' channels; zeros if the output has fewer channels than a
 * tile. */
template <class S, bool NORM, bool DGRAD>
static __device__ __forceinline__ void
conv1x1_fused_tables(const conv1x1_fused &p, const conv1x1_part &part, unsigned char *shared) {
    float2 *const deferred_grad = reinterpret_cast<float2 *>(shared + S::DEFERRED);
    for (int i = (int)threadIdx.x; i < 128; i += CONV1X1_THREADS) {
        if (p.bsum && i < part.depth)
            deferred_grad[conv1x1_factor_at(i)] =
                make_float2(p.bsum[part.m0 + i], p.csum[part.m0 + i]);
        if (!NORM)
            continue;
        const float4 c = i < part.width ? conv1x1_channel(p.mask.norm, part.c0 + i) : float4{};
        if (DGRAD)
            reinterpret_cast<float4 *>(shared + S::MARKS)[i] = c;
        else
            reinterpret_cast<float2 *>(shared + S::MARKS)[conv1x1_factor_at(i)] =
                make_float2(c.x, c.y);
    }
    const conv1x1_chunk k = conv1x1_chunk_of_thread();
    for (int at = k.at; part.depth < 128 && at < S::END; at += 4096)
        if (k.c >= part.depth && at % S::STAGE < S::TILE)
            *reinterpret_cast<uint4 *>(shared + at) = uint4{};
}

template <class T, int PIXELS, int STAGES, bool NORM, bool DGRAD>
__global__ void __launch_bounds__(CONV1X1_THREADS, DGRAD ? 1 : 2)
    conv1x1_fused_kernel(const conv1x1_fused p) {
    gpu_begin();
    typedef conv1x1_fused_shape<PIXELS, STAGES, DGRAD> S;
    typedef conv1x1_wide_rows L;
    constexpr int MI = PIXELS / 32;
    CHEX_DYNAMIC_SHARED(dynamic);
    unsigned char *const shared = gpu_resident(dynamic);
    const float2 *const deferred_grad = reinterpret_cast<const float2 *>(shared + S::DEFERRED);
    const int lane = (int)threadIdx.x % 32;
    const conv1x1_warp_share home = conv1x1_warp_share_of((int)threadIdx.x / 32);
    const conv1x1_part part = conv1x1_part_of(p);
    const unsigned stride = (unsigned)(part.splits * PIXELS);
    const unsigned start = (unsigned)(part.split * PIXELS);

    for (unsigned s = 0; s < 2; s++)
        conv1x1_fused_fetch<S, DGRAD>(p, part, shared + s * S::STAGE, start + s * stride);
    conv1x1_fused_tables<S, NORM, DGRAD>(p, part, shared);
    uint32_t w[8][4][2];
    if (DGRAD)
        conv1x1_fused_weights<T>(p, part, w, home.quarter, lane);
    __syncthreads();

    const bool busy = home.quarter * 32 < part.width;
    const conv1x1_places places = conv1x1_places_of<MI, L>(home, lane);
    const float4 *const marks =
        reinterpret_cast<const float4 *>(shared + S::MARKS) + home.quarter * 32 + 2 * (lane % 4);
    float dw[4][4][4] = {};
    conv1x1_pair_sums sums = {};
    int slot = 0;
    for (unsigned row0 = start; row0 < p.rows; row0 += stride) {
        unsigned char *const stage = shared + slot * S::STAGE;
        slot = slot + 1 == STAGES ? 0 : slot + 1;
        gpu_copy_wait<1>();
        conv1x1_fused_take<T, S>(p, part, stage, deferred_grad, row0);
        if (NORM && !DGRAD)
            conv1x1_fused_activate<T, S>(part, stage,
                                         reinterpret_cast<const float2 *>(shared + S::MARKS));
        __syncthreads(); /* all threads have finished the previous stage, too */
        /* With three stages, the next copies are issued during the first products. */
        const unsigned ahead = row0 + 2 * stride;
        unsigned char *const free = shared + (slot + 1 == STAGES ? 0 : slot + 1) * S::STAGE;
        if (STAGES > 2 && !busy)
            conv1x1_fused_fetch<S, DGRAD>(p, part, free, ahead);
        if (DGRAD) {
            if (busy) {
                float dv[MI][4][4] = {};
                const int at = gpu_fresh(places.dgrad);
                const conv1x1_chunk k = conv1x1_chunk_of_thread();
                conv1x1_fused_dgrad<T, MI, L::ROW>(dv, stage + S::DZ, w, at, [&](int operand) {
                    if (STAGES > 2)
                        conv1x1_fused_copy<S, false>(p, part, free, ahead, k, operand);
                });
                if (STAGES > 2)
                    gpu_copy_commit();
                if (part.depth > 64)
                    conv1x1_fused_dgrad<T, MI, L::ROW>(dv, stage + S::DZ + 128, w + 4, at,
                                                       [](int) {});
                conv1x1_fused_mask<T, MI, NORM, L::ROW>(dv, stage + S::G, stage + S::X, marks,
                                                        gpu_fresh(places.mask), sums);
            }
            __syncthreads(); /* G and the convolution's input are complete */
            conv1x1_fused_store<S>(p, part, stage + S::G, row0);
        }
        if (busy && home.half * 64 < part.depth)
            conv1x1_fused_wgrad<T, PIXELS, L::ROW>(dw, stage + S::DZ, stage + S::X,
                                                   gpu_fresh(places.a), gpu_fresh(places.b));
        if (STAGES == 2) {
            __syncthreads(); /* the stage is free */
            conv1x1_fused_fetch<S, DGRAD>(p, part, stage, ahead);
        }
    }

    gpu_copy_wait<0>(); /* copies of zeros for missing tiles may still be in flight */
    if (busy)
        conv1x1_fused_store_dw(p, part, dw, home, lane);
    if (!DGRAD || !NORM || !p.mask.sums.partial)
        return;
    __syncthreads();
    conv1x1_fused_finish_sums(p, part, sums, reinterpret_cast<float *>(shared), home, lane);
}

/* ---- host ---- */

/* Arguments without `each` and `more`. */
static inline conv1x1_fused conv1x1_fused_of(const gpu_conv_backward &b, void *workspace) {
    conv1x1_fused p = {};
    p.rows = (unsigned)gpu_map_pixels(&b.in);
    p.m = b.out.g.channels;
    p.c = b.in.channels;
    p.g = conv1x1_slice_of(b.out.g);
    p.z = conv1x1_slice_of(b.out.bsum ? b.out.x
                                      : b.out.g); /* a valid pointer, also if it is not read */
    p.bsum = b.out.bsum;
    p.csum = b.out.csum;
    p.weight_t = b.weight_t;
    p.mask = conv1x1_mask_of(b);
    p.parts = static_cast<float *>(workspace);
    return p;
}

#endif
