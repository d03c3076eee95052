/* SPDX-License-Identifier: Apache-2.0
 *
 * The resize kernel for AVX-512 with VBMI and VNNI: sixteen output pixels at a time. VBMI gathers
 * their bytes from up to four adjacent vectors. A weight is three signed bytes; VNNI multiplies and
 * adds each of them with bytes.
 */
#include <immintrin.h>

#include "image/resize_private.h"

enum { LANES = 16 };

/* weight = low + 256 * middle + 65536 * high, each -128 to 127. */
static void encode_avx512(const int32_t weights[CHEX_RESIZE_TAPS],
                          uint32_t words[CHEX_RESIZE_WORDS]) {
    words[0] = words[1] = words[2] = 0;
    for (int j = 0; j < CHEX_RESIZE_TAPS; j++) {
        uint32_t w = (uint32_t)weights[j];
        uint32_t middle = (w + 128) >> 8, high = (middle + 128) >> 8;
        words[0] |= (w & 255) << 8 * j;
        words[1] |= (middle & 255) << 8 * j;
        words[2] |= (high & 255) << 8 * j;
    }
}

/* The sums of sixteen pixels, one vector for each limb. */
struct sums {
    __m512i low, middle, high;
};

#define FORCE_INLINE static inline __attribute__((always_inline))

FORCE_INLINE struct sums start(void) {
    return (struct sums){_mm512_set1_epi32(CHEX_RESIZE_HALF), _mm512_setzero_si512(),
                         _mm512_setzero_si512()};
}

FORCE_INLINE void add(struct sums *s, __m512i bytes, const __m512i w[CHEX_RESIZE_WORDS]) {
    s->low = _mm512_dpbusd_epi32(s->low, bytes, w[0]);
    s->middle = _mm512_dpbusd_epi32(s->middle, bytes, w[1]);
    s->high = _mm512_dpbusd_epi32(s->high, bytes, w[2]);
}

FORCE_INLINE __m512i combine_limbs(const struct sums *s) {
    __m512i upper = _mm512_add_epi32(s->middle, _mm512_slli_epi32(s->high, 8));
    return _mm512_add_epi32(s->low, _mm512_slli_epi32(upper, 8));
}

FORCE_INLINE __m512i round_sums(const struct sums *s) {
    return _mm512_srli_epi32(combine_limbs(s), CHEX_RESIZE_WEIGHT_BITS);
}

/* Packs the results (0 to 255) of four rows into one word per column. */
FORCE_INLINE __m512i stack(const struct sums s[4]) {
    __m512i a = _mm512_or_si512(round_sums(&s[0]), _mm512_slli_epi32(round_sums(&s[1]), 8));
    __m512i b = _mm512_or_si512(round_sums(&s[2]), _mm512_slli_epi32(round_sums(&s[3]), 8));
    return _mm512_or_si512(a, _mm512_slli_epi32(b, 16));
}

/* Byte j of the result is p[at[j]]. far: mask of the bytes with at[j] of 128 or more. */
FORCE_INLINE __m512i pick(const uint8_t *p, __m512i at, __mmask64 far, int windows) {
    __m512i w0 = _mm512_loadu_si512(p);
    if (windows == 1)
        return _mm512_permutexvar_epi8(at, w0);
    __m512i near = _mm512_permutex2var_epi8(w0, at, _mm512_loadu_si512(p + 64));
    if (windows == 2)
        return near;
    __m512i w2 = _mm512_loadu_si512(p + 128);
    if (windows == 3)
        return _mm512_mask_permutexvar_epi8(near, far, at, w2);
    __m512i beyond = _mm512_permutex2var_epi8(w2, at, _mm512_loadu_si512(p + 192));
    return _mm512_mask_blend_epi8(far, near, beyond);
}

FORCE_INLINE void load_weights(__m512i w[CHEX_RESIZE_WORDS], const uint32_t *from) {
    for (int j = 0; j < CHEX_RESIZE_WORDS; j++)
        w[j] = _mm512_loadu_si512(from + j * LANES);
}

