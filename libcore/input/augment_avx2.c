/* SPDX-License-Identifier: Apache-2.0
 *
 * Augmentation kernels for AVX2.
 *
 * Vertical pass: 16 pixels at a time. Horizontal pass: each 128-bit lane computes four outputs from
 * a window of eight pixels of the tile. A byte shuffle selects the pair of pixels of each output;
 * for the next pair of taps the window moves by two pixels. If the crop is so much larger than the
 * output that four outputs need more than one window, the pairs are gathered instead.
 */
#include <immintrin.h>

#include "base/cpu_features.h"
#include "input/augment_private.h"

enum { GATHER, WINDOW };

static bool supported(void) { return chex_cpu_has(CHEX_ISA_AVX2); }

static __m256i load(const void *at) { return _mm256_loadu_si256(at); }

/* Vertical sums of one, two and more rows. Two rows: 256 * a + (b - a) * w. All arithmetic is
 * modulo 2^16, in which the sum is exact. Flipping the top bit subtracts 32768. */
static inline __m256i sum_rows(const uint8_t *from, size_t pitch, const int16_t *weights,
                               int taps) {
    __m256i sum = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)from));
    if (taps == 1)
        return _mm256_slli_epi16(sum, 8);
    __m256i next = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)(from + pitch)));
    if (taps == 2)
        return _mm256_add_epi16(
            _mm256_slli_epi16(sum, 8),
            _mm256_mullo_epi16(_mm256_sub_epi16(next, sum), _mm256_set1_epi16(weights[1])));
    sum = _mm256_mullo_epi16(sum, _mm256_set1_epi16(weights[0]));
    for (int t = 1; t < taps; t++) {
        next = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)(from + (size_t)t * pitch)));
        sum = _mm256_add_epi16(sum, _mm256_mullo_epi16(next, _mm256_set1_epi16(weights[t])));
    }
    return sum;
}

static inline int vertical_blocks(const uint8_t *from, size_t pitch, const int16_t *weights,
                                  int taps, int width, int16_t *to) {
    const __m256i sign = _mm256_set1_epi16(INT16_MIN);
    int x = 0;
    for (; x + 16 <= width; x += 16)
        _mm256_storeu_si256((void *)(to + x),
                            _mm256_xor_si256(sum_rows(from + x, pitch, weights, taps), sign));
    return x;
}

static void vertical_pass(const uint8_t *from, size_t pitch, const int16_t *weights, int taps,
                          int width, int16_t *to) {
    int x;
    if (taps == 1)
        x = vertical_blocks(from, pitch, weights, 1, width, to);
    else if (taps == 2)
        x = vertical_blocks(from, pitch, weights, 2, width, to);
    else if (taps == 3)
        x = vertical_blocks(from, pitch, weights, 3, width, to);
    else
        x = vertical_blocks(from, pitch, weights, taps, width, to);
    if (x == width)
        return;
    if (width >= 16) /* the last block overlaps the one before */
        vertical_blocks(from + width - 16, pitch, weights, taps, 16, to + width - 16);
    else
        chex_augment_plain.vertical_pass(from, pitch, weights, taps, width, to);
}

static int lowest(const int32_t *first, int n) {
    return first[0] < first[n - 1] ? first[0] : first[n - 1];
}

static void prepare(struct chex_augment_columns *c) {
    const int32_t *first = c->taps.first;
    c->window = WINDOW;
    for (int x = 0; x < c->taps.outputs; x += 4) {
        const int base = lowest(first + x, 4);
        c->base[x / 4] = base;
        for (int i = 0; i < 4; i++) {
            const int at = first[x + i] - base;
            const uint32_t bytes = (uint32_t)at * 0x02020202u + 0x03020100u;
            if (at > 6)
                c->window = GATHER;
            c->shuffle[x + i] = bytes;
        }
    }
}

struct constants {
    __m256i offset;
    __m256 k, b, zero, one;
    bool same;
};

