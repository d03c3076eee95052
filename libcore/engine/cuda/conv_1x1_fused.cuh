/* SPDX-License-Identifier: Apache-2.0
 *
 * The backward of a 1x1 convolution in one pass over the pixels: dZ is taken as it is loaded, then
 *     dU = (dZ W) * mask,  G (+)= A dU,  S1, S2,  and  dW = dZ^T max(a x + b, 0).
 * With DGRAD false only the last: the second half of the backward that is split in two.
 *
 * A block has up to 128 channels of the input and up to 128 of the output, and goes through the
 * pixels in tiles of PIXELS, two of them in shared memory: one is worked on while the next arrives.
 * Slices of the input's channels are cut at multiples of 32, nearly equal, and are neighbours in
 * the grid, so dZ's operands come from memory once and from L2 else.
 *
 * All 8 warps first make dV, 2 by 4 warps of PIXELS / 2 by 32 channels; W's fragments stay in
 * registers from beginning to end. A warp turns its dV into the new G in shared memory, where x and
 * the old G lie, and goes on to dW without waiting for others: 2 by 4 warps of 64 by 32. The sums
 * and dW stay in registers until the block has seen all its pixels.
 *
 * dW's parts of the blocks are written to the workspace and added up by one_reduce_kernel.
 */
#ifndef CHEX_ENGINE_CUDA_CONV_1X1_FUSED_CUH
#define CHEX_ENGINE_CUDA_CONV_1X1_FUSED_CUH

#include "engine/cuda/conv_1x1.cuh"

struct one_fused {
    int64_t rows;
    int m, c;                 /* channels of the output, of the input */
    one_slice g, z;           /* dZ = g + bsum z + csum */
    const float *bsum, *csum; /* NULL: g alone */
    const void *weight_t;     /* (c, m); DGRAD */
    one_mask mask;            /* its g, add and sums: DGRAD */
    float *parts;             /* [split][m][c] */
    int slices, m_tiles;      /* of c, of m; the grid is splits x m_tiles x slices */
};

/* Parts of shared memory. */
template <int PIXELS, bool DGRAD> struct one_fused_shape {
    static constexpr int TILE = PIXELS * 256, STAGE = TILE * (DGRAD ? 4 : 3);
    static constexpr int DZ = 0, Z = TILE, X = 2 * TILE, G = 3 * TILE; /* within a stage */
    static constexpr int TAKEN = 2 * STAGE;                            /* float2[128] */
    static constexpr int MARKS = TAKEN + 1024;                         /* float4[128]; DGRAD */
    static constexpr size_t BYTES = (size_t)MARKS + (DGRAD ? 2048 : 0);
    /* Of 16-byte chunks in one tile, how many are a thread's; always in the same column. */
    static constexpr int CHUNKS = PIXELS * 16 / ONE_THREADS;
};

/* What a block works on. */
struct one_part {
    int c0, width; /* channels of the input */
    int m0, depth; /* of the output */
    int slice, split, splits;
};

static __device__ __forceinline__ one_part one_part_of(const one_fused &p) {
    const int units = p.c / 32, per_split = p.slices * p.m_tiles, b = (int)blockIdx.x % per_split;
    one_part o;
    o.slice = b % p.slices;
    o.split = (int)blockIdx.x / per_split;
    o.splits = (int)gridDim.x / per_split;
    o.c0 = units * o.slice / p.slices * 32;
    o.width = units * (o.slice + 1) / p.slices * 32 - o.c0;
    o.m0 = b / p.slices * 128;
    o.depth = p.m - o.m0 < 128 ? p.m - o.m0 : 128;
    return o;
}

template <class T, int PIXELS, bool DGRAD>
static __device__ __forceinline__ void one_fused_load(const one_fused &p, const one_part &part,
                                                      unsigned char *stage, int64_t row0) {
    typedef one_fused_shape<PIXELS, DGRAD> S;
    const int thread = gpu_fresh((int)threadIdx.x), chunk = thread % 16, c = chunk * 8;
    const int first = one_at16(thread / 16, chunk);
#pragma unroll
    for (int i = 0; i < S::CHUNKS; i++) {
        const int row = thread / 16 + i * 16, at = first + i * 4096;
        const bool on = row0 + row < p.rows;
        const int64_t r = on ? row0 + row : 0;
        if (c < part.depth) {
            gpu_copy16(stage + S::DZ + at, one_element<T>(p.g, r, part.m0 + c), on);
            if (p.bsum)
                gpu_copy16(stage + S::Z + at, one_element<T>(p.z, r, part.m0 + c), on);
        }
        if (c < part.width) {
            gpu_copy16(stage + S::X + at, one_element<T>(p.mask.x, r, part.c0 + c), on);
            if (DGRAD && p.mask.add)
                gpu_copy16(stage + S::G + at, one_element<T>(p.mask.g, r, part.c0 + c), on);
        }
    }
}

