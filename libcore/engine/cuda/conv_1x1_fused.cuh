/* SPDX-License-Identifier: Apache-2.0
 *
 * The backward of a 1x1 convolution in one pass over the pixels: dZ is taken as it is loaded, then
 *     dU = (dZ W) * mask,  G (+)= A dU,  S1, S2,  and  dW = dZ^T max(a x + b, 0).
 * With DGRAD false only the last: the second half of the backward that is split in two.
 *
 * A block has up to 128 channels of the input and up to 128 of the output, and goes through the
 * pixels in tiles of PIXELS, STAGES of them in shared memory: one is worked on while the next two
 * arrive, or where there is room for two stages, the next one and soon the one behind it. Slices of
 * the input's channels are cut at multiples of 32, nearly equal, and are neighbours in the grid, so
 * dZ's operands come from memory once and from L2 else.
 *
 * All 8 warps first make dV, 2 by 4 warps of PIXELS / 2 by 32 channels; W's fragments stay in
 * registers from beginning to end. A warp turns its dV into the new G in shared memory, where x and
 * the old G lie, and x into what the convolution read: once an element, while it has x and y at
 * hand. Then all make dW, 2 by 4 warps of 64 by 32. The sums and dW stay in registers until the
 * block has seen all its pixels.
 *
 * Instructions are what these tiles are short of, so what depends on the lane alone is kept, what
 * depends on the tile is one instruction a row, and copies are asked for within the first products,
 * which leave most instruction slots empty.
 *
 * dW's parts of the blocks are written to the workspace and added up by one_reduce_kernel.
 */
#ifndef CHEX_ENGINE_CUDA_CONV_1X1_FUSED_CUH
#define CHEX_ENGINE_CUDA_CONV_1X1_FUSED_CUH

#include "engine/cuda/conv_1x1.cuh"

struct one_fused {
    unsigned rows;
    int m, c;                 /* channels of the output, of the input */
    one_slice g, z;           /* dZ = g + bsum z + csum */
    const float *bsum, *csum; /* NULL: g alone */
    const void *weight_t;     /* (c, m); DGRAD */
    one_mask mask;            /* its g, add and sums: DGRAD */
    float *parts;             /* [split][m][c] */
    int each, more;           /* of c's 32s, how many a slice has; how many slices have one more */
};

/* Parts of shared memory. A stage holds a tile's operands. */
template <int PIXELS_, int STAGES, bool DGRAD> struct one_fused_shape {
    static constexpr int PIXELS = PIXELS_, TILE = PIXELS * 256, STAGE = TILE * (DGRAD ? 4 : 3);
    static constexpr int DZ = 0, Z = TILE, X = 2 * TILE, G = 3 * TILE; /* within a stage */
    static constexpr int END = STAGES * STAGE;
    static constexpr int TAKEN = END;          /* float2[128] */
    static constexpr int MARKS = TAKEN + 1024; /* float4[128]; float2[128] where not DGRAD */
    static constexpr size_t BYTES = (size_t)MARKS + (DGRAD ? 2048 : 1024);
    /* Of 16-byte chunks in one tile, how many are a thread's; always in the same column. */
    static constexpr int CHUNKS = PIXELS * 16 / ONE_THREADS;
};

/* What a block works on. */
struct one_part {
    int c0, width; /* channels of the input */
    int m0, depth; /* of the output */
    int slice, split, splits;
};

/* The grid is slices x tiles of the output's channels x splits. */
static __device__ __forceinline__ one_part one_part_of(const one_fused &p) {
    one_part o;
    o.slice = (int)blockIdx.x;
    o.split = (int)blockIdx.z;
    o.splits = (int)gridDim.z;
    o.c0 = (o.slice * p.each + (o.slice < p.more ? o.slice : p.more)) * 32;
    o.width = (p.each + (o.slice < p.more)) * 32;
    o.m0 = (int)blockIdx.y * 128;
    o.depth = p.m - o.m0 < 128 ? p.m - o.m0 : 128;
    return o;
}

