/* SPDX-License-Identifier: Apache-2.0
 *
 * Augmentation kernels for any CPU: loops that a compiler can vectorise.
 *
 * In the horizontal pass each output has its own source index, and few CPUs can gather in a vector.
 * So the tile is transposed first: the eight rows of one column become neighbours. One output
 * column is then the same operation on eight neighbouring values.
 */
#include "input/augment_private.h"

#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { ROWS = CHEX_AUGMENT_TILE };
typedef int16_t words __attribute__((vector_size(16)));
typedef int32_t ints __attribute__((vector_size(16)));
typedef float floats __attribute__((vector_size(16)));

static bool always(void) { return true; }

static void vertical_one(const uint8_t *restrict a, int width, int16_t *restrict to) {
    for (int x = 0; x < width; x++)
        to[x] = (int16_t)((uint16_t)(a[x] << 8) ^ 32768u);
}

/* Two rows: 256 * a + (b - a) * w, modulo 2^16, in which the sum is exact. */
static void vertical_two(const uint8_t *restrict a, const uint8_t *restrict b, int16_t weight,
                         int width, int16_t *restrict to) {
    for (int x = 0; x < width; x++) {
        const uint16_t more = (uint16_t)((uint16_t)(b[x] - a[x]) * (unsigned)(uint16_t)weight);
        to[x] = (int16_t)((uint16_t)((a[x] << 8) + more) ^ 32768u);
    }
}

static void vertical_three(const uint8_t *restrict from, size_t pitch, const int16_t *weights,
                           int width, int16_t *restrict to) {
    const unsigned w0 = (uint16_t)weights[0], w1 = (uint16_t)weights[1], w2 = (uint16_t)weights[2];
    const uint8_t *restrict b = from + pitch, *restrict c = b + pitch;
    for (int x = 0; x < width; x++)
        to[x] = (int16_t)(uint16_t)((uint16_t)(from[x] * w0) + (uint16_t)(b[x] * w1) +
                                    (uint16_t)(c[x] * w2) + 32768u);
}

static void add_row(const uint8_t *restrict a, int16_t weight, int width, int16_t *restrict to) {
    for (int x = 0; x < width; x++)
        to[x] = (int16_t)(uint16_t)((uint16_t)to[x] + a[x] * (unsigned)(uint16_t)weight);
}

static void vertical_pass(const uint8_t *from, size_t pitch, const int16_t *weights, int taps,
                          int width, int16_t *to) {
    if (taps == 1) {
        vertical_one(from, width, to);
    } else if (taps == 2) {
        vertical_two(from, from + pitch, weights[1], width, to);
    } else {
        vertical_three(from, pitch, weights, width, to);
        for (int t = 3; t < taps; t++)
            add_row(from + (size_t)t * pitch, weights[t], width, to);
    }
}

#define MIX_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define MIX_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)

/* Transpose (8, used) -> (used, 8): interleaves row i with row i + 4, three times. */
static void lay_on_side(const int16_t *tile, size_t stride, int used, int16_t *side) {
    for (size_t x = 0; x < (size_t)used; x += ROWS) {
        words v[ROWS], w[ROWS];
        for (int i = 0; i < ROWS; i++)
            memcpy(&v[i], tile + (size_t)i * stride + x, sizeof v[i]);
        for (int i = 0; i < 4; i++) {
            w[2 * i] = MIX_LOW(v[i], v[i + 4]);
            w[2 * i + 1] = MIX_HIGH(v[i], v[i + 4]);
        }
        for (int i = 0; i < 4; i++) {
            v[2 * i] = MIX_LOW(w[i], w[i + 4]);
            v[2 * i + 1] = MIX_HIGH(w[i], w[i + 4]);
        }
        for (int i = 0; i < 4; i++) {
            w[2 * i] = MIX_LOW(v[i], v[i + 4]);
            w[2 * i + 1] = MIX_HIGH(v[i], v[i + 4]);
        }
        memcpy(side + x * ROWS, w, sizeof w);
    }
}

/* The sums of one output column: rows 0 to 3 and rows 4 to 7. */
#if defined(__SSE2__)
/* SSE2's pmaddwd is on every x86-64 CPU, but compilers do not find it in the loops below. */
static inline void sum_column(const int16_t *side, const int16_t *weights, size_t pair_stride,
                              int pairs, ints sum[2]) {
    sum[0] = sum[1] = (ints){1 << 29, 1 << 29, 1 << 29, 1 << 29};
    for (int i = 0; i < pairs; i++, weights += pair_stride, side += 2 * ROWS) {
        words a, b;
        int32_t pair;
        memcpy(&a, side, sizeof a);
        memcpy(&b, side + ROWS, sizeof b);
        memcpy(&pair, weights, sizeof pair);
        const __m128i both = _mm_set1_epi32(pair);
        sum[0] += (ints)_mm_madd_epi16((__m128i)MIX_LOW(a, b), both);
        sum[1] += (ints)_mm_madd_epi16((__m128i)MIX_HIGH(a, b), both);
    }
}
#else
static inline void sum_column(const int16_t *side, const int16_t *weights, size_t pair_stride,
                              int pairs, ints sum[2]) {
    int32_t total[ROWS];
    for (int r = 0; r < ROWS; r++)
        total[r] = 1 << 29;
    for (int i = 0; i < pairs; i++, weights += pair_stride, side += 2 * ROWS) {
        const int16_t w0 = weights[0], w1 = weights[1];
        for (int r = 0; r < ROWS; r++)
            total[r] += side[r] * w0 + side[ROWS + r] * w1;
    }
    memcpy(sum, total, sizeof total);
}
#endif

