/* SPDX-License-Identifier: Apache-2.0 */
#include "input/augment.h"

#include <math.h>

#include "base/rng.h"
#include "input/augment_private.h"

enum { TRIES = 10, FLIP_DRAW = TRIES };
static const double least_area = 0.5, log_ratio = 0.28768207245178092744; /* ln(4/3) */

struct chex_crop chex_augment_centre(int stored_size, int size) {
    int edge = (stored_size - size) / 2;
    return (struct chex_crop){.top = edge, .left = edge, .height = size, .width = size};
}

struct chex_crop chex_augment_draw(uint64_t seed, uint64_t epoch, uint64_t row, int stored_size) {
    uint64_t item = epoch << 32 | row;
    bool flip = chex_rng(seed, CHEX_RNG_AUGMENT, item, FLIP_DRAW).v[0] >> 31;
    for (uint32_t i = 0; i < TRIES; i++) {
        struct chex_rng4 r = chex_rng(seed, CHEX_RNG_AUGMENT, item, i);
        double area = least_area + (1 - least_area) * (double)chex_rng_unit(r.v[0]);
        double ratio = exp(log_ratio * (2 * (double)chex_rng_unit(r.v[1]) - 1));
        int width = (int)rint(stored_size * sqrt(area * ratio));
        int height = (int)rint(stored_size * sqrt(area / ratio));
        if (width < 1 || height < 1 || width > stored_size || height > stored_size)
            continue;
        return (struct chex_crop){
            .top = (int)chex_rng_below(r.v[2], (uint32_t)(stored_size - height) + 1),
            .left = (int)chex_rng_below(r.v[3], (uint32_t)(stored_size - width) + 1),
            .height = height,
            .width = width,
            .flip = flip};
    }
    struct chex_crop whole = chex_augment_centre(stored_size, stored_size);
    whole.flip = flip;
    return whole;
}

/* Output pixel i of `size` lies at (i + 1/2) * length / size - 1/2 of the crop, not before its
 * first pixel: *at and the share of *at + 1 in units of 2^-bits, rounded half up. At the last pixel
 * there is no next one and the share is 0. All in integers, so the same everywhere. */
static int position(int i, int length, int size, int bits, int *at) {
    int64_t twice = (2 * (int64_t)i + 1) * length - size, unit = 2 * (int64_t)size;
    if (twice < 0)
        twice = 0;
    *at = (int)(twice / unit);
    if (*at + 1 >= length)
        return 0;
    return (int)(((twice % unit << bits) + size) / unit);
}

static void blend_plain(const uint8_t *upper, const uint8_t *lower, int weight, int width,
                        int16_t *row) {
    const int one = 1 << CHEX_AUGMENT_ROW_BITS;
    for (int x = 0; x < width; x++)
        row[x] = (int16_t)(upper[x] * (one - weight) + lower[x] * weight - 32768);
}

static void pick_plain(const int16_t *row, const int32_t *at, const int16_t *weights, int size,
                       float *out) {
    for (int x = 0; x < size; x++) {
        int32_t sum = row[at[x]] * weights[2 * x] + row[at[x] + 1] * weights[2 * x + 1] + (1 << 29);
        out[x] = (float)sum * CHEX_AUGMENT_SCALE;
    }
}

const struct chex_augment_kernels chex_augment_plain = {"plain", blend_plain, pick_plain};

const struct chex_augment_kernels *chex_augment_best(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return &chex_augment_avx2;
#endif
    return &chex_augment_plain;
}

size_t chex_augment_scratch_bytes(int stored, int size) {
    /* one element behind the row, which is read with a weight of 0 */
    return (size_t)size * (sizeof(int32_t) + 2 * sizeof(int16_t)) +
           ((size_t)stored + 1) * sizeof(int16_t);
}

/* Scaling by a power of two is exact, so this gives the bits of the general path. */
static void copy_pixels(const uint8_t *in, int stored, bool flip, int size, float *out) {
    const float scale = CHEX_AUGMENT_SCALE * 4194304.0f;
    for (int y = 0; y < size; y++, in += stored, out += size) {
        if (flip)
            for (int x = 0; x < size; x++)
                out[x] = (float)in[size - 1 - x] * scale;
        else
            for (int x = 0; x < size; x++)
                out[x] = (float)in[x] * scale;
    }
}

void chex_augment_apply_with(const struct chex_augment_kernels *kernels, const uint8_t *pixels_in,
                             int stored, struct chex_crop crop, int size, float *out,
                             void *scratch) {
    const uint8_t *in = pixels_in + (size_t)crop.top * (size_t)stored + (size_t)crop.left;
    if (crop.height == size && crop.width == size) {
        copy_pixels(in, stored, crop.flip, size, out);
        return;
    }
    int32_t *column = scratch;
    int16_t *weights = (int16_t *)(column + size), *row = weights + 2 * size;
    for (int x = 0; x < size; x++) {
        int at, to = crop.flip ? size - 1 - x : x;
        int share = position(x, crop.width, size, CHEX_AUGMENT_COLUMN_BITS, &at);
        column[to] = at;
        weights[2 * to] = (int16_t)((1 << CHEX_AUGMENT_COLUMN_BITS) - share);
        weights[2 * to + 1] = (int16_t)share;
    }
    row[crop.width] = 0;
    for (int y = 0; y < size; y++) {
        int at, share = position(y, crop.height, size, CHEX_AUGMENT_ROW_BITS, &at);
        const uint8_t *upper = in + (size_t)at * (size_t)stored;
        kernels->blend(upper, share ? upper + stored : upper, share, crop.width, row);
        kernels->pick(row, column, weights, size, out + (size_t)y * (size_t)size);
    }
}

void chex_augment_apply(const uint8_t *pixels_in, int stored, struct chex_crop crop, int size,
                        float *out, void *scratch) {
    chex_augment_apply_with(chex_augment_best(), pixels_in, stored, crop, size, out, scratch);
}
