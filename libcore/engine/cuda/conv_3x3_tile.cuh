/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels of conv_3x3.cu share: places, and the loading of pixels into shared memory.
 *
 * Places. Images are cut into strips of `width` columns and written one behind the other with zeros
 * between: a row of zeros above each strip, a column of zeros (or the neighbouring strip's column)
 * left of each row and, where there are several strips, one right of it. Counted through row by
 * row, place q's neighbour under the tap (ky, kx) is q + (ky - 1) * pitch + kx - 1, whatever the
 * size of images. A tile is a run of places; with `halo` places before and behind, all its
 * neighbours. Images smaller than a tile share it.
 *
 * Shared memory. A stage holds [8 channels][place][channel]: 16 bytes a place. The rows of a
 * tap's matrices are then 16-byte steps from a start that only the tap shifts, and ldmatrix has no
 * bank conflicts without any permutation.
 *
 * Loading. A thread copies its places asynchronously, and later changes what it copied itself in
 * place (batch norm and ReLU, or the taking of a gradient), so only one barrier stands between
 * loading and multiplying. Places off the image stay the zeros that the copy wrote.
 */
#ifndef CHEX_ENGINE_CUDA_CONV_3X3_TILE_CUH
#define CHEX_ENGINE_CUDA_CONV_3X3_TILE_CUH

#include "engine/cuda/eights.cuh"

enum { CONV3_THREADS = 256, CONV3_WARPS = 8 };

/* Division by what is only known at run time; exact for values below 2^32. */
struct conv3_divisor {
    unsigned by, magic; /* 2^32 / by, rounded down; at most 2^32 - 1 */
};
static inline conv3_divisor conv3_divisor_of(unsigned by) {
    return conv3_divisor{by, by == 1 ? 0xffffffffu : (unsigned)((1ull << 32) / by)};
}
/* The estimate is exact or one too small. */
static __device__ __forceinline__ unsigned conv3_divide(conv3_divisor d, unsigned v) {
    const unsigned q = __umulhi(v, d.magic);
    return q + (v - q * d.by >= d.by ? 1u : 0u);
}

struct conv3_places {
    int n, hw;
    int strips, width;
    int pitch;  /* places in a row */
    int halo;   /* pitch + 1 */
    int loaded; /* places of a tile with both halos */
    int tile;   /* places of a tile */
    int tiles;
    int64_t places;
    conv3_divisor by_pitch, by_rows, by_strips;
};

/* A place as the kernels remember it: the pixel's number; ~1 - number where the pixel belongs to
 * the neighbouring strip; -1 off the image. */
static __device__ __forceinline__ int conv3_place(const conv3_places &g, int64_t q) {
    if (q < 0 || q >= g.places)
        return -1;
    const unsigned row = conv3_divide(g.by_pitch, (unsigned)q);
    const int column = (int)((unsigned)q - row * (unsigned)g.pitch);
    const unsigned strip_image = conv3_divide(g.by_rows, row);
    const int y = (int)(row - strip_image * g.by_rows.by) - 1;
    const unsigned image = conv3_divide(g.by_strips, strip_image);
    const int strip = (int)(strip_image - image * (unsigned)g.strips);
    const int x = strip * g.width + column - 1;
    if (y < 0 || x < 0 || x >= g.hw)
        return -1;
    const int pixel = ((int)image * g.hw + y) * g.hw + x;
    return column >= 1 && column <= g.width ? pixel : -2 - pixel;
}
static __device__ __forceinline__ int conv3_pixel(int place) {
    return place >= 0 ? place : place == -1 ? 0 : -2 - place;
}

/* The places of a tile with its halos; tiles past the last one are not asked for. */
static __device__ __forceinline__ void conv3_write_places(const conv3_places &g, int tile, int *to,
                                                          int thread) {
    const int64_t first = (int64_t)tile * g.tile - g.halo;
    for (int i = thread; i < g.loaded; i += CONV3_THREADS)
        to[i] = conv3_place(g, first + i);
}

/* What is loaded: max(a x + b, 0) of a map, or the gradient g + (a x + b) of gpu_taken. */
struct conv3_source {
    const void *data;
    int64_t pitch;
    const void *x; /* taken: the map behind b and c; else NULL */
    int64_t x_pitch;
    bool scaled, relu;
};

/* A warp's share of a stage: 4 runs of 8 channels by 8 places at a time. CHANNELS / 32 divides the
 * number of warps, so a thread's channels are the same in all its steps. */
template <int CHANNELS> struct conv3_share {
    static constexpr int QUADS = CHANNELS / 32;
    int chunk, place, step;
    __device__ __forceinline__ explicit conv3_share(int thread) {
        const int warp = thread / 32, lane = thread % 32;
        chunk = warp % QUADS * 4 + lane / 8;
        place = warp / QUADS * 8 + lane % 8;
        step = CONV3_WARPS / QUADS * 8;
    }
};

/* Starts the copies of channels [first, first + CHANNELS) of `count` places into a stage (and of
 * x's, where there is an x). OWN: only of pixels of the strip itself. */
template <class T, int CHANNELS, bool OWN>
__device__ __forceinline__ void conv3_issue(const conv3_source &s, int first, const int *places,
                                            int count, unsigned char *stage, unsigned char *x_stage,
                                            int thread) {
    const conv3_share<CHANNELS> mine(thread);
    const int channel = first + mine.chunk * 8;
    for (int p = mine.place; p < count; p += mine.step) {
        const int place = places[p];
        const bool on = OWN ? place >= 0 : place != -1;
        const int64_t pixel = on ? conv3_pixel(place) : 0;
        const int64_t at = (int64_t)(mine.chunk * count + p) * 16;
        gpu_copy16(stage + at, (const T *)s.data + pixel * s.pitch + channel, on);
        if (s.x)
            gpu_copy16(x_stage + at, (const T *)s.x + pixel * s.x_pitch + channel, on);
    }
}

/* Changes what this thread copied by conv3_issue with the same arguments. scale: a of all
 * `channels`, then b. */
template <class T, int CHANNELS, bool OWN>
__device__ __forceinline__ void
conv3_change(const conv3_source &s, const float *scale, int channels, int first, const int *places,
             int count, unsigned char *stage, const unsigned char *x_stage, int thread) {
    if (!s.scaled)
        return;
    const conv3_share<CHANNELS> mine(thread);
    float a[8], b[8];
    gpu_read_run<8>(a, scale + first + mine.chunk * 8);
    gpu_read_run<8>(b, scale + channels + first + mine.chunk * 8);
#pragma unroll 2
    for (int p = mine.place; p < count; p += mine.step) {
        const int place = places[p];
        if (OWN ? place < 0 : place == -1)
            continue;
        const int64_t at = (int64_t)(mine.chunk * count + p) * 16;
        float v[8];
        gpu_read_run<8>(v, (const T *)(stage + at));
        if (s.x) {
            float x[8];
            gpu_read_run<8>(x, (const T *)(x_stage + at));
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[i] = __fadd_rn(__fmaf_rn(a[i], x[i], v[i]), b[i]);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                v[i] = gpu_normed(gpu_ab{a[i], b[i]}, v[i]);
                v[i] = s.relu ? gpu_relu(v[i]) : v[i];
            }
        }
        gpu_write_run<8>((T *)(stage + at), v);
    }
}

/* The a and b of a source's channels [first, first + count) into shared memory. */
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