/* dZ in place, each thread the chunks that it copied. Rows behind the end stay 0. */
template <class T, int PIXELS, bool DGRAD>
static __device__ __forceinline__ void one_fused_take(const one_fused &p, const one_part &part,
                                                      unsigned char *stage, const float2 *taken,
                                                      int64_t row0) {
    typedef one_fused_shape<PIXELS, DGRAD> S;
    const int thread = gpu_fresh((int)threadIdx.x), chunk = thread % 16;
    const int first = one_at16(thread / 16, chunk);
    if (!p.bsum || chunk * 8 >= part.depth)
        return;
    const float4 *const s = reinterpret_cast<const float4 *>(taken + chunk * 8);
#pragma unroll
    for (int i = 0; i < S::CHUNKS; i++) {
        const int row = thread / 16 + i * 16, at = first + i * 4096;
        if (row0 + row >= p.rows)
            continue;
        uint4 *const to = reinterpret_cast<uint4 *>(stage + S::DZ + at);
        const uint4 g = *to, z = *reinterpret_cast<const uint4 *>(stage + S::Z + at);
        *to = make_uint4(one_take2<T>(g.x, z.x, s[0]), one_take2<T>(g.y, z.y, s[1]),
                         one_take2<T>(g.z, z.z, s[2]), one_take2<T>(g.w, z.w, s[3]));
    }
}

/* W's fragments of a warp's 32 channels: [16 of the output][8 of the input]. */
template <class T>
static __device__ __forceinline__ void one_fused_weights(const one_fused &p, const one_part &part,
                                                         uint32_t w[8][4][2], int warp, int lane) {
    const T *const w_t = static_cast<const T *>(p.weight_t);
#pragma unroll
    for (int kk = 0; kk < 8; kk++)
#pragma unroll
        for (int ni = 0; ni < 4; ni++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int c = warp % 4 * 32 + ni * 8 + lane / 4;
                const int m = kk * 16 + h * 8 + 2 * (lane % 4);
                w[kk][ni][h] = 0;
                if (c < part.width && m < p.m)
                    w[kk][ni][h] =
                        *reinterpret_cast<const uint32_t *>(w_t + (int64_t)(part.c0 + c) * p.m + m);
            }
}

/* dv = dZ W of a warp's pixels and channels. */
template <class T, int MI>
static __device__ __forceinline__ void one_fused_dgrad(float dv[MI][4][4], const unsigned char *dz,
                                                       const uint32_t w[8][4][2], int depth,
                                                       int warp, int lane) {
    const int at = one_at16(warp / 4 * 16 * MI + (lane & 15), lane >> 4);
#pragma unroll
    for (int kk = 0; kk < 8; kk++) {
        if (kk * 16 >= depth)
            break;
        uint32_t a[MI][4];
#pragma unroll
        for (int mi = 0; mi < MI; mi++)
            gpu_ldmatrix_x4(a[mi], dz + (at ^ kk << 5) + mi * 4096);
#pragma unroll
        for (int mi = 0; mi < MI; mi++)
#pragma unroll
            for (int ni = 0; ni < 4; ni++)
                gpu_mma_16816<T>(dv[mi][ni], a[mi], w[kk][ni]);
    }
}

/* The sums of the 8 columns of which a lane has elements: S1 and S2 / inv. */
struct one_pair_sums {
    float s1[4][2], s2[4][2];
};

