/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two kernels of conv_1x1.cu share: their arguments, tiles in shared memory, and the sums
 * over a block's warps.
 *
 * Tiles. A row is a pixel (or an output channel of the weights), cut into chunks of 8 elements = 16
 * bytes: what cp.async moves and what one lane of ldmatrix addresses. Chunks are permuted within
 * rows so that 8 neighbouring rows at one chunk lie in different banks; for the same reason no row
 * is padded.
 */
#ifndef CHEX_ENGINE_CUDA_CONV_1X1_CUH
#define CHEX_ENGINE_CUDA_CONV_1X1_CUH

#include "engine/cuda/vector.cuh"

enum { ONE_THREADS = 256, ONE_WARPS = 8 };

/* A slice without its shape. Rows count in 31 bits. */
struct one_slice {
    void *data;
    unsigned step; /* bytes from a row to the next */
};

/* What both backward kernels do with dU. */
struct one_mask {
    one_slice x, g; /* input and its gradient */
    gpu_norm norm;  /* mean NULL: dU = dV, A = 1 */
    bool add;
    gpu_sums sums;
};

/* The byte of chunk `chunk` of row `row` in a tile of 4 chunks a row. 8 rows on it lies 512 bytes
 * on. What is added to a chunk without a carry may be taken by exclusive or to the byte: c << 4. */
static __device__ __forceinline__ int one_at4(int row, int chunk) {
    return row * 64 + ((chunk ^ (row >> 1 & 3)) << 4);
}
/* The same with 16 chunks a row; 8 rows are 2048 bytes. */
static __device__ __forceinline__ int one_at16(int row, int chunk) {
    return row * 256 + ((chunk ^ (row & 7)) << 4);
}

/* Column c of a slice, and in it a row: one instruction for each row. */
static __device__ __forceinline__ unsigned char *one_column(const one_slice &s, int c) {
    return gpu_fresh(static_cast<unsigned char *>(s.data) + 2 * (unsigned)c);
}
static __device__ __forceinline__ unsigned char *one_row(unsigned char *column, const one_slice &s,
                                                         unsigned row) {
    return column + (uint64_t)row * s.step;
}

/* A thread's chunks of a slice into shared memory: `row` and every APART-th one behind it, which
 * are 4096 bytes apart there. WHOLE: all rows are there. on: false leaves zeros. */
template <int CHUNKS, int APART, bool WHOLE>
static __device__ __forceinline__ void one_copy(unsigned char *to, const one_slice &from,
                                                unsigned row, unsigned rows, int c, bool on) {
    unsigned char *const column = one_column(from, c);
#pragma unroll
    for (unsigned i = 0; i < CHUNKS; i++) {
        const bool there = WHOLE || row + APART * i < rows;
        gpu_copy16(to + i * 4096, one_row(column, from, there ? row + APART * i : 0), on && there);
    }
}

/* max(a x + b, 0) of both of a pair; s: a, b of the first, then of the second. */
template <class T>
static __device__ __forceinline__ uint32_t one_activate2(uint32_t x, const float4 &s) {
    const float2 v = gpu_unpack2<T>(x);
    return gpu_pack2_relu<T>(__fmaf_rn(s.x, v.x, s.y), __fmaf_rn(s.z, v.y, s.w));
}

/* The gradient of a pair of channels as taken; s: bsum, csum of the first, then of the second. */
template <class T>
static __device__ __forceinline__ uint32_t one_take2(uint32_t g, uint32_t x, const float4 &s) {
    const float2 gf = gpu_unpack2<T>(g), xf = gpu_unpack2<T>(x);
    return gpu_pack2<T>(__fadd_rn(gf.x, __fmaf_rn(s.x, xf.x, s.y)),
                        __fadd_rn(gf.y, __fmaf_rn(s.z, xf.y, s.w)));
}

/* What the backward kernels must know of a channel of the input: a, b, mean. */
static __device__ __forceinline__ float4 one_channel(const gpu_norm &norm, int c) {
    const gpu_ab s = gpu_scale(norm, c);
    return make_float4(s.a, s.b, norm.mean[c], 0.0f);
}

/* From dV of one element, with y = a x + b: to S1, to S2 / inv, and A dU to the gradient. */
static __device__ __forceinline__ void one_masked(float y, float dv, float x, const float4 &c,
                                                  float &g, float &s1, float &s2) {
    if (y > 0.0f) {
        s1 += dv;
        s2 = __fmaf_rn(dv, x - c.z, s2);
        g = __fmaf_rn(c.x, dv, g);
    }
}

/* Where the two sums of each of a block's columns go. */
struct one_partial {
    float *partial;
    int channels;     /* of the whole map */
    int block;        /* of those that share these columns */
    const float *inv; /* factors of the second sum; NULL: none */
};

/* rows[r][2][COLS] in shared memory, added up over r in order; columns [first, first + count). */
template <int COLS>
static __device__ __forceinline__ void
one_write_partial(const float *rows, int row_count, const one_partial &p, int first, int count) {
    for (int i = (int)threadIdx.x; i < 2 * COLS; i += ONE_THREADS) {
        const int which = i / COLS, col = i % COLS;
        if (col >= count)
            continue;
        float sum = 0.0f;
        for (int r = 0; r < row_count; r++)
            sum += rows[r * 2 * COLS + i];
        if (which && p.inv)
            sum *= p.inv[first + col];
        p.partial[(size_t)(2 * p.block + which) * (size_t)p.channels + (size_t)(first + col)] = sum;
    }
}

#endif
