/* SPDX-License-Identifier: Apache-2.0
 *
 * The resize kernel for AVX2: eight output pixels at a time, four in each 128-bit half.
 *
 * A weight is split into 65536 * high + low, with a signed 16-bit low. The products with low use a
 * multiply-add of 16-bit words. The products with high use bytes and are added in 16 bits, which
 * cannot overflow: the high bytes of all taps of a pixel sum to at most 128. (A weight below 2^15
 * has high = 0. At most 128 taps have a larger weight, and each is rounded up by less than 1.)
 */
#include <immintrin.h>
#include <string.h>

#include "image/resize_private.h"

enum { LANES = 8 };

/* words: [0] the high bytes, [1] the low words of taps 0 and 2, [2] the low words of taps 1 and 3.
 */
static void encode_avx2(const int32_t weights[CHEX_RESIZE_TAPS],
                        uint32_t words[CHEX_RESIZE_WORDS]) {
    words[0] = words[1] = words[2] = 0;
    for (int j = 0; j < CHEX_RESIZE_TAPS; j++) {
        uint32_t w = (uint32_t)weights[j];
        words[0] |= (w + 32768) >> 16 << 8 * j;
        words[1 + j % 2] |= (w & 65535) << 16 * (j / 2);
    }
}

struct sums {
    __m256i low, high; /* 32 bits; two sums of 16 bits for each pixel */
};

#define FORCE_INLINE static inline __attribute__((always_inline))

FORCE_INLINE struct sums start(void) {
    return (struct sums){_mm256_set1_epi32(CHEX_RESIZE_HALF), _mm256_setzero_si256()};
}

FORCE_INLINE void add(struct sums *s, __m256i bytes, const __m256i w[CHEX_RESIZE_WORDS]) {
    __m256i even = _mm256_and_si256(bytes, _mm256_set1_epi16(255));
    __m256i odd = _mm256_srli_epi16(bytes, 8);
    s->high = _mm256_add_epi16(s->high, _mm256_maddubs_epi16(bytes, w[0]));
    s->low = _mm256_add_epi32(s->low, _mm256_madd_epi16(even, w[1]));
    s->low = _mm256_add_epi32(s->low, _mm256_madd_epi16(odd, w[2]));
}

FORCE_INLINE __m256i combine_limbs(const struct sums *s) {
    __m256i high = _mm256_madd_epi16(s->high, _mm256_set1_epi16(1));
    return _mm256_add_epi32(s->low, _mm256_slli_epi32(high, 16));
}

FORCE_INLINE __m256i round_sums(const struct sums *s) {
    return _mm256_srli_epi32(combine_limbs(s), CHEX_RESIZE_WEIGHT_BITS);
}

/* Packs the results (0 to 255) of four rows into one word per column. */
FORCE_INLINE __m256i stack(const struct sums s[4]) {
    __m256i a = _mm256_or_si256(round_sums(&s[0]), _mm256_slli_epi32(round_sums(&s[1]), 8));
    __m256i b = _mm256_or_si256(round_sums(&s[2]), _mm256_slli_epi32(round_sums(&s[3]), 8));
    return _mm256_or_si256(a, _mm256_slli_epi32(b, 16));
}

FORCE_INLINE __m256i load_halves(const uint8_t *low, const uint8_t *high) {
    __m128i a = _mm_loadu_si128((const __m128i *)low);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(a),
                                   _mm_loadu_si128((const __m128i *)high), 1);
}

/* Byte j of a half is the byte at[j] after the start of the half. masks[w]: at[j] - 16 w, with the
 * highest bit set if that byte is not in window w (the shuffle then gives 0). */
FORCE_INLINE __m256i pick(const uint8_t *low, const uint8_t *high, const __m256i masks[3],
                          int windows) {
    __m256i bytes = _mm256_shuffle_epi8(load_halves(low, high), masks[0]);
    for (int w = 1; w < windows; w++) {
        __m256i window = load_halves(low + 16 * w, high + 16 * w);
        bytes = _mm256_or_si256(bytes, _mm256_shuffle_epi8(window, masks[w]));
    }
    return bytes;
}

FORCE_INLINE void load_weights(__m256i w[CHEX_RESIZE_WORDS], const uint32_t *from) {
    for (int j = 0; j < CHEX_RESIZE_WORDS; j++)
        w[j] = _mm256_loadu_si256((const __m256i *)(from + j * LANES));
}

