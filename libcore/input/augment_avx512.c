/* SPDX-License-Identifier: Apache-2.0
 *
 * Augmentation kernels for AVX-512.
 *
 * Vertical pass: 32 pixels at a time. Horizontal pass: 16 outputs from a window of 32 or 64 pixels
 * of the tile. A word permutation selects the pair of pixels of each output; for the next pair of
 * taps the window moves by two pixels. If the crop is so much larger than the output that 16
 * outputs need more than one window, the pairs are gathered instead. Permutation and weights stay
 * in registers for all rows of a tile.
 */
#include <immintrin.h>

#include "base/cpu_features.h"
#include "input/augment_private.h"

enum { GATHER, WINDOW, WIDE_WINDOW };

static bool supported(void) { return chex_cpu_has(CHEX_ISA_AVX512); }

static inline __m512i pixels(const uint8_t *from, __mmask32 mask) {
    return _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(mask, from));
}

/* Two rows: 256 * a + (b - a) * w, modulo 2^16, in which the sum is exact. */
static inline __m512i sum_rows(const uint8_t *from, size_t pitch, const int16_t *weights, int taps,
                               __mmask32 mask) {
    __m512i sum = pixels(from, mask);
    if (taps == 1)
        return _mm512_slli_epi16(sum, 8);
    if (taps == 2) {
        __m512i more = _mm512_sub_epi16(pixels(from + pitch, mask), sum);
        return _mm512_add_epi16(_mm512_slli_epi16(sum, 8),
                                _mm512_mullo_epi16(more, _mm512_set1_epi16(weights[1])));
    }
    sum = _mm512_mullo_epi16(sum, _mm512_set1_epi16(weights[0]));
    for (int t = 1; t < taps; t++)
        sum = _mm512_add_epi16(sum, _mm512_mullo_epi16(pixels(from + (size_t)t * pitch, mask),
                                                       _mm512_set1_epi16(weights[t])));
    return sum;
}

/* Flipping the top bit subtracts 32768. */
static inline void vertical_rows(const uint8_t *from, size_t pitch, const int16_t *weights,
                                 int taps, int width, int16_t *to) {
    const __m512i sign = _mm512_set1_epi16(INT16_MIN);
    int x = 0;
    for (; x + 32 <= width; x += 32)
        _mm512_storeu_si512(
            to + x,
            _mm512_xor_si512(sum_rows(from + x, pitch, weights, taps, ~(__mmask32)0), sign));
    if (x < width) {
        __mmask32 mask = ~(__mmask32)0 >> (32 - (width - x));
        __m512i sum = sum_rows(from + x, pitch, weights, taps, mask);
        _mm512_mask_storeu_epi16(to + x, mask, _mm512_xor_si512(sum, sign));
    }
}

static void vertical_pass(const uint8_t *from, size_t pitch, const int16_t *weights, int taps,
                          int width, int16_t *to) {
    if (taps == 1)
        vertical_rows(from, pitch, weights, 1, width, to);
    else if (taps == 2)
        vertical_rows(from, pitch, weights, 2, width, to);
    else if (taps == 3)
        vertical_rows(from, pitch, weights, 3, width, to);
    else
        vertical_rows(from, pitch, weights, taps, width, to);
}

static void prepare(struct chex_augment_columns *c) {
    const int32_t *first = c->taps.first;
    int max = 0;
    for (int x = 0; x < c->taps.outputs; x += CHEX_AUGMENT_GROUP) {
        const int a = first[x], z = first[x + CHEX_AUGMENT_GROUP - 1], base = a < z ? a : z;
        const int reach = a < z ? z - a : a - z;
        __m512i at = _mm512_sub_epi32(_mm512_loadu_si512(first + x), _mm512_set1_epi32(base));
        at = _mm512_or_si512(at, _mm512_slli_epi32(_mm512_add_epi32(at, _mm512_set1_epi32(1)), 16));
        _mm512_store_si512(c->shuffle + x, at);
        c->base[x / CHEX_AUGMENT_GROUP] = base;
        max = reach > max ? reach : max;
    }
    c->window = max <= 30 ? WINDOW : max <= 62 ? WIDE_WINDOW : GATHER;
}

/* The pairs of pixels of 16 outputs. `at`: their positions in the row (GATHER) or in the window. */
static inline __m512i pair(const int16_t *row, int window, int base, __m512i at) {
    if (window == GATHER)
        return _mm512_i32gather_epi32(at, (const void *)row, 2);
    __m512i low = _mm512_loadu_si512(row + base);
    if (window == WINDOW)
        return _mm512_permutexvar_epi16(at, low);
    return _mm512_permutex2var_epi16(low, at, _mm512_loadu_si512(row + base + 32));
}

static inline __m512 to_colour(__m512i sum, const struct chex_augment_colour *c) {
    const __m512i offset = _mm512_set1_epi32(1 << 29);
    __m512 value =
        _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(sum, offset)), _mm512_set1_ps(c->k));
    if (c->same)
        return value;
    value = _mm512_max_ps(_mm512_add_ps(value, _mm512_set1_ps(c->b)), _mm512_setzero_ps());
    return _mm512_min_ps(value, _mm512_set1_ps(1));
}