static inline floats choose(ints mask, floats a, floats b) {
    return (floats)((mask & (ints)a) | (~mask & (ints)b));
}

static inline floats to_colour(ints sum, const struct chex_augment_colour *c) {
    const floats zero = {0, 0, 0, 0}, one = {1, 1, 1, 1};
    floats value = __builtin_convertvector(sum, floats) * c->k;
    if (c->same)
        return value;
    value += c->b;
    value = choose((ints)(value > zero), value, zero);
    return choose((ints)(value < one), value, one);
}

/* Transposes a 4 x 4 block of output columns to rows. */
static inline void transpose_4x4(floats c[4]) {
    const floats a = __builtin_shufflevector(c[0], c[1], 0, 4, 1, 5);
    const floats b = __builtin_shufflevector(c[0], c[1], 2, 6, 3, 7);
    const floats d = __builtin_shufflevector(c[2], c[3], 0, 4, 1, 5);
    const floats e = __builtin_shufflevector(c[2], c[3], 2, 6, 3, 7);
    c[0] = __builtin_shufflevector(a, d, 0, 1, 4, 5);
    c[1] = __builtin_shufflevector(a, d, 2, 3, 6, 7);
    c[2] = __builtin_shufflevector(b, e, 0, 1, 4, 5);
    c[3] = __builtin_shufflevector(b, e, 2, 3, 6, 7);
}

/* Columns [x, x + 4) of the padded output. */
static inline void horizontal_four(const struct chex_augment_horizontal *p, int x, int pairs,
                                   bool same) {
    const struct chex_augment_taps *taps = &p->columns->taps;
    const struct chex_augment_colour colour = {p->colour.k, p->colour.b, same};
    const size_t row = (size_t)p->size;
    const int count = p->size - x;
    floats upper[4], lower[4];
    for (int i = 0; i < 4; i++) {
        ints sum[2];
        sum_column(p->spare + taps->first[x + i] * ROWS, taps->weights + 2 * (x + i),
                   taps->pair_stride, pairs, sum);
        upper[i] = to_colour(sum[0], &colour);
        lower[i] = to_colour(sum[1], &colour);
    }
    transpose_4x4(upper);
    transpose_4x4(lower);
    float *out = p->out + x;
    if (count >= 4 && p->rows == ROWS) {
        for (size_t r = 0; r < 4; r++) {
            memcpy(out + r * row, &upper[r], sizeof upper[r]);
            memcpy(out + (r + 4) * row, &lower[r], sizeof lower[r]);
        }
        return;
    }
    for (size_t r = 0; r < (size_t)p->rows; r++)
        for (int i = 0; i < count && i < 4; i++)
            out[r * row + (size_t)i] = r < 4 ? upper[r][i] : lower[r - 4][i];
}

static void horizontal_pass(const struct chex_augment_horizontal *p) {
    const int pairs = p->columns->taps.taps / 2;
    lay_on_side(p->tile, p->stride, p->used, p->spare);
    for (int x = 0; x < p->size; x += 4)
        if (pairs == 1 && p->colour.same)
            horizontal_four(p, x, 1, true);
        else if (pairs == 2 && p->colour.same)
            horizontal_four(p, x, 2, true);
        else
            horizontal_four(p, x, pairs, p->colour.same);
}

static int32_t within(int32_t at, int32_t max) {
    at = at > 0 ? at : 0;
    return at < max ? at : max;
}

/* Two loops: the positions, which vectorise, and the pixels, which do not. */
static void rotate(const struct chex_augment_rotate *t, int count, uint8_t *to) {
    int32_t xs[CHEX_AUGMENT_SEGMENT], ys[CHEX_AUGMENT_SEGMENT];
    for (int i = 0; i < CHEX_AUGMENT_SEGMENT; i++) {
        xs[i] = within(t->x + i * t->dx, t->max << 16);
        ys[i] = within(t->y + i * t->dy, t->max << 16);
    }
    for (int i = 0; i < count; i++) {
        const uint8_t *at = t->plane + (ys[i] >> 16) * t->pitch + (xs[i] >> 16);
        const int across = xs[i] >> 8 & 255, down = ys[i] >> 8 & 255;
        const int upper = (at[0] << 8) + (at[1] - at[0]) * across;
        const int lower = (at[t->pitch] << 8) + (at[t->pitch + 1] - at[t->pitch]) * across;
        to[i] = (uint8_t)(((upper << 8) + (lower - upper) * down + 32768) >> 16);
    }
}

const struct chex_augment_kernels chex_augment_generic = {.name = "generic",
                                                          .supported = always,
                                                          .vertical_pass = vertical_pass,
                                                          .horizontal_pass = horizontal_pass,
                                                          .rotate = rotate};