FORCE_INLINE void across_windows(const struct chex_resize_across *t, const uint8_t *src,
                                 size_t pitch, uint32_t *dst, int windows) {
    const uint32_t *weights = t->weights;
    for (int b = 0; b < t->blocks; b++) {
        const uint8_t *p = src + t->at[2 * b], *q = src + t->at[2 * b + 1];
        __m256i at = _mm256_loadu_si256((const __m256i *)(t->pick + (ptrdiff_t)b * 32));
        __m256i masks[3], w[CHEX_RESIZE_WORDS];
        for (int j = 0; j < windows; j++)
            masks[j] = _mm256_adds_epu8(_mm256_sub_epi8(at, _mm256_set1_epi8((char)(16 * j))),
                                        _mm256_set1_epi8(0x70));
        struct sums s[4] = {start(), start(), start(), start()};
        for (int v = 0; v < t->vectors; v++, p += 4, q += 4) {
            load_weights(w, weights);
            weights += CHEX_RESIZE_WORDS * LANES;
            add(&s[0], pick(p, q, masks, windows), w);
            add(&s[1], pick(p + pitch, q + pitch, masks, windows), w);
            add(&s[2], pick(p + 2 * pitch, q + 2 * pitch, masks, windows), w);
            add(&s[3], pick(p + 3 * pitch, q + 3 * pitch, masks, windows), w);
        }
        _mm256_storeu_si256((__m256i *)(dst + (ptrdiff_t)b * LANES), stack(s));
    }
}

static uint32_t total(const struct sums *s) {
    __m256i v = combine_limbs(s);
    __m128i a = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    a = _mm_add_epi32(a, _mm_shuffle_epi32(a, 0x4E));
    a = _mm_add_epi32(a, _mm_shuffle_epi32(a, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(a) >> CHEX_RESIZE_WEIGHT_BITS;
}

/* Many taps: a vector has the taps of one pixel. */
static void across_taps(const struct chex_resize_across *t, const uint8_t *src, size_t pitch,
                        uint32_t *dst) {
    const uint32_t *weights = t->weights;
    const __m256i half = _mm256_setr_epi32(CHEX_RESIZE_HALF, 0, 0, 0, 0, 0, 0, 0);
    for (int i = 0; i < t->out; i++) {
        const uint8_t *p = src + t->at[i];
        struct sums s[4];
        for (int y = 0; y < 4; y++)
            s[y] = (struct sums){half, _mm256_setzero_si256()};
        for (int v = 0; v < t->vectors; v++, p += 32, weights += CHEX_RESIZE_WORDS * LANES) {
            __m256i w[CHEX_RESIZE_WORDS];
            load_weights(w, weights);
            for (int y = 0; y < 4; y++)
                add(&s[y], _mm256_loadu_si256((const __m256i *)(p + (size_t)y * pitch)), w);
        }
        dst[i] = total(&s[0]) | total(&s[1]) << 8 | total(&s[2]) << 16 | total(&s[3]) << 24;
    }
}

static void across_avx2(const struct chex_resize_across *t, const uint8_t *src, size_t pitch,
                        uint32_t *dst) {
    switch (t->windows) {
    case 1: across_windows(t, src, pitch, dst, 1); break;
    case 2: across_windows(t, src, pitch, dst, 2); break;
    case 3: across_windows(t, src, pitch, dst, 3); break;
    default: across_taps(t, src, pitch, dst);
    }
}

/* Packs 32 columns in their order. */
FORCE_INLINE __m256i pack_columns(const struct sums s[4]) {
    __m256i a = _mm256_packus_epi32(round_sums(&s[0]), round_sums(&s[1]));
    __m256i b = _mm256_packus_epi32(round_sums(&s[2]), round_sums(&s[3]));
    return _mm256_permutevar8x32_epi32(_mm256_packus_epi16(a, b),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

static void down_avx2(const uint32_t *const *groups, int count, const uint32_t *weights, int width,
                      uint8_t *dst) {
    for (int x = 0; x < width; x += 32) {
        struct sums s[4] = {start(), start(), start(), start()};
        for (int g = 0; g < count; g++) {
            const __m256i *p = (const __m256i *)(groups[g] + x);
            __m256i w[CHEX_RESIZE_WORDS];
            for (int j = 0; j < CHEX_RESIZE_WORDS; j++)
                w[j] = _mm256_set1_epi32((int)weights[g * CHEX_RESIZE_WORDS + j]);
            add(&s[0], _mm256_loadu_si256(p), w);
            add(&s[1], _mm256_loadu_si256(p + 1), w);
            add(&s[2], _mm256_loadu_si256(p + 2), w);
            add(&s[3], _mm256_loadu_si256(p + 3), w);
        }
        uint8_t last[32];
        int left = width - x;
        _mm256_storeu_si256((__m256i *)(left < 32 ? last : dst + x), pack_columns(s));
        if (left < 32)
            memcpy(dst + x, last, (size_t)left);
    }
}

const struct chex_resize_kernel chex_resize_avx2 = {
    .name = "avx2",
    .lanes = LANES,
    .window_lanes = 4,
    .window_bytes = 16,
    .max_windows = 3,
    .encode = encode_avx2,
    .across = across_avx2,
    .down = down_avx2,
};
