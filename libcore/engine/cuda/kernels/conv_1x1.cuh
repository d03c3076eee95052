/* SPDX-License-Identifier: Apache-2.0
 *
 * Common parts of the kernels for 1x1 convolutions: arguments, tiles in shared memory, elementwise
 * operations, sums over a block's warps; and what their launchers ask of a convolution.
 *
 * Tiles. A row is a pixel (or an output channel of the weights). It is divided into chunks of 8
 * elements (16 bytes), the unit of cp.async and of a lane's ldmatrix address. Chunks are permuted
 * within rows so that the same chunk of 8 neighbouring rows is in different banks. So rows need no
 * padding.
 */
#ifndef CHEX_ENGINE_CUDA_KERNELS_CONV_1X1_CUH
#define CHEX_ENGINE_CUDA_KERNELS_CONV_1X1_CUH

#include "engine/cuda/kernels/vector.cuh"

enum { CONV1X1_THREADS = 256, CONV1X1_WARPS = 8 };

/* A slice without its shape. Row numbers fit in 31 bits. */
struct conv1x1_slice {
    void *data;
    unsigned step; /* bytes between rows */
};

/* Arguments of the mask and of the sums, for both backward kernels. */
struct conv1x1_mask {
    conv1x1_slice x, g; /* input and its gradient */
    gpu_norm norm;      /* mean NULL: dU = dV, A = 1 */
    bool add;
    gpu_sums sums;
};

/* Byte offset of chunk `chunk` of row `row` in a tile with 4 chunks per row. The offset of row + 8
 * is larger by 512. If adding c to `chunk` causes no carry, the offset changes by exclusive or with
 * c << 4. */
static __device__ __forceinline__ int conv1x1_at4(int row, int chunk) {
    return row * 64 + ((chunk ^ (row >> 1 & 3)) << 4);
}
/* The same with 16 chunks per row; 8 rows are 2048 bytes. */
static __device__ __forceinline__ int conv1x1_at16(int row, int chunk) {
    return row * 256 + ((chunk ^ (row & 7)) << 4);
}

/* Address of column c of a slice; then of a row in it, with one instruction per row. */
static __device__ __forceinline__ unsigned char *conv1x1_column(const conv1x1_slice &s, int c) {
    return gpu_fresh(static_cast<unsigned char *>(s.data) + 2 * (unsigned)c);
}
static __device__ __forceinline__ unsigned char *conv1x1_row(unsigned char *column,
                                                             const conv1x1_slice &s, unsigned row) {
    return column + (uint64_t)row * s.step;
}

/* Copies a thread's chunks of a slice to shared memory: row `row` and every APART-th row after it;
 * they are 4096 bytes apart in shared memory. WHOLE: all rows exist. on false: writes zeros. */
template <int CHUNKS, int APART, bool WHOLE>
static __device__ __forceinline__ void conv1x1_copy(unsigned char *to, const conv1x1_slice &from,
                                                    unsigned row, unsigned rows, int c, bool on) {
    unsigned char *const column = conv1x1_column(from, c);
#pragma unroll
    for (unsigned i = 0; i < CHUNKS; i++) {
        const bool there = WHOLE || row + APART * i < rows;
        gpu_copy16(to + i * 4096, conv1x1_row(column, from, there ? row + APART * i : 0),
                   on && there);
    }
}

/* max(a x + b, 0) of a pair of channels; s: a, b of the first channel, then of the second. */
template <class T>
static __device__ __forceinline__ uint32_t conv1x1_activate2(uint32_t x, const float4 &s) {
    const float2 v = gpu_unpack2<T>(x);
    return gpu_pack2_relu<T>(__fmaf_rn(s.x, v.x, s.y), __fmaf_rn(s.z, v.y, s.w));
}

/* g + bsum x + csum of a pair of channels; s: bsum, csum of the first channel, then of the second.
 */
template <class T>
static __device__ __forceinline__ uint32_t conv1x1_finish_grad2(uint32_t g, uint32_t x,
                                                                const float4 &s) {
    const float2 gf = gpu_unpack2<T>(g), xf = gpu_unpack2<T>(x);
    return gpu_pack2<T>(__fadd_rn(gf.x, __fmaf_rn(s.x, xf.x, s.y)),
                        __fadd_rn(gf.y, __fmaf_rn(s.z, xf.y, s.w)));
}

/* Coefficients of an input channel for backward: a, b, mean. */
static __device__ __forceinline__ float4 conv1x1_channel(const gpu_norm &norm, int c) {
    const gpu_ab s = gpu_scale(norm, c);
    return make_float4(s.a, s.b, norm.mean[c], 0.0f);
}

/* Masks dV of one element, with y = a x + b. Adds to S1 and to S2 / inv, and adds A dU to the
 * gradient. */