/* G in shared memory from dv; each lane reads and writes its own elements alone. */
template <class T, int MI>
static __device__ __forceinline__ void one_fused_mask(const one_fused &p, const float dv[MI][4][4],
                                                      unsigned char *g, const unsigned char *x,
                                                      const float4 *marks, int warp, int lane,
                                                      one_pair_sums &sums) {
    const int lane_at = one_at16(warp / 4 * 16 * MI + lane / 4, warp % 4 * 4) + 4 * (lane % 4);
#pragma unroll
    for (int ni = 0; ni < 4; ni++) {
        const int first = warp % 4 * 32 + ni * 8 + 2 * (lane % 4);
        const float4 c0 = marks[first], c1 = marks[first + 1];
#pragma unroll
        for (int eight = 0; eight < 2 * MI; eight++) {
            const int at = (lane_at ^ ni << 4) + eight * 2048;
            const float *const d = dv[eight / 2][ni] + eight % 2 * 2;
            uint32_t *const to = reinterpret_cast<uint32_t *>(g + at);
            float2 v = gpu_unpack2<T>(p.mask.add ? *to : 0u);
            if (p.mask.norm.mean) {
                const float2 xf = gpu_unpack2<T>(*reinterpret_cast<const uint32_t *>(x + at));
                v.x = one_masked(d[0], xf.x, c0, v.x, sums.s1[ni][0], sums.s2[ni][0]);
                v.y = one_masked(d[1], xf.y, c1, v.y, sums.s1[ni][1], sums.s2[ni][1]);
            } else {
                v = make_float2(v.x + d[0], v.y + d[1]);
            }
            *to = gpu_pack2<T>(v.x, v.y);
        }
    }
}

/* dw += dZ^T max(a x + b, 0) of a warp's 64 by 32 channels; scale: a, b of each 8 channels' one. */
template <class T, int PIXELS, bool NORM>
static __device__ __forceinline__ void
one_fused_wgrad(float dw[4][4][4], const unsigned char *dz, const unsigned char *x,
                const float2 scale[4], int depth, int warp, int lane) {
    const int m0 = warp / 4 * 64, matrix = lane >> 3;
    const int a_at = one_at16((lane & 7) + (matrix >> 1) * 8, m0 / 8 + (matrix & 1));
    const int b_at = one_at16((lane & 7) + (matrix & 1) * 8, warp % 4 * 4 + (matrix >> 1));
#pragma unroll
    for (int kk = 0; kk < PIXELS / 16; kk++) {
        uint32_t b[4][2];
#pragma unroll
        for (int ni = 0; ni < 4; ni += 2) {
            uint32_t r[4];
            gpu_ldmatrix_x4_trans(r, x + (b_at ^ ni << 4) + kk * 4096);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (NORM) {
                    const float2 s = scale[ni + i / 2], f = gpu_unpack2<T>(r[i]);
                    r[i] = gpu_pack2_relu<T>(__fmaf_rn(s.x, f.x, s.y), __fmaf_rn(s.x, f.y, s.y));
                }
                b[ni + i / 2][i % 2] = r[i];
            }
        }
#pragma unroll
        for (int mi = 0; mi < 4; mi++) {
            if (m0 + mi * 16 >= depth)
                break;
            uint32_t a[4];
            gpu_ldmatrix_x4_trans(a, dz + (a_at ^ mi << 5) + kk * 4096);
#pragma unroll
            for (int ni = 0; ni < 4; ni++)
                gpu_mma_16816<T>(dw[mi][ni], a, b[ni]);
        }
    }
}

/* The new G to memory, each thread the chunks that it will copy next. */
template <class T, int PIXELS>
static __device__ __forceinline__ void one_fused_store(const one_fused &p, const one_part &part,
                                                       const unsigned char *g, int64_t row0) {
    const int thread = gpu_fresh((int)threadIdx.x), chunk = thread % 16;
    const int first = one_at16(thread / 16, chunk);
    if (chunk * 8 >= part.width)
        return;
#pragma unroll
    for (int i = 0; i < one_fused_shape<PIXELS, true>::CHUNKS; i++) {
        const int row = thread / 16 + i * 16;
        if (row0 + row < p.rows)
            *reinterpret_cast<uint4 *>(
                one_element_to<T>(p.mask.g, row0 + row, part.c0 + chunk * 8)) =
                *reinterpret_cast<const uint4 *>(g + first + i * 4096);
    }
}

static __device__ __forceinline__ void one_fused_store_dw(const one_fused &p, const one_part &part,
                                                          const float dw[4][4][4], int warp,
                                                          int lane) {
    float *const to = p.parts + ((int64_t)part.split * p.m + part.m0) * p.c + part.c0;
#pragma unroll
    for (int mi = 0; mi < 4; mi++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int m = warp / 4 * 64 + mi * 16 + h * 8 + lane / 4;
            if (m >= part.depth)
                continue;
#pragma unroll
            for (int ni = 0; ni < 4; ni++) {
                const int c = warp % 4 * 32 + ni * 8 + 2 * (lane % 4);
                *reinterpret_cast<float2 *>(to + (int64_t)m * p.c + c) =
                    make_float2(dw[mi][ni][2 * h], dw[mi][ni][2 * h + 1]);
            }
        }
}

