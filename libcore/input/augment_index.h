/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a pixel of an augmented image looks, for CPUs and GPUs alike: integers, and doubles that
 * hold integers, so that both get the same from the same source.
 *
 * Output i of `size` has its centre at (i + 1/2) * length / size of the crop, pixel x at x + 1/2.
 * Lengths are counted in 1 / (2 * size) px, which makes all of them integers. A pixel at distance d
 * weighs support - d, where that is positive: the support is one pixel, or with antialias one
 * output where that is larger. Pixels outside of the crop do not count, and the weights are scaled
 * to sum to 2^bits. What is rounded, half up, is the sum of a tap and all that follow, so the
 * weights sum to 2^bits whatever was rounded, and no weight is off by a whole unit.
 *
 * Quotients are taken in double: with half a unit added to an integer numerator below 2^42, floor
 * is exact, and a vector unit has such a division.
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
    CHEX_AUGMENT_SEGMENT = 64, /* pixels of a turned row whose places are counted from one start */
};

/* What the sum of weights times 255 is divided by. */
#define CHEX_AUGMENT_SCALE (1.0f / (255.0f * 4194304.0f))

/* Taps that a resize from `length` to `size` px has at most; even. */
CHEX_AUGMENT_BOTH int chex_augment_tap_count(int length, int size, bool antialias) {
    if (!antialias || length <= size)
        return 2;
    const int taps = (2 * length + size - 1) / size;
    return taps + taps % 2;
}

/* Output i without antialias: pixels *first and *first + 1, the latter with the weight that is
 * returned and the former with the rest. */
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

/* Output i with antialias, length > size: weight of pixel *first + t, for t below `taps`, to
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

/* A turned image: cosine and sine of the angle, rounded to 2^-32. */
struct chex_augment_angle {
    int64_t cosine, sine;
};

/* Where pixel (y, x) of a turned row of `stored` px comes from, in 1/65536 px of that row with a
 * border of one pixel around it, moved by half of the 8 bits that are cut off later. Segments
 * begin so; pixel i of one comes from the start and i times the step. */
CHEX_AUGMENT_BOTH void chex_augment_turned_from(struct chex_augment_angle a, int stored, int y,
                                                int x, int32_t *y_out, int32_t *x_out) {
    const int64_t middle = ((int64_t)stored + 1) * 2147483648 + 128 * 65536;
    const int64_t right = 2 * x + 1 - stored, below = 2 * y + 1 - stored; /* half px from there */
    *x_out = (int32_t)(((a.cosine * right - a.sine * below) / 2 + middle) >> 16);
    *y_out = (int32_t)(((a.sine * right + a.cosine * below) / 2 + middle) >> 16);
}
CHEX_AUGMENT_BOTH int32_t chex_augment_turn_step(int64_t part) {
    return (int32_t)((part + 32768) >> 16);
}

/* Within [0, most] px. */
CHEX_AUGMENT_BOTH int32_t chex_augment_within(int32_t at, int most) {
    at = at > 0 ? at : 0;
    return at < most << 16 ? at : most << 16;
}

/* Between four pixels; the upper 8 bits of the fractions of (y, x) are the weights. */
CHEX_AUGMENT_BOTH uint8_t chex_augment_between(int32_t y, int32_t x, int above_left,
                                               int above_right, int below_left, int below_right) {
    const int across = x >> 8 & 255, down = y >> 8 & 255;
    const int upper = above_left * (256 - across) + above_right * across;
    const int lower = below_left * (256 - across) + below_right * across;
    return (uint8_t)((upper * (256 - down) + lower * down + 32768) >> 16);
}

#endif
