/* SPDX-License-Identifier: Apache-2.0
 *
 * chex_augment_apply on the device: crop, rotate, resize and recolour stored grey rows to the
 * network's grey images.
 *
 * Numerics. The result is bit-identical to the CPU's. All sums are integers, exact in 32 bits, so
 * their order does not matter. The colour is sum * k + b with two roundings. Positions and weights
 * come from input/augment_index.h, which the CPU kernels use too.
 *
 * Method. A block computes up to TILE_ROWS output rows of an image:
 *   1. the taps (positions and weights) of all columns and of its rows;
 *   2. the vertical pass: every column of the crop is interpolated to those rows, as 16-bit values
 *      in shared memory;
 *   3. the horizontal pass: every output is interpolated from its row.
 * The usual cases of two taps, and four with antialias, keep positions and weights in registers. If
 * the crop is rotated, each pixel is rotated when it is read. A pixel is read about twice, which
 * costs less than a rotated copy.
 */
#include "engine/cuda/kernels/device.cuh"
#include "input/augment_index.h"

namespace {

enum {
    THREADS = 256,
    WARPS = THREADS / 32,
    HALF = THREADS / 2,
    TILE_ROWS = 16,
    SHARED_AIM = 32 << 10
};

struct layout {
    int rows; /* output rows of a tile */
    size_t vertical, column_first, column_weights, row_first, row_weights, bytes;
};

size_t advance(size_t *at, size_t count, size_t size) {
    const size_t here = *at;
    *at += (count * size + 15) / 16 * 16;
    return here;
}

layout lay_out(int stored, int size, int rows) {
    layout l = {};
    size_t at = 0;
    const size_t taps = (size_t)chex_augment_tap_count(stored, size, true);
    l.rows = rows;
    l.vertical = advance(&at, (size_t)rows * (size_t)stored, sizeof(uint16_t));
    l.column_first = advance(&at, (size_t)size, sizeof(int32_t));
    l.column_weights = advance(&at, (size_t)size * taps, sizeof(int16_t));
    l.row_first = advance(&at, (size_t)rows, sizeof(int32_t));
    l.row_weights = advance(&at, (size_t)rows * taps, sizeof(int16_t));
    l.bytes = at;
    return l;
}

/* The layout with the most rows whose bytes stay within SHARED_AIM, so that several blocks fit on a
 * multiprocessor. At least one row. */
layout choose_layout(int stored, int size) {
    int rows = size < TILE_ROWS ? size : TILE_ROWS;
    while (rows > 1 && lay_out(stored, size, rows).bytes > SHARED_AIM)
        rows /= 2;
    return lay_out(stored, size, rows);
}

struct source {
    const uint8_t *row; /* (stored, stored) */
    int stored;
};

__device__ int pixel_or_zero(const source &s, int y, int x) {
    const bool inside = (unsigned)y < (unsigned)s.stored && (unsigned)x < (unsigned)s.stored;
    return inside ? s.row[(size_t)y * (size_t)s.stored + (size_t)x] : 0;
}

/* Pixel (y, x) of the crop's window in the rotated image. The image has a border of one pixel, so
 * coordinates with the border are one larger than without it. */
__device__ int rotated_pixel(const source &s, const gpu_crop &crop, int y, int x) {
    const chex_augment_angle angle = {crop.cosine, crop.sine};
    const int begin = x / CHEX_AUGMENT_SEGMENT * CHEX_AUGMENT_SEGMENT;
    int32_t at_y, at_x;
    chex_augment_rotated_from(angle, s.stored, crop.top + y, crop.left + begin, &at_y, &at_x);
    at_x += (x - begin) * chex_augment_rotate_step(crop.cosine);
    at_y += (x - begin) * chex_augment_rotate_step(crop.sine);
    at_x = chex_augment_within(at_x, s.stored + 1);
    at_y = chex_augment_within(at_y, s.stored + 1);
    const int py = (at_y >> 16) - 1, px = (at_x >> 16) - 1;
    return chex_augment_between(at_y, at_x, pixel_or_zero(s, py, px), pixel_or_zero(s, py, px + 1),
                                pixel_or_zero(s, py + 1, px), pixel_or_zero(s, py + 1, px + 1));
}

__device__ int crop_pixel(const source &s, const gpu_crop &crop, int y, int x) {
    if (crop.rotated)
        return rotated_pixel(s, crop, y, x);
    return s.row[(size_t)(crop.top + y) * (size_t)s.stored + (size_t)(crop.left + x)];
}

/* Computes the taps of output i of an axis; weight t is at weights[t * stride]. */
__device__ void make_taps(int length, int size, int bits, bool antialias, int i, int taps,
                          size_t stride, int32_t *first, int16_t *weights) {
    if (antialias && length > size) {
        chex_augment_many_taps(length, size, bits, i, taps, 2 * stride, stride, first, weights);
        return;
    }
    const int share = chex_augment_two_taps(length, size, bits, i, first);
    weights[0] = (int16_t)((1 << bits) - share);
    weights[stride] = (int16_t)share;
}

/* TAPS taps from `first` on. Taps at or after `end` have weight 0; they read position end - 1. */
template <int TAPS> struct tap_list {
    int at[TAPS], weight[TAPS];
    __device__ __forceinline__ tap_list(int first, int end, const int16_t *weights, int stride) {
#pragma unroll
        for (int t = 0; t < TAPS; t++) {
            at[t] = first + t < end ? first + t : end - 1;
            weight[t] = weights[t * stride];
        }
    }
};

/* Vertical pass: one warp computes one row of the tile. */
template <int TAPS>
__device__ void vertical_pass(const source &s, const gpu_crop &crop, const tap_list<TAPS> &taps,
                              uint16_t *to, int lane) {
    const uint8_t *row[TAPS];
#pragma unroll
    for (int t = 0; t < TAPS; t++)
        row[t] = s.row + (size_t)(crop.top + taps.at[t]) * (size_t)s.stored + (size_t)crop.left;
#pragma unroll 4
    for (int x = lane; x < crop.width; x += 32) {
        int sum = 0;
#pragma unroll
        for (int t = 0; t < TAPS; t++)
            sum += row[t][x] * taps.weight[t];
        to[x] = (uint16_t)sum;
    }
}
__device__ void vertical_pass_any(const source &s, const gpu_crop &crop, int first, int taps,
                                  const int16_t *weights, int stride, uint16_t *to, int lane) {
    const int count = taps < crop.height - first ? taps : crop.height - first;
    for (int x = lane; x < crop.width; x += 32) {
        int sum = 0;
        for (int t = 0; t < count; t++)
            sum += crop_pixel(s, crop, first + t, x) * weights[t * stride];
        to[x] = (uint16_t)sum;
    }
}

__device__ float coloured(int32_t sum, float k, float b) {
    float value = __fadd_rn(__fmul_rn((float)sum, k), b);
    value = value > 0 ? value : 0;
    return value < 1 ? value : 1;
}

/* Input and output of the horizontal pass of a tile. */
struct columns {
    const uint16_t *vertical; /* [count][pitch] */
    const int32_t *first;
    const int16_t *weights;
    int pitch, width, size, count;
    float k, b;
    float *out;
};

/* Horizontal pass. One half of the threads computes the even rows, the other half the odd rows. A
 * thread keeps the taps of its column for all its rows. */
template <int TAPS> __device__ void horizontal_pass(const columns &c, int thread) {
    for (int x = thread % HALF; x < c.size; x += HALF) {
        const tap_list<TAPS> taps(c.first[x], c.width, c.weights + x, c.size);
#pragma unroll 4
        for (int y = thread / HALF; y < c.count; y += 2) {
            int sum = 0;
#pragma unroll
            for (int t = 0; t < TAPS; t++)
                sum += c.vertical[y * c.pitch + taps.at[t]] * taps.weight[t];
            c.out[y * c.size + x] = coloured(sum, c.k, c.b);
        }
    }
}
__device__ void horizontal_pass_any(const columns &c, int taps, int thread) {
    for (int x = thread % HALF; x < c.size; x += HALF) {
        const int first = c.first[x], count = taps < c.width - first ? taps : c.width - first;
        for (int y = thread / HALF; y < c.count; y += 2) {
            int sum = 0;
            for (int t = 0; t < count; t++)
                sum += c.vertical[y * c.pitch + first + t] * c.weights[t * c.size + x];
            c.out[y * c.size + x] = coloured(sum, c.k, c.b);
        }
    }
}

__global__ void __launch_bounds__(THREADS)
    augment_kernel(const uint8_t *rows, const gpu_crop *crops, const float *shifts, int stored,
                   int size, int tiles, layout l, float *out) {
    gpu_begin();
    CHEX_DYNAMIC_SHARED(shared);
    uint16_t *vertical = reinterpret_cast<uint16_t *>(shared + l.vertical);
    int32_t *column_first = reinterpret_cast<int32_t *>(shared + l.column_first);
    int16_t *column_weights = reinterpret_cast<int16_t *>(shared + l.column_weights);
    int32_t *row_first = reinterpret_cast<int32_t *>(shared + l.row_first);
    int16_t *row_weights = reinterpret_cast<int16_t *>(shared + l.row_weights);
    const int image = (int)(blockIdx.x / (unsigned)tiles);
    const int from = (int)(blockIdx.x % (unsigned)tiles) * l.rows;
    const int count = size - from < l.rows ? size - from : l.rows;
    const int thread = (int)threadIdx.x, warp = thread / 32, lane = thread % 32;
    const gpu_crop crop = crops[image];
    const source s = {rows + crop.from, stored};
    const int column_taps = chex_augment_tap_count(crop.width, size, crop.antialias);
    const int row_taps = chex_augment_tap_count(crop.height, size, crop.antialias);

    for (int x = thread; x < size; x += THREADS)
        make_taps(crop.width, size, CHEX_AUGMENT_COLUMN_BITS, crop.antialias,
                  crop.flip ? size - 1 - x : x, column_taps, (size_t)size, column_first + x,
                  column_weights + x);
    for (int y = thread; y < count; y += THREADS)
        make_taps(crop.height, size, CHEX_AUGMENT_ROW_BITS, crop.antialias, from + y, row_taps,
                  (size_t)l.rows, row_first + y, row_weights + y);
    __syncthreads();

    for (int y = warp; y < count; y += WARPS) {
        const int first = row_first[y];
        const int16_t *weights = row_weights + y;
        uint16_t *to = vertical + y * stored;
        if (row_taps == 2 && !crop.rotated)
            vertical_pass(s, crop, tap_list<2>(first, crop.height, weights, l.rows), to, lane);
        else if (row_taps == 4 && !crop.rotated)
            vertical_pass(s, crop, tap_list<4>(first, crop.height, weights, l.rows), to, lane);
        else
            vertical_pass_any(s, crop, first, row_taps, weights, l.rows, to, lane);
    }
    __syncthreads();

    const columns c = {vertical,
                       column_first,
                       column_weights,
                       stored,
                       crop.width,
                       size,
                       count,
                       crop.k,
                       crop.contrast ? shifts[image] : 0.0f,
                       out + ((size_t)image * (size_t)size + (size_t)from) * (size_t)size};
    if (column_taps == 2)
        horizontal_pass<2>(c, thread);
    else if (column_taps == 4)
        horizontal_pass<4>(c, thread);
    else
        horizontal_pass_any(c, column_taps, thread);
}

/* Computes the shift that a change of contrast adds to every pixel. It depends on the mean of the
 * crop. One block per image. */
__global__ void __launch_bounds__(THREADS)
    shift_kernel(const uint8_t *rows, const gpu_crop *crops, int stored, float *shifts) {
    gpu_begin();
    __shared__ unsigned long long parts[WARPS];
    const gpu_crop crop = crops[blockIdx.x];
    if (!crop.contrast)
        return;
    const source s = {rows + crop.from, stored};
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    unsigned long long sum = 0;
    for (int y = warp; y < crop.height; y += WARPS)
        for (int x = lane; x < crop.width; x += 32)
            sum += (unsigned)crop_pixel(s, crop, y, x);
    for (int by = 16; by > 0; by /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, by);
    if (lane == 0)
        parts[warp] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < WARPS; w++)
            sum += parts[w];
        const double mean = (double)sum / (255.0 * crop.height * crop.width);
        shifts[blockIdx.x] = (float)(crop.b_per_mean * mean);
    }
}

} // namespace

extern "C" size_t gpu_augment_shared(int stored, int size) {
    return choose_layout(stored, size).bytes;
}

extern "C" cudaError_t gpu_augment(const uint8_t *rows, const struct gpu_crop *crops, int n,
                                   int stored, int size, bool contrast, float *shifts, float *out,
                                   cudaStream_t stream) {
    const layout l = choose_layout(stored, size);
    const int tiles = (size + l.rows - 1) / l.rows;
    if (contrast)
        CHEX_GPU_TRY(CHEX_LAUNCH(shift_kernel, dim3((unsigned)n), dim3(THREADS), 0, stream, rows,
                                 crops, stored, shifts));
    return CHEX_LAUNCH(augment_kernel, dim3((unsigned)n * (unsigned)tiles), dim3(THREADS), l.bytes,
                       stream, rows, crops, shifts, stored, size, tiles, l, out);
}