/* A thread's chunks of a tile: its row in every 16 rows, and the channels. */
struct one_chunk {
    int row, c, at; /* at: of the first, in bytes; the next lies 4096 on */
};
static __device__ __forceinline__ one_chunk one_chunk_of_thread() {
    const int thread = gpu_fresh((int)threadIdx.x), row = thread >> 4, chunk = thread & 15;
    return one_chunk{row, chunk * 8, one_at16(row, chunk)};
}

/* Copies one of a tile's four operands, 0 to 3. Zeros come where rows or channels are not there, or
 * no tile; WHOLE: all rows are there. */
template <class S, bool WHOLE>
static __device__ __forceinline__ void one_fused_copy(const one_fused &p, const one_part &part,
                                                      unsigned char *stage, unsigned row0,
                                                      const one_chunk &k, int operand) {
    const bool output = operand < 2, on = k.c < (output ? part.depth : part.width);
    const bool wanted = operand == 1 ? p.bsum != nullptr : operand != 3 || p.mask.add;
    const one_slice &from = operand == 0   ? p.g
                            : operand == 1 ? p.z
                            : operand == 2 ? p.mask.x
                                           : p.mask.g;
    const int c = (output ? part.m0 : part.c0) + (on ? k.c : 0);
    one_copy<S::CHUNKS, 16, WHOLE>(stage + operand * S::TILE + k.at, from, row0 + (unsigned)k.row,
                                   p.rows, c, on && wanted);
}

/* All of a tile, which ends a group of copies, also where there is no tile. */
template <class S, bool DGRAD>
static __device__ __forceinline__ void one_fused_fetch(const one_fused &p, const one_part &part,
                                                       unsigned char *stage, unsigned row0) {
    const one_chunk k = one_chunk_of_thread();
    const bool whole = row0 + S::PIXELS <= p.rows;
#pragma unroll
    for (int operand = 0; operand < (DGRAD ? 4 : 3) && row0 < p.rows; operand++) {
        if (k.c >= (operand < 2 ? part.depth : part.width) || (operand == 1 && !p.bsum))
            continue;
        if (whole)
            one_fused_copy<S, true>(p, part, stage, row0, k, operand);
        else
            one_fused_copy<S, false>(p, part, stage, row0, k, operand);
    }
    gpu_copy_commit();
}

/* dZ in place, each thread the chunks that it copied. Rows behind the end stay 0. */
template <class T, class S>
static __device__ __forceinline__ void one_fused_take(const one_fused &p, const one_part &part,
                                                      unsigned char *stage, const float2 *taken,
                                                      unsigned row0) {
    const one_chunk k = one_chunk_of_thread();
    if (!p.bsum || k.c >= part.depth)
        return;
    const float4 *const from = reinterpret_cast<const float4 *>(taken + k.c);
    const float4 s[4] = {from[0], from[1], from[2], from[3]};
    uint4 *const dz = reinterpret_cast<uint4 *>(stage + S::DZ + k.at);
    const uint4 *const z = reinterpret_cast<const uint4 *>(stage + S::Z + k.at);
#pragma unroll
    for (int i = 0; i < S::CHUNKS; i += 2) {
        const uint4 gs[2] = {dz[i * 256], dz[i * 256 + 256]};
        const uint4 zs[2] = {z[i * 256], z[i * 256 + 256]};
#pragma unroll
        for (int j = 0; j < 2; j++)
            dz[(i + j) * 256] = make_uint4(
                one_take2<T>(gs[j].x, zs[j].x, s[0]), one_take2<T>(gs[j].y, zs[j].y, s[1]),
                one_take2<T>(gs[j].z, zs[j].z, s[2]), one_take2<T>(gs[j].w, zs[j].w, s[3]));
    }
    if (row0 + S::PIXELS > p.rows)
        for (int i = 0; i < S::CHUNKS; i++)
            if (row0 + (unsigned)(k.row + 16 * i) >= p.rows)
                dz[i * 256] = uint4{};
}

