/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of the wavefront on 64 rows in one vector. The four 128-bit lanes hold rows 0 to 15,
 * 16 to 31 and so on, so that a tile is four 16 x 16 transposes side by side.
 */
#include "data/unfilter_private.h"

#include <immintrin.h>
#include <stdbool.h>

#define ROWS 64

struct step {
    __m512i rows;
};

struct wave {
    __m512i result, above;
};

struct mix {
    __mmask64 sub, up, average, paeth;
};

static inline void transpose16(__m512i v[16]) {
    __m512i t[16];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 8; i++) {
            t[2 * i] = _mm512_unpacklo_epi8(v[i], v[i + 8]);
            t[2 * i + 1] = _mm512_unpackhi_epi8(v[i], v[i + 8]);
        }
        for (int i = 0; i < 16; i++)
            v[i] = t[i];
    }
}

static inline __m128i load16(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)p); }

static inline void load_tile(const uint8_t *in, size_t pitch, struct step tile[16]) {
    __m512i v[16];
    for (size_t k = 0; k < 16; k++) {
        const uint8_t *p = in + k * pitch;
        v[k] = _mm512_castsi128_si512(load16(p));
        v[k] = _mm512_inserti32x4(v[k], load16(p + 16 * pitch), 1);
        v[k] = _mm512_inserti32x4(v[k], load16(p + 32 * pitch), 2);
        v[k] = _mm512_inserti32x4(v[k], load16(p + 48 * pitch), 3);
    }
    transpose16(v);
    for (int s = 0; s < 16; s++)
        tile[s].rows = v[s];
}

static inline void store_tile(uint8_t *out, size_t pitch, const struct step tile[16]) {
    __m512i v[16];
    for (int s = 0; s < 16; s++)
        v[s] = tile[s].rows;
    transpose16(v);
    for (size_t k = 0; k < 16; k++) {
        uint8_t *p = out + k * pitch;
        _mm_storeu_si128((__m128i *)p, _mm512_castsi512_si128(v[k]));
        _mm_storeu_si128((__m128i *)(p + 16 * pitch), _mm512_extracti32x4_epi32(v[k], 1));
        _mm_storeu_si128((__m128i *)(p + 32 * pitch), _mm512_extracti32x4_epi32(v[k], 2));
        _mm_storeu_si128((__m128i *)(p + 48 * pitch), _mm512_extracti32x4_epi32(v[k], 3));
    }
}

static inline void read_mix(const uint8_t *raw, size_t pitch, size_t rows, struct mix *mix) {
    uint8_t filter[ROWS] = {0};
    for (size_t k = 0; k < rows; k++)
        filter[k] = raw[k * pitch];
    const __m512i f = _mm512_loadu_si512(filter);
    mix->sub = _mm512_cmpeq_epi8_mask(f, _mm512_set1_epi8(CHEX_FILTER_SUB));
    mix->up = _mm512_cmpeq_epi8_mask(f, _mm512_set1_epi8(CHEX_FILTER_UP));
    mix->average = _mm512_cmpeq_epi8_mask(f, _mm512_set1_epi8(CHEX_FILTER_AVERAGE));
    mix->paeth = _mm512_cmpeq_epi8_mask(f, _mm512_set1_epi8(CHEX_FILTER_PAETH));
}

/* As undo_step() of unfilter_vector.inc.h, without compares: a mask out of one takes five cycles,
 * all else here takes one. */
static inline __m512i undo_step(const struct mix *mix, __m512i in, __m512i left, __m512i above,
                                __m512i corner) {
    enum { CHOOSE = 0xca, ODD = 0x28 }; // of vpternlog: a ? b : c; (a ^ b) & c
    const __m512i zero = _mm512_setzero_si512(), one = _mm512_set1_epi8(1);
    const __m512i carry = _mm512_ternarylogic_epi32(left, above, one, ODD);
    const __m512i half_sum = _mm512_sub_epi8(_mm512_avg_epu8(left, above), carry);
    __m512i base = _mm512_mask_add_epi8(in, mix->sub, in, left);
    base = _mm512_mask_add_epi8(base, mix->up, in, above);
    base = _mm512_mask_add_epi8(base, mix->average, in, half_sum);
    const __m512i low = _mm512_min_epu8(left, above), high = _mm512_max_epu8(left, above);
    const __m512i of_low = _mm512_mask_add_epi8(base, mix->paeth, base, low);
    const __m512i of_high = _mm512_mask_add_epi8(base, mix->paeth, base, high);
    const __m512i of_corner = _mm512_mask_add_epi8(base, mix->paeth, base, corner);
    const __m512i from_low = _mm512_subs_epu8(corner, low);
    const __m512i to_high = _mm512_subs_epu8(high, corner);
    const __m512i not_low = _mm512_subs_epu8(_mm512_adds_epu8(to_high, to_high), from_low);
    const __m512i not_high = _mm512_subs_epu8(_mm512_adds_epu8(from_low, from_low), to_high);
    const __m512i no_low = _mm512_sub_epi8(zero, _mm512_min_epu8(not_low, one));
    const __m512i no_high = _mm512_sub_epi8(zero, _mm512_min_epu8(not_high, one));
    const __m512i upper = _mm512_ternarylogic_epi32(no_high, of_corner, of_high, CHOOSE);
    return _mm512_ternarylogic_epi32(no_low, upper, of_low, CHOOSE);
}

/* Each row gets what the row above it had; the first gets the last byte of `before`. */
static inline __m512i one_row_down(__m512i rows, __m512i before) {
    return _mm512_alignr_epi8(rows, _mm512_alignr_epi32(rows, before, 12), 15);
}

/* `masked`: at step s only rows 0 to s have begun; what the others hold must stay 0. */
static inline __attribute__((always_inline)) void undo(const struct mix *mix, const uint8_t *above,
                                                       struct step tile[16], struct wave *wave,
                                                       bool masked, size_t s) {
    __m512i result = wave->result, corner = wave->above;
    for (unsigned t = 0; t < 16; t++) {
        const __m512i before = _mm512_set1_epi8((char)above[t]);
        const __m512i up = one_row_down(result, before);
        result = undo_step(mix, tile[t].rows, result, up, corner);
        if (masked)
            result = _mm512_maskz_mov_epi8(~(__mmask64)0 >> (63 - (s + t)), result);
        tile[t].rows = result;
        corner = up;
    }
    wave->result = result;
    wave->above = corner;
}

#include "data/unfilter.inc.h"

void chex_unfilter_avx512(const uint8_t *raw, size_t width, size_t height, uint8_t *pixels) {
    undo_image(raw, width, height, pixels);
}