/* 16 outputs of all rows. */
static inline void horizontal_group(const struct chex_augment_horizontal *p, int x, int pairs,
                                    int window, bool same, bool stream) {
    const struct chex_augment_columns *columns = p->columns;
    const struct chex_augment_colour colour = {p->colour.k, p->colour.b, same};
    const int base = columns->base[x / CHEX_AUGMENT_GROUP], left = p->size - x;
    const __mmask16 mask = left < 16 ? (__mmask16)((1u << left) - 1) : (__mmask16)0xffff;
    const __m512i at = _mm512_loadu_si512(window == GATHER ? (const void *)(columns->taps.first + x)
                                                           : (const void *)(columns->shuffle + x));
    const int16_t *weights = columns->taps.weights + 2 * x;
    for (int y = 0; y < p->rows; y++) {
        const int16_t *row = p->tile + (size_t)y * p->stride;
        __m512i sum = _mm512_setzero_si512();
        for (int i = 0; i < pairs; i++)
            sum = _mm512_add_epi32(
                sum, _mm512_madd_epi16(
                         pair(row + 2 * i, window, base, at),
                         _mm512_loadu_si512(weights + (size_t)i * columns->taps.pair_stride)));
        float *out = p->out + (size_t)y * (size_t)p->size + x;
        __m512 value = to_colour(sum, &colour);
        if (stream)
            _mm512_stream_ps(out, value);
        else if (left >= 16)
            _mm512_storeu_ps(out, value);
        else
            _mm512_mask_storeu_ps(out, mask, value);
    }
}

static inline void horizontal_rows(const struct chex_augment_horizontal *p, int pairs, int window,
                                   bool same, bool stream) {
    for (int x = 0; x < p->size; x += CHEX_AUGMENT_GROUP)
        horizontal_group(p, x, pairs, window, same, stream);
}

static void horizontal_pass(const struct chex_augment_horizontal *p) {
    const int pairs = p->columns->taps.taps / 2, window = p->columns->window;
    const bool same = p->colour.same;
    if (pairs == 1 && window == WINDOW && same && p->stream)
        horizontal_rows(p, 1, WINDOW, true, true);
    else if (pairs == 1 && window == WINDOW && same)
        horizontal_rows(p, 1, WINDOW, true, false);
    else if (pairs <= 2 && window == WINDOW)
        horizontal_rows(p, pairs, WINDOW, same, p->stream);
    else
        horizontal_rows(p, pairs, window, same, p->stream);
}

static void finish(void) { _mm_sfence(); }

static inline __m512i within(__m512i at, __m512i max) {
    return _mm512_min_epi32(_mm512_max_epi32(at, _mm512_setzero_si512()), max);
}

/* Linear interpolation of the two low bytes of each element, with weights 256 - share and share. */
static inline __m512i across(__m512i bytes, __m512i share) {
    __m512i two = _mm512_or_si512(
        _mm512_and_si512(bytes, _mm512_set1_epi32(255)),
        _mm512_and_si512(_mm512_slli_epi32(bytes, 8), _mm512_set1_epi32(255 << 16)));
    __m512i weights = _mm512_or_si512(_mm512_sub_epi32(_mm512_set1_epi32(256), share),
                                      _mm512_slli_epi32(share, 16));
    return _mm512_madd_epi16(two, weights);
}

static __m128i turn_16(const struct chex_augment_rotate *t, __m512i x, __m512i y) {
    const __m512i byte = _mm512_set1_epi32(255), max = _mm512_set1_epi32(t->max << 16);
    x = within(x, max);
    y = within(y, max);
    __m512i at =
        _mm512_add_epi32(_mm512_mullo_epi32(_mm512_srli_epi32(y, 16), _mm512_set1_epi32(t->pitch)),
                         _mm512_srli_epi32(x, 16));
    __m512i share = _mm512_and_si512(_mm512_srli_epi32(x, 8), byte);
    __m512i down = _mm512_and_si512(_mm512_srli_epi32(y, 8), byte);
    __m512i upper = across(_mm512_i32gather_epi32(at, t->plane, 1), share);
    __m512i lower = across(_mm512_i32gather_epi32(at, t->plane + t->pitch, 1), share);
    __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(upper, 8),
                                   _mm512_mullo_epi32(_mm512_sub_epi32(lower, upper), down));
    return _mm512_cvtepi32_epi8(
        _mm512_srli_epi32(_mm512_add_epi32(sum, _mm512_set1_epi32(32768)), 16));
}

static void rotate(const struct chex_augment_rotate *t, int count, uint8_t *to) {
    const __m512i steps = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (int i = 0; i < count; i += 16) {
        const int left = count - i;
        __m512i at = _mm512_add_epi32(_mm512_set1_epi32(i), steps);
        __m512i x = _mm512_add_epi32(_mm512_set1_epi32(t->x),
                                     _mm512_mullo_epi32(at, _mm512_set1_epi32(t->dx)));
        __m512i y = _mm512_add_epi32(_mm512_set1_epi32(t->y),
                                     _mm512_mullo_epi32(at, _mm512_set1_epi32(t->dy)));
        __mmask16 mask = left < 16 ? (__mmask16)((1u << left) - 1) : (__mmask16)0xffff;
        _mm_mask_storeu_epi8(to + i, mask, turn_16(t, x, y));
    }
}

const struct chex_augment_kernels chex_augment_avx512 = {.name = "avx512",
                                                         .supported = supported,
                                                         .prepare = prepare,
                                                         .vertical_pass = vertical_pass,
                                                         .horizontal_pass = horizontal_pass,
                                                         .rotate = rotate,
                                                         .finish = finish};