FORCE_INLINE void across_windows(const struct chex_resize_across *t, const uint8_t *src,
                                 size_t pitch, uint32_t *dst, int windows) {
    const uint32_t *weights = t->weights;
    for (int b = 0; b < t->blocks; b++) {
        const uint8_t *p = src + t->at[b];
        __m512i at = _mm512_loadu_si512(t->pick + (ptrdiff_t)b * 64), w[CHEX_RESIZE_WORDS];
        __mmask64 far = _mm512_movepi8_mask(at);
        struct sums s[4] = {start(), start(), start(), start()};
        for (int v = 0; v < t->vectors; v++, p += 4, weights += CHEX_RESIZE_WORDS * LANES) {
            load_weights(w, weights);
            add(&s[0], pick(p, at, far, windows), w);
            add(&s[1], pick(p + pitch, at, far, windows), w);
            add(&s[2], pick(p + 2 * pitch, at, far, windows), w);
            add(&s[3], pick(p + 3 * pitch, at, far, windows), w);
        }
        _mm512_storeu_si512(dst + (ptrdiff_t)b * LANES, stack(s));
    }
}

static uint32_t total(const struct sums *s) {
    return (uint32_t)_mm512_reduce_add_epi32(combine_limbs(s)) >> CHEX_RESIZE_WEIGHT_BITS;
}

/* Many taps: a vector has the taps of one pixel. */
static void across_taps(const struct chex_resize_across *t, const uint8_t *src, size_t pitch,
                        uint32_t *dst) {
    const uint32_t *weights = t->weights;
    const __m512i half = _mm512_maskz_set1_epi32(1, CHEX_RESIZE_HALF), zero = {0};
    for (int i = 0; i < t->out; i++) {
        const uint8_t *p = src + t->at[i];
        struct sums s[4];
        for (int y = 0; y < 4; y++)
            s[y] = (struct sums){half, zero, zero};
        for (int v = 0; v < t->vectors; v++, p += 64, weights += CHEX_RESIZE_WORDS * LANES) {
            __m512i w[CHEX_RESIZE_WORDS];
            load_weights(w, weights);
            for (int y = 0; y < 4; y++)
                add(&s[y], _mm512_loadu_si512(p + (size_t)y * pitch), w);
        }
        dst[i] = total(&s[0]) | total(&s[1]) << 8 | total(&s[2]) << 16 | total(&s[3]) << 24;
    }
}

static void across_avx512(const struct chex_resize_across *t, const uint8_t *src, size_t pitch,
                          uint32_t *dst) {
    switch (t->windows) {
    case 1: across_windows(t, src, pitch, dst, 1); break;
    case 2: across_windows(t, src, pitch, dst, 2); break;
    case 3: across_windows(t, src, pitch, dst, 3); break;
    case 4: across_windows(t, src, pitch, dst, 4); break;
    default: across_taps(t, src, pitch, dst);
    }
}

/* Packs 64 columns in their order. */
FORCE_INLINE __m512i pack_columns(const struct sums s[4]) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i a = _mm512_packus_epi32(round_sums(&s[0]), round_sums(&s[1]));
    __m512i b = _mm512_packus_epi32(round_sums(&s[2]), round_sums(&s[3]));
    return _mm512_permutexvar_epi32(order, _mm512_packus_epi16(a, b));
}

static void down_avx512(const uint32_t *const *groups, int count, const uint32_t *weights,
                        int width, uint8_t *dst) {
    for (int x = 0; x < width; x += 64) {
        struct sums s[4] = {start(), start(), start(), start()};
        for (int g = 0; g < count; g++) {
            const uint32_t *p = groups[g] + x;
            __m512i w[CHEX_RESIZE_WORDS];
            for (int j = 0; j < CHEX_RESIZE_WORDS; j++)
                w[j] = _mm512_set1_epi32((int)weights[g * CHEX_RESIZE_WORDS + j]);
            add(&s[0], _mm512_loadu_si512(p), w);
            add(&s[1], _mm512_loadu_si512(p + 16), w);
            add(&s[2], _mm512_loadu_si512(p + 32), w);
            add(&s[3], _mm512_loadu_si512(p + 48), w);
        }
        int left = width - x;
        __mmask64 valid = left < 64 ? (1ull << left) - 1 : ~0ull;
        _mm512_mask_storeu_epi8(dst + x, valid, pack_columns(s));
    }
}

const struct chex_resize_kernel chex_resize_avx512vnni = {
    .name = "avx512vnni",
    .lanes = LANES,
    .window_lanes = 16,
    .window_bytes = 64,
    .max_windows = 4,
    .encode = encode_avx512,
    .across = across_avx512,
    .down = down_avx512,
};
