/* SPDX-License-Identifier: Apache-2.0
 *
 * The wavefront of unfilter.h on 64 rows in one AVX-512 vector. The four 128-bit lanes have rows 0
 * to 15, 16 to 31, 32 to 47 and 48 to 63, so that sixteen steps are four independent 16 x 16
 * transposes.
 */
#include "image/unfilter_private.h"

#include <immintrin.h>
#include <stdbool.h>

#define ROWS 64
enum { BLOCK = 64 };

/* One vector for each step. */
struct block {
    __m512i steps[BLOCK];
};

/* Values of 1, 2, 3 and 4 steps ago. Four names instead of an array, so that the compiler keeps
 * them in registers. */
struct past {
    __m512i one, two, three, four;
};

struct wave {
    struct past result, above;
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

/* Moves lane i of vector j to lane j of vector i. */
static inline void transpose_lanes(__m512i v[4]) {
    const __m512i a = _mm512_shuffle_i64x2(v[0], v[1], 0x44);
    const __m512i b = _mm512_shuffle_i64x2(v[0], v[1], 0xee);
    const __m512i c = _mm512_shuffle_i64x2(v[2], v[3], 0x44);
    const __m512i d = _mm512_shuffle_i64x2(v[2], v[3], 0xee);
    v[0] = _mm512_shuffle_i64x2(a, c, 0x88);
    v[1] = _mm512_shuffle_i64x2(a, c, 0xdd);
    v[2] = _mm512_shuffle_i64x2(b, d, 0x88);
    v[3] = _mm512_shuffle_i64x2(b, d, 0xdd);
}

static inline void load_block(const uint8_t *in, size_t pitch, struct block *block) {
    for (size_t k = 0; k < 16; k++) {
        __m512i v[4];
        for (size_t i = 0; i < 4; i++)
            v[i] = _mm512_loadu_si512(in + (16 * i + k) * pitch);
        transpose_lanes(v);
        for (size_t i = 0; i < 4; i++)
            block->steps[16 * i + k] = v[i];
    }
    for (size_t i = 0; i < 4; i++)
        transpose16(block->steps + 16 * i);
}

static inline void store_block(uint8_t *out, size_t pitch, struct block *block) {
    for (size_t i = 0; i < 4; i++)
        transpose16(block->steps + 16 * i);
    for (size_t k = 0; k < 16; k++) {
        __m512i v[4];
        for (size_t i = 0; i < 4; i++)
            v[i] = block->steps[16 * i + k];
        transpose_lanes(v);
        for (size_t i = 0; i < 4; i++)
            _mm512_storeu_si512(out + (16 * i + k) * pitch, v[i]);
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

/* As undo_step() of unfilter_vector.inc.h, but without compares: a compare to a mask takes five
 * cycles, every other instruction here one. */
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

/* Moves each byte to the next row. The first row gets the last byte of `before`. */
static inline __m512i one_row_down(__m512i rows, __m512i before) {
    return _mm512_alignr_epi8(rows, _mm512_alignr_epi32(rows, before, 12), 15);
}

static inline __m512i pixels_ago(const struct past *past, size_t pixel_bytes) {
    return pixel_bytes == 1 ? past->one : pixel_bytes == 3 ? past->three : past->four;
}

static inline void remember(struct past *past, __m512i now) {
    *past = (struct past){now, past->one, past->two, past->three};
}

/* masked: the first block. At its step t only rows 0 to t have begun; the bytes of the other rows
 * must stay 0. */
static inline __attribute__((always_inline)) void undo(const struct mix *mix, const uint8_t *above,
                                                       struct block *block, struct wave *wave,
                                                       size_t pixel_bytes, bool masked) {
    for (unsigned t = 0; t < BLOCK; t++) {
        const __m512i before = _mm512_set1_epi8((char)above[t]);
        const __m512i up = one_row_down(wave->result.one, before);
        __m512i out = undo_step(mix, block->steps[t], pixels_ago(&wave->result, pixel_bytes), up,
                                pixels_ago(&wave->above, pixel_bytes));
        if (masked)
            out = _mm512_maskz_mov_epi8(~(__mmask64)0 >> (63 - t), out);
        block->steps[t] = out;
        remember(&wave->result, out);
        remember(&wave->above, up);
    }
}

#include "image/unfilter.inc.h"

void chex_unfilter_avx512(const uint8_t *raw, size_t row_bytes, size_t height, size_t pixel_bytes,
                          uint8_t *pixels) {
    undo_image(raw, row_bytes, height, pixel_bytes, pixels);
}