/* The lanes' sums over pixels to rows[2][2][128] of shared memory. */
static __device__ __forceinline__ void one_fused_gather(one_pair_sums &sums, float *rows, int warp,
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
                float *row = rows + warp / 4 * 256 + warp % 4 * 32 + ni * 8 + 2 * lane + j;
                row[0] = sums.s1[ni][j];
                row[128] = sums.s2[ni][j];
            }
        }
}

template <class T, int PIXELS, bool NORM, bool DGRAD>
__global__ void __launch_bounds__(ONE_THREADS, DGRAD ? 1 : 2) one_fused_kernel(const one_fused p) {
    typedef one_fused_shape<PIXELS, DGRAD> S;
    constexpr int MI = PIXELS / 32;
    CHEX_DYNAMIC_SHARED(shared);
    float2 *const taken = reinterpret_cast<float2 *>(shared + S::TAKEN);
    float4 *const marks = reinterpret_cast<float4 *>(shared + S::MARKS);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const one_part part = one_part_of(p);
    const int64_t stride = (int64_t)part.splits * PIXELS;
    const int64_t start = (int64_t)part.split * PIXELS;

    for (int s = 0; s < 2; s++) {
        if (start + s * stride < p.rows)
            one_fused_load<T, PIXELS, DGRAD>(p, part, shared + s * S::STAGE, start + s * stride);
        gpu_copy_commit();
    }
    for (int i = (int)threadIdx.x; i < part.depth && p.bsum; i += ONE_THREADS)
        taken[i] = make_float2(p.bsum[part.m0 + i], p.csum[part.m0 + i]);
    for (int i = (int)threadIdx.x; i < 128 && DGRAD; i += ONE_THREADS)
        marks[i] = NORM && i < part.width ? one_channel(p.mask.norm, part.c0 + i) : float4{};
    __syncthreads();

    const bool busy = warp % 4 * 32 < part.width;
    uint32_t w[8][4][2];
    float2 scale[4] = {};
    if (DGRAD)
        one_fused_weights<T>(p, part, w, warp, lane);
    if (NORM && busy)
        for (int ni = 0; ni < 4; ni++) {
            const gpu_ab s = gpu_scale(p.mask.norm, part.c0 + warp % 4 * 32 + ni * 8 + lane / 4);
            scale[ni] = make_float2(s.a, s.b);
        }

    float dw[4][4][4] = {};
    one_pair_sums sums = {};
    int slot = 0;
    for (int64_t row0 = start; row0 < p.rows; row0 += stride, slot ^= 1) {
        unsigned char *const stage = shared + slot * S::STAGE;
        gpu_copy_wait<1>();
        one_fused_take<T, PIXELS, DGRAD>(p, part, stage, taken, row0);
        __syncthreads();
        const int warp_now = gpu_fresh(warp), lane_now = gpu_fresh(lane);
        if (DGRAD && busy) {
            float dv[MI][4][4] = {};
            one_fused_dgrad<T, MI>(dv, stage + S::DZ, w, part.depth, warp_now, lane_now);
            one_fused_mask<T, MI>(p, dv, stage + S::G, stage + S::X, marks, warp_now, lane_now,
                                  sums);
        }
        if (busy)
            one_fused_wgrad<T, PIXELS, NORM>(dw, stage + S::DZ, stage + S::X, scale, part.depth,
                                             warp_now, lane_now);
        __syncthreads(); /* G is complete, and nobody needs the stage any more */
        if (DGRAD)
            one_fused_store<T, PIXELS>(p, part, stage + S::G, row0);
        if (row0 + 2 * stride < p.rows)
            one_fused_load<T, PIXELS, DGRAD>(p, part, stage, row0 + 2 * stride);
        gpu_copy_commit();
    }

    if (busy)
        one_fused_store_dw(p, part, dw, warp, lane);
    if (!DGRAD || !NORM || !p.mask.sums.partial)
        return;
    float *const rows = reinterpret_cast<float *>(shared);
    one_fused_gather(sums, rows, warp, lane);
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