static inline __m256 to_colour(__m256i sum, const struct constants *c) {
    __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_add_epi32(sum, c->offset)), c->k);
    if (c->same)
        return value;
    value = _mm256_max_ps(_mm256_add_ps(value, c->b), c->zero);
    return _mm256_min_ps(value, c->one);
}

static inline void put(float *out, __m256 low, __m256 high, int left, bool stream) {
    if (left >= 16) {
        if (stream) {
            _mm256_stream_ps(out, low);
            _mm256_stream_ps(out + 8, high);
        } else {
            _mm256_storeu_ps(out, low);
            _mm256_storeu_ps(out + 8, high);
        }
        return;
    }
    float last[16];
    _mm256_storeu_ps(last, low);
    _mm256_storeu_ps(last + 8, high);
    for (int i = 0; i < left; i++)
        out[i] = last[i];
}

static inline __m256i window(const int16_t *row, const int32_t *base) {
    __m128i low = _mm_loadu_si128((const void *)(row + base[0]));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low),
                                   _mm_loadu_si128((const void *)(row + base[1])), 1);
}

/* 16 outputs of all rows of the tile, from windows. */
static inline void horizontal_window(const struct chex_augment_horizontal *p, int x, int pairs,
                                     const struct constants *c, bool stream) {
    const struct chex_augment_columns *columns = p->columns;
    const int32_t *base = columns->base + x / 4;
    const __m256i low = load(columns->shuffle + x), high = load(columns->shuffle + x + 8);
    const int16_t *weights = columns->taps.weights + 2 * x;
    for (int y = 0; y < p->rows; y++) {
        const int16_t *row = p->tile + (size_t)y * p->stride;
        __m256i a = _mm256_setzero_si256(), b = a;
        for (int i = 0; i < pairs; i++) {
            const int16_t *w = weights + (size_t)i * columns->taps.pair_stride;
            a = _mm256_add_epi32(
                a, _mm256_madd_epi16(_mm256_shuffle_epi8(window(row + 2 * i, base), low), load(w)));
            b = _mm256_add_epi32(
                b, _mm256_madd_epi16(_mm256_shuffle_epi8(window(row + 2 * i, base + 2), high),
                                     load(w + 16)));
        }
        put(p->out + (size_t)y * (size_t)p->size + x, to_colour(a, c), to_colour(b, c), p->size - x,
            stream);
    }
}

static inline __m256i gathered(const int16_t *row, const int32_t *first) {
    return _mm256_i32gather_epi32((const void *)row, load(first), 2);
}

static inline void horizontal_gather(const struct chex_augment_horizontal *p, int x, int pairs,
                                     const struct constants *c, bool stream) {
    const struct chex_augment_taps *taps = &p->columns->taps;
    for (int y = 0; y < p->rows; y++) {
        const int16_t *row = p->tile + (size_t)y * p->stride;
        __m256i a = _mm256_setzero_si256(), b = a;
        for (int i = 0; i < pairs; i++) {
            const int16_t *w = taps->weights + 2 * x + (size_t)i * taps->pair_stride;
            const int16_t *from = row + 2 * i;
            a = _mm256_add_epi32(a, _mm256_madd_epi16(gathered(from, taps->first + x), load(w)));
            b = _mm256_add_epi32(
                b, _mm256_madd_epi16(gathered(from, taps->first + x + 8), load(w + 16)));
        }
        put(p->out + (size_t)y * (size_t)p->size + x, to_colour(a, c), to_colour(b, c), p->size - x,
            stream);
    }
}

static inline void horizontal_rows(const struct chex_augment_horizontal *p, int pairs, bool same,
                                   bool stream) {
    const struct constants c = {.offset = _mm256_set1_epi32(1 << 29),
                                .k = _mm256_set1_ps(p->colour.k),
                                .b = _mm256_set1_ps(p->colour.b),
                                .zero = _mm256_setzero_ps(),
                                .one = _mm256_set1_ps(1),
                                .same = same};
    for (int x = 0; x < p->size; x += CHEX_AUGMENT_GROUP)
        if (p->columns->window == WINDOW)
            horizontal_window(p, x, pairs, &c, stream);
        else
            horizontal_gather(p, x, pairs, &c, stream);
}