/* The convolution's input in place of x, in the same way. scale: a, b of each channel. */
template <class T, class S>
static __device__ __forceinline__ void
one_fused_activate(const one_part &part, unsigned char *stage, const float2 *scale) {
    const one_chunk k = one_chunk_of_thread();
    if (k.c >= part.width)
        return;
    const float4 *const from = reinterpret_cast<const float4 *>(scale + k.c);
    const float4 s[4] = {from[0], from[1], from[2], from[3]};
    uint4 *const x = reinterpret_cast<uint4 *>(stage + S::X + k.at);
#pragma unroll 2
    for (int i = 0; i < S::CHUNKS; i++) {
        const uint4 v = x[i * 256];
        x[i * 256] = make_uint4(one_activate2<T>(v.x, s[0]), one_activate2<T>(v.y, s[1]),
                                one_activate2<T>(v.z, s[2]), one_activate2<T>(v.w, s[3]));
    }
}

/* Which half of the rows and which quarter of the columns are a warp's. Four neighbours are on as
 * many schedulers, and so are the four of a half: also a tile that is half empty keeps all busy. */
struct one_home {
    int half, quarter;
};
static __device__ __forceinline__ one_home one_home_of(int warp) {
    return one_home{(warp ^ warp >> 2) & 1, warp >> 1};
}

/* Where a lane begins in a tile, in bytes: for dV's product, its mask, and dW's two operands. The
 * other places are found from these in every tile anew. */
struct one_places {
    int dgrad, mask, a, b;
};
template <int MI>
static __device__ __forceinline__ one_places one_places_of(const one_home &home, int lane) {
    const int rows = home.half * 16 * MI, chunk = home.quarter * 4, matrix = lane >> 3;
    return one_places{
        gpu_fresh(one_at16(rows + (lane & 15), lane >> 4)),
        gpu_fresh(one_at16(rows + (lane >> 2), chunk) + 4 * (lane & 3)),
        gpu_fresh(one_at16((lane & 7) + (matrix >> 1) * 8, home.half * 8 + (matrix & 1))),
        gpu_fresh(one_at16((lane & 7) + (matrix & 1) * 8, chunk + (matrix >> 1)))};
}

