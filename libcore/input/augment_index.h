/* SPDX-License-Identifier: Apache-2.0
 *
 * Source positions and weights of augmented pixels, shared by CPU and GPU code. Only integers and
 * doubles with integer values are used, so both compute the same bits.
 *
 * Resize from `length` to `size` px along one axis:
 * - The centre of output i is at (i + 1/2) * length / size, that of pixel x at x + 1/2. Distances
 *   are in units of 1 / (2 * size) px, so all of them are integers.
 * - The weight of a pixel at distance d is max(0, support - d). The support is one pixel. With
 *   antialias and length > size it is one output (length / size px).
 * - Pixels outside the crop are left out. The weights are scaled to sum to 2^bits.
 * - Rounding: the running sum from the last tap to the first is rounded half up, and a weight is
 *   the difference of two such sums. So the weights always sum to 2^bits and each is off by less
 * than 1.
 *
 * Divisions use double arithmetic, because vector units have no integer division. Half a unit is
 * added to an integer numerator below 2^42, which makes the floor of the quotient exact.
 */
#ifndef CHEX_INPUT_AUGMENT_INDEX_H
#define CHEX_INPUT_AUGMENT_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define CHEX_AUGMENT_BOTH static inline __host__ __device__
#else
#define CHEX_AUGMENT_BOTH static inline
#endif

enum {
    CHEX_AUGMENT_ROW_BITS = 8,
    CHEX_AUGMENT_COLUMN_BITS = 14,
    CHEX_AUGMENT_SEGMENT = 64, /* pixels of a rotated row with positions relative to one start */
};

/* Maps the largest sum, 255 * 2^22, to 1. */
#define CHEX_AUGMENT_SCALE (1.0f / (255.0f * 4194304.0f))

/* The largest number of taps of an output, rounded up to an even number. */
CHEX_AUGMENT_BOTH int chex_augment_tap_count(int length, int size, bool antialias) {
    if (!antialias || length <= size)
        return 2;
    const int taps = (2 * length + size - 1) / size;
    return taps + taps % 2;
}

/* Output i without antialias: returns the weight of pixel *first + 1. Pixel *first has the weight
 * 2^bits minus that. */
CHEX_AUGMENT_BOTH int chex_augment_two_taps(int length, int size, int bits, int i, int32_t *first) {
    const int unit = 2 * size;
    const double per_unit = 1.0 / unit;
    int twice = (2 * i + 1) * length - size;
    twice = twice < 0 ? 0 : twice;
    const int at = (int)((twice + 0.5) * per_unit);
    const int share = (int)((((twice - at * unit) << bits) + size + 0.5) * per_unit);
    *first = at;
    return at + 1 >= length ? 0 : share;
}

/* Output i with antialias, length > size. The weight of pixel *first + t, t < taps, is stored at
 * weights[t / 2 * pair_stride + t % 2 * stride]. */
CHEX_AUGMENT_BOTH void chex_augment_many_taps(int length, int size, int bits, int i, int taps,
                                              size_t pair_stride, size_t stride, int32_t *first,
                                              int16_t *weights) {
    const int64_t unit = 2 * (int64_t)size, support = 2 * (int64_t)length;
    const int64_t centre = (2 * (int64_t)i + 1) * length;
    int64_t from = centre - support - size, to = centre + support - size;
    from = from < 0 ? 0 : from / unit + 1;
    to = (to + unit - 1) / unit - 1;
    to = to < length ? to : length - 1;
    double total = 0, sum = 0;
    for (int64_t x = from; x <= to; x++) {
        const int64_t d = (2 * x + 1) * size - centre;
        total += (double)(support - (d < 0 ? -d : d));
    }
    const double scale = (double)(2 << bits), per_total = 1 / (2 * total);
    int after = 0;
    for (int t = taps - 1; t >= 0; t--) {
        int16_t *weight = weights + (size_t)t / 2 * pair_stride + (size_t)t % 2 * stride;
        const int64_t x = from + t, d = (2 * x + 1) * size - centre;
        *weight = 0;
        if (x > to)
            continue;
        sum += (double)(support - (d < 0 ? -d : d));
        const int with = (int)((sum * scale + total + 0.5) * per_total);
        *weight = (int16_t)(with - after);
        after = with;
    }
    *first = (int32_t)from;
}

/* Cosine and sine of the angle of rotation, in units of 2^-32. */
struct chex_augment_angle {
    int64_t cosine, sine;
};

/* The source position of pixel (y, x) of a rotated image of `stored` px, for the start of a
 * segment. Pixel i of the segment is at the start plus i times chex_augment_rotate_step().
 * - Unit: 1/65536 px of the stored image with a border of one pixel.
 * - Includes half of the 8 fraction bits that are cut off later, so that the cut rounds. */
CHEX_AUGMENT_BOTH void chex_augment_rotated_from(struct chex_augment_angle a, int stored, int y,
                                                 int x, int32_t *y_out, int32_t *x_out) {
    const int64_t middle = ((int64_t)stored + 1) * 2147483648 + 128 * 65536;
    const int64_t right = 2 * x + 1 - stored, below = 2 * y + 1 - stored; /* half px from there */
    *x_out = (int32_t)(((a.cosine * right - a.sine * below) / 2 + middle) >> 16);
    *y_out = (int32_t)(((a.sine * right + a.cosine * below) / 2 + middle) >> 16);
}
CHEX_AUGMENT_BOTH int32_t chex_augment_rotate_step(int64_t part) {
    return (int32_t)((part + 32768) >> 16);
}

/* Clamps a position to [0, max] px. */
CHEX_AUGMENT_BOTH int32_t chex_augment_within(int32_t at, int max) {
    at = at > 0 ? at : 0;
    return at < max << 16 ? at : max << 16;
}

/* Bilinear interpolation of four pixels. The upper 8 fraction bits of y and x are the weights. */
CHEX_AUGMENT_BOTH uint8_t chex_augment_between(int32_t y, int32_t x, int above_left,
                                               int above_right, int below_left, int below_right) {
    const int across = x >> 8 & 255, down = y >> 8 & 255;
    const int upper = above_left * (256 - across) + above_right * across;
    const int lower = below_left * (256 - across) + below_right * across;
    return (uint8_t)((upper * (256 - down) + lower * down + 32768) >> 16);
}

#endif