static __device__ __forceinline__ void conv1x1_masked(float y, float dv, float x, const float4 &c,
                                                      float &g, float &s1, float &s2) {
    if (y > 0.0f) {
        s1 += dv;
        s2 = __fmaf_rn(dv, x - c.z, s2);
        g = __fmaf_rn(c.x, dv, g);
    }
}

/* Destination of the two sums of each of a block's columns. */
struct conv1x1_partial {
    float *partial;
    int channels;     /* channels of the whole map */
    int block;        /* index among the blocks that share these columns */
    const float *inv; /* factors of the second sum; NULL: 1 */
};

/* Adds rows[r][2][COLS] in shared memory over r, in order, and writes columns [first, first +
 * count). */
template <int COLS>
static __device__ __forceinline__ void conv1x1_write_partial(const float *rows, int row_count,
                                                             const conv1x1_partial &p, int first,
                                                             int count) {
    for (int i = (int)threadIdx.x; i < 2 * COLS; i += CONV1X1_THREADS) {
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

/* ---- host ---- */

enum { CONV1X1_MOST_CHANNELS = 4096 };

static inline int64_t conv1x1_divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Number of blocks for `pieces`, at most `most`. It never decreases if pieces grows. */
static inline int conv1x1_most_blocks(int64_t pieces, int64_t most) {
    if (most > GPU_MAX_BLOCKS)
        most = GPU_MAX_BLOCKS;
    if (most > pieces)
        most = pieces;
    return most < 1 ? 1 : (int)most;
}
/* The smallest number of blocks with the same maximum of pieces per block. */
static inline int conv1x1_even_blocks(int64_t pieces, int64_t most) {
    return (int)conv1x1_divide_up(pieces,
                                  conv1x1_divide_up(pieces, conv1x1_most_blocks(pieces, most)));
}

/* Static shared memory of gpu_last_block, with its alignment. */
enum { CONV1X1_STATIC = 256 };
static inline bool conv1x1_shared_fits(const gpu_device &d, size_t bytes) {
    return bytes + CONV1X1_STATIC <= d.shared_max;
}

static inline bool conv1x1_aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

static inline conv1x1_slice conv1x1_slice_of(const gpu_map &m) {
    return conv1x1_slice{m.data, (unsigned)((size_t)m.pitch * gpu_type_bytes(m.type))};
}

/* The weights as a slice with `columns` 16-bit elements per row. */
static inline conv1x1_slice conv1x1_weights(const void *w, int columns) {
    return conv1x1_slice{const_cast<void *>(w), 2 * (unsigned)columns};
}

/* Whether the kernels support the map: they copy aligned runs of 16 bytes. */
static inline bool conv1x1_takes_map(const gpu_map &m, enum gpu_type type) {
    return m.type == type && m.channels >= 32 && m.channels % 32 == 0 &&
           m.channels <= CONV1X1_MOST_CHANNELS && m.pitch % 32 == 0 && m.pitch < 1 << 24 &&
           gpu_map_pixels(&m) < (int64_t)1 << 31;
}
/* Whether they support the input, the window and the norm. */
static inline bool conv1x1_takes(const gpu_map &in, gpu_window w, const gpu_norm &norm) {
    return in.type != GPU_F32 && w.kernel == 1 && w.stride == 1 && w.pad == 0 &&
           conv1x1_takes_map(in, in.type) && !(norm.mean && !norm.relu);
}
static inline bool conv1x1_takes_forward(const gpu_conv_forward &f) {
    return conv1x1_takes(f.in, f.window, f.norm) && conv1x1_takes_map(f.out, f.in.type);
}
static inline bool conv1x1_takes_backward(const gpu_conv_backward &b) {
    const enum gpu_type type = b.in.type;
    return conv1x1_takes(b.in, b.window, b.norm) && conv1x1_takes_map(b.out.g, type) &&
           (!b.out.bsum || conv1x1_takes_map(b.out.x, type)) &&
           (!b.in_g.data || conv1x1_takes_map(b.in_g, type));
}
/* Whether the addresses of a forward are aligned. */
static inline bool conv1x1_is_aligned(const gpu_conv_forward &f) {
    return conv1x1_aligned(f.in.data) && conv1x1_aligned(f.out.data) && conv1x1_aligned(f.weight);
}
static inline conv1x1_mask conv1x1_mask_of(const gpu_conv_backward &b) {
    conv1x1_mask m = {};
    m.x = conv1x1_slice_of(b.in);
    m.g = conv1x1_slice_of(b.in_g);
    m.norm = b.norm;
    m.add = b.add;
    if (b.norm.mean)
        m.sums = b.sums;
    return m;
}

#endif
