/* SPDX-License-Identifier: Apache-2.0
 *
 * Common parts of the kernels of conv_3x3.cu: the numbering of places, and loading pixels into
 * shared memory.
 *
 * Places. The idea is one number per pixel such that all nine neighbours are at fixed distances,
 * for any image size. Images are cut into strips of `width` columns. The strips follow each other
 * with padding between them: a row of zeros above each strip; a column left of each row, and with
 * several strips also one right of it, which holds zeros or the neighbouring strip's column. Places
 * are numbered row by row. The neighbour of place q under tap (ky, kx) is then q + (ky - 1) * pitch
 * + kx - 1. A tile is a run of consecutive places. With `halo` places before and after, it contains
 * all neighbours. Small images share a tile.
 *
 * Shared memory. A stage is [group of 8 channels][place][8 channels], 16 bytes per place and group.
 * So the rows of a tap's matrices are 16 bytes apart, only the start depends on the tap, and
 * ldmatrix has no bank conflicts without permutation.
 *
 * Loading. A thread copies its places asynchronously. Later it changes the same places (batch norm
 * and ReLU, or deferred gradient terms). So one barrier between loading and multiplying is enough.
 * Places outside the image keep the zeros that the copy wrote.
 */
#ifndef CHEX_ENGINE_CUDA_KERNELS_CONV_3X3_TILE_CUH
#define CHEX_ENGINE_CUDA_KERNELS_CONV_3X3_TILE_CUH

#include "engine/cuda/kernels/vec8.cuh"

enum { CONV3_THREADS = 256, CONV3_WARPS = 8 };
enum { CONV3_SLOTS = 4 }; /* tiles with a table of places: those of three steps and the next one */

/* Division by a divisor known at run time; exact for values below 2^32. */
struct conv3_divisor {
    unsigned by, magic; /* 2^32 / by, rounded down; at most 2^32 - 1 */
};
static inline conv3_divisor conv3_divisor_of(unsigned by) {
    return conv3_divisor{by, by == 1 ? 0xffffffffu : (unsigned)((1ull << 32) / by)};
}
/* The estimate q is exact or one too small. */
static __device__ __forceinline__ unsigned conv3_divide(conv3_divisor d, unsigned v) {
    const unsigned q = __umulhi(v, d.magic);
    return q + (v - q * d.by >= d.by ? 1u : 0u);
}

struct conv3_places {
    int n, hw;
    int strips, width;
    int pitch;  /* places per row */
    int halo;   /* pitch + 1 */
    int loaded; /* places of a tile with both halos, rounded up to a multiple of 64 */
    int tile;   /* places of a tile */
    int tiles;
    int64_t places;
    conv3_divisor by_pitch, by_rows, by_strips;
};

/* Encoding of a place: the pixel number. Negative (CONV3_OTHER): not a pixel of this strip; it is
 * then either a pixel of the neighbouring strip, or outside the image (CONV3_OFF). */
enum { CONV3_OTHER = INT32_MIN, CONV3_OFF = 1 << 30, CONV3_PIXEL = (1 << 29) - 1 };
static __device__ __forceinline__ int conv3_place(const conv3_places &g, int64_t q) {
    if (q < 0 || q >= g.places)
        return CONV3_OTHER | CONV3_OFF;
    const unsigned row = conv3_divide(g.by_pitch, (unsigned)q);
    const int column = (int)((unsigned)q - row * (unsigned)g.pitch);
    const unsigned strip_image = conv3_divide(g.by_rows, row);
    const int y = (int)(row - strip_image * g.by_rows.by) - 1;
    const unsigned image = conv3_divide(g.by_strips, strip_image);
    const int strip = (int)(strip_image - image * (unsigned)g.strips);
    const int x = strip * g.width + column - 1;
    if (y < 0 || x < 0 || x >= g.hw)
        return CONV3_OTHER | CONV3_OFF;
    const int pixel = ((int)image * g.hw + y) * g.hw + x;
    return column >= 1 && column <= g.width ? pixel : CONV3_OTHER | pixel;
}
/* The pixel number of a place; 0 outside the image. */
static __device__ __forceinline__ unsigned conv3_pixel(int place) {
    return (unsigned)(place & CONV3_PIXEL);
}
static __device__ __forceinline__ bool conv3_inside(int place) { return !(place & CONV3_OFF); }

/* Writes the table of a tile's places with both halos. `tile` is not past the last one. */
static __device__ __forceinline__ void conv3_write_places(const conv3_places &g, int tile, int *to,
                                                          int thread) {
    const int64_t first = (int64_t)tile * g.tile - g.halo;
    for (int i = thread; i < g.loaded; i += CONV3_THREADS)
        to[i] = i < g.tile + 2 * g.halo ? conv3_place(g, first + i) : CONV3_OTHER | CONV3_OFF;
}

/* The source of a load: max(a x + b, 0) of a map, or g + (a x + b) of a gpu_deferred_grad. */
struct conv3_source {
    const unsigned char *data;
    const unsigned char *x;      /* x of the deferred terms; NULL: none */
    unsigned row_bytes, x_bytes; /* bytes between pixels */
    bool scaled;
};
static inline conv3_source conv3_source_of(const gpu_map &in, const gpu_norm &norm) {
    return conv3_source{static_cast<const unsigned char *>(in.data), nullptr,
                        (unsigned)(in.pitch * 2), 0, norm.mean != nullptr};
}
static inline conv3_source conv3_source_of(const gpu_deferred_grad &t) {
    const void *const x = t.bsum ? t.x.data : nullptr;
    return conv3_source{static_cast<const unsigned char *>(t.g.data),
                        static_cast<const unsigned char *>(x), (unsigned)(t.g.pitch * 2),
                        (unsigned)(t.x.pitch * 2), t.bsum != nullptr};
}

