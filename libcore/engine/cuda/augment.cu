/* SPDX-License-Identifier: Apache-2.0
 *
 * Crops of stored grey rows to the network's grey images: chex_augment_apply on the device.
 *
 * Numbers: all sums are integers, exact in 32 bits, so their order means nothing; the colour is
 * sum * k + b with two roundings. The places and weights come from input/augment_index.h, which the
 * CPU's kernels use too. So the bits are the CPU's.
 *
 * A block makes TILE_ROWS rows of an image: first the columns' taps and the rows' taps, then every
 * column of the crop blended down to those rows (16 bits in shared memory), then every output from
 * its row of these. Two taps, or four with antialias, are the usual; their places and weights stay
 * in registers. Where the crop is turned, a pixel is turned when it is read, about twice a pixel,
 * which is less than a turned copy would cost.
 */
#include "engine/cuda/device.cuh"
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
    int rows; /* of a tile */
    size_t blended, column_first, column_weights, row_first, row_weights, bytes;
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
    l.blended = advance(&at, (size_t)rows * (size_t)stored, sizeof(uint16_t));
    l.column_first = advance(&at, (size_t)size, sizeof(int32_t));
    l.column_weights = advance(&at, (size_t)size * taps, sizeof(int16_t));
    l.row_first = advance(&at, (size_t)rows, sizeof(int32_t));
    l.row_weights = advance(&at, (size_t)rows * taps, sizeof(int16_t));
    l.bytes = at;
    return l;
}

/* As many rows as fit what leaves room for other blocks, at least one. */
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

/* Pixel (y, x) of the crop's window in the turned row. Coordinates within the row with its border
 * of one pixel are those without it plus one. */
__device__ int turned_pixel(const source &s, const gpu_crop &crop, int y, int x) {
    const chex_augment_angle angle = {crop.cosine, crop.sine};
    const int begin = x / CHEX_AUGMENT_SEGMENT * CHEX_AUGMENT_SEGMENT;
    int32_t at_y, at_x;
    chex_augment_turned_from(angle, s.stored, crop.top + y, crop.left + begin, &at_y, &at_x);
    at_x += (x - begin) * chex_augment_turn_step(crop.cosine);
    at_y += (x - begin) * chex_augment_turn_step(crop.sine);
    at_x = chex_augment_within(at_x, s.stored + 1);
    at_y = chex_augment_within(at_y, s.stored + 1);
    const int py = (at_y >> 16) - 1, px = (at_x >> 16) - 1;
    return chex_augment_between(at_y, at_x, pixel_or_zero(s, py, px), pixel_or_zero(s, py, px + 1),
                                pixel_or_zero(s, py + 1, px), pixel_or_zero(s, py + 1, px + 1));
}

__device__ int crop_pixel(const source &s, const gpu_crop &crop, int y, int x) {
    if (crop.turned)
        return turned_pixel(s, crop, y, x);
    return s.row[(size_t)(crop.top + y) * (size_t)s.stored + (size_t)(crop.left + x)];
}

/* Output i of an axis; weight t at weights[t * stride]. */
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

/* Weights of TAPS taps from one that may be the last in front of `end`: taps behind that have no
 * weight and look at the last. */
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

/* One row of the tile before its columns are blended, by a warp. */
template <int TAPS>
__device__ void blend_row(const source &s, const gpu_crop &crop, const tap_list<TAPS> &taps,
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
__device__ void blend_any_row(const source &s, const gpu_crop &crop, int first, int taps,
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

/* What the columns of a tile are blended from and become. */
struct columns {
    const uint16_t *blended; /* [count][pitch] */
    const int32_t *first;
    const int16_t *weights;
    int pitch, width, size, count;
    float k, b;
    float *out;
};

/* Half of the threads have every second row each; a thread keeps its column's taps for all of its
 * rows. */
template <int TAPS> __device__ void blend_columns(const columns &c, int thread) {
    for (int x = thread % HALF; x < c.size; x += HALF) {
        const tap_list<TAPS> taps(c.first[x], c.width, c.weights + x, c.size);
#pragma unroll 4
        for (int y = thread / HALF; y < c.count; y += 2) {
            int sum = 0;
#pragma unroll
            for (int t = 0; t < TAPS; t++)
                sum += c.blended[y * c.pitch + taps.at[t]] * taps.weight[t];
            c.out[y * c.size + x] = coloured(sum, c.k, c.b);
        }
    }
}
__device__ void blend_any_columns(const columns &c, int taps, int thread) {
    for (int x = thread % HALF; x < c.size; x += HALF) {
        const int first = c.first[x], count = taps < c.width - first ? taps : c.width - first;
        for (int y = thread / HALF; y < c.count; y += 2) {
            int sum = 0;
            for (int t = 0; t < count; t++)
                sum += c.blended[y * c.pitch + first + t] * c.weights[t * c.size + x];
            c.out[y * c.size + x] = coloured(sum, c.k, c.b);
        }
    }
}

__global__ void __launch_bounds__(THREADS)
    augment_kernel(const uint8_t *rows, const gpu_crop *crops, const float *shifts, int stored,
                   int size, int tiles, layout l, float *out) {
    CHEX_DYNAMIC_SHARED(shared);
    uint16_t *blended = reinterpret_cast<uint16_t *>(shared + l.blended);
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
        uint16_t *to = blended + y * stored;
        if (row_taps == 2 && !crop.turned)
            blend_row(s, crop, tap_list<2>(first, crop.height, weights, l.rows), to, lane);
        else if (row_taps == 4 && !crop.turned)
            blend_row(s, crop, tap_list<4>(first, crop.height, weights, l.rows), to, lane);
        else
            blend_any_row(s, crop, first, row_taps, weights, l.rows, to, lane);
    }
    __syncthreads();

    const columns c = {blended,
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
        blend_columns<2>(c, thread);
    else if (column_taps == 4)
        blend_columns<4>(c, thread);
    else
        blend_any_columns(c, column_taps, thread);
}

/* What a change of contrast adds to every pixel: it hangs on the mean of the crop. A block an
 * image.
 */
__global__ void __launch_bounds__(THREADS)
    shift_kernel(const uint8_t *rows, const gpu_crop *crops, int stored, float *shifts) {
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