static void horizontal_pass(const struct chex_augment_horizontal *p) {
    const int pairs = p->columns->taps.taps / 2;
    if (p->stream) {
        if (pairs == 1 && p->colour.same)
            horizontal_rows(p, 1, true, true);
        else
            horizontal_rows(p, pairs, p->colour.same, true);
    } else if (pairs == 1 && p->colour.same) {
        horizontal_rows(p, 1, true, false);
    } else if (pairs == 2 && p->colour.same) {
        horizontal_rows(p, 2, true, false);
    } else {
        horizontal_rows(p, pairs, p->colour.same, false);
    }
}

static void finish(void) { _mm_sfence(); }

static inline __m256i within(__m256i at, __m256i max) {
    return _mm256_min_epi32(_mm256_max_epi32(at, _mm256_setzero_si256()), max);
}

/* Linear interpolation of the two low bytes of each element, with weights 256 - share and share. */
static inline __m256i across(__m256i pixels, __m256i share) {
    __m256i pair = _mm256_or_si256(
        _mm256_and_si256(pixels, _mm256_set1_epi32(255)),
        _mm256_and_si256(_mm256_slli_epi32(pixels, 8), _mm256_set1_epi32(255 << 16)));
    __m256i weights = _mm256_or_si256(_mm256_sub_epi32(_mm256_set1_epi32(256), share),
                                      _mm256_slli_epi32(share, 16));
    return _mm256_madd_epi16(pair, weights);
}

static __m256i turn_8(const struct chex_augment_rotate *t, __m256i x, __m256i y) {
    const __m256i byte = _mm256_set1_epi32(255), max = _mm256_set1_epi32(t->max << 16);
    x = within(x, max);
    y = within(y, max);
    __m256i at =
        _mm256_add_epi32(_mm256_mullo_epi32(_mm256_srli_epi32(y, 16), _mm256_set1_epi32(t->pitch)),
                         _mm256_srli_epi32(x, 16));
    __m256i share = _mm256_and_si256(_mm256_srli_epi32(x, 8), byte);
    __m256i down = _mm256_and_si256(_mm256_srli_epi32(y, 8), byte);
    __m256i upper = across(_mm256_i32gather_epi32((const void *)t->plane, at, 1), share);
    __m256i lower =
        across(_mm256_i32gather_epi32((const void *)(t->plane + t->pitch), at, 1), share);
    __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(upper, 8),
                                   _mm256_mullo_epi32(_mm256_sub_epi32(lower, upper), down));
    return _mm256_srli_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(32768)), 16);
}

static void rotate(const struct chex_augment_rotate *t, int count, uint8_t *to) {
    const __m256i steps = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i first_bytes =
        _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 8, 12,
                         -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    for (int i = 0; i < count; i += 8) {
        __m256i at = _mm256_add_epi32(_mm256_set1_epi32(i), steps);
        __m256i x = _mm256_add_epi32(_mm256_set1_epi32(t->x),
                                     _mm256_mullo_epi32(at, _mm256_set1_epi32(t->dx)));
        __m256i y = _mm256_add_epi32(_mm256_set1_epi32(t->y),
                                     _mm256_mullo_epi32(at, _mm256_set1_epi32(t->dy)));
        __m256i four = _mm256_shuffle_epi8(turn_8(t, x, y), first_bytes);
        uint32_t bytes[2] = {(uint32_t)_mm256_extract_epi32(four, 0),
                             (uint32_t)_mm256_extract_epi32(four, 4)};
        __builtin_memcpy(to + i, bytes, (size_t)(count - i < 8 ? count - i : 8));
    }
}

const struct chex_augment_kernels chex_augment_avx2 = {.name = "avx2",
                                                       .supported = supported,
                                                       .prepare = prepare,
                                                       .vertical_pass = vertical_pass,
                                                       .horizontal_pass = horizontal_pass,
                                                       .rotate = rotate,
                                                       .finish = finish};