/* A thread's share of a stage. A warp processes 4 groups of 8 channels by 8 places at a time.
 * CHANNELS / 32 divides the number of warps, so a thread has the same channels in all steps. STEP,
 * the places of a step, divides all counts of places. */
template <int CHANNELS> struct conv3_share {
    static constexpr int QUADS = CHANNELS / 32, STEP = CONV3_WARPS / QUADS * 8;
    int chunk, place;
    __device__ __forceinline__ explicit conv3_share(int thread) {
        const int warp = thread / 32, lane = thread % 32;
        chunk = warp % QUADS * 4 + lane / 8;
        place = warp / QUADS * 8 + lane % 8;
    }
    /* Byte offset of the thread's first 16 bytes in a stage of `count` places; the next are STEP *
     * 16 further. */
    __device__ __forceinline__ int byte(int count) const { return (chunk * count + place) * 16; }
};

/* Copies 8 channels of `count` places. from: address of these channels of pixel 0. */
template <int CHANNELS, bool OWN>
__device__ __forceinline__ void conv3_copy(const unsigned char *from, unsigned row_bytes,
                                           const int *places, int count, unsigned char *stage,
                                           const conv3_share<CHANNELS> &mine) {
    typedef conv3_share<CHANNELS> S;
    const int *place = places + mine.place;
    unsigned char *to = stage + mine.byte(count);
#pragma unroll 2
    for (int i = 0; i < count / S::STEP; i++, place += S::STEP, to += S::STEP * 16)
        gpu_copy16(to, from + (uint64_t)conv3_pixel(*place) * row_bytes,
                   OWN ? *place >= 0 : conv3_inside(*place));
}

/* Starts the copies of channels [first, first + CHANNELS) of `count` places to a stage, and of x to
 * its stage if there is an x. OWN: only pixels of the strip itself. */
template <int CHANNELS, bool OWN>
__device__ __forceinline__ void conv3_issue(const conv3_source &s, int first, const int *places,
                                            int count, unsigned char *stage, unsigned char *x_stage,
                                            int thread) {
    const conv3_share<CHANNELS> mine(thread);
    const int byte = (first + mine.chunk * 8) * 2;
    conv3_copy<CHANNELS, OWN>(s.data + byte, s.row_bytes, places, count, stage, mine);
    if (s.x)
        conv3_copy<CHANNELS, OWN>(s.x + byte, s.x_bytes, places, count, x_stage, mine);
}

/* max(a x + b, 0) of 8 channels, rounded. */
template <class T>
static __device__ __forceinline__ gpu_run<T, 8> conv3_normed(const gpu_run<T, 8> &x,
                                                             const float a[8], const float b[8]) {
    gpu_run<T, 8> y;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 v = gpu_unpack2<T>(x.word[i]);
        y.word[i] = gpu_pack2_relu<T>(gpu_normed(gpu_ab{a[2 * i], b[2 * i]}, v.x),
                                      gpu_normed(gpu_ab{a[2 * i + 1], b[2 * i + 1]}, v.y));
    }
    return y;
}
/* g + (a x + b) of 8 channels, rounded. */
template <class T>
static __device__ __forceinline__ gpu_run<T, 8>
conv3_deferred_grad(const gpu_run<T, 8> &g, const gpu_run<T, 8> &x, const float a[8],
                    const float b[8]) {
    float v[8], xs[8];
    gpu_unpack_run(v, g);
    gpu_unpack_run(xs, x);
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = __fadd_rn(__fmaf_rn(a[i], xs[i], v[i]), b[i]);
    return gpu_pack_run<T, 8>(v);
}

/* Applies the norm or the deferred terms to the data that this thread copied with conv3_issue and
 * the same arguments. scale: a of all `channels`, then b. */
template <class T, int CHANNELS, bool OWN, bool DEFERRED>
__device__ __forceinline__ void
conv3_change(const conv3_source &s, const float *scale, int channels, int first, const int *places,
             int count, unsigned char *stage, const unsigned char *x_stage, int thread) {
    if (!s.scaled)
        return;
    const conv3_share<CHANNELS> mine(thread);
    float a[8], b[8];
    gpu_read_run<8>(a, scale + first + mine.chunk * 8);
    gpu_read_run<8>(b, scale + channels + first + mine.chunk * 8);
    typedef conv3_share<CHANNELS> S;
    const int *place = places + mine.place;
    int at = mine.byte(count);
#pragma unroll 2
    for (int i = 0; i < count / S::STEP; i++, place += S::STEP, at += S::STEP * 16) {
        gpu_run<T, 8> v = gpu_load_run<8>((const T *)(stage + at));
        if (DEFERRED)
            v = conv3_deferred_grad<T>(v, gpu_load_run<8>((const T *)(x_stage + at)), a, b);
        else
            v = conv3_normed<T>(v, a, b);
        if (OWN ? *place >= 0 : conv3_inside(*place))
            gpu_store_run((T *)(stage + at), v);
    }
}

/* Writes a and b of a source's channels [first, first + count) to shared memory. */
static __device__ __forceinline__ void conv3_write_scale(const gpu_norm &norm, const float *bsum,
                                                         const float *csum, int first, int count,
                                                         float *scale, int thread) {
    for (int c = thread; c < count; c += CONV3_THREADS) {
        gpu_ab s = gpu_ab{1.0f, 0.0f};
        if (norm.mean)
            s = gpu_scale(norm, first + c);
        else if (bsum)
            s = gpu_ab{bsum[first + c], csum[first + c]};
        scale[c] = s.a;
        scale[count + c] = s.b;
    }
}

#endif