/* W's fragments of a warp's 32 channels: [16 of the output][8 of the input]. */
template <class T>
static __device__ __forceinline__ void one_fused_weights(const one_fused &p, const one_part &part,
                                                         uint32_t w[8][4][2], int quarter,
                                                         int lane) {
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

/* dv += dZ W of a warp's pixels and channels, over 64 channels of the output. meanwhile(0 to 3) is
 * done while the tensor cores are at it. */
template <class T, int MI, class F>
static __device__ __forceinline__ void one_fused_dgrad(float dv[MI][4][4], const unsigned char *dz,
                                                       const uint32_t w[4][4][2], int at,
                                                       F meanwhile) {
#pragma unroll
    for (int kk = 0; kk < 4; kk++) {
        uint32_t a[MI][4];
#pragma unroll
        for (int mi = 0; mi < MI; mi++)
            gpu_ldmatrix_x4(a[mi], dz + (at ^ kk << 5) + mi * 4096);
#pragma unroll
        for (int mi = 0; mi < MI; mi++)
#pragma unroll
            for (int ni = 0; ni < 4; ni++)
                gpu_mma_16816<T>(dv[mi][ni], a[mi], w[kk][ni]);
        meanwhile(kk);
    }
}

/* The sums of the 8 columns of which a lane has elements: S1 and S2 / inv. */
struct one_pair_sums {
    float s1[4][2], s2[4][2];
};

/* What the mask needs of 8 channels: the marks of a lane's two, and their pairs of x and of G. */
template <int MI> struct one_masks {
    float4 c0, c1;
    uint32_t x[2 * MI], g[2 * MI];
};
template <int MI, bool NORM>
static __device__ __forceinline__ one_masks<MI>
one_fused_read(const unsigned char *g, const unsigned char *x, const float4 *marks) {
    one_masks<MI> m;
    if (NORM) {
        m.c0 = marks[0];
        m.c1 = marks[1];
    }
#pragma unroll
    for (int i = 0; i < 2 * MI; i++) {
        if (NORM)
            m.x[i] = *reinterpret_cast<const uint32_t *>(x + i * 2048);
        m.g[i] = *reinterpret_cast<const uint32_t *>(g + i * 2048);
    }
    return m;
}

/* In shared memory G from dv, and with a norm the convolution's input in place of x; each lane
 * reads and writes its own elements alone. The next are read before the last are written. */
template <class T, int MI, bool NORM>
static __device__ __forceinline__ void one_fused_mask(const float dv[MI][4][4], unsigned char *g,
                                                      unsigned char *x, const float4 *marks, int at,
                                                      one_pair_sums &sums) {
    one_masks<MI> next = one_fused_read<MI, NORM>(g + at, x + at, marks);
#pragma unroll
    for (int ni = 0; ni < 4; ni++) {
        const one_masks<MI> m = next;
        if (ni + 1 < 4) {
            const int ahead = at ^ (ni + 1) << 4;
            next = one_fused_read<MI, NORM>(g + ahead, x + ahead, marks + (ni + 1) * 8);
        }
#pragma unroll
        for (int i = 0; i < 2 * MI; i++) {
            const float *const d = dv[i / 2][ni] + i % 2 * 2;
            const int to = (at ^ ni << 4) + i * 2048;
            float2 v = gpu_unpack2<T>(m.g[i]);
            if (NORM) {
                const float2 f = gpu_unpack2<T>(m.x[i]);
                const float y0 = gpu_normed(gpu_ab{m.c0.x, m.c0.y}, f.x);
                const float y1 = gpu_normed(gpu_ab{m.c1.x, m.c1.y}, f.y);
                one_masked(y0, d[0], f.x, m.c0, v.x, sums.s1[ni][0], sums.s2[ni][0]);
                one_masked(y1, d[1], f.y, m.c1, v.y, sums.s1[ni][1], sums.s2[ni][1]);
                *reinterpret_cast<uint32_t *>(x + to) = gpu_pack2_relu<T>(y0, y1);
            } else {
                v = make_float2(v.x + d[0], v.y + d[1]);
            }
            *reinterpret_cast<uint32_t *>(g + to) = gpu_pack2<T>(v.x, v.y);
        }
    }
}

/* dw += dZ^T u of a warp's 64 by 32 channels. */
template <class T, int PIXELS>
static __device__ __forceinline__ void one_fused_wgrad(float dw[4][4][4], const unsigned char *dz,
                                                       const unsigned char *u, int a_at, int b_at) {
#pragma unroll
    for (int kk = 0; kk < PIXELS / 16; kk++) {
        uint32_t b[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++)
            gpu_ldmatrix_x4_trans(b[i], u + (b_at ^ i << 5) + kk * 4096);
#pragma unroll
        for (int mi = 0; mi < 4; mi++) {
            uint32_t a[4];
            gpu_ldmatrix_x4_trans(a, dz + (a_at ^ mi << 5) + kk * 4096);
#pragma unroll
            for (int ni = 0; ni < 4; ni++)
                gpu_mma_16816<T>(dw[mi][ni], a, b[ni / 2] + ni % 2 * 2);
        }
    }
}

/* The new G to memory, each thread the chunks that it copies. */
template <class S>
static __device__ __forceinline__ void one_fused_store(const one_fused &p, const one_part &part,
                                                       const unsigned char *g, unsigned row0) {
    const one_chunk k = one_chunk_of_thread();
    if (k.c >= part.width)
        return;
    uint4 v[S::CHUNKS];
#pragma unroll
    for (int i = 0; i < S::CHUNKS; i++)
        v[i] = *reinterpret_cast<const uint4 *>(g + k.at + i * 4096);
    unsigned char *const column = one_column(p.mask.g, part.c0 + k.c);
#pragma unroll
    for (int i = 0; i < S::CHUNKS; i++) {
        const unsigned row = row0 + (unsigned)(k.row + 16 * i);
        if (row < p.rows)
            *reinterpret_cast<uint4 *>(one_row(column, p.mask.g, row)) = v[i];
    }
}

static __device__ __forceinline__ void one_fused_store_dw(const one_fused &p, const one_part &part,
                                                          const float dw[4][4][4],
                                                          const one_home &home, int lane) {
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

/* The lanes' sums over pixels to rows[2][2][128] of shared memory. */
static __device__ __forceinline__ void one_fused_gather(one_pair_sums &sums, float *rows,
                                                        const one_home &home, int lane) {
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

/* What the tiles' channels need, and zeros where the output has fewer channels than a tile. */
template <class S, bool NORM, bool DGRAD>
static __device__ __forceinline__ void one_fused_tables(const one_fused &p, const one_part &part,
                                                        unsigned char *shared) {
    float2 *const taken = reinterpret_cast<float2 *>(shared + S::TAKEN);
    for (int i = (int)threadIdx.x; i < 128; i += ONE_THREADS) {
        if (p.bsum && i < part.depth)
            taken[i] = make_float2(p.bsum[part.m0 + i], p.csum[part.m0 + i]);
        if (!NORM)
            continue;
        const float4 c = i < part.width ? one_channel(p.mask.norm, part.c0 + i) : float4{};
        if (DGRAD)
            reinterpret_cast<float4 *>(shared + S::MARKS)[i] = c;
        else
            reinterpret_cast<float2 *>(shared + S::MARKS)[i] = make_float2(c.x, c.y);
    }
    const one_chunk k = one_chunk_of_thread();
    for (int at = k.at; part.depth < 128 && at < S::END; at += 4096)
        if (k.c >= part.depth && at % S::STAGE < S::TILE)
            *reinterpret_cast<uint4 *>(shared + at) = uint4{};
}

template <class T, int PIXELS, int STAGES, bool NORM, bool DGRAD>
__global__ void __launch_bounds__(ONE_THREADS, DGRAD ? 1 : 2) one_fused_kernel(const one_fused p) {
    typedef one_fused_shape<PIXELS, STAGES, DGRAD> S;
    constexpr int MI = PIXELS / 32;
    CHEX_DYNAMIC_SHARED(dynamic);
    unsigned char *const shared = gpu_held(dynamic);
    const float2 *const taken = reinterpret_cast<const float2 *>(shared + S::TAKEN);
    const int lane = (int)threadIdx.x % 32;
    const one_home home = one_home_of((int)threadIdx.x / 32);
    const one_part part = one_part_of(p);
    const unsigned stride = (unsigned)(part.splits * PIXELS);
    const unsigned start = (unsigned)(part.split * PIXELS);

    for (unsigned s = 0; s < 2; s++)
        one_fused_fetch<S, DGRAD>(p, part, shared + s * S::STAGE, start + s * stride);
    one_fused_tables<S, NORM, DGRAD>(p, part, shared);
    uint32_t w[8][4][2];
    if (DGRAD)
        one_fused_weights<T>(p, part, w, home.quarter, lane);
    __syncthreads();

    const bool busy = home.quarter * 32 < part.width;
    const one_places places = one_places_of<MI>(home, lane);
    const float4 *const marks =
        reinterpret_cast<const float4 *>(shared + S::MARKS) + home.quarter * 32 + 2 * (lane % 4);
    float dw[4][4][4] = {};
    one_pair_sums sums = {};
    int slot = 0;
    for (unsigned row0 = start; row0 < p.rows; row0 += stride) {
        unsigned char *const stage = shared + slot * S::STAGE;
        slot = slot + 1 == STAGES ? 0 : slot + 1;
        gpu_copy_wait<1>();
        one_fused_take<T, S>(p, part, stage, taken, row0);
        if (NORM && !DGRAD)
            one_fused_activate<T, S>(part, stage,
                                     reinterpret_cast<const float2 *>(shared + S::MARKS));
        __syncthreads(); /* and all have left the stage before */
        /* With three stages the next copies are made within the first products. */
        const unsigned ahead = row0 + 2 * stride;
        unsigned char *const free = shared + (slot + 1 == STAGES ? 0 : slot + 1) * S::STAGE;
        if (STAGES > 2 && !busy)
            one_fused_fetch<S, DGRAD>(p, part, free, ahead);
        if (DGRAD) {
            if (busy) {
                float dv[MI][4][4] = {};
                const int at = gpu_fresh(places.dgrad);
                const one_chunk k = one_chunk_of_thread();
                one_fused_dgrad<T, MI>(dv, stage + S::DZ, w, at, [&](int operand) {
                    if (STAGES > 2)
                        one_fused_copy<S, false>(p, part, free, ahead, k, operand);
                });
                if (STAGES > 2)
                    gpu_copy_commit();
                if (part.depth > 64)
                    one_fused_dgrad<T, MI>(dv, stage + S::DZ + 128, w + 4, at, [](int) {});
                one_fused_mask<T, MI, NORM>(dv, stage + S::G, stage + S::X, marks,
                                            gpu_fresh(places.mask), sums);
            }
            __syncthreads(); /* G and the convolution's input are complete */
            one_fused_store<S>(p, part, stage + S::G, row0);
        }
        if (busy && home.half * 64 < part.depth)
            one_fused_wgrad<T, PIXELS>(dw, stage + S::DZ, stage + S::X, gpu_fresh(places.a),
                                       gpu_fresh(places.b));
        if (STAGES == 2) {
            __syncthreads(); /* nobody needs the stage any more */
            one_fused_fetch<S, DGRAD>(p, part, stage, ahead);
        }
    }

    gpu_copy_wait<0>(); /* zeros of tiles that are not there may still be under way */
    if (busy)
        one_fused_store_dw(p, part, dw, home, lane);
    if (!DGRAD || !NORM || !p.mask.sums.partial)
        return;
    __syncthreads();
    float *const rows = reinterpret_cast<float *>(shared);
    one_fused_gather(sums, rows, home, lane);
    __syncthreads();
    one_write_partial<128>(rows, 2,
                           one_partial{p.mask.sums.partial, p.c, part.split, p.mask.norm.inv},
                           part.c0, part.width);
    if (gpu_last_block(p.mask.sums.ticket + part.slice, (unsigned)part.splits))
        gpu_finish_sums(p.mask.sums, p.mask.norm, p.c, part.c0, part.width, part.splits,
                        (double)p.rows, (int)threadIdx.x, ONE_THREADS);
}

/* out[i] = the sum over the splits: 8 runs of them in order, in double, then the runs in order. One
 * block makes 128 elements; count is a multiple of that. */
static __global__ void __launch_bounds__(ONE_THREADS)
    one_reduce_kernel(const float *parts, int splits, int64_t count, float *out) {
    __shared__ double runs[8][128];
    const int lane = (int)threadIdx.x % 32, run = (int)threadIdx.x / 32;
    const int64_t i = (int64_t)blockIdx.x * 128 + lane * 4;
    double sum[4] = {};
#pragma unroll 8
    for (int s = splits * run / 8; s < splits * (run + 1) / 8; s++) {
        const float4 v = __ldcg(reinterpret_cast<const float4 *>(parts + s * count + i));
        sum[0] += (double)v.x;
        sum[1] += (double)v.y;
        sum[2] += (double)v.z;
        sum[3] += (double)v.w;
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        runs[run][lane * 4 + j] = sum[j];
    __syncthreads();
    if (threadIdx.x >= 128)
        return;
    double total = 0;
    for (int r = 0; r < 8; r++)
        total += runs[r][threadIdx.x];
    out[(int64_t)blockIdx.x * 128 + (int)threadIdx.x] = (float)total;
}

#endif
