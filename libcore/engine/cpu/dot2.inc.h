/* SPDX-License-Identifier: Apache-2.0
 *
 * Common code of the variants with bf16 dot products: loads into bf16 operands, and the packing of
 * weights. Include it after kernels.inc.h. Needs AVX-512 with BF16.
 */
#include <immintrin.h>

INLINE vi ld_pairs(const uint16_t *p) { return (vi)_mm512_loadu_si512(p); }

/* Interleaves two rows of 32 bf16 values into 32 pairs: 16 in lo, 16 in hi. */
INLINE void interleave(const uint16_t *first, const uint16_t *second, vi *lo, vi *hi) {
    static const uint16_t low[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                     8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    __m512i index = _mm512_loadu_si512(low);
    __m512i a = _mm512_loadu_si512(first), b = _mm512_loadu_si512(second);
    *lo = (vi)_mm512_permutex2var_epi16(a, index, b);
    *hi = (vi)_mm512_permutex2var_epi16(a, _mm512_add_epi16(index, _mm512_set1_epi16(16)), b);
}

INLINE vf affine(vf v, int c, const float *scale, const float *shift, bool do_relu) {
    if (scale)
        v = FMA(v, ld(scale + c), ld(shift + c));
    return do_relu ? relu(v) : v;
}
INLINE vf normed(struct cpu_stored src, int p, int c, const float *scale, const float *shift,
                 bool do_relu, bool bf16) {
    return affine(ld_stored(src.at, (size_t)p * src.step + (size_t)c, bf16), c, scale, shift,
                  do_relu);
}

/* Stores v rounded to bf16. Split operands: also the remainder v - rounded(v), which is exact in
 * fp32, rounded to bf16, `second` elements away. */
INLINE void st_operand(uint16_t *p, int second, vf v, bool split) {
    vf high = st_half(p, v);
    if (split)
        (void)st_half(p + second, v - high);
}

/* Zeros after the channels of a pixel. */
INLINE void end_row(uint16_t *row, int channels, bool split) {
    static const uint16_t zero[CPU_CHANNEL_STEP];
    if (channels % CPU_CHANNELS == 0)
        return;
    memcpy(row + channels, zero, sizeof zero);
    if (split)
        memcpy(row + chex_cpu_padded(channels) + channels, zero, sizeof zero);
}

/* The second part of a split operand: the remainder of rounding v. */
INLINE vf low_part(vf v) { return v - rounded(v); }

/* 16 channels of two pixels as pairs, rounded. */
INLINE __m512i pixel_pair(vf first, vf second) {
    static const uint16_t order[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                       21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                       11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(order), both);
}

INLINE void dot2_load_body(uint16_t *dst, size_t pitch, struct cpu_stored src, int pixels,
                           int channels, const float *scale, const float *shift, bool do_relu,
                           bool bf16, bool split) {
    const int second = chex_cpu_padded(channels);
    for (int p = 0; p < pixels; p++, dst += pitch) {
        for (int c = 0; c < channels; c += VL) {
            vf v = ld_stored(src.at, (size_t)p * src.step + (size_t)c, bf16);
            if (!bf16 && !split) /* CPU_STORED */
                v = rounded(v);
            st_operand(dst + c, second, affine(v, c, scale, shift, do_relu), split);
        }
        end_row(dst, channels, split);
    }
}

static void dot2_load(uint16_t *dst, size_t pitch, const struct cpu_stored *src, int pixels,
                      int channels, const float *scale, const float *shift, int flags) {
    bool do_relu = flags & CPU_RELU;
    if (flags & CPU_SPLIT)
        dot2_load_body(dst, pitch, *src, pixels, channels, scale, shift, do_relu, false, true);
    else if (!src->bf16)
        dot2_load_body(dst, pitch, *src, pixels, channels, scale, shift, do_relu, false, false);
    else if (scale && do_relu)
        dot2_load_body(dst, pitch, *src, pixels, channels, scale, shift, true, true, false);
    else
        dot2_load_body(dst, pitch, *src, pixels, channels, scale, shift, do_relu, true, false);
}

INLINE void dot2_load_grad_body(uint16_t *dst, size_t pitch, struct cpu_stored g,
                                struct cpu_stored x, int pixels, int channels, const float *b,
                                const float *mean, const float *c, bool split) {
    const int second = chex_cpu_padded(channels);
    for (int p = 0; p < pixels; p++, dst += pitch) {
        for (int i = 0; i < channels; i += VL) {
            vf v = ld_stored(g.at, (size_t)p * g.step + (size_t)i, !split);
            if (b) {
                vf xv = ld_stored(x.at, (size_t)p * x.step + (size_t)i, !split);
                v = FMA(ld(b + i), xv - ld(mean + i), v) + ld(c + i);
            }
            st_operand(dst + i, second, v, split);
        }
        end_row(dst, channels, split);
    }
}

static void dot2_load_grad(uint16_t *dst, size_t pitch, const struct cpu_stored *g,
                           const struct cpu_stored *x, int pixels, int channels, const float *b,
                           const float *mean, const float *c, int flags) {
    if (flags & CPU_SPLIT)
        dot2_load_grad_body(dst, pitch, *g, *x, pixels, channels, b, mean, c, true);
    else
        dot2_load_grad_body(dst, pitch, *g, *x, pixels, channels, b, mean, c, false);
}

/* ---- weights ---- */

/* Transposes a 16 x 16 matrix of 32-bit words. */
INLINE void transpose(__m512i r[16]) {
    __m512i t[16];
    UNROLL
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    /* Now quarter q of r[4 * i + k] has the words 4 * i .. 4 * i + 3 of column 4 * q + k. */
    UNROLL
    for (int k = 0; k < 4; k++) {
        __m512i even0 = _mm512_shuffle_i32x4(r[k], r[4 + k], 0x88);
        __m512i odd0 = _mm512_shuffle_i32x4(r[k], r[4 + k], 0xdd);
        __m512i even1 = _mm512_shuffle_i32x4(r[8 + k], r[12 + k], 0x88);
        __m512i odd1 = _mm512_shuffle_i32x4(r[8 + k], r[12 + k], 0xdd);
        t[k] = _mm512_shuffle_i32x4(even0, even1, 0x88);
        t[8 + k] = _mm512_shuffle_i32x4(even0, even1, 0xdd);
        t[4 + k] = _mm512_shuffle_i32x4(odd0, odd1, 0x88);
        t[12 + k] = _mm512_shuffle_i32x4(odd0, odd1, 0xdd);
    }
    UNROLL
    for (int i = 0; i < 16; i++)
        r[i] = t[i];
}

static void dot2_pack(uint32_t *dst, uint32_t *rest, const float *w, size_t pitch, int rows) {
    for (int r = 0; r < rows; r += 2, w += 2 * pitch, dst += NR)
        for (int j = 0; j < NR; j += VL) {
            vf first = ld(w + j), second = ld(w + pitch + j);
            _mm512_storeu_si512(dst + j, pixel_pair(first, second));
            if (rest)
                _mm512_storeu_si512(rest + (size_t)r / 2 * NR + j,
                                    pixel_pair(low_part(first), low_part(second)));
        }
}

/* Packs 16 pairs of each of 16 rows of w, transposed. */
INLINE void pack_block(uint32_t *dst, const float *w, size_t pitch, bool low) {
    __m512i pairs_of[16];
    for (int j = 0; j < 16; j++) {
        vf first = ld(w + (size_t)j * pitch), second = ld(w + (size_t)j * pitch + VL);
        if (low)
            first = low_part(first), second = low_part(second);
        pairs_of[j] = (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
    }
    transpose(pairs_of);
    for (int i = 0; i < 16; i++)
        _mm512_storeu_si512(dst + (size_t)i * NR, pairs_of[i]);
}

static void dot2_pack_columns(uint32_t *dst, uint32_t *rest, const float *w, size_t pitch,
                              int rows) {
    for (int r = 0; r < rows; r += 2 * VL)
        for (int j = 0; j < NR; j += VL) {
            size_t to = (size_t)r / 2 * NR + (size_t)j;
            pack_block(dst + to, w + (size_t)j * pitch + r, pitch, false);
            if (rest)
                pack_block(rest + to, w + (size_t)j * pitch + r, pitch, true);
        }
}
