/* SPDX-License-Identifier: Apache-2.0
 *
 * Where an output pixel of a resize looks, and with which integer weights.
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
#include "input/augment_private.h"

int chex_augment_tap_count(int length, int size, bool antialias) {
    if (!antialias || length <= size)
        return 2;
    int taps = (2 * length + size - 1) / size;
    return taps + taps % 2;
}

/* The support is one pixel: the pixel before the centre, and a share for the one behind it. */
static void two_taps(int length, int size, int bits, int i, int32_t *first, int16_t *weights) {
    const int unit = 2 * size, one = 1 << bits;
    const double per_unit = 1.0 / unit;
    int twice = (2 * i + 1) * length - size;
    twice = twice < 0 ? 0 : twice;
    int at = (int)((twice + 0.5) * per_unit);
    int share = (int)((((twice - at * unit) << bits) + size + 0.5) * per_unit);
    share = at + 1 >= length ? 0 : share;
    *first = at;
    weights[0] = (int16_t)(one - share);
    weights[1] = (int16_t)share;
}

/* `weights` of tap t: see struct chex_augment_taps. */
static void many_taps(int length, int size, int bits, int i, const struct chex_augment_taps *taps,
                      int32_t *first, int16_t *weights) {
    const int64_t unit = 2 * (int64_t)size, support = 2 * (int64_t)length;
    const int64_t centre = (2 * (int64_t)i + 1) * length;
    int64_t from = centre - support - size, to = centre + support - size;
    from = from < 0 ? 0 : from / unit + 1;
    to = (to + unit - 1) / unit - 1;
    to = to < length ? to : length - 1;
    double total = 0, sum = 0;
    for (int64_t x = from; x <= to; x++) {
        int64_t d = (2 * x + 1) * size - centre;
        total += (double)(support - (d < 0 ? -d : d));
    }
    const double scale = (double)(2 << bits), per_total = 1 / (2 * total);
    int after = 0;
    for (int t = taps->taps - 1; t >= 0; t--) {
        int16_t *weight = weights + (size_t)t / 2 * taps->pair_stride + t % 2;
        int64_t x = from + t, d = (2 * x + 1) * size - centre;
        *weight = 0;
        if (x > to)
            continue;
        sum += (double)(support - (d < 0 ? -d : d));
        int with = (int)((sum * scale + total + 0.5) * per_total);
        *weight = (int16_t)(with - after);
        after = with;
    }
    *first = (int32_t)from;
}

static void copy_output(const struct chex_augment_taps *taps, int from, int to) {
    taps->first[to] = taps->first[from];
    for (int t = 0; t < taps->taps; t++) {
        int16_t *pair = taps->weights + (size_t)t / 2 * taps->pair_stride + t % 2;
        pair[(size_t)to * taps->output_stride] = pair[(size_t)from * taps->output_stride];
    }
}

void chex_augment_make_taps(int length, int size, bool antialias, bool flip, int bits,
                            struct chex_augment_taps *taps) {
    const bool many = antialias && length > size;
    for (int i = 0; i < size; i++) {
        int at = flip ? size - 1 - i : i;
        int16_t *weights = taps->weights + (size_t)at * taps->output_stride;
        if (many)
            many_taps(length, size, bits, i, taps, &taps->first[at], weights);
        else
            two_taps(length, size, bits, i, &taps->first[at], weights);
    }
    for (int i = size; i < taps->outputs; i++)
        copy_output(taps, size - 1, i);
}
